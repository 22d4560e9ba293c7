package reflector

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// unfold returns all decisions up to the one that is reached, while all agents answer that nothing
// would be lost. Marked are gates that open although the last node, a client, would have one copy
// of a route, and steps that are taken although one of its sessions is down, or although it has not
// applied the change before.
func unfold(t *testing.T, objects []Object, goal Goal) ([]string, []Object, Goal) {
	t.Helper()
	var all []string
	goal.Since = start
	for range 200 {
		w := ready(worldOf(objects, nil))
		if !goal.MeshOn.IsZero() {
			w.Now = start.Add(2 * time.Minute)
		}
		d := Next(w, goal)
		for d.Wait != nil && d.Wait.Ask != nil {
			q, last := *d.Wait.Ask, w.names[len(w.names)-1]
			asked := decided(d)
			say(w, q)
			a := w.Agents[last]
			two := a.Answers
			a.Answers = slices.Clone(two)
			a.Answers[len(two)-1].IPv4.FewestCopies = 1
			w.Agents[last] = a
			if once := Next(w, goal); once.Wait == nil || once.Wait.Ask == nil ||
				*once.Wait.Ask != q {
				asked = "(one copy) " + asked
			}
			a.Answers = two
			w.Agents[last] = a
			all = append(all, asked)
			d = Next(w, goal)
		}
		if d.Step == nil {
			return append(all, decided(d)), objects, goal
		}
		last := w.names[len(w.names)-1]
		a := w.Agents[last]
		although := ""
		lagging(last)(w)
		if Next(w, goal).Step != nil {
			although = "(lags) "
		}
		w.Agents[last] = a
		if peers := w.peersOf(last); len(peers) > 0 {
			a.Status.Down = []Down{{peers[0].CalicoNode, start}}
			w.Agents[last] = a
			if Next(w, goal).Step != nil {
				although += "(down) "
			}
		}
		all = append(all, although+decided(d))
		goal = d.Step.Goal
		for _, write := range d.Step.Writes {
			objects = slices.DeleteFunc(slices.Clone(objects), func(o Object) bool {
				return o.Key == write.Key
			})
			if write.Value != nil {
				objects = append(objects, Object{write.Key, write.Value, int64(len(all)) + 10})
			}
		}
		slices.SortFunc(objects, func(a, b Object) int {
			return cmp.Compare(a.Key.Resource(), b.Key.Resource())
		})
	}
	t.Fatalf("no end: %s", strings.Join(all, "\n"))
	return nil, nil, goal
}

func sevenNodes() (nodes []testNode) {
	for i, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		n := numbered(i)
		n.name, n.age = name, 100-i
		nodes = append(nodes, n)
	}
	return nodes
}

// TestStepsOfQuorum: every step there and back with the questions that it asks, and the replacement
// of a reflector.
func TestStepsOfQuorum(t *testing.T) {
	goal := Goal{Mode: Reflectors, Config: Config{Topology: Quorum, Min: 4, Max: 4}}
	there, objects, goal := unfold(t, objectsOf(sevenNodes()), goal)
	k := nodeKey("b")
	for i, o := range objects {
		if o.Key == k {
			e := edit{value: o.Value}
			e.set("disk", "metadata", "annotations", cordonNote)
			objects[i].Value = e.value
		}
	}
	replaced, objects, goal := unfold(t, objects, goal)
	goal.Mode = Mesh
	back, _, _ := unfold(t, objects, goal)
	got := strings.Join(slices.Concat(there, replaced, back), "\n")
	got = strings.ReplaceAll(got, peerName, "ours")
	got = strings.ReplaceAll(got, ", which end no session", "")
	if got != stepsOfQuorum {
		t.Errorf("got\n%s\nwant\n%s", got, stepsOfQuorum)
	}
}

