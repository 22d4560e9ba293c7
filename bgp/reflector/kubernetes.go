package reflector

import (
	"fmt"
	"slices"
	"time"
)

// KubernetesNode is the part of a Kubernetes Node that matters here.
type KubernetesNode struct {
	NotReady               time.Time // since when; zero: it is ready
	Unschedulable, Deleted bool
	Taints                 []Taint
}

// Taint is one of a Kubernetes Node.
type Taint struct{ Key, Effect string }

// repels reports a taint that keeps pods away.
func (t Taint) repels() bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" }

// healthTaints are those with which Kubernetes marks an unhealthy node, whatever their effect.
var healthTaints = []string{
	"node.kubernetes.io/out-of-disk", "node.kubernetes.io/memory-pressure",
	"node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable",
	"node.cloudprovider.kubernetes.io/uninitialized",
}

// stateTaints are what other fields say, with a grace time.
var stateTaints = []string{
	"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
	"node.kubernetes.io/unschedulable",
}

// SetKubernetes says what Kubernetes knows of its Nodes, by their names; nil: it is not consulted.
func (w *World) SetKubernetes(nodes map[string]KubernetesNode) {
	w.Kubernetes = nil
	if nodes == nil {
		return
	}
	w.Kubernetes = map[string]KubernetesNode{}
	for name := range w.snapshot.Nodes {
		if k, ok := nodes[w.KubernetesName(name)]; ok {
			w.Kubernetes[name] = k
		}
	}
}

// KubernetesName is the name of a Calico node in Kubernetes.
func (w *World) KubernetesName(node string) string {
	if name := w.metadata[nodeKey(node)].kubernetes; name != "" {
		return name
	}
	return node
}

// unfitInKubernetes says why Kubernetes keeps a node from the role; "": it does not. A host that
// Calico does not know as one of Kubernetes need not be there.
func (w *World) unfitInKubernetes(node string, r rules) string {
	k, ok := w.Kubernetes[node]
	since := w.Now.Sub(k.NotReady)
	switch {
	case w.Kubernetes == nil:
		return ""
	case !ok && w.metadata[nodeKey(node)].kubernetes == "":
		return ""
	case !ok:
		return "Kubernetes has no such Node"
	case k.Deleted:
		return "its Kubernetes Node is being deleted"
	case k.Unschedulable:
		return "its Kubernetes Node is cordoned"
	// a restart of the kubelet moves no role
	case !k.NotReady.IsZero() && (since >= r.grace || !w.isReflector(node)):
		return fmt.Sprintf("its Kubernetes Node has not been ready for %s",
			since.Round(time.Second))
	}
	for _, t := range k.Taints {
		health := slices.Contains(healthTaints, t.Key)
		// A pool is often tainted so that it has no workloads. A taint that comes later is no
		// reason to move a role.
		own := !slices.Contains(stateTaints, t.Key) && t.repels() && r.Pool == "" &&
			!w.isReflector(node)
		if health || own {
			return "its Kubernetes Node has the taint " + t.Key
		}
	}
	return ""
}
