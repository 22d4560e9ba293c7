package agent

import (
	"fmt"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

// TestLostNodes goes through snapshots of a cluster of ten nodes.
func TestLostNodes(t *testing.T) {
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	most := func(gone, all int) bool { return 2*gone > all }
	for _, tc := range []struct {
		name  string
		steps []lostStep
	}{
		{"few are gone", []lostStep{{0, 1, all, 0}, {0, 2, all[:7], 0}}},
		{"events are believed", []lostStep{{0, 1, all, 0}, {0, 1, all[:1], 0}}},
		{"most are gone, for a minute", []lostStep{
			{0, 1, all, 0}, {1, 2, all[:2], 8}, {60, 2, all[:2], 8}, {61, 2, all[:2], 0},
			{62, 2, all[:1], 0},
		}},
		{"some come back", []lostStep{
			{0, 1, all, 0}, {1, 2, all[:2], 8}, {2, 2, all[:5], 5}, {3, 3, all[:5], 5},
			{61, 3, all[:5], 5}, {62, 3, all[:5], 0},
		}},
		{"a whole list follows", []lostStep{{0, 1, all, 0}, {1, 2, nil, 10}, {2, 3, all, 0}}},
		{"the same list again does not last longer", []lostStep{
			{0, 1, all, 0}, {1, 2, nil, 10}, {40, 3, nil, 10}, {61, 4, nil, 0},
		}},
		{"the first list is short", []lostStep{{0, 1, all[:1], 0}, {1, 2, all, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l lostNodes
			began := time.Now()
			var s *calico.Snapshot
			for i, step := range tc.steps {
				if next := step.snapshot(); s == nil || fmt.Sprint(*next) != fmt.Sprint(*s) {
					s = next
				}
				now := began.Add(time.Duration(step.at) * time.Second)
				if n := len(l.step(now, "self", s, most)); n != step.held {
					t.Errorf("step %d: %d are held, want %d", i, n, step.held)
				}
			}
		})
	}
}

// lostStep is what is there at a second.
type lostStep struct {
	at, list int
	nodes    []int
	held     int
}

func (l lostStep) snapshot() *calico.Snapshot {
	s := &calico.Snapshot{Lists: l.list, Nodes: map[string]calico.Node{
		"self": {Name: "self", IPv4: pfx("192.0.2.100/24")},
	}}
	for _, n := range l.nodes {
		name := fmt.Sprint("node-", n)
		s.Nodes[name] = calico.Node{Name: name, IPv4: pfx(fmt.Sprintf("192.0.2.%d/24", n))}
	}
	return s
}
