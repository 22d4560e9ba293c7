package reflector

import (
	"reflect"
	"slices"
	"testing"
)

func mustPreview(t *testing.T, w *World, g Goal) Preview {
	p, err := NewPreview(w, g)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPreview: ten nodes; one has an agent without workloads, one runs BIRD.
func TestPreview(t *testing.T) {
	var nodes []testNode
	for i := range 10 {
		nodes = append(nodes, numbered(i))
	}
	w := worldOf(objectsOf(nodes), map[string]string{"n0007": "none", "n0003": "bird"})
	p := mustPreview(t, w, Goal{Mode: Reflectors})
	want := []PreviewStep{
		{"create BGPPeer(vpp-route-agent-reflectors)",
			[]string{"BGPPeer(vpp-route-agent-reflectors)"}},
		{"make Node(n0007) a reflector: the oldest agent without workloads, for the sessions " +
			"with BIRD", []string{"Node(n0007)"}},
		{"make Node(n0000) a reflector: the oldest of the nodes without a zone",
			[]string{"Node(n0000)"}},
		{"make Node(n0001) a reflector: the oldest of the nodes without a zone",
			[]string{"Node(n0001)"}},
		{"turn the mesh off", []string{"BGPConfiguration(default)"}},
		{"verify: reflectors n0000, n0001, n0007", []string{}},
	}
	if !reflect.DeepEqual(p.Steps, want) {
		t.Errorf("got  %q\nwant %q", p.Steps, want)
	}
	mesh, reflectors := Sessions{45, 0, 9}, Sessions{3*7 + 3, 9, 3}
	if p.Before != mesh || p.After != reflectors || p.Loss != "" || len(p.Obstacles) > 0 ||
		!slices.Equal(p.Birds, []string{"n0003"}) {
		t.Errorf("%+v", p)
	}
}

// TestPreviewOfTheWayBack: the steps are undone in reverse order, and what is left is the mesh.
func TestPreviewOfTheWayBack(t *testing.T) {
	w := worldOf(objectsOf([]testNode{numbered(0), numbered(1), numbered(2)}), nil)
	g := Goal{Mode: Reflectors, Since: start, Config: Config{Min: 2, Max: 2}}
	w.preview = true
	for d := Next(w, g); d.Step != nil; d = Next(w, g) {
		w, g = w.after(d.Step.Writes), d.Step.Goal
	}
	g.Mode = Mesh
	p := mustPreview(t, w, g)
	var does []string
	for _, s := range p.Steps {
		does = append(does, s.Does)
	}
	want := []string{"turn the mesh on", "Node(n0001) stops being a reflector",
		"Node(n0000) stops being a reflector", "delete BGPPeer(vpp-route-agent-reflectors)",
		"verify: mesh"}
	if !slices.Equal(does, want) {
		t.Errorf("got  %q\nwant %q", does, want)
	}
	if want := (Sessions{3, 0, 2}); p.Before != (Sessions{3, 2, 2}) || p.After != want {
		t.Errorf("%+v, then %+v", p.Before, p.After)
	}
}

func TestPreviewStopsAtAnObstacle(t *testing.T) {
	w := worldOf(append(objectsOf([]testNode{numbered(0), numbered(1)}),
		configuration(`{"nodeToNodeMeshEnabled":false}`)), map[string]string{"n0001": "bird"})
	p := mustPreview(t, w, Goal{Mode: Reflectors})
	want := []string{"BGPConfiguration(default): a person turned the mesh off"}
	if !slices.Equal(p.Obstacles, want) || len(p.Steps) > 0 || p.Before != p.After || p.Loss == "" {
		t.Errorf("%+v", p)
	}
	if _, err := NewPreview(w, Goal{Config: Config{Max: -1}}); err == nil {
		t.Error("no error for a configuration that cannot be followed")
	}
}

func TestWithoutNodesListsAreEmpty(t *testing.T) {
	p, err := NewPreview(Read(nil), Goal{Mode: Reflectors})
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewOverview(Read(nil), Config{})
	if err != nil || p.Birds == nil || o.Unseen == nil {
		t.Errorf("%v; birds %#v, unseen %#v", err, p.Birds, o.Unseen)
	}
}
