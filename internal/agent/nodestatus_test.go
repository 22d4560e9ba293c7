package agent

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

// meshOf is cluster with two other nodes, one of them a reflector, and a router.
func meshOf(change ...func(*calico.Snapshot)) *calico.Snapshot {
	c := cluster()
	c.Nodes["b"] = calico.Node{Name: "b", IPv4: pfx("192.168.4.3/24")}
	c.Nodes["r"] = calico.Node{
		Name: "r", IPv4: pfx("192.168.4.4/24"), RouteReflectorClusterID: "10.0.0.1",
		Labels: map[string]string{"reflector": "true"},
	}
	c.BGPPeers = map[string]calico.BGPPeer{
		"reflectors": {Name: "reflectors", PeerSelector: "has(reflector)"},
		"tor":        {Name: "tor", PeerIP: "192.168.4.9", ASNumber: 65000},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestSessionsThatAControllerIsTold(t *testing.T) {
	began := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	a := applied{}.next("a", meshOf(), began)
	id := func(s string) bgp.PeerID { return bgp.PeerID{Address: addr(s)} }
	got := sessionsStatus(a, nil)
	want := reflector.Status{
		Wanted: 2, Down: []reflector.Down{{Node: "r", Since: began}, {Node: "b", Since: began}},
		DownBits: []byte{0b11}, Reflectors: []reflector.Session{{Node: "r"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("none is up:\n%+v\nwant\n%+v", got, want)
	}

	got = sessionsStatus(a, []bgp.PeerState{
		{ID: id("192.168.4.3"), Established: true, EndOfRIB: true},
		{ID: id("192.168.4.4"), Established: true},
		{ID: id("192.168.4.9")},
	})
	want = reflector.Status{
		Wanted: 2, Up: 2, Reflectors: []reflector.Session{{Node: "r", Up: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("all are up:\n%+v\nwant\n%+v", got, want)
	}

	got = sessionsStatus(a, []bgp.PeerState{{ID: id("192.168.4.4"), Established: true}})
	want = reflector.Status{
		Wanted: 2, Up: 1, Down: []reflector.Down{{Node: "b", Since: began}},
		DownBits: []byte{0b01}, Reflectors: []reflector.Session{{Node: "r", Up: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the reflector's is up:\n%+v\nwant\n%+v", got, want)
	}

	// A peer that stays keeps the time since which it is wanted, and another one gets its own.
	lost := began.Add(time.Minute)
	a = a.next("a", meshOf(func(c *calico.Snapshot) {
		c.Nodes["d"] = calico.Node{Name: "d", IPv4: pfx("192.168.4.5/24")}
	}), began.Add(time.Hour))
	got = sessionsStatus(a, []bgp.PeerState{
		{ID: id("192.168.4.4"), Since: lost.Add(time.Millisecond), EndOfRIB: true},
	})
	want = reflector.Status{
		Wanted: 3, Reflectors: []reflector.Session{{Node: "r", EndOfRIB: true}},
		Down: []reflector.Down{
			{Node: "r", Since: lost}, {Node: "b", Since: began},
			{Node: "d", Since: began.Add(time.Hour)},
		},
		DownBits: []byte{0b111},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("one was lost, one is new:\n%+v\nwant\n%+v", got, want)
	}
}

// told is the last status that a controller was told.
type told struct {
	mu   sync.Mutex
	last reflector.Status
}

func (r *told) report(s reflector.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = s
}

func (r *told) status() reflector.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// The digest is that of what the speaker has taken, and what a controller computes from the same
// data.
func TestDigestIsOfWhatTheSpeakerHasTaken(t *testing.T) {
	var r told
	inBubble(t, func(t *testing.T, n *node) {
		first := meshOf()
		second := meshOf(func(c *calico.Snapshot) { delete(c.BGPPeers, "reflectors") })
		// it gives this node no other session, and may do so when a Node changes
		third := meshOf(func(c *calico.Snapshot) {
			delete(c.BGPPeers, "reflectors")
			c.BGPPeers["later"] = calico.BGPPeer{Name: "later", PeerSelector: "has(later)"}
		})
		wants := func(what string, s *calico.Snapshot) {
			t.Helper()
			time.Sleep(2 * time.Second)
			got := r.status()
			if got.Digest != reflector.Digest("a", s) || got.Format != reflector.StatusFormat ||
				got.Version != "test" || got.Dataplane != "vpp" {
				t.Errorf("%s: %+v", what, got)
			}
		}
		time.Sleep(time.Second)
		if got := r.status(); got.Format != 0 {
			t.Errorf("without data: %+v", got)
		}
		n.dataplane.facts <- live
		n.snapshots <- first
		wants("the first plan", first)
		n.speaker.setRefusal(errors.New("no"))
		n.snapshots <- second
		wants("while the speaker refuses the second", first)
		n.speaker.setRefusal(nil)
		wants("the second plan", second)
		n.snapshots <- third
		wants("a BGPPeer without a session", third)

		if _, err := n.agent.Drain(DrainOptions{Wait: time.Hour}); err != nil {
			t.Fatal(err)
		}
		wants("while it is drained", third)
		if !r.status().Draining {
			t.Error("a drain is not told")
		}
		if _, err := n.agent.CancelDrain(); err != nil {
			t.Fatal(err)
		}
		wants("after the drain", third)
		if r.status().Draining {
			t.Error("the end of a drain is not told")
		}
	}, func(c *Config) { c.Report = r.report })
}

// An answer is by what the speaker has taken, and says so.
func TestAnswerIsByWhatTheSpeakerHasTaken(t *testing.T) {
	var r told
	inBubble(t, func(t *testing.T, n *node) {
		mesh := reflector.Question{Mesh: true}
		if a, err := n.agent.Answer(t.Context(), mesh); err == nil {
			t.Errorf("without a plan: %+v", a)
		}
		n.dataplane.facts <- live
		first := meshOf()
		n.snapshots <- first
		time.Sleep(2 * time.Second)
		want := reflector.Answer{
			Format: reflector.StatusFormat, Version: "test", Question: mesh,
			Digest: reflector.Digest("a", first), IPv4: reflector.Change{Missing: 1}, // b
		}
		if a, err := n.agent.Answer(t.Context(), mesh); err != nil || !reflect.DeepEqual(a, want) {
			t.Errorf("got %+v, %v\nwant %+v", a, err, want)
		}
		n.speaker.setRefusal(errors.New("no"))
		n.snapshots <- meshOf(func(c *calico.Snapshot) { delete(c.Nodes, "b") })
		time.Sleep(2 * time.Second)
		if _, err := n.agent.Answer(t.Context(), mesh); err == nil {
			t.Error("an answer of a speaker that gives none")
		}
		n.speaker.setRefusal(nil)
		time.Sleep(2 * time.Second)
		a, err := n.agent.Answer(t.Context(), mesh)
		if err != nil || a.IPv4.Missing != 0 || a.Digest == want.Digest {
			t.Errorf("without the mesh peer: %+v, %v", a, err)
		}
	}, func(c *Config) { c.Report = r.report })
}
