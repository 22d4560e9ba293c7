package reflectors

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
)

// theirs are two reflectors that a person has set up, by their ID.
func (c *cluster) theirs(id string) {
	c.t.Helper()
	for _, o := range c.look().objects {
		if o.Key.Name != "n1" && o.Key.Name != "n2" {
			continue
		}
		value := strings.Replace(string(o.Value), `"bgp":{`,
			`"bgp":{"routeReflectorClusterID":"`+id+`",`, 1)
		value = strings.Replace(value, `"metadata":{`, `"metadata":{"labels":{"rr":"yes"},`, 1)
		_, err := c.client.Put(c.t.Context(), o.Key.String(), value)
		must(c.t, err)
	}
	_, err := c.etcd.Cluster().Apply(c.t.Context(), []byte(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: mine}
spec: {nodeSelector: all(), peerSelector: rr == 'yes'}
---
kind: BGPConfiguration
apiVersion: projectcalico.org/v3
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false}
`))
	must(c.t, err)
}

func (c *cluster) desk() *Desk {
	c.t.Helper()
	d, err := NewDesk(etcd.Config{Endpoints: []string{c.etcd.Endpoint()}}, "v1")
	must(c.t, err)
	return d
}

// adoptAll is what the command writes.
func adoptAll(t *testing.T, v View) Changes {
	t.Helper()
	a, err := reflector.NewAdoption(v.World, v.Goal)
	must(t, err)
	if len(a.Obstacles) > 0 {
		t.Fatal(a.Obstacles)
	}
	return Changes{Goal: &a.Goal, Adopted: a.Writes}
}

// What a person has set up is taken over in one transaction; the controller does the rest, and
// takes it back to the mesh.
func TestAdopt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3", "n4")
	c.theirs("0.0.0.0")
	c.aim(func(g *reflector.Goal) { g.Config.Min, g.Config.Max = 2, 2 }) // nothing but rules
	c.start("a")
	c.awaits("that it observes", func(s State) bool { return s.Done != "" })
	before := c.look().revision
	must(t, c.desk().Change(t.Context(), func(v View) (Changes, error) {
		return adoptAll(t, v), nil
	}))
	want := []string{"PUT BGPConfiguration(default)", "PUT BGPPeer(mine)",
		"PUT BGPPeer(vpp-route-agent-reflectors)", "PUT Node(n1)", "PUT Node(n2)"}
	if got := slices.Sorted(slices.Values(c.writes(before))); !slices.Equal(got, want) {
		t.Errorf("it has written %v, want %v", got, want)
	}
	var revisions []int64
	for _, o := range c.look().objects {
		if o.Revision > before && !slices.Contains(revisions, o.Revision) {
			revisions = append(revisions, o.Revision)
		}
	}
	if len(revisions) != 1 {
		t.Errorf("it was written at revisions %v, want one", revisions)
	}
	adopted := c.look().revision
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2")
	want = []string{"DELETE BGPPeer(mine)", "PUT Node(n1)", "PUT Node(n2)"}
	if got := c.writes(adopted); !slices.Equal(got, want) {
		t.Errorf("the controller has written %v, want %v", got, want)
	}
	if got := c.inRole(); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("with the new cluster ID are %v", got)
	}
	c.aim(to(reflector.Mesh))
	c.reaches("mesh")
	if got := c.inRole(); len(got) > 0 {
		t.Errorf("reflectors are %v", got)
	}
}

// Patience is with etcd. What a person's command computes in between may take longer: in a mesh of
// a thousand nodes a look at what may be in the way of a migration takes many seconds.
func TestAChangeMayTakeItsTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2")
	desk := c.desk()
	desk.patience = 5 * time.Second // of a busy machine's etcd, too
	goal := reflector.Goal{Mode: reflector.Reflectors, Paused: true}
	must(t, desk.Change(t.Context(), func(View) (Changes, error) {
		time.Sleep(desk.patience + 100*time.Millisecond)
		return Changes{Goal: &goal}, nil
	}))
	if got := c.look().goal; got != goal {
		t.Errorf("the goal is %+v, want %+v", got, goal)
	}
}

// What is adopted is what was read: whatever a person changes meanwhile is looked at again first.
func TestAdoptComparesEverything(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	c.theirs("1.1.1.1")
	for what, edit := range map[string]string{
		"another Node": `
kind: Node
apiVersion: projectcalico.org/v3
metadata: {name: n9}
spec: {bgp: {ipv4Address: 10.0.7.9/24}}
`,
		"a BGPPeer that was not there": `
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: later}
spec: {nodeSelector: all(), peerSelector: has(later)}
`,
	} {
		looks, left := 0, map[string]string{}
		must(t, c.desk().Change(t.Context(), func(v View) (Changes, error) {
			changes := adoptAll(t, v)
			if looks++; looks == 1 {
				_, err := c.etcd.Cluster().Apply(t.Context(), []byte(edit))
				must(t, err)
				left = c.resources()
				return changes, nil
			}
			if !maps.Equal(c.resources(), left) {
				t.Errorf("%s: it was written nonetheless: %v", what, c.resources())
			}
			return Changes{Goal: &v.Goal}, nil // and this time nothing
		}))
		if looks != 2 {
			t.Errorf("%s: it looked %d times", what, looks)
		}
	}
}

// Five real agents whose reflectors a person has set up, with the cluster ID that has to change:
// they are adopted, get another ID, and go to the mesh. No route is lost, and no FIB is written.
func TestAdoptTouchesNoRoute(t *testing.T) {
	t.Parallel()
	a := inMesh(t, "n1", "n2", "n3", "n4", "n5")
	a.apply(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: mine}
spec: {nodeSelector: all(), peerSelector: rr == 'yes'}
`)
	for _, node := range a.nodes[:3] {
		a.role(node, ", routeReflectorClusterID: 0.0.0.0", "rr: 'yes'")
		a.applied("the reflector "+node, 4)
	}
	a.mesh(false)
	up := []int{4, 4, 4, 3, 3}
	a.applied("what a person has set up", up...)
	a.inFIB()
	a.counts()
	before := a.ops()
	desk, err := NewDesk(etcd.Config{Endpoints: []string{a.etcd.Endpoint()}}, "v1")
	must(t, err)
	must(t, desk.Change(t.Context(), func(v View) (Changes, error) { return adoptAll(t, v), nil }))
	a.applied("the adoption", up...)
	startController(t, a.etcd, "a")
	for _, there := range []struct {
		mode reflector.Mode
		up   []int
	}{{reflector.Reflectors, up}, {reflector.Mesh, []int{4}}} {
		a.aim(to(there.mode))
		reaches(t, a.etcd.Client(), string(there.mode))
		a.applied(string(there.mode), there.up...)
		a.inFIB()
		if lost := a.gone(); len(lost) > 0 {
			t.Errorf("%s: lost %v", there.mode, lost)
		}
		if after := a.ops(); !slices.Equal(after, before) {
			t.Errorf("%s: FIBs have %v, had %v", there.mode, after, before)
		}
	}
}