// inQuorum is a cluster of a to g with the reflectors a to d and groups of clients. change is made
// to the JSON of one Node.
func inQuorum(t *testing.T, node string, change func(*edit)) ([]Object, Goal) {
	_, objects, goal := unfold(t, objectsOf(sevenNodes()), Goal{
		Mode: Reflectors, Config: Config{Topology: Quorum, Min: 4, Max: 4},
	})
	for i, o := range objects {
		if o.Key == nodeKey(node) {
			e := edit{value: o.Value}
			change(&e)
			objects[i].Value = e.value
		}
	}
	goal.Since = start
	return objects, goal
}

func cordoned(e *edit) { e.set("disk", "metadata", "annotations", cordonNote) }

// take puts what a step writes.
func take(t *testing.T, objects []Object, d Decision) []Object {
	t.Helper()
	if d.Step == nil {
		t.Fatal(decided(d))
	}
	for _, w := range d.Step.Writes {
		objects = slices.DeleteFunc(slices.Clone(objects), func(o Object) bool {
			return o.Key == w.Key
		})
		if w.Value != nil {
			objects = append(objects, Object{w.Key, w.Value, 99})
		}
	}
	return objects
}

// A reflector that is to go is replaced although its sessions are down, since nothing passes there.
func TestABrokenReflectorIsReplaced(t *testing.T) {
	objects, goal := inQuorum(t, "b", cordoned)
	objects = take(t, objects, Next(ready(worldOf(objects, nil)), goal)) // e leaves its group
	w := ready(worldOf(objects, nil))
	for n, a := range w.Agents {
		if n != "b" {
			a.Status.Down, a.Status.Wanted = []Down{{"b", start}}, 4
			a.Status.Up = 3
			w.Agents[n] = a
		}
	}
	if got := decided(Next(w, goal)); !strings.HasPrefix(got, "ask: not all routes with the new") {
		t.Errorf("it does not go on: %s", got)
	}
	a := w.Agents["c"]
	a.Status.Down = append(a.Status.Down, Down{"d", start})
	w.Agents["c"] = a
	if got := decided(Next(w, goal)); got != "wait: the session between c and d is down" {
		t.Errorf("it goes on: %s", got)
	}
}

// Clusters of one node and of two, and some whose nodes have not the same families, go there and
// back.
func TestSmallAndMixedClusters(t *testing.T) {
	for _, tc := range []struct {
		name       string
		nodes      int
		change     func([]testNode)
		reflectors string
	}{
		{"one node", 1, nil, "a"},
		{"two", 2, nil, "a, b"},
		{"both families", 5, func(n []testNode) {
			for i := range n {
				n[i].v6 = fmt.Sprintf("fd00::%d/64", i+1)
			}
		}, "a, b, c"},
		{"some have IPv4 alone", 6, func(n []testNode) {
			for i := range 4 {
				n[2+i].v6 = fmt.Sprintf("fd00::%d/64", i+1)
			}
		}, "c, d, e"},
		{"one has IPv6 alone", 5, func(n []testNode) {
			for i := range n {
				n[i].v6 = fmt.Sprintf("fd00::%d/64", i+1)
			}
			n[0].v4 = ""
		}, "b, c, d"},
	} {
		nodes := sevenNodes()[:tc.nodes]
		if tc.change != nil {
			tc.change(nodes)
		}
		there, objects, goal := unfold(t, objectsOf(nodes), Goal{Mode: Reflectors})
		goal.Mode = Mesh
		back, _, _ := unfold(t, objects, goal)
		got := [2]string{there[len(there)-1], back[len(back)-1]}
		if want := [2]string{"done: reflectors " + tc.reflectors, "done: mesh"}; got != want {
			t.Errorf("%s: %q, want %q", tc.name, got, want)
		}
	}
}

