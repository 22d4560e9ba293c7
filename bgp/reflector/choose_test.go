package reflector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustChoose(t interface{ Fatal(...any) }, w *World, c Config) Choice {
	r, err := c.parse()
	if err != nil {
		t.Fatal(err)
	}
	return choose(w, r, w.deadNodes(r))
}

func names(c Choice) []string {
	var all []string
	for _, r := range c.Reflectors {
		all = append(all, r.Node)
	}
	return slices.Sorted(slices.Values(all))
}

// appoint makes the chosen nodes reflectors of ours.
func appoint(nodes []testNode, c Choice) []testNode {
	out := slices.Clone(nodes)
	for i, n := range out {
		if out[i].clusterID = ""; c.Has(n.name) {
			out[i].clusterID = "224.0.0.1"
		}
		out[i].annotations = maps.Clone(n.annotations)
		if out[i].annotations == nil {
			out[i].annotations = map[string]string{}
		}
		out[i].annotations[roleNote] = "1"
	}
	return out
}

func objectsOf(nodes []testNode) []Object {
	var all []Object
	for _, n := range nodes {
		all = append(all, n.object())
	}
	return all
}

// drawNodes draws a cluster: zones, ages, some nodes that must not be reflectors.
func drawNodes(t *rapid.T, least int) []testNode {
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	var all []testNode
	for i := range rapid.IntRange(least, 130).Draw(t, "nodes") {
		n := numbered(i)
		n.age = rapid.IntRange(1, 20).Draw(t, "age")
		if z := rapid.IntRange(0, zones-1).Draw(t, "zone"); z > 0 {
			n.zone = fmt.Sprintf("z%d", z)
		}
		if rapid.IntRange(0, 4).Draw(t, "gateway") == 0 {
			n.labels = map[string]string{"dedicated": "gateway"}
		}
		all = append(all, n)
	}
	return all
}

var avoiding = Config{Avoid: "dedicated == 'gateway'"}

// TestChooseCountAndSpread: the count is as configured, as far as there are nodes for it; and of
// two zones that had a node left none has two reflectors more.
func TestChooseCountAndSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 1)
		c := mustChoose(t, worldOf(objectsOf(nodes), nil), avoiding)
		fit, chosen := map[string]int{}, map[string]int{}
		total := 0
		for _, n := range nodes {
			if c.Has(n.name) {
				chosen[n.zone]++
			}
			if n.labels == nil {
				fit[n.zone]++
				total++
			} else if c.Has(n.name) {
				t.Fatalf("%s is to be avoided", n.name)
			}
		}
		want := 3
		if len(nodes) >= 100 {
			want += len(nodes) / 100
		}
		if got := len(c.Reflectors); got != min(want, total) {
			t.Fatalf("%d reflectors of %d nodes, %d of them fit", got, len(nodes), total)
		}
		for a := range fit {
			for b := range fit {
				if chosen[a] > chosen[b]+1 && fit[b] > chosen[b] {
					t.Fatalf("zone %q has %d reflectors, zone %q %d of %d", a, chosen[a], b,
						chosen[b], fit[b])
				}
			}
		}
		if len(c.Reflectors)+len(c.Others) != len(nodes) {
			t.Fatalf("%d of %d nodes have a reason", len(c.Reflectors)+len(c.Others), len(nodes))
		}
	})
}

