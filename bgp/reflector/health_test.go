package reflector

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
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
	peer, err := newPeer(peerName, "all()", labelled(testLabel), nil, start)
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
		for i, p := range w.peersOf(n) {
			a.Status.Wanted++
			if in(p.CalicoNode) {
				a.Status.Up++
				continue
			}
			a.Status.SetDown(i)
			switch {
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
		{"05678", "step: make Node(n0005) a reflector: replaces n0001 in its zone"},
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
		dead := slices.Sorted(maps.Keys(w.deadNodes(r)))
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
		if got := w.deadNodes(r)["n0002"]; got != tc.want {
			t.Errorf("%s: dead %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestDeadToMostOfAll: an agent that cannot say so, as it is cut off or of another version, is none
// for which a node is dead.
func TestDeadToMostOfAll(t *testing.T) {
	r := mustParse(t, Config{})
	cutOff := func(a *Agent) { a.Lost = start.Add(-time.Hour) }
	another := func(a *Agent) { a.Status = Status{Format: StatusFormat, Version: "v2"} }
	for _, tc := range []struct {
		name   string
		agents int
		change func(*Agent)
		want   bool
	}{
		{"all say so", 0, nil, true},
		{"2 of 6 are cut off", 2, cutOff, true},
		{"3 of 6 are cut off", 3, cutOff, false},
		{"2 of 6 are of another version", 2, another, true},
		{"3 of 6 are of another version", 3, another, false},
	} {
		w := reflected(t, 7, 3, nil)
		split(w, func(n string) bool { return n != "n0002" })
		for _, n := range w.names[7-tc.agents:] {
			a := w.Agents[n]
			tc.change(&a)
			w.Agents[n] = a
		}
		if got := w.deadNodes(r)["n0002"]; got != tc.want {
			t.Errorf("%s: dead %t, want %t", tc.name, got, tc.want)
		}
	}
}

// published has every status go through etcd, with its bounds.
func published(t testing.TB, w *World) *World {
	t.Helper()
	for n, a := range w.Agents {
		a.Status = *hear(t, StatusKey(n), a.Status.Encode()).Status
		w.Agents[n] = a
	}
	return w
}

// mesh is a cluster with the mesh.
func mesh(nodes int) *World {
	var all []testNode
	for i := range nodes {
		all = append(all, numbered(i))
	}
	return worldOf(objectsOf(all), nil)
}

// last is about a node of the last n.
func (w *World) last(n int) func(node string) bool {
	return func(node string) bool { return slices.Contains(w.names[len(w.names)-n:], node) }
}

// TestManyDown: more nodes are off than a status has room for. All of them are dead, no session
// with one of them is waited for, and a reflector that is among them is replaced.
func TestManyDown(t *testing.T) {
	r := mustParse(t, Config{})
	for _, tc := range []struct {
		name string
		w    *World
		want string
	}{
		{"the mesh", mesh(120), "step: create BGPPeer(" + peerName + ")"},
		{"reflectors", reflected(t, 200, 5, nil),
			"step: make Node(n0005) a reflector: replaces n0004 in its zone"},
		{"both families", reflected(t, 120, 4, func(n *testNode) {
			n.v6 = "fd00::" + n.name[1:] + "/64"
		}), "step: make Node(n0004) a reflector: replaces n0003 in its zone"},
	} {
		w, reflectors := tc.w, len(tc.w.reflectors())
		off := w.last(2 * len(w.names) / 5)
		split(w, func(n string) bool {
			return !off(n) && (reflectors == 0 || n != w.names[reflectors-1])
		})
		published(t, w)
		if s := w.Agents["n0000"].Status; s.DownMore == 0 {
			t.Fatalf("%s: the list of n0000 has room", tc.name)
		}
		silent := w.only(func(n string) bool { return !w.known(n) })
		dead := slices.Sorted(maps.Keys(w.deadNodes(r)))
		if !slices.Equal(dead, silent) {
			t.Errorf("%s: %d of %d are dead: %v", tc.name, len(dead), len(silent), dead)
		}
		if reflectors > 0 {
			say(w, Question{Cover: w.names[reflectors-2]})
		}
		if got := decided(Next(w, Goal{Mode: Reflectors, Since: start})); got != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// TestWhatAStatusHasNoRoomFor: what a list that was cut does not say counts neither for a node nor
// against it.
func TestWhatAStatusHasNoRoomFor(t *testing.T) {
	r := mustParse(t, Config{})
	cut := func(w *World, node string, change func(*Status)) {
		a := w.Agents[node]
		a.Status.cut(1, maxListed)
		change(&a.Status)
		w.Agents[node] = a
	}
	for _, tc := range []struct {
		name   string
		cut    int // agents whose lists are
		change func(*Status)
		want   bool // the last node, which is not listed there, is dead
	}{
		{"bits say it", 5, func(*Status) {}, true},
		{"bits say it, of now", 5, func(s *Status) { s.DownMoreSince = start }, false},
		{"bits say that it is up", 5, func(s *Status) { s.DownBits[0] &^= 1 << 5 }, false},
		{"bits of other sessions", 5, func(s *Status) { s.Digest = "old" }, false},
		{"bits of more sessions", 5, func(s *Status) { s.Wanted++ }, false},
		{"no bits", 5, func(s *Status) { s.DownBits = nil }, false},
		{"no bits, but three lists say it", 2, func(s *Status) { s.DownBits = nil }, true},
	} {
		w := mesh(7)
		split(w, func(n string) bool { return !w.last(2)(n) })
		for _, n := range w.names[:tc.cut] {
			cut(w, n, tc.change)
		}
		if got := w.deadNodes(r)["n0006"]; got != tc.want {
			t.Errorf("%s: dead %t, want %t", tc.name, got, tc.want)
		}
	}
	// The reflectors come first. One that is not among them is up.
	w := reflected(t, 9, 3, nil)
	split(w, func(n string) bool { return !w.last(2)(n) && n != "n0001" })
	cut(w, "n0000", func(s *Status) { s.DownBits = nil })
	said := map[string]*tally{"n0008": {}}
	if w.count("n0000", said, r); *said["n0008"] != (tally{}) {
		t.Errorf("a client behind the first: %+v", *said["n0008"])
	}
	a := w.Agents["n0000"]
	a.Status.Down[0].Node = "n0007"
	w.Agents["n0000"] = a
	said = map[string]*tally{"n0001": {}}
	if w.count("n0000", said, r); *said["n0001"] != (tally{peers: 1}) {
		t.Errorf("a reflector behind a client: %+v", *said["n0001"])
	}
}

// TestSessionsUpBehindACut: what has no room in a list is no session that is waited for, if as many
// nodes are dead.
func TestSessionsUpBehindACut(t *testing.T) {
	r := mustParse(t, Config{})
	for _, tc := range []struct {
		name, want string
		change     func(*Status)
	}{
		{"bits", "", func(*Status) {}},
		{"bits with one more", "the session between n0000 and n0001 is down",
			func(s *Status) { s.SetDown(0) }},
		{"no bits", "", func(s *Status) { s.DownBits = nil }},
		{"no bits, one more", "4 sessions of n0000 are down", func(s *Status) {
			s.DownBits = nil
			s.Up--
		}},
	} {
		w := mesh(9)
		split(w, func(n string) bool { return !w.last(3)(n) })
		a := w.Agents["n0000"]
		a.Status.cut(1, maxListed)
		tc.change(&a.Status)
		w.Agents["n0000"] = a
		got := ""
		if wait := (&decider{World: w, rules: r, dead: w.deadNodes(r)}).sessionsUp(); wait != nil {
			got = wait.What
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// BenchmarkNextWithManyOff decides for a mesh of which two nodes in five are off, once each second.
// Its time goes with the sessions.
func BenchmarkNextWithManyOff(b *testing.B) {
	for _, n := range []int{200, 400, 800} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := mesh(n)
			off := w.last(2 * n / 5)
			split(w, func(n string) bool { return !off(n) })
			published(b, w)
			for b.Loop() {
				Next(w, Goal{Mode: Reflectors, Since: start})
			}
		})
	}
}

// A node with BIRD is dead when most agents have lost their sessions with it, unless its
// calico-node answers.
func TestDeadBIRD(t *testing.T) {
	r := mustParse(t, Config{})
	for _, tc := range []struct {
		name string
		bird Bird
		want bool
	}{
		{"nobody has asked", Bird{}, true},
		{"it has answered", Bird{Answers: make([]calico.NodeStatus, 1)}, false},
		{"it answers no more", Bird{Answers: make([]calico.NodeStatus, 1), Silent: true}, true},
	} {
		w := reflected(t, 7, 3, nil)
		split(w, func(n string) bool { return n != "n0002" })
		runsBIRD(w, "n0002", tc.bird)
		if got := w.deadNodes(r)["n0002"]; got != tc.want {
			t.Errorf("%s: dead %t, want %t", tc.name, got, tc.want)
		}
	}
}
