package reflector

import (
	"fmt"
	"testing"
)

// A status has room for some 45 sessions with reflectors. Those that are not complete are among
// them, so that the others can be counted.
func TestOverviewOfManyReflectors(t *testing.T) {
	const reflectors = 80
	var nodes []testNode
	for i := range reflectors + 2 {
		n := numbered(i)
		if i < reflectors {
			n.clusterID, n.labels = "224.0.0.1", map[string]string{"rr": ""}
		}
		nodes = append(nodes, n)
	}
	objects := append(objectsOf(nodes), configuration(`{"nodeToNodeMeshEnabled":false}`),
		bgpPeer("mine", `{"nodeSelector":"all()","peerSelector":"has(rr)"}`))
	for _, tc := range []struct {
		name  string
		lacks func(reflector int) bool // n0080 and n0081 do not have all of its routes
		lags  bool                     // n0080 has not applied the last change
	}{
		{"all are complete", func(int) bool { return false }, false},
		{"two are not", func(r int) bool { return r == 9 || r == 79 }, false},
		{"all but two are not", func(r int) bool { return r != 9 && r != 79 }, false},
		{"a node lags", func(int) bool { return false }, true},
	} {
		w := ready(worldOf(objects, nil))
		listed := 0
		for i := range 2 {
			name := fmt.Sprintf("n%04d", reflectors+i)
			s := w.Agents[name].Status
			for r := range reflectors {
				s.Reflectors = append(s.Reflectors, Session{
					Node: fmt.Sprintf("n%04d", r), Up: true, EndOfRIB: !tc.lacks(r),
				})
			}
			if tc.lags && i == 0 {
				s.Digest = "old"
			}
			said, problem := Hear(StatusKey(name), s.Encode(), "v1")
			if problem != nil || said.Status.ReflectorsMore == 0 {
				t.Fatalf("%v, %+v", problem, said.Status)
			}
			w.Agents[name] = Agent{Status: *said.Status}
			if i == 0 {
				listed = len(said.Status.Reflectors)
			}
		}
		o, err := NewOverview(w, Config{})
		if err != nil || len(o.Reflectors) != reflectors {
			t.Fatalf("%v, %d reflectors", err, len(o.Reflectors))
		}
		for i, r := range o.Reflectors {
			want := 2
			switch {
			case tc.lacks(i):
				want = 0
			case tc.name == "all but two are not": // there is no room to say so
				want = 0
			case tc.lags && i >= listed: // what it does not list may not be there
				want = 1
			}
			if r.Sessions != 2 || r.Complete != want {
				t.Errorf("%s: %s has %d of %d sessions complete, want %d of 2", tc.name, r.Node,
					r.Complete, r.Sessions, want)
			}
		}
	}
}

// A reflector that is cordoned, and stays as no other node can take the role, is named with both.
func TestOverviewNamesWhoStays(t *testing.T) {
	var nodes []testNode
	for i := range 3 {
		n := numbered(i)
		n.clusterID = "224.0.0.1"
		n.labels = map[string]string{"vpp-route-agent/route-reflector": "true"}
		n.annotations = map[string]string{roleNote: fmt.Sprint(i + 1), cordonNote: "disk"}
		nodes = append(nodes, n)
	}
	w := worldOf(append(objectsOf(nodes), configuration(`{"nodeToNodeMeshEnabled":false}`)), nil)
	o, err := NewOverview(w, Config{})
	if err != nil || len(o.Reflectors) != 3 {
		t.Fatalf("%v, %v", err, o.Reflectors)
	}
	const stays = "it is cordoned: disk; no other node can take its role"
	for i, want := range []string{stays, stays, "it is cordoned: disk"} {
		if got := o.Reflectors[i].Unfit; got != want {
			t.Errorf("%s: %q, want %q", o.Reflectors[i].Node, got, want)
		}
	}
}