// TestChooseIsStable: when a node comes or goes and the count stays, at most one role moves; and
// who is chosen stays chosen when nothing happens.
func TestChooseIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 2)
		before := mustChoose(t, worldOf(objectsOf(nodes), nil), avoiding)
		nodes = appoint(nodes, before)
		again := mustChoose(t, worldOf(objectsOf(nodes), nil), avoiding)
		if !slices.Equal(names(before), names(again)) {
			t.Fatalf("%v, then %v", names(before), names(again))
		}
		i := rapid.IntRange(0, len(nodes)-1).Draw(t, "which")
		switch rapid.SampledFrom([]string{"goes", "comes", "cordoned"}).Draw(t, "what") {
		case "goes":
			nodes = slices.Delete(nodes, i, i+1)
		case "comes":
			n := numbered(5000)
			n.age = rapid.IntRange(0, 30).Draw(t, "age of the new one")
			n.zone = rapid.SampledFrom([]string{"", "z1", "z9"}).Draw(t, "zone of the new one")
			nodes = append(nodes, n)
		default:
			nodes[i].annotations[cordonNote] = "maintenance"
		}
		after := mustChoose(t, worldOf(objectsOf(nodes), nil), avoiding)
		if len(after.Reflectors) != len(before.Reflectors) {
			return
		}
		moved := 0
		for _, n := range names(after) {
			if !before.Has(n) {
				moved++
			}
		}
		if moved > 1 {
			t.Fatalf("%v, then %v", names(before), names(after))
		}
	})
}

func TestChooseIgnoresTheOrderOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := objectsOf(drawNodes(t, 1))
		want := mustChoose(t, worldOf(objects, nil), avoiding)
		shuffled := rapid.Permutation(objects).Draw(t, "order")
		if got := mustChoose(t, worldOf(shuffled, nil), avoiding); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, and in another order %+v", want, got)
		}
	})
}

// TestCount: the count rises at once, and falls with a margin.
func TestCount(t *testing.T) {
	for _, tc := range []struct {
		config     Config
		n, current int
		want       int
	}{
		{Config{}, 1, 0, 3}, {Config{}, 99, 0, 3}, {Config{}, 100, 0, 4}, {Config{}, 250, 0, 5},
		{Config{}, 2000, 0, 23},
		{Config{}, 99, 4, 4}, {Config{}, 92, 4, 4}, {Config{}, 90, 4, 3}, {Config{}, 100, 3, 4},
		{Config{}, 50, 9, 3},
		{Config{Ratio: 0.05, Max: 20}, 50, 0, 3}, {Config{Ratio: 0.05, Max: 20}, 250, 0, 13},
		{Config{Ratio: 0.05, Max: 20}, 1000, 0, 20},
		{Config{Min: 2, Max: 2}, 1000, 0, 2}, {Config{Ratio: 0.5}, 1000, 0, 100},
	} {
		r, err := tc.config.parse()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.count(tc.n, tc.current); got != tc.want {
			t.Errorf("%+v: %d nodes, %d reflectors: %d, want %d", tc.config, tc.n, tc.current, got,
				tc.want)
		}
	}
}

