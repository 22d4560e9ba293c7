package reflectors

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

// readTimeout is for one request that reads everything.
const readTimeout = 20 * time.Second

// reading is all that a controller decides by, as of one revision of etcd.
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

	statuses map[string]agentStatus   // by node
	answers  map[string][]agentAnswer // by node
	problems []calico.Problem         // of what agents say
	states   []State                  // of the controllers, the leader first
}

// agentStatus is what an agent said, and etcd's revision of that.
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

// read reads all at one revision, as a controller of a version understands it.
func read(ctx context.Context, kv clientv3.KV, version string) (*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ops := []clientv3.Op{
		clientv3.OpGet(reflector.GoalKey),
		clientv3.OpGet(reflector.AgentsKey),
		clientv3.OpGet(reflector.NodesPrefix, clientv3.WithPrefix()),
		clientv3.OpGet(reflector.LeaderPrefix+"/", clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
	}
	for _, kind := range calicoKinds {
		ops = append(ops, clientv3.OpGet(calicoPrefix(kind), clientv3.WithPrefix()))
	}
	resp, err := kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	r := &reading{
		cluster: resp.Header.ClusterId, revision: resp.Header.Revision,
		nodes: map[string]bool{}, statuses: map[string]agentStatus{},
		answers: map[string][]agentAnswer{},
	}
	for i, take := range []func(*mvccpb.KeyValue){
		r.takeGoal, r.takeAgents,
		func(kv *mvccpb.KeyValue) { r.takeSaid(kv, version) },
		r.takeState,
	} {
		for _, kv := range resp.Responses[i].GetResponseRange().Kvs {
			take(kv)
		}
	}
	for i, kind := range calicoKinds {
		for _, kv := range resp.Responses[len(ops)-len(calicoKinds)+i].GetResponseRange().Kvs {
			// A key that names nothing is no resource.
			if k, err := calico.ParseKey(string(kv.Key)); err == nil && k.Kind == kind {
				r.objects = append(r.objects, reflector.Object{
					Key: k, Value: kv.Value, Revision: kv.ModRevision,
				})
				r.nodes[k.Name] = r.nodes[k.Name] || kind == calico.KindNode
			}
		}
	}
	return r, nil
}

func (r *reading) takeGoal(kv *mvccpb.KeyValue) {
	r.goalRevision = kv.ModRevision
	if r.goal, r.badGoal = reflector.DecodeGoal(kv.Value); r.badGoal != nil {
		r.badGoal = fmt.Errorf("the goal %s cannot be read: %w", reflector.GoalKey, r.badGoal)
	}
}

func (r *reading) takeAgents(kv *mvccpb.KeyValue) {
	r.agentsRevision = kv.ModRevision
	if err := json.Unmarshal(kv.Value, &r.agents); err != nil {
		r.badAgents = fmt.Errorf("%s cannot be read: %w", reflector.AgentsKey, err)
	}
}

func (r *reading) takeSaid(kv *mvccpb.KeyValue, version string) {
	said, problem := reflector.Hear(string(kv.Key), kv.Value, version)
	if problem != nil {
		r.problems = append(r.problems, *problem)
	}
	switch {
	case said.Status != nil:
		r.statuses[said.Node] = agentStatus{*said.Status, kv.ModRevision}
	case said.Answer != nil && problem == nil:
		r.answers[said.Node] = append(r.answers[said.Node], agentAnswer{said.ID, *said.Answer})
	}
}

func (r *reading) takeState(kv *mvccpb.KeyValue) {
	var s State
	if json.Unmarshal(kv.Value, &s) != nil {
		s = State{Problem: "its state cannot be read"}
	}
	s.key, s.created, s.leased = string(kv.Key), kv.CreateRevision, kv.Lease != 0
	r.states = append(r.states, s)
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
