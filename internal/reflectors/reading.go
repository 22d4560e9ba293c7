package reflectors

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

// readTimeout is for one request that reads everything.
const readTimeout = 20 * time.Second

// reading is all that a controller decides by; from etcd it is of one revision.
type reading struct {
	cluster  uint64 // etcd's
	revision int64
	objects  []reflector.Object // Calico's
	nodes    map[string]bool    // with a Calico Node

	goal         reflector.Goal
	goalRevision int64
	badGoal      error
	// agents are the nodes that have had one, as AgentsKey has them; nil: nothing is noted.
	agents         []string
	agentsRevision int64
	badAgents      error

	// config is the version of the ConfigMap with goal and agents, pending a step that is not done
	// yet; in Kubernetes alone.
	config  string
	pending *kubeStep

	statuses map[string]agentStatus   // by node
	answers  map[string][]agentAnswer // by node
	problems []calico.Problem         // of what agents say
	states   []State                  // of the controllers, the leader first
}

// agentStatus is what an agent said, and the revision of that.
type agentStatus struct {
	reflector.Status
	revision int64
}

// agentAnswer is one to a question of any controller.
type agentAnswer struct {
	id string
	reflector.Answer
}

// calicoKinds are the resources that sessions follow from.
var calicoKinds = []calico.Kind{calico.KindNode, calico.KindBGPPeer, calico.KindBGPConfiguration,
	calico.KindClusterInformation}

// calicoPrefix begins the keys of a kind.
func calicoPrefix(kind calico.Kind) string {
	return strings.TrimSuffix(calico.Key{Kind: kind, Name: "x"}.String(), "x")
}

func newReading(revision int64) *reading {
	return &reading{
		revision: revision, nodes: map[string]bool{}, statuses: map[string]agentStatus{},
		answers: map[string][]agentAnswer{},
	}
}

// add takes a resource.
func (r *reading) add(o reflector.Object) {
	r.objects = append(r.objects, o)
	if o.Key.Kind == calico.KindNode {
		r.nodes[o.Key.Name] = true
	}
}

func (r *reading) takeGoal(place string, value []byte, revision int64) {
	r.goalRevision = revision
	if r.goal, r.badGoal = reflector.DecodeGoal(value); r.badGoal != nil {
		r.badGoal = fmt.Errorf("the goal %s cannot be read: %w", place, r.badGoal)
	}
}

func (r *reading) takeAgents(place string, value []byte, revision int64) {
	r.agentsRevision = revision
	if err := json.Unmarshal(value, &r.agents); err != nil {
		r.badAgents = fmt.Errorf("%s cannot be read: %w", place, err)
	}
}

// hear takes what an agent says, for a controller of a version.
func (r *reading) hear(key string, value []byte, revision int64, version string) {
	said, problem := reflector.Hear(key, value, version)
	if problem != nil {
		r.problems = append(r.problems, *problem)
	}
	switch {
	case said.Status != nil:
		r.statuses[said.Node] = agentStatus{*said.Status, revision}
	case said.Answer != nil && problem == nil:
		r.answers[said.Node] = append(r.answers[said.Node], agentAnswer{said.ID, *said.Answer})
	}
}

func decodeState(value []byte) (s State) {
	if json.Unmarshal(value, &s) != nil {
		return State{Problem: "its state cannot be read"}
	}
	return s
}

// problem says why nothing can be decided; nil: it can.
func (r *reading) problem() error {
	if r.badGoal != nil {
		return r.badGoal
	}
	return r.badAgents
}

// known are the nodes that have or have had an agent, sorted. Who has no Node is forgotten.
func (r *reading) known() []string {
	all := slices.AppendSeq(slices.Clone(r.agents), maps.Keys(r.statuses))
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(n string) bool { return !r.nodes[n] })
}

// hasBird reports whether a node has never had an agent.
func (r *reading) hasBird() bool {
	known := r.known()
	for n, is := range r.nodes {
		if _, ok := slices.BinarySearch(known, n); is && !ok {
			return true
		}
	}
	return false
}

// revisions are those of all that a step depends on.
func (r *reading) revisions() map[string]int64 {
	all := map[string]int64{reflector.GoalKey: r.goalRevision}
	for _, o := range r.objects {
		all[o.Key.String()] = o.Revision
	}
	return all
}