// TestChooseReasons: each line is one cluster; who is chosen and why, who is not and why.
func TestChooseReasons(t *testing.T) {
	six := func(edit func([]testNode)) []testNode {
		var all []testNode
		for i := range 6 {
			n := numbered(i)
			n.name = string(rune('a' + i))
			n.zone = []string{"east", "west"}[i%2]
			n.age = 100 - i // a is the oldest
			all = append(all, n)
		}
		if edit != nil {
			edit(all)
		}
		return all
	}
	reflector := func(n *testNode) {
		n.clusterID = "224.0.0.1"
		n.annotations = map[string]string{roleNote: "1"}
	}
	for _, tc := range []struct {
		name   string
		nodes  []testNode
		config Config
		world  func(*World)
		want   string
		not    string // of the others
	}{
		{"the oldest of each zone", six(nil), Config{}, nil, "a b c", "3 reflectors are enough"},
		{"current ones stay, also where balance would be better", six(func(n []testNode) {
			reflector(&n[1])
			reflector(&n[3])
			reflector(&n[5])
		}), Config{}, nil, "b d f", "3 reflectors are enough"},
		{"a lost one is replaced in its zone", six(func(n []testNode) {
			reflector(&n[1])
			reflector(&n[3])
			reflector(&n[0])
			n[3].annotations[cordonNote] = "disk"
		}), Config{}, nil, "a b f", "it is cordoned: disk"},
		{"or else elsewhere", six(func(n []testNode) {
			n[5].zone, n[3].zone = "east", "north"
			reflector(&n[3])
			reflector(&n[0])
			reflector(&n[1])
			n[3].annotations[cordonNote] = "disk"
		}), Config{}, nil, "a b c", "it is cordoned: disk"},
		{"of too many the youngest of the fullest zones go", six(func(n []testNode) {
			for i := range n {
				reflector(&n[i])
			}
		}), Config{}, nil, "a b c", "3 reflectors are enough"},
		{"but an agent without workloads stays", six(func(n []testNode) {
			for i := range n {
				reflector(&n[i])
			}
		}), Config{}, func(w *World) {
			a := w.Agents["f"]
			a.Status.Dataplane = "none"
			w.Agents["f"] = a
		}, "a b f", "3 reflectors are enough"},
		{"a person's counts and stays", six(func(n []testNode) {
			n[5].clusterID = "0.0.0.0"
			n[5].labels = map[string]string{"dedicated": "gateway"}
		}), avoiding, nil, "a c f", "3 reflectors are enough"},
		{"drained, other version, lost", six(nil), Config{}, func(w *World) {
			for name, change := range map[string]func(*Agent){
				"a": func(a *Agent) { a.Status.Draining = true },
				"b": func(a *Agent) { a.Status.Version = "v0" },
				"c": func(a *Agent) { a.Lost = start },
			} {
				a := w.Agents[name]
				change(&a)
				w.Agents[name] = a
			}
		}, "d e f", "it is draining"},
		{"a current one of another version stays", six(func(n []testNode) { reflector(&n[5]) }),
			Config{}, func(w *World) {
				a := w.Agents["f"]
				a.Status.Version = "v0"
				w.Agents["f"] = a
			}, "a c f", ""},
		{"Kubernetes", six(func(n []testNode) { n[0].kubernetes = "a.k8s" }), Config{},
			func(w *World) {
				w.SetKubernetes(map[string]KubernetesNode{
					"b": {NotReady: start.Add(-time.Second)},
					"c": {Unschedulable: true},
					"d": {Taints: []Taint{{"dedicated", "PreferNoSchedule"}}},
					"e": {Taints: []Taint{{"node.kubernetes.io/memory-pressure", "NoSchedule"}}},
					"f": {Deleted: true},
				})
			}, "d", "Kubernetes has no such Node"},
		{"Kubernetes has another name for it, and a host is none of its", six(func(n []testNode) {
			n[0].kubernetes = "a.k8s"
		}), Config{}, func(w *World) {
			w.SetKubernetes(map[string]KubernetesNode{
				"a.k8s": {Unschedulable: true}, "a": {}, "b": {}, "d": {}, "e": {}, "f": {},
			})
		}, "b c d", "its Kubernetes Node is cordoned"},
		{"what a person taints is for no reflector", six(nil), Config{}, func(w *World) {
			w.SetKubernetes(map[string]KubernetesNode{
				"a": {Taints: []Taint{{"node-role.kubernetes.io/control-plane", "NoSchedule"}}},
				"b": {Taints: []Taint{{"gpu", "NoExecute"}}},
			})
		}, "c d e", "its Kubernetes Node has the taint gpu"},
		{"but its pool is", six(func(n []testNode) {
			for i := range 4 {
				n[i].labels = map[string]string{"pool": "rr"}
			}
		}), Config{Pool: "pool == 'rr'"}, func(w *World) {
			taints := []Taint{{"dedicated", "NoSchedule"}}
			w.SetKubernetes(map[string]KubernetesNode{
				"a": {Taints: taints}, "b": {Taints: taints}, "c": {Taints: taints},
			})
		}, "a b c", ""},
		{"a reflector with a new taint stays", six(func(n []testNode) { reflector(&n[5]) }),
			Config{}, func(w *World) {
				w.SetKubernetes(map[string]KubernetesNode{
					"f": {Taints: []Taint{{"maintenance", "NoSchedule"}}},
				})
			}, "a c f", ""},
		{"no role ends by Kubernetes alone", six(func(n []testNode) {
			for i := range 3 {
				reflector(&n[i])
			}
			for i := range n {
				n[i].kubernetes = n[i].name
			}
		}), Config{}, func(w *World) { w.SetKubernetes(map[string]KubernetesNode{}) }, "a b c",
			"Kubernetes has no such Node"},
		{"nor of a whole pool", six(func(n []testNode) {
			for i := range 3 {
				reflector(&n[i])
				n[i].labels = map[string]string{"pool": "rr"}
			}
		}), Config{Pool: "has(pool)", WholePool: true}, func(w *World) {
			w.SetKubernetes(map[string]KubernetesNode{
				"a": {Unschedulable: true}, "b": {Unschedulable: true}, "c": {Unschedulable: true},
			})
		}, "a b c", ""},
		{"a reflector whose kubelet restarts stays", six(func(n []testNode) {
			reflector(&n[4])
			reflector(&n[5])
		}), Config{}, func(w *World) {
			w.Kubernetes = map[string]KubernetesNode{
				"a": {}, "b": {}, "c": {}, "d": {},
				"e": {NotReady: start.Add(-59 * time.Second)},
				"f": {NotReady: start.Add(-60 * time.Second)},
			}
		}, "a b e", "its Kubernetes Node has not been ready for 1m0s"},
		{"a family that others have", six(func(n []testNode) {
			n[1].v6, n[2].v6, n[5].v6 = "fd00::1/64", "fd00::2/64", "fd00::3/64"
		}), Config{}, nil, "b c f", "it has no IPv6 address, and 3 nodes do"},
		{"a family that one node has matters to nobody", six(func(n []testNode) {
			n[5].v6 = "fd00::3/64"
		}), Config{}, nil, "a b c", "3 reflectors are enough"},
		{"a pool, all of it", six(func(n []testNode) {
			for _, i := range []int{1, 2, 3, 5} {
				n[i].labels = map[string]string{"pool": "rr"}
			}
		}), Config{Pool: "pool == 'rr'", WholePool: true}, nil, "b c d f",
			"it is not in the pool pool == 'rr'"},
	} {
		w := worldOf(objectsOf(tc.nodes), nil)
		if tc.world != nil {
			tc.world(w)
		}
		c := mustChoose(t, w, tc.config)
		if got := strings.Join(names(c), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		if tc.not != "" && !slices.ContainsFunc(c.Others, func(n Reason) bool {
			return n.Reason == tc.not
		}) {
			t.Errorf("%s: nobody has the reason %q: %v", tc.name, tc.not, c.Others)
		}
		if len(c.Problems) > 0 {
			t.Errorf("%s: %v", tc.name, c.Problems)
		}
	}
}

// TestChooseDead: without status a reflector stays as long as its peers have their sessions with
// it. It is dead when most have had none for the grace time.
func TestChooseDead(t *testing.T) {
	var nodes []testNode
	for i := range 5 {
		nodes = append(nodes, numbered(i))
	}
	nodes[0].clusterID = "224.0.0.1"
	peer := bgpPeer(peerName, `{"nodeSelector":"all()","peerSelector":"rr == 'true'"}`)
	nodes[0].labels = map[string]string{"rr": "true"}
	for _, tc := range []struct {
		down  int
		since time.Duration
		want  bool
	}{{0, time.Hour, true}, {2, time.Hour, true}, {3, time.Hour, false}, {3, time.Second, true}} {
		for _, notes := range []map[string]string{{roleNote: "1"}, nil} { // ours, a person's
			nodes[0].annotations = notes
			w := worldOf(append(objectsOf(nodes), peer), nil)
			lost := w.Agents["n0000"]
			lost.Lost = start.Add(-time.Hour)
			w.Agents["n0000"] = lost
			for i := range tc.down {
				a := w.Agents[numbered(i+1).name]
				a.Status.Down = []Down{{"n0000", start.Add(-tc.since)}}
				w.Agents[numbered(i+1).name] = a
			}
			if got := mustChoose(t, w, Config{}).Has("n0000"); got != tc.want {
				t.Errorf("%v, %d of 4 sessions down for %s: stays %t, want %t", notes, tc.down,
					tc.since, got, tc.want)
			}
		}
	}
}

func TestChooseBesideBIRD(t *testing.T) {
	var nodes []testNode
	for i := range 6 {
		n := numbered(i)
		n.age = 100 - i
		nodes = append(nodes, n)
	}
	w := worldOf(objectsOf(nodes), map[string]string{"n0000": "bird", "n0005": "none"})
	c := mustChoose(t, w, Config{})
	if got := names(c); !slices.Equal(got, []string{"n0001", "n0002", "n0005"}) ||
		c.Reflectors[0].Node != "n0005" {
		t.Errorf("%+v", c.Reflectors)
	}
}

func TestPoolThatIsTooSmall(t *testing.T) {
	var nodes []testNode
	for i := range 6 {
		n := numbered(i)
		n.zone = []string{"east", "west"}[i%2]
		if i == 0 || i == 2 {
			n.labels = map[string]string{"pool": "rr"}
		}
		nodes = append(nodes, n)
	}
	c := mustChoose(t, worldOf(objectsOf(nodes), nil), Config{Pool: "has(pool)"})
	want := []string{"the pool has 2 nodes that can be reflectors, and needs 3",
		"the pool has no node that can be a reflector in zone west"}
	if !slices.Equal(c.Problems, want) {
		t.Errorf("%q", c.Problems)
	}
}

func TestBadConfig(t *testing.T) {
	for want, c := range map[string]Config{
		`topology: "hierarchical" is not built yet; use "single", "quorum" or "multi"`: {
			Topology: "hierarchical",
		},
		`topology: "star" is unknown; use "single", "quorum" or "multi"`: {Topology: "star"},
		`bird: with topology "quorum" no node with BIRD can be a reflector`: {
			Topology: Quorum, Bird: true,
		},
		`clusterID: with topology "multi" it may be at most 255.239.255.255, as the next ones ` +
			"follow": {Topology: Multi, ClusterID: "255.255.255.255"},
		"label and zoneLabel: vpp-route-agent/reflector-group marks something else": {
			Label: groupLabel,
		},
		"avoid: it depends on " + numberLabel + ", which marks those that are chosen": {
			Avoid: "has(" + numberLabel + ")",
		},
		"clusterID: 0.0.0.0 means a different ID on each BIRD": {ClusterID: "0.0.0.0"},
		`clusterID: "::1" is not a dotted quad`:                {ClusterID: "::1"},
		`label: "a b" is not a label`:                          {Label: "a b"},
		`label: "a)||has(b" is not a label`:                    {Label: "a)||has(b"},
		"label: zone is the zone's label, too":                 {Label: "zone", ZoneLabel: "zone"},
		"pool: it depends on rr, which marks those that are chosen": {
			Label: "rr", Pool: "!has(rr)",
		},
		"avoid: it depends on rr, which marks those that are chosen": {
			Label: "rr", Avoid: "a == 'b' || rr == 'true'",
		},
		"ratio: 2 is not within 0 and 1":                       {Ratio: 2},
		"max: 2 is less than min, 3":                           {Max: 2},
		"max: 101 is more than 100":                            {Max: 101},
		"wholePool: no pool is given":                          {WholePool: true},
		"graceSeconds: -1 is not within 1 and 604800":          {GraceSeconds: -1},
		"limitSeconds: 10000000000 is not within 1 and 604800": {LimitSeconds: 10_000_000_000},
	} {
		if _, err := c.parse(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}

// BenchmarkChoose chooses among 5000 nodes, which may take 1 s. It takes some 10 ms.
func BenchmarkChoose(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	var objects []Object
	for i := range 5000 {
		n := numbered(i)
		n.zone, n.age = fmt.Sprintf("z%d", i%7), random.IntN(1000)
		objects = append(objects, n.object())
	}
	w := Read(objects)
	w.Version = "v1"
	for _, n := range w.names {
		w.Agents[n] = Agent{Status: Status{Format: StatusFormat, Version: "v1", Dataplane: "vpp"}}
	}
	for b.Loop() {
		mustChoose(b, w, Config{Pool: "!has(dedicated)", Avoid: "dedicated == 'gateway'"})
	}
}

// A label that no Node can have would make one zone of all nodes, or mark no reflector.
func TestLabelsThatNoNodeCanHave(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, tc := range []struct {
		label string
		ok    bool
	}{
		{"zone", true}, {"rack.example.net/zone", true}, {"a.b-c/D_e.f", true},
		{long[1:], true}, {"a zone", false}, {"zone/", false}, {"/zone", false}, {"a/b/c", false},
		{"-zone", false}, {"zone-", false}, {"Upper.example/zone", false}, {"zöne", false},
		{long, false}, {"a..b/zone", false}, {strings.Repeat("x.", 126) + "xx/zone", false},
	} {
		for field, c := range map[string]Config{
			"label": {Label: tc.label}, "zoneLabel": {ZoneLabel: tc.label},
		} {
			want := fmt.Sprintf("%s: %.64q is not a label", field, tc.label)
			err := c.Check()
			if tc.ok && err != nil || !tc.ok && (err == nil || err.Error() != want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// TestChooseBIRD: a node with BIRD is chosen if the rules say so, after the agents of its zone; the
// first is an agent without workloads.
func TestChooseBIRD(t *testing.T) {
	var nodes []testNode
	for i, zone := range []string{"east", "east", "west", "west", "south"} {
		n := numbered(i)
		n.zone, n.age = zone, 100-i
		nodes = append(nodes, n)
	}
	kinds := map[string]string{"n0000": "bird", "n0002": "bird", "n0003": "none", "n0004": "bird"}
	w := worldOf(objectsOf(nodes), kinds)
	if c := mustChoose(t, w, Config{}); !slices.Equal(names(c), []string{"n0001", "n0003"}) {
		t.Errorf("without BIRD: %v", names(c))
	}
	c := mustChoose(t, w, Config{Bird: true})
	var order []string
	for _, r := range c.Reflectors {
		order = append(order, r.Node)
	}
	if want := []string{"n0003", "n0001", "n0004"}; !slices.Equal(order, want) {
		t.Errorf("with BIRD: %v, want %v", order, want)
	}
	c = mustChoose(t, w, Config{Bird: true, Min: 4})
	if !slices.Equal(names(c), []string{"n0000", "n0001", "n0003", "n0004"}) {
		t.Errorf("four: %v", names(c))
	}
}

// TestRolesNeverEnd: whatever persons cordon, drain, leave out of the pool or avoid, reflectors do
// not become fewer than two on the way, where there were two, or a node can be one.
func TestRolesNeverEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 2)
		config := Config{Pool: "!has(out)", Avoid: avoiding.Avoid}
		w := worldOf(objectsOf(nodes), nil)
		g := Goal{Mode: Reflectors, Config: config, Since: start}
		take := func(check func(*World)) {
			for {
				d := Next(w, g)
				if d.Step == nil {
					return
				}
				w, g = w.after(d.Step.Writes), d.Step.Goal
				check(w)
			}
		}
		w.preview = true
		take(func(*World) {})
		before := len(w.reflectors())
		var fit []string
		for _, n := range w.names {
			o := w.objects[nodeKey(n)]
			e := edit{value: o.Value}
			switch rapid.SampledFrom([]string{"", "cordon", "drain", "pool"}).Draw(t, n) {
			case "cordon":
				e.set("disk", "metadata", "annotations", cordonNote)
			case "drain":
				a := w.Agents[n]
				a.Status.Draining = true
				w.Agents[n] = a
			case "pool":
				e.set("here", "metadata", "labels", "out")
			default:
				if w.snapshot.Nodes[n].Labels["dedicated"] == "" {
					fit = append(fit, n)
				}
				continue
			}
			w.objects[o.Key] = Object{o.Key, e.value, 1}
		}
		w = w.after(nil)
		least := min(2, before)
		take(func(w *World) {
			if n := len(w.reflectors()); n < least {
				t.Fatalf("%d of %d reflectors are left", n, before)
			}
		})
		left, least := w.reflectors(), min(3, len(fit))
		for _, n := range left {
			if slices.Contains(fit, n) {
				least--
			}
		}
		if !w.meshIsOn() && least > 0 {
			t.Fatalf("reflectors are %v, fit are %v", left, fit)
		}
	})
}
