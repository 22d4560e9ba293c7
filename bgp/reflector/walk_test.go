package reflector

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
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

// TestRandomWalks: more nodes and all faults, in random orders, without and with BIRD. The seed is
// new in each run, so that few walks see many orders in time.
func TestRandomWalks(t *testing.T) {
	type walks struct {
		nodes, walks int
		birds        bool
		config       Config
	}
	few := Config{Min: 2, Max: 3}
	four := Config{Topology: Quorum, Min: 4, Max: 4}
	cases := []walks{
		{5, 12, false, few}, {30, 1, false, few}, {6, 10, true, few},
		{7, 6, false, four}, {20, 1, false, Config{Topology: Quorum, Min: 5, Max: 6}},
		{9, 4, true, four},
	}
	if *walkNodes > 0 {
		cases = append(cases, walks{*walkNodes, 1, false, few})
	}
	for _, tc := range cases {
		t.Run(fmt.Sprint(tc.nodes, " nodes ", tc.config.Topology), func(t *testing.T) {
			t.Parallel()
			seed := cmp.Or(*walkSeed, rand.Uint64())
			t.Logf("seed %d", seed)
			for i := range tc.walks {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				var nodes []testNode
				kinds := map[string]string{}
				for i := range tc.nodes {
					n := numbered(i)
					n.age = r.IntN(100)
					if tc.birds {
						kinds[n.name] = []string{"none", "bird", "vpp", "bird"}[i%4]
					}
					nodes = append(nodes, n)
				}
				m := newModel(nodes, kinds, Goal{
					Mode: Reflectors, Since: start, Config: tc.config,
				})
				m.faults = []string{
					"kill", "second", "late", "annotate", "cordon", "abort", "mesh on", "router",
					"die",
				}
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
