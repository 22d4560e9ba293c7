package reflector

import (
	"fmt"
	"strings"
	"testing"
)

// event is something that can happen.
type event struct {
	name string
	do   func(*state) bool // false: not now
}

// events are all that can happen in a small cluster.
func (m *model) events() []event {
	var all []event
	for a, from := range m.names {
		for r, keys := range []string{"Nodes", "BGP"} {
			all = append(all, event{from + " sees " + keys, func(s *state) bool {
				return m.see(s, a, r)
			}})
		}
		for b, to := range m.names {
			if a < b {
				all = append(all, event{from + " connects with " + to, func(s *state) bool {
					return m.connect(s, a, b)
				}})
			}
			all = append(all, event{from + " sends to " + to, func(s *state) bool {
				return m.deliver(s, a, b)
			}})
		}
	}
	for c := range 2 {
		all = append(all, event{fmt.Sprint("write of controller ", c), func(s *state) bool {
			return m.write(s, c)
		}})
	}
	all = append(all,
		event{"the controller decides", func(s *state) bool { return m.read(s, 0, false) }},
		event{"the goal: back to the mesh", m.turnBack})
	for _, f := range m.faults {
		all = append(all, event{"fault: " + f, func(s *state) bool { return m.fault(s, f) }})
	}
	return all
}

// explored is what a search found.
type explored struct {
	states int
	ends   map[string]int // how runs ended
	wrong  string         // the first violation, with the events that led there
}

// explore tries every order of events, up to most states.
func (m *model) explore(most int) explored {
	found := explored{ends: map[string]int{}}
	type step struct {
		s    *state
		from *step
		name string
	}
	trace := func(at *step, what string) string {
		var lines []string
		for ; at.from != nil; at = at.from {
			lines = append([]string{at.name}, lines...)
		}
		return what + ", after: " + strings.Join(lines, "; ")
	}
	events := m.events()
	first := &step{s: m.begin()}
	buffer := make([]byte, 0, 512)
	known := map[[2]uint64]bool{first.s.key(buffer): true}
	for todo := []*step{first}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		found.states++
		quiet := true
		next := at.s.clone()
		for _, e := range events {
			if !e.do(next) {
				continue
			}
			quiet = quiet && strings.HasPrefix(e.name, "fault")
			there := &step{next, at, e.name}
			next = at.s.clone()
			if wrong := m.wrong(there.s); wrong != "" {
				found.wrong = trace(there, wrong)
				return found
			}
			if k := there.s.key(buffer); !known[k] {
				known[k] = true
				todo = append(todo, there)
			}
		}
		if quiet {
			d := m.decide(at.s, false)
			switch {
			case d.Done != "":
				done, _, _ := strings.Cut(d.Done, ";")
				found.ends[done]++
			case d.Wait != nil && d.Wait.Person:
				found.ends["a person: "+d.Wait.What]++
			default:
				found.wrong = trace(at, fmt.Sprintf("nothing happens any more: %+v", d.Wait))
				return found
			}
		}
		at.s = nil // its name is enough for a trace
		if found.states == most {
			found.wrong = "more states than the bound"
			return found
		}
	}
	return found
}

// four is a cluster of four nodes with a number of reflectors, the oldest first, in which the mesh
// is said to be on: what is there before and after it was off does not differ.
func four(reflectors int, dataplanes map[string]string) *model {
	return fourWith(Config{Min: reflectors, Max: reflectors}, dataplanes, nil)
}

func fourWith(c Config, dataplanes, zones map[string]string) *model {
	var nodes []testNode
	for i, name := range []string{"a", "b", "c", "d"} {
		n := numbered(i)
		n.name, n.age, n.zone = name, 100-i, zones[name]
		nodes = append(nodes, n)
	}
	return newModel(nodes, dataplanes, Goal{Mode: Reflectors, Since: start, Config: c},
		configuration(`{"nodeToNodeMeshEnabled":true}`))
}

// birdsReflect: BIRD is the only one in its zone, and becomes a reflector.
func birdsReflect(reflectors int, dataplanes map[string]string) *model {
	zones := map[string]string{}
	for name, kind := range dataplanes {
		if kind == "bird" {
			zones[name] = "zone of " + name
		}
	}
	return fourWith(Config{Min: reflectors, Max: reflectors, Bird: true}, dataplanes, zones)
}

// TestBIRDReflects: with an agent without workloads as the first and the last reflector, and one
// BIRD as another, nothing is missing in any order of events.
func TestBIRDReflects(t *testing.T) {
	for _, tc := range []struct {
		name       string
		dataplanes map[string]string
		faults     []string
	}{
		{"one BIRD", withBIRD, []string{"kill", "abort"}},
		{"one of two", map[string]string{"a": "none", "c": "bird", "d": "bird"}, nil},
	} {
		for _, fault := range append(tc.faults, "none") {
			t.Run(tc.name+", "+fault, func(t *testing.T) {
				t.Parallel()
				m := birdsReflect(2, tc.dataplanes)
				if fault != "none" {
					m.faults = []string{fault}
				}
				found := m.explore(mostStates)
				if found.wrong != "" {
					t.Error(found.wrong)
				}
				if found.ends["mesh"] == 0 {
					t.Error("it does not come back to the mesh")
				}
				t.Logf("%d states of at most %d, %d versions of etcd, ends: %v", found.states,
					mostStates, len(m.versions), found.ends)
			})
		}
	}
}

