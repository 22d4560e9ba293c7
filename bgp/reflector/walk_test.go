package reflector

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

// walk has random events happen until nothing more can, and says how it ended.
func (m *model) walk(r *rand.Rand) (events int, end, wrong string) {
	s := m.begin()
	for quiet := 0; ; events++ {
		if events%len(m.names) == 0 {
			m.forget(s)
		}
		did := m.randomly(s, r)
		if quiet++; did {
			quiet = 0
		} else if quiet > 50 { // few events are left to happen
			if quiet = 0; !m.anything(s) {
				break
			}
		}
		if wrong := m.wrong(s); wrong != "" {
			return events, "", wrong
		}
	}
	switch d := m.decide(s, false); {
	case d.Done != "", d.Wait != nil && d.Wait.Person:
		return events, decided(d), ""
	default:
		return events, "", "nothing happens any more, and it is not done: " + decided(d)
	}
}

// forget forgets computations for what no node has any more: a walk does not come back to it, and a
// thousand nodes have a million peers in each version.
func (m *model) forget(s *state) {
	maps.DeleteFunc(m.plans, func(k planKey, _ *plan) bool { return s.seen[k.node] != k.seen })
	used := map[*version]bool{s.latest: true, s.latest.prev: true}
	for _, seen := range s.seen {
		used[seen[0]], used[seen[1]] = true, true
	}
	maps.DeleteFunc(m.worlds, func(v *version, _ *World) bool { return !used[v] })
	clear(m.ended)
	clear(m.supposed)
	clear(m.left)
	clear(m.snapshots)
	clear(m.decisions)
}

// randomly has one node see writes, or send and connect to some others, or something else happen.
func (m *model) randomly(s *state, r *rand.Rand) (did bool) {
	switch node := r.IntN(len(m.names)); r.IntN(6) {
	case 0, 1:
		first := r.IntN(rangesInAll)
		did = m.see(s, node, first)
		return r.IntN(2) == 0 && m.see(s, node, 1-first) || did
	case 2, 3:
		for other := range m.names {
			if r.IntN(2) == 0 {
				did = m.connect(s, node, other) || did
			}
			if r.IntN(2) == 0 {
				did = m.deliver(s, other, node) || did
			}
		}
		return did
	case 4:
		return m.write(s, r.IntN(2)) || m.read(s, 0, false) || m.turnBack(s)
	}
	return r.IntN(50) == 0 && m.fault(s, m.faults[r.IntN(len(m.faults))])
}

// anything has the first event happen that can.
func (m *model) anything(s *state) bool {
	for a := range m.names {
		if m.see(s, a, rangeNodes) || m.see(s, a, rangeBGP) {
			return true
		}
	}
	for a := range m.names {
		for b := range m.names {
			if m.connect(s, a, b) || m.deliver(s, a, b) {
				return true
			}
		}
	}
	return m.write(s, 0) || m.write(s, 1) || m.read(s, 0, false) || m.turnBack(s)
}

var (
	walkNodes = flag.Int("nodes", 0, "TestRandomWalks also walks through a cluster of this size")
	walkSeed  = flag.Uint64("seed", 0, "of the walks; 0: a new one each time")
)

// At most five reflectors: fewer would all be in every group.
var (
	fiveOfQuorum = Config{Topology: Quorum, Min: 4, Max: 5}
	fiveOfMulti  = Config{Topology: Multi, Min: 4, Max: 5}
)

// TestRandomWalks: more nodes and all faults, in random orders, without and with BIRD. The seed is
// new in each run, so that few walks see many orders in time.
func TestRandomWalks(t *testing.T) {
	type walks struct {
		nodes, walks int
		config       Config
		birds        bool
	}
	small := Config{Min: 2, Max: 3}
	cases := []walks{
		{5, 20, small, false}, {100, 1, small, false}, {6, 20, small, true},
		{8, 4, fiveOfQuorum, false}, {8, 4, fiveOfQuorum, true},
		{8, 4, fiveOfMulti, false}, {8, 4, fiveOfMulti, true},
	}
	if *walkNodes > 0 {
		cases = []walks{{*walkNodes, 1, small, false}, {*walkNodes, 1, fiveOfQuorum, false},
			{*walkNodes, 1, fiveOfMulti, false}}
	}
	for _, tc := range cases {
		name := fmt.Sprint(tc.nodes, " nodes, ", cmp.Or(tc.config.Topology, Single))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := cmp.Or(*walkSeed, rand.Uint64())
			t.Logf("seed %d", seed)
			for i := range tc.walks {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				m := drawModel(r, tc.nodes, tc.birds, tc.config)
				events, end, wrong := m.walk(r)
				if wrong != "" {
					t.Fatalf("walk %d, after %d events: %s", i, events, wrong)
				}
				t.Logf("walk %d: %d events, %d versions of etcd, then %s", i, events,
					len(m.versions), end)
			}
		})
	}
}

// drawModel is a cluster of two zones, with all faults.
func drawModel(r *rand.Rand, size int, birds bool, c Config) *model {
	var nodes []testNode
	kinds := map[string]string{}
	for i := range size {
		n := numbered(i)
		n.age, n.zone = r.IntN(100), []string{"east", "west"}[i%2]
		if birds {
			kinds[n.name] = []string{"none", "bird", "vpp", "bird"}[i%4]
		}
		nodes = append(nodes, n)
	}
	m := newModel(nodes, kinds, Goal{Mode: Reflectors, Since: start, Config: c})
	m.faults = []string{
		"kill", "second", "late", "annotate", "cordon", "abort", "mesh on", "router", "die",
	}
	return m
}

// TestGatesOfGroups: without each gate some walk breaks what holds with it. The first that does is
// noted, or the test would take minutes.
func TestGatesOfGroups(t *testing.T) {
	for _, tc := range []struct {
		gate   string
		birds  bool
		config Config
		first  uint64
	}{
		{"members", false, fiveOfMulti, 142},
		{"applied", false, fiveOfQuorum, 0},
		{"bird applied", true, fiveOfQuorum, 80},
		{"bird routes", true, fiveOfMulti, 33},
	} {
		t.Run(tc.gate, func(t *testing.T) {
			t.Parallel()
			for i := tc.first; i < tc.first+200; i++ {
				r := rand.New(rand.NewPCG(1, i))
				m := drawModel(r, 8, tc.birds, tc.config)
				m.lie = tc.gate
				if _, _, wrong := m.walk(r); strings.Contains(wrong, "has no route to") {
					t.Logf("walk %d: %s", i, wrong)
					return
				}
			}
			t.Error("nothing is lost without the gate")
		})
	}
}