// Who enters is to have one copy of each route, from the route's own node; others keep two, unless
// a dead reflector has taken the second from them.
func TestCopiesWhenAReflectorEnters(t *testing.T) {
	objects, goal := inQuorum(t, "b", cordoned)
	objects = take(t, objects, Next(ready(worldOf(objects, nil)), goal)) // e leaves its group
	const enters = "step: make Node(e) a reflector: replaces b in its zone"
	for _, tc := range []struct {
		once string
		dead bool
		want string
	}{
		{"e", false, enters},
		{"g", false, "ask: not all routes with the new reflector e at g"},
		{"g", true, enters},
	} {
		w := ready(worldOf(objects, nil))
		for n, a := range w.Agents {
			if n == "b" && tc.dead {
				a.Lost = start.Add(-time.Hour)
			} else if tc.dead {
				a.Status.Down = []Down{{"b", start.Add(-time.Hour)}}
			}
			w.Agents[n] = a
		}
		saying(*Next(w, goal).Wait.Ask, 2, tc.once, 1)(w)
		if got := decided(Next(w, goal)); got != tc.want {
			t.Errorf("%s has a route once, b is dead %t: %s, want %s", tc.once, tc.dead, got,
				tc.want)
		}
	}
}

// A gate that another node keeps shut cordons nobody, however long it is.
func TestAnotherNodesSilenceCordonsNobody(t *testing.T) {
	objects, goal := inQuorum(t, "b", cordoned)
	objects = take(t, objects, Next(ready(worldOf(objects, nil)), goal))
	for silent, want := range map[string]string{
		"g": "ask: not all routes with the new reflector e at g",
		"e": "step: cordon Node(e): not all routes with the new reflector e at e, for 10m0s",
	} {
		w := ready(worldOf(objects, nil))
		w.Now = start.Add(time.Hour)
		say(w, *Next(w, goal).Wait.Ask)
		a := w.Agents[silent]
		a.Answers = nil
		w.Agents[silent] = a
		if got := decided(Next(w, goal)); got != want {
			t.Errorf("%s is silent: %s, want %s", silent, got, want)
		}
	}
}