// TestLossBesideBIRD: what needs Goal.AcceptLoss does not begin without it, and loses routes with
// it.
func TestLossBesideBIRD(t *testing.T) {
	for _, tc := range []struct {
		name       string
		reflectors int
		dataplanes map[string]string
		bird       bool
		want       string
	}{
		{"the first has workloads", 2, map[string]string{"d": "bird"}, false,
			"Node(a) has workloads: their flows with d are lost"},
		{"BIRD is the first", 1, map[string]string{
			"a": "bird", "b": "bird", "c": "bird", "d": "bird",
		}, true, "Node(a) runs BIRD: its flows with all nodes are lost"},
		{"two BIRDs", 3, map[string]string{"a": "none", "c": "bird", "d": "bird"}, true,
			"Node(d) has workloads: their flows with the reflectors c, which run BIRD, are lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			of := four
			if tc.bird {
				of = birdsReflect
			}
			m := of(tc.reflectors, tc.dataplanes)
			found := m.explore(mostStates)
			for end := range found.ends {
				if !strings.HasPrefix(end, "a person: "+tc.want) {
					t.Errorf("it ends with %q, want %q", end, tc.want)
				}
			}
			if found.wrong != "" {
				t.Error(found.wrong)
			}
			m = of(tc.reflectors, tc.dataplanes)
			m.first.goal.AcceptLoss = true
			if found = m.explore(mostStates); !strings.Contains(found.wrong, "has no route to") {
				t.Errorf("accepted, nothing is lost: %q", found.wrong)
			}
			t.Log(found.wrong)
		})
	}
}

// mostStates bounds a search.
const mostStates = 300_000

// withBIRD: a has an agent without workloads, d has BIRD.
var withBIRD = map[string]string{"a": "none", "d": "bird"}

// TestEveryOrder: four nodes, two ranges of keys, one fault: there and back without a gap, or an
// undo. What a fault multiplies too much is for TestRandomWalks.
func TestEveryOrder(t *testing.T) {
	for _, tc := range []struct {
		name       string
		reflectors int
		dataplanes map[string]string
		faults     []string
	}{
		{"agents", 2, nil, []string{
			"kill", "second", "late", "annotate", "cordon", "abort", "mesh on", "die",
		}},
		{"one reflector", 1, nil, []string{"kill", "late"}},
		{"beside BIRD", 2, withBIRD, []string{"kill", "abort"}},
	} {
		for _, fault := range tc.faults {
			t.Run(tc.name+", "+fault, func(t *testing.T) {
				t.Parallel()
				m := four(tc.reflectors, tc.dataplanes)
				m.faults = []string{fault}
				found := m.explore(mostStates)
				if found.wrong != "" {
					t.Error(found.wrong)
				}
				if found.ends["mesh"] == 0 {
					t.Error("it does not come back to the mesh")
				}
				t.Logf("%d states of at most %d, %d versions of etcd, ends: %v", found.states,
					mostStates, len(m.versions), found.ends)
			})
		}
	}
}

// TestGates: without each gate some order of events breaks what holds with it; so does a reflector
// that changes next hops.
func TestGates(t *testing.T) {
	for _, tc := range []struct {
		gate, fault string
		reflectors  int
		dataplanes  map[string]string
		want        string
	}{
		{"applied", "", 2, nil, "has no route to"},
		{"cover", "", 2, withBIRD, "has no route to"},
		{"mesh", "", 1, nil, "has no route to"},
		{"copies", "die", 2, nil, "has no route to"},
		{"leave", "", 2, nil, "has no route to"},
		{"mesh is seen", "abort", 2, nil, "has no route to"},
		{"bird applied", "", 2, withBIRD, "has no route to"},
		{"bird routes", "", 2, withBIRD, "has no route to"},
		{"bird routes, as a reflector", "", 2, withBIRD, "has no route to"},
		{"bird applied, as a reflector", "", 2, withBIRD, "has no route to"},
		{"next hop", "", 2, nil, "by another next hop"},
		{"next hop", "", 2, withBIRD, "by another next hop"},
		{"goal", "abort", 2, nil, "a step was taken for a goal that is another one now"},
		{"revisions", "annotate", 2, nil, "what a person wrote is lost"},
	} {
		t.Run(tc.gate, func(t *testing.T) {
			t.Parallel()
			m := four(tc.reflectors, tc.dataplanes)
			if gate, ok := strings.CutSuffix(tc.gate, ", as a reflector"); ok {
				m, tc.gate = birdsReflect(tc.reflectors, tc.dataplanes), gate
			}
			m.lie = tc.gate
			if tc.fault != "" {
				m.faults = []string{tc.fault}
			}
			found := m.explore(mostStates)
			if !strings.Contains(found.wrong, tc.want) {
				t.Errorf("after %d states: %q, want %q", found.states, found.wrong, tc.want)
			}
			t.Logf("%d states, then: %s", found.states, found.wrong)
		})
	}
}
