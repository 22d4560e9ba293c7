package reflector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// theirCluster is one of four nodes in which a person has made a and b reflectors, by a BGPPeer
// named mine, and turned the mesh off.
type theirCluster struct {
	nodes []testNode
	more  []Object
	goal  Goal
	birds []string
}

func theirs(id string) *theirCluster {
	c := &theirCluster{more: []Object{
		bgpPeer("mine", `{"nodeSelector":"all()","peerSelector":"has(rr)"}`),
		configuration(`{"nodeToNodeMeshEnabled":false}`),
	}}
	for i, name := range []string{"a", "b", "c", "d"} {
		n := numbered(i)
		n.name, n.age = name, 100-i
		if i < 2 {
			n.clusterID, n.labels = id, map[string]string{"rr": ""}
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

func (c *theirCluster) world() *World {
	dataplanes := map[string]string{}
	for _, b := range c.birds {
		dataplanes[b] = "bird"
	}
	return ready(worldOf(append(objectsOf(c.nodes), c.more...), dataplanes))
}

func mustAdopt(t *testing.T, w *World, g Goal) Adoption {
	t.Helper()
	a, err := NewAdoption(w, g)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What cannot be taken over is refused by the name of the object, and nothing would be written.
func TestAdoptRefuses(t *testing.T) {
	const label = "vpp-route-agent/route-reflector"
	peers := func(specs ...string) []Object {
		all := []Object{configuration(`{"nodeToNodeMeshEnabled":false}`)}
		for i, s := range specs {
			all = append(all, bgpPeer(string(rune('p'+i)), s))
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		change func(*theirCluster)
		want   string
	}{
		{"nobody", func(c *theirCluster) { c.nodes[0].clusterID, c.nodes[1].clusterID = "", "" },
			"there is no reflector of a person: "},
		{"two IDs", func(c *theirCluster) { c.nodes[1].clusterID = "2.2.2.2" },
			"Node(a) has the cluster ID 1.1.1.1 and Node(b) 2.2.2.2: the topology single has one"},
		{"another ID than the controller's", func(c *theirCluster) {
			c.nodes[3].clusterID, c.nodes[3].labels = "224.0.0.1", map[string]string{label: "true"}
			c.nodes[3].annotations = map[string]string{roleNote: "1"}
		}, "Node(a) has the cluster ID 1.1.1.1 and Node(d), the controller's, 224.0.0.1"},
		{"a number as ID", func(c *theirCluster) {
			c.nodes[0].clusterID, c.nodes[1].clusterID = "7", "7"
		}, `Node(a): spec.bgp.routeReflectorClusterID: "7" is not a dotted quad`},
		{"our label at a client", func(c *theirCluster) {
			c.nodes[2].labels = map[string]string{label: "x"}
		}, "Node(c) has the label " + label + ", which marks reflectors, and is none"},
		{"one BGPPeer for each pair", func(c *theirCluster) {
			c.more = peers(`{"node":"c","peerIP":"10.0.0.1","asNumber":64512}`,
				`{"node":"d","peerIP":"10.0.0.1","asNumber":64512}`)
		}, "BGPPeer(p) names the address of a node: only BGPPeers with a peerSelector can be " +
			"taken over\nBGPPeer(q) names the address of a node"},
		{"filters", func(c *theirCluster) {
			c.more = peers(`{"nodeSelector":"all()","peerSelector":"has(rr)","filters":["f"],` +
				`"keepaliveTime":"5s"}`)
		}, "BGPPeer(p) gives Node(a) its session with Node(b) by other settings than the " +
			"controller would: keepaliveTime, filters"},
		{"another password than the mesh", func(c *theirCluster) {
			c.more = []Object{bgpPeer("p", `{"nodeSelector":"all()","peerSelector":"has(rr)",`+
				`"password":{"secretKeyRef":{"name":"a","key":"b"}}}`)}
		}, "by other settings than the controller would: password"},
		{"sessions between clients", func(c *theirCluster) {
			c.more = peers(`{"nodeSelector":"all()","peerSelector":"all()"}`)
		}, "BGPPeer(p) gives Node(c) a session with Node(d), which topology single does not have"},
		{"a client of one", func(c *theirCluster) {
			c.nodes[2].labels = map[string]string{"far": ""}
			c.more = peers(`{"nodeSelector":"!has(far)","peerSelector":"has(rr)"}`)
		}, "Node(a) has no session with Node(c): in topology single every node has one with each"},
		{"a global one, beside BIRD", func(c *theirCluster) {
			c.more, c.birds = peers(`{"peerSelector":"has(rr)"}`), []string{"d"}
		}, "BGPPeer(p) has neither node nor nodeSelector: BIRD at Node(d) would start its " +
			"sessions anew without it"},
		{"our name", func(c *theirCluster) {
			c.more = append(c.more, bgpPeer(peerName, `{"peerSelector":"has(x)"}`))
		}, "BGPPeer(" + peerName + "): it belongs to a person"},
		{"what cannot be read", func(c *theirCluster) {
			c.more = append(c.more, bgpPeer("odd", `7`))
		}, "BGPPeer(odd): spec"},
		{"a lock", func(c *theirCluster) {
			c.more = append(c.more, Object{calico.Key{
				Kind: calico.KindClusterInformation, Name: "default",
			}, []byte(`{"spec":{"datastoreReady":false}}`), 7})
		}, "ClusterInformation(default): datastoreReady is false"},
		{"on the way", func(c *theirCluster) { c.goal = Goal{Mode: Mesh, Since: start} },
			"the controller is on its way to the goal mesh: adopt before, or once it is reached"},
		{"more than etcd writes at once", func(c *theirCluster) {
			for i := range 120 {
				c.more = append(c.more, bgpPeer(fmt.Sprint("rack-", i),
					`{"nodeSelector":"all()","peerSelector":"has(rr)"}`))
			}
		}, "125 objects would change, more than one transaction of etcd can write: merge BGPPeers"},
		{"the only one is BIRD, and its ID would change", func(c *theirCluster) {
			c.nodes[0].clusterID, c.nodes[1].clusterID = "0.0.0.0", ""
			c.nodes[1].labels, c.birds = nil, []string{"a"}
		}, "Node(a) is the only reflector and runs BIRD, which starts all its sessions anew"},
	} {
		c := theirs("1.1.1.1")
		tc.change(c)
		a := mustAdopt(t, c.world(), c.goal)
		if got := strings.Join(a.Obstacles, "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
		if len(a.Writes) > 0 || len(a.Changes) > 0 {
			t.Errorf("%s: it would write %v", tc.name, a.Changes)
		}
	}
}

// One sentence refuses another topology, whatever else is in the way.
func TestAdoptWithAnotherTopology(t *testing.T) {
	c := theirs("1.1.1.1")
	for _, other := range []Topology{Quorum, Multi} {
		goal := Goal{Mode: Mesh, Since: start, Config: Config{Topology: other}}
		a := mustAdopt(t, c.world(), goal)
		want := fmt.Sprintf("topology: the rules say %q, and only with \"single\" can reflectors "+
			"be adopted", other)
		if !slices.Equal(a.Obstacles, []string{want}) || len(a.Writes) > 0 {
			t.Errorf("got %q, want %q", a.Obstacles, want)
		}
	}
}

// What is written changes no session; then the controller takes the rest, and the cluster is as if
// it had made the reflectors itself.
func TestAdopt(t *testing.T) {
	mesh := func(c *theirCluster) { c.more = c.more[:1] }
	for _, tc := range []struct {
		name   string
		id     string
		change func(*theirCluster)
		cost   string
		steps  []string
	}{
		{"a person's ID stays", "1.1.1.1", nil, "", []string{
			"delete BGPPeer(mine), which BGPPeer(" + peerName + ") replaces"}},
		{"password and restart time", "1.1.1.1", func(c *theirCluster) {
			c.more[0] = bgpPeer("mine", `{"nodeSelector":"all()","peerSelector":"has(rr)",`+
				`"password":{"secretKeyRef":{"name":"a","key":"b"}},"maxRestartTime":"90s"}`)
		}, "", []string{"delete BGPPeer(mine), which BGPPeer(" + peerName + ") replaces"}},
		{"one for each direction, and a router's", "1.1.1.1", func(c *theirCluster) {
			c.more[0] = bgpPeer("clients", `{"nodeSelector":"!has(rr)","peerSelector":"has(rr)"}`)
			c.more = append(c.more,
				bgpPeer("among", `{"nodeSelector":"has(rr)","peerSelector":"has(rr)"}`),
				bgpPeer("again", `{"nodeSelector":"all()","peerSelector":"has(rr)"}`),
				bgpPeer("tor", `{"peerIP":"192.0.2.1","asNumber":65000}`))
		}, "", []string{
			"delete BGPPeer(again), which BGPPeer(" + peerName + ") replaces",
			"delete BGPPeer(among), which BGPPeer(" + peerName + ") replaces",
			"delete BGPPeer(clients), which BGPPeer(" + peerName + ") replaces"}},
		{"a global one among agents", "1.1.1.1", func(c *theirCluster) {
			c.more[0] = bgpPeer("mine", `{"peerSelector":"has(rr)"}`)
		}, "", []string{"delete BGPPeer(mine), which BGPPeer(" + peerName + ") replaces"}},
		{"beside the mesh", "1.1.1.1", mesh, "", []string{
			"delete BGPPeer(mine), which BGPPeer(" + peerName + ") replaces",
			"turn the mesh off"}},
		{"the ID that BIRD reads as its own", "0.0.0.0", nil,
			"The cluster ID 0.0.0.0 becomes 224.0.0.1, at one reflector after the other. An " +
				"agent changes it in sessions that are up: nothing is lost.", []string{
				"delete BGPPeer(mine), which BGPPeer(" + peerName + ") replaces",
				"change the cluster ID of Node(a) from 0.0.0.0 to 224.0.0.1",
				"change the cluster ID of Node(b) from 0.0.0.0 to 224.0.0.1"}},
		{"the same with BIRD", "0.0.0.0", func(c *theirCluster) { c.birds = []string{"b"} },
			"The cluster ID 0.0.0.0 becomes 224.0.0.1, at one reflector after the other. BIRD " +
				"starts all its sessions anew when its own changes: for about 2 s all flows of " +
				"workloads are lost at b, one after the other. It also starts the session with " +
				"another reflector anew when that one's changes: for about 2 s the flows between " +
				"workloads of these two.", []string{
				"delete BGPPeer(mine), which BGPPeer(" + peerName + ") replaces",
				"change the cluster ID of Node(a) from 0.0.0.0 to 224.0.0.1",
				"change the cluster ID of Node(b) from 0.0.0.0 to 224.0.0.1"}},
	} {
		c := theirs(tc.id)
		if tc.change != nil {
			tc.change(c)
		}
		w := c.world()
		config := Config{Min: 2, Max: 2}
		a := mustAdopt(t, w, Goal{Config: config})
		if len(a.Obstacles) > 0 || a.Cost != tc.cost {
			t.Errorf("%s: obstacles %q, cost %q", tc.name, a.Obstacles, a.Cost)
			continue
		}
		after := a.After(w)
		for _, n := range w.names {
			was, is := w.peersOf(n), after.peersOf(n)
			if !slices.EqualFunc(was, is, func(p, q bgp.Peer) bool { return !Resets(p, q) }) {
				t.Errorf("%s: sessions of %s change: %v, now %v", tc.name, n, was, is)
			}
		}
		p := mustPreview(t, after, a.Goal.Migrate(after, Reflectors))
		var steps []string
		for _, s := range p.Steps[:max(0, len(p.Steps)-1)] { // and the last verifies
			steps = append(steps, s.Does)
		}
		if !slices.Equal(steps, tc.steps) || len(p.Obstacles) > 0 {
			t.Errorf("%s: steps %q, obstacles %q", tc.name, steps, p.Obstacles)
		}
		p = mustPreview(t, after, a.Goal.Migrate(after, Mesh))
		if len(p.Obstacles) > 0 || p.After.Total != 6 {
			t.Errorf("%s: to the mesh %q, obstacles %q", tc.name, p.Steps, p.Obstacles)
		}
	}
}

// A goal that would end the roles at once becomes observe; with reflectors as the goal the
// controller goes on at once, with its time limits.
func TestAdoptAndTheGoal(t *testing.T) {
	w := theirs("1.1.1.1").world()
	for _, tc := range []struct {
		goal, want Goal
		change     bool
	}{
		{Goal{}, Goal{}, false},
		{Goal{Mode: Mesh}, Goal{Mode: Observe}, true},
		{Goal{Mode: Reflectors, From: Mesh, Undo: "a reason"}, Goal{Mode: Observe}, true},
		{Goal{Mode: Reflectors}, Goal{Mode: Reflectors, Since: start}, false},
	} {
		tc.want.Config.ClusterID = "1.1.1.1"
		a := mustAdopt(t, w, tc.goal)
		said := slices.Contains(a.Changes, "goal: observe instead of mesh")
		if len(a.Obstacles) > 0 || a.Goal != tc.want || said != tc.change {
			t.Errorf("%+v: %+v, %q, %q", tc.goal, a.Goal, a.Changes, a.Obstacles)
		}
	}
}

// What a person changes on a BGPPeer after its adoption is not deleted.
func TestAdoptedThenEdited(t *testing.T) {
	w := theirs("1.1.1.1").world()
	a := mustAdopt(t, w, Goal{})
	after := ready(a.After(w))
	g := a.Goal.Migrate(after, Reflectors)
	if got := decided(Next(after, g)); !strings.HasPrefix(got, "step: delete BGPPeer(mine)") {
		t.Errorf("unchanged: %s", got)
	}
	k := calico.Key{Kind: calico.KindBGPPeer, Name: "mine"}
	e := edit{value: after.objects[k].Value}
	e.set("30s", "spec", "maxRestartTime")
	after = ready(after.after([]Write{{k, e.value}}))
	want := "person: BGPPeer(mine): a person changed it since it was adopted"
	if got := decided(Next(after, g)); !strings.HasPrefix(got, want) {
		t.Errorf("changed: %s", got)
	}
}

// No step after an adoption is taken before all nodes have applied the one before, and no cluster
// ID changes while a session is down.
func TestStepsAfterAdoption(t *testing.T) {
	c := theirs("0.0.0.0")
	w := c.world()
	a := mustAdopt(t, w, Goal{Config: Config{Min: 2, Max: 2}})
	w = a.After(w)
	got, _, _ := unfold(t, slices.Collect(maps.Values(w.objects)), a.Goal.Migrate(w, Reflectors))
	const want = `(down) step: delete BGPPeer(mine), which BGPPeer(` + peerName + `) replaces
step: change the cluster ID of Node(a) from 0.0.0.0 to 224.0.0.1
step: change the cluster ID of Node(b) from 0.0.0.0 to 224.0.0.1
(one copy) ask: not all routes from reflector b at b, c, d
step: verify: reflectors a, b
done: reflectors a, b`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// The sessions of two reflectors with BIRD do not start anew at once, also where calico-node does
// not answer: between their changes is the grace time, and a gate that sees the sessions of agents.
func TestAdoptedBIRDsChangeOneByOne(t *testing.T) {
	c := theirs("0.0.0.0")
	c.birds = []string{"a", "b"}
	w := c.world()
	a := mustAdopt(t, w, Goal{})
	k := calico.Key{Kind: calico.KindBGPPeer, Name: "mine"}
	w = ready(a.After(w).after([]Write{{Key: k}}))
	g := a.Goal.Migrate(w, Reflectors)
	g.AcceptUnseen = true
	const first = "change the cluster ID of Node(a) from 0.0.0.0 to 224.0.0.1"
	for _, tc := range []struct {
		since, seen time.Time
		say         bool
		want        string
	}{
		{w.Now.Add(-59 * time.Second), time.Time{}, true,
			"wait: BIRD has 1m0s to start its sessions anew after the last step"},
		{w.Now.Add(-time.Hour), w.Now.Add(-time.Second), true, "wait: BIRD has 1m0s to start"},
		{w.Now.Add(-61 * time.Second), time.Time{}, false, "ask: not all routes without refl"},
		{w.Now.Add(-61 * time.Second), time.Time{}, true, "step: " + first},
	} {
		now := w.after(nil)
		now.Agents = maps.Clone(w.Agents)
		now.Birds = map[string]Bird{"a": {Silent: true}, "b": {Silent: true}}
		now.Now, now.GoalSeen, g.Since = w.Now, tc.seen, tc.since
		if tc.say {
			say(now, Question{Leave: "a", Label: "vpp-route-agent/route-reflector", Resets: true})
		}
		if got := decided(Next(now, g)); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// TestAdoptInEveryOrder: nodes see the adoption, the deletion of what it replaces and the cluster
// IDs in any order, and none is without a route; then on to the mesh.
func TestAdoptInEveryOrder(t *testing.T) {
	for _, tc := range []struct {
		name, id, fault, lie string
		meshOn               bool
		want                 string
	}{
		{"their ID", "1.1.1.1", "kill", "", false, ""},
		{"another ID", "0.0.0.0", "", "", false, ""},
		{"aborted", "0.0.0.0", "abort", "", false, ""},
		{"beside the mesh", "1.1.1.1", "", "", true, ""},
		{"without the gate", "1.1.1.1", "", "applied", false, "has no route to"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := theirs(tc.id)
			if tc.meshOn {
				c.more = c.more[:1]
			}
			m := newModel(c.nodes, nil, Goal{Config: Config{Min: 2, Max: 2}}, c.more...)
			m.adopts, m.lie = true, tc.lie
			if tc.fault != "" {
				m.faults = []string{tc.fault}
			}
			found := m.explore(mostStates)
			if tc.want == "" && found.wrong != "" || !strings.Contains(found.wrong, tc.want) {
				t.Errorf("%q, want %q", found.wrong, tc.want)
			}
			if tc.want == "" && found.ends["mesh"] == 0 {
				t.Errorf("it ends in %v", found.ends)
			}
			t.Logf("%d states, ends: %v", found.states, found.ends)
		})
	}
}
