package reflectors

import (
	"context"
	"fmt"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/kubernetes"
)

// kubernetesSet is what the World has of Kubernetes.
type kubernetesSet struct {
	world   *reflector.World // that it was set in
	version int              // of what it was set from
	counts  bool
}

// consult sets what Kubernetes says in the World. What it said last counts for the grace time while
// it is away; after that nothing of it does, as if there were no Kubernetes.
func (l *leader) consult(now time.Time) {
	if l.kubernetes == nil {
		return
	}
	known := l.kubernetes.Known()
	is := kubernetesSet{l.world, known.Version, known.Nodes != nil}
	l.state.Kubernetes = ""
	if away := now.Sub(known.Away); !known.Away.IsZero() && away >= l.last.goal.Config.Grace() {
		is.counts = false
		l.state.Kubernetes = fmt.Sprintf("away since %s, its Nodes do not count: %s",
			known.Away.UTC().Format(time.RFC3339), known.Problem)
	}
	if l.fromKubernetes == is {
		return
	}
	l.fromKubernetes = is
	if !is.counts {
		l.world.SetKubernetes(nil)
		return
	}
	l.world.SetKubernetes(nodesOf(known.Nodes))
}

func nodesOf(all map[string]kubernetes.Node) map[string]reflector.KubernetesNode {
	out := make(map[string]reflector.KubernetesNode, len(all))
	for name, n := range all {
		k := reflector.KubernetesNode{
			NotReady: n.NotReady, Unschedulable: n.Unschedulable, Deleted: n.Deleted,
		}
		for _, t := range n.Taints {
			k.Taints = append(k.Taints, reflector.Taint(t))
		}
		out[name] = k
	}
	return out
}

// followKubernetes tells of changes until ctx ends.
func (l *leader) followKubernetes(ctx context.Context, tell func()) {
	if l.kubernetes == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kubernetes.Changed():
			tell()
		}
	}
}