// The groups of a zone that has no node any more end, once no client is in them.
func TestGroupsOfAZoneThatHasGone(t *testing.T) {
	nodes := sevenNodes()
	for i := range nodes {
		nodes[i].zone = []string{"east", "west"}[i%2]
	}
	for i := range 2 { // f and g
		nodes[5+i].zone, nodes[5+i].labels = "north", map[string]string{"dedicated": "gateway"}
	}
	_, objects, goal := unfold(t, objectsOf(nodes), Goal{Mode: Reflectors, Config: Config{
		Topology: Multi, Min: 4, Max: 4, Avoid: "dedicated == 'gateway'",
	}})
	zones := func() (all []string) {
		for _, g := range worldOf(objects, nil).groups() {
			all = append(all, g.Zone)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	before := zones()
	if !slices.Contains(before, "north") {
		t.Fatalf("groups of %q", before)
	}
	for _, tc := range []struct {
		what string
		then func(Object) (Object, bool) // false: it goes
		left int
	}{
		{"f loses its address", func(o Object) (Object, bool) {
			e := edit{value: o.Value}
			if o.Key == nodeKey("f") {
				e.remove("spec", "bgp", "ipv4Address")
			}
			o.Value = e.value
			return o, true
		}, len(before)},
		{"g goes", func(o Object) (Object, bool) { return o, o.Key != nodeKey("g") }, len(before)},
		{"f goes", func(o Object) (Object, bool) { return o, o.Key != nodeKey("f") },
			len(before) - 1},
	} {
		var changed []Object
		for _, o := range objects {
			if o, stays := tc.then(o); stays {
				changed = append(changed, o)
			}
		}
		var steps []string
		steps, objects, goal = unfold(t, changed, goal)
		if got := zones(); len(got) != tc.left {
			t.Errorf("%s: groups of %q are left, there were %q; %q", tc.what, got, before, steps)
		}
	}
}

// A client's group that a person chose: in operation the client joins one anew; a migration stops,
// and says so. `status` names it in both.
func TestAPersonMovesAClient(t *testing.T) {
	for _, tc := range []struct {
		name, node string
		change     func(*edit)
		want       string
	}{
		{"to another group", "f", func(e *edit) { e.set("1", "metadata", "labels", groupLabel) },
			`Node(f): its label vpp-route-agent/reflector-group is "1", the controller wrote "2"`},
		{"to a group that there is not", "f", func(e *edit) {
			e.set("9", "metadata", "labels", groupLabel)
		}, `Node(f): its label vpp-route-agent/reflector-group is "9", the controller wrote "2"`},
		{"a reflector to a group", "a", func(e *edit) {
			e.set("1", "metadata", "labels", groupLabel)
		}, `Node(a): a person gave it the label vpp-route-agent/reflector-group`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, goal := inQuorum(t, tc.node, tc.change)
			w := ready(worldOf(objects, nil))
			o, err := NewOverview(w, goal.Config)
			if err != nil || !slices.Equal(o.Problems, []string{tc.want}) {
				t.Errorf("status: %q, %v, want %q", o.Problems, err, tc.want)
			}
			migrating := goal
			migrating.From = Mesh
			if got := decided(Next(w, migrating)); got != "person: "+tc.want {
				t.Errorf("in a migration: %s, want %s", got, tc.want)
			}
			d := Next(w, goal)
			want := "step: Node(" + tc.node + "): to every reflector, out of the group"
			if got := decided(d); got != want {
				t.Errorf("in operation: %s, want %s", got, want)
			}
			_, objects, _ = unfold(t, take(t, objects, d), goal)
			w = ready(worldOf(objects, nil))
			if o, _ := NewOverview(w, goal.Config); len(o.Problems) > 0 {
				t.Errorf("afterwards: %q", o.Problems)
			}
			if got := w.groupOf("f"); got != "2" {
				t.Errorf("f is in group %q, was in 2", got)
			}
		})
	}
}

// A client that has lost its address leaves its group like the others.
func TestAClientWithoutAnAddressLeavesItsGroup(t *testing.T) {
	objects, goal := inQuorum(t, "f", func(e *edit) { e.remove("spec", "bgp", "ipv4Address") })
	goal.Mode = Mesh
	w := ready(worldOf(objects, nil))
	objects = take(t, objects, Next(w, goal)) // the mesh on
	w = ready(worldOf(objects, nil))
	want := "step: Node(e), Node(f), Node(g): to every reflector, out of the group"
	if got := decided(Next(w, goal)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A person's BGPPeer that is named like a group's stays as it is.
func TestAPersonsBGPPeerIsNoGroups(t *testing.T) {
	objects, goal := inQuorum(t, "a", func(*edit) {})
	goal.Mode = Mesh
	for range 3 { // the mesh on, the clients out of their groups, their BGPPeers gone
		objects = take(t, objects, Next(ready(worldOf(objects, nil)), goal))
	}
	objects = append(objects, bgpPeer(groupPeer("2"), `{"peerIP":"192.0.2.1","asNumber":65000}`))
	goal.Mode = Reflectors
	for range 9 {
		w := ready(worldOf(objects, nil))
		w.preview = true
		d := Next(w, goal)
		if strings.Contains(decided(d), "BGPPeer("+groupPeer("1")) {
			if got := strings.ReplaceAll(decided(d), peerName, ""); got != "step: write "+
				"BGPPeer(-1), BGPPeer(-3), BGPPeer(-4), BGPPeer(-5), which end no session" {
				t.Error(got)
			}
			return
		}
		objects, goal = take(t, objects, d), d.Step.Goal
	}
	t.Error("no groups are written")
}

// TestReplacedInQuorum: while clients peer with some reflectors alone, one dies or is cordoned.
func TestReplacedInQuorum(t *testing.T) { walkInQuorum(t, "cordon", "die") }

// TestRegroupedInQuorum: a person moves a client to another group, which has two reflectors in
// common with the old one.
func TestRegroupedInQuorum(t *testing.T) { walkInQuorum(t, "regroup") }

func walkInQuorum(t *testing.T, faults ...string) {
	t.Helper()
	seed := cmp.Or(*walkSeed, rand.Uint64())
	t.Logf("seed %d", seed)
	for i := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		m := drawModel(r, 7, false, Config{Topology: Quorum, Min: 4, Max: 4})
		m.faults = faults
		if events, _, wrong := m.walk(r); wrong != "" {
			t.Fatalf("walk %d, after %d events: %s", i, events, wrong)
		}
	}
}

// The reflectors are a to d, then e takes the place of b, which is cordoned.
const stepsOfQuorum = `step: create BGPPeer(ours)
(down) step: make Node(a) a reflector: the oldest of the nodes without a zone
(one copy) ask: not all routes from reflector a at a, b, c, d, e and 2 more
(down) step: make Node(b) a reflector: the oldest of the nodes without a zone
(one copy) ask: not all routes from reflector b at b, c, d, e, f and 1 more
(down) step: make Node(c) a reflector: the oldest of the nodes without a zone
(one copy) ask: not all routes from reflector c at c, d, e, f, g
(down) step: make Node(d) a reflector: the oldest of the nodes without a zone
ask: not all routes without the mesh at a, b, c, d, e and 2 more
(down) step: turn the mesh off
(down) step: write BGPPeer(ours-1), BGPPeer(ours-2), BGPPeer(ours-3), BGPPeer(ours-4)
ask: not all routes with e in group 1 at a, b, c, d, e and 2 more
step: Node(e): to the reflectors a, b, c alone, group 1
ask: not all routes with f in group 2 at a, b, c, d, e and 2 more
step: Node(f): to the reflectors a, b, d alone, group 2
ask: not all routes with g in group 3 at a, b, c, d, e and 2 more
step: Node(g): to the reflectors a, c, d alone, group 3
step: verify: reflectors a, b, c, d
done: reflectors a, b, c, d
(down) step: Node(e): to every reflector, out of the group
ask: not all routes with the new reflector e at a, b, c, d, e and 2 more
step: make Node(e) a reflector: replaces b in its zone
(down) step: write BGPPeer(ours-1), BGPPeer(ours-2), BGPPeer(ours-4)
ask: not all routes with group 1 at the reflectors 1,3,5 at a, b, c, d, e and 2 more
step: BGPPeer(ours-1): the reflectors a, c, e, instead of a, b, c, e
ask: not all routes with group 2 at the reflectors 1,4,5 at a, b, c, d, e and 2 more
step: BGPPeer(ours-2): the reflectors a, d, e, instead of a, b, d, e
ask: not all routes with group 4 at the reflectors 3,4,5 at a, b, c, d, e and 2 more
step: BGPPeer(ours-4): the reflectors c, d, e, instead of b, c, d, e
ask: not all routes without reflector b at a, b, c, d, e and 2 more
step: Node(b) stops being a reflector: it is cordoned: disk
ask: not all routes with b in group 1 at a, b, c, d, e and 2 more
step: Node(b): to the reflectors a, c, e alone, group 1
step: verify: reflectors a, c, d, e
done: reflectors a, c, d, e
(lags) (down) step: turn the mesh on
(down) step: Node(b), Node(f), Node(g): to every reflector, out of the group
(down) step: delete BGPPeer(ours-1), BGPPeer(ours-2), BGPPeer(ours-3), BGPPeer(ours-4)
(one copy) ask: not all routes without reflector e at a, b, c, d, e and 2 more
step: Node(e) stops being a reflector
(one copy) ask: not all routes without reflector d at a, b, c, d, e and 2 more
step: Node(d) stops being a reflector
(one copy) ask: not all routes without reflector c at a, b, c, d, e and 2 more
step: Node(c) stops being a reflector
(one copy) ask: not all routes without reflector a at a, b, c, d, e and 2 more
step: Node(a) stops being a reflector
(down) step: delete BGPPeer(ours)
step: verify: mesh
done: mesh`
