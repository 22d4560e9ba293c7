package reflector

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const testLabel = "vpp-route-agent/route-reflector"

// role makes a node a reflector of ours.
func (n testNode) role(turn int) testNode {
	n.clusterID, n.labels = "224.0.0.1", map[string]string{testLabel: "true"}
	n.annotations = map[string]string{roleNote: strconv.Itoa(turn)}
	return n
}

// reflected is a cluster without the mesh, of nodes of which the first are reflectors.
func reflected(t *testing.T, nodes, reflectors int, change func(*testNode)) *World {
	t.Helper()
	var all []testNode
	for i := range nodes {
		n := numbered(i)
		if i < reflectors {
			n = n.role(i + 1)
		}
		if change != nil {
			change(&n)
		}
		all = append(all, n)
	}
	peer, err := newPeer(peerName, testLabel, nil, start)
	if err != nil {
		t.Fatal(err)
	}
	off := configuration(`{"nodeToNodeMeshEnabled":false}`)
	off.Value = []byte(strings.Replace(string(off.Value), `"uid"`,
		`"annotations":{"`+meshNote+`":"{}"},"uid"`, 1))
	return worldOf(append(objectsOf(all), Object{peerKey, peer, 8}, off), nil)
}

// split cuts the nodes that are not in a part off from etcd and from the nodes that are, two hours
// ago. Those of the part say so.
func split(w *World, in func(node string) bool) {
	ago := start.Add(-2 * time.Hour)
	for n, a := range w.Agents {
		if !in(n) {
			a.Lost = ago
			w.Agents[n] = a
			continue
		}
		a.Status.Digest = w.digest(n)
		var down []Down // of no reflector
		for _, p := range w.peersOf(n) {
			a.Status.Wanted++
			switch {
			case in(p.CalicoNode):
				a.Status.Up++
			case p.Reflector:
				a.Status.Down = append(a.Status.Down, Down{p.CalicoNode, ago})
			default:
				down = append(down, Down{p.CalicoNode, ago})
			}
		}
		a.Status.Down = slices.Concat(a.Status.Down, down)
		w.Agents[n] = a
	}
}

func (w *World) deadNodes(r rules) []string {
	return w.only(func(n string) bool { return w.dead(n, r) })
}

func mustParse(t *testing.T, c Config) rules {
	t.Helper()
	r, err := c.parse()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSplit: of a network that is split, the smaller part decides nothing, whoever is in it. In the
// larger one the nodes of the other are dead.
func TestSplit(t *testing.T) {
	r := mustParse(t, Config{})
	for _, tc := range []struct{ part, want string }{ // n0000 to n0002 are reflectors
		{"0", "wait: only 1 of 10 agents publish a status"},
		{"01", "wait: only 2 of 10 agents publish a status"},
		{"09", "wait: only 2 of 10 agents publish a status"},
		{"6789", "wait: only 4 of 10 agents publish a status"},
		{"012345", "step: verify: reflectors n0000, n0001, n0002"},
		{"056789", "step: make Node(n0005) a reflector: replaces n0001 in its zone"},
		{"3456789", "step: make Node(n0003) a reflector: replaces n0000 in its zone"},
	} {
		in := func(n string) bool { return strings.Contains(tc.part, n[len(n)-1:]) }
		w := reflected(t, 10, 3, nil)
		split(w, in)
		say(w, Question{Cover: "n0000"})
		say(w, Question{Cover: "n0002"})
		got := decided(Next(w, Goal{Mode: Reflectors, Since: start}))
		if got != tc.want {
			t.Errorf("the part %s: %s\nwant %s", tc.part, got, tc.want)
		}
		want := w.only(func(n string) bool { return !in(n) })
		dead := w.deadNodes(r)
		if len(tc.part) < 5 { // a client has peers in one part alone
			want = nil
			dead = slices.DeleteFunc(dead, func(n string) bool { return !w.isReflector(n) })
		}
		if !slices.Equal(dead, want) {
			t.Errorf("the part %s: %v are dead, want %v", tc.part, dead, want)
		}
	}
}

// TestDeadInBothFamilies: a reflector that publishes no status works while its sessions of one
// family are up, or have not been down for long.
func TestDeadInBothFamilies(t *testing.T) {
	r := mustParse(t, Config{})
	long, short := start.Add(-time.Hour), start.Add(-time.Second)
	for _, tc := range []struct {
		name string
		down []time.Time
		want bool
	}{
		{"both are up", nil, false},
		{"one is down", []time.Time{long}, false},
		{"both are down, one since now", []time.Time{long, short}, false},
		{"both are down", []time.Time{long, long}, true},
	} {
		w := reflected(t, 6, 3, func(n *testNode) { n.v6 = "fd00::" + n.name[4:] + "1/64" })
		for n, a := range w.Agents {
			if n == "n0002" {
				a.Lost = long
			} else {
				for _, since := range tc.down {
					a.Status.Down = append(a.Status.Down, Down{"n0002", since})
				}
			}
			w.Agents[n] = a
		}
		if got := w.dead("n0002", r); got != tc.want {
			t.Errorf("%s: dead %t, want %t", tc.name, got, tc.want)
		}
	}
}
