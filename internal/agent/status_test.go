package agent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// TestPortTakenNamesTheOtherSpeaker: two speakers on one node are the first mistake that one makes
// when taking a node over.
func TestPortTakenNamesTheOtherSpeaker(t *testing.T) {
	taken := fmt.Errorf("gobgp: start: %w", &net.OpError{Op: "listen", Err: syscall.EADDRINUSE})
	s := &state{setError: errors.Join(taken)}
	s.plan.BGP.Speaker.ListenPort = 1790
	c := s.speakerCondition()
	if c.OK || !strings.Contains(c.Message, "address already in use; another BGP speaker has the "+
		"port") || !strings.Contains(c.Message, "`ss -ltnp 'sport = :1790'` names it") {
		t.Errorf("condition %+v", c)
	}
	c = (&state{setError: errors.New("gobgp: no policy")}).speakerCondition()
	if c.OK || c.Message != "gobgp: no policy" {
		t.Errorf("another error: %+v", c)
	}
}

// TestDataFromDiskAreShownWithTheReason: etcd that is away, and etcd that answers with a locked
// datastore.
func TestDataFromDiskAreShownWithTheReason(t *testing.T) {
	asOf := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	for want, d := range map[string]DatastoreStatus{
		"may be stale: refused": {Stale: true, AsOf: &asOf, Error: "refused"},
		"may be stale: ClusterInformation says datastoreReady: false": {Stale: true, AsOf: &asOf,
			Connected: true, Synced: true},
	} {
		now := &state{locked: "ClusterInformation says datastoreReady: false"}
		if c := now.datastoreCondition(d); !c.OK || !strings.HasSuffix(c.Message, want) ||
			!strings.Contains(c.Message, "2026-11-21T13:00:00Z") {
			t.Errorf("%+v, want %q", c, want)
		}
	}
}

// TestNothingProgrammedIsNotReady: a data plane that answers and takes nothing forwards nothing.
func TestNothingProgrammedIsNotReady(t *testing.T) {
	for name, tc := range map[string]struct {
		identity string
		routes   []RouteCounts
		ok       bool
	}{
		"nothing is wanted":     {"boot", nil, true},
		"all is programmed":     {"boot", []RouteCounts{{Desired: 2, Programmed: 2}}, true},
		"nothing was tried yet": {"boot", []RouteCounts{{Desired: 2}}, true},
		"one of them is refused": {"boot", []RouteCounts{{Desired: 2, Failed: 1, Programmed: 1}},
			true},
		"one origin is refused": {"boot", []RouteCounts{{Desired: 2, Failed: 2},
			{Desired: 1, Shadowed: 1}}, true},
		"all are refused": {"boot", []RouteCounts{{Desired: 2, Failed: 2},
			{Desired: 1, Failed: 1}, {Unusable: 4}}, false},
		"the data plane is absent": {"", []RouteCounts{{Desired: 2, Failed: 2}}, false},

		"what is learned is refused": {"boot", []RouteCounts{
			{Origin: "own", Desired: 2, Programmed: 2}, {Origin: "bgp", Desired: 3, Failed: 3}},
			false},
		"what is learned is not": {"boot", []RouteCounts{
			{Origin: "own", Desired: 2, Failed: 2}, {Origin: "bgp", Desired: 3, Programmed: 3}},
			true},
		"external configuration is refused": {"boot", []RouteCounts{
			{Origin: "external", Desired: 3, Failed: 3}}, true},
		"all but external configuration is refused": {"boot", []RouteCounts{
			{Origin: "own", Desired: 1, Failed: 1}, {Origin: "bgp", Desired: 2, Failed: 2},
			{Origin: "external", Desired: 3, Programmed: 3}}, false},
	} {
		c := dataplaneCondition(FIBStatus{Identity: tc.identity, Routes: tc.routes,
			Problem: "absent", refusal: syscall.EPERM}, "")
		if c.OK != tc.ok {
			t.Errorf("%s: %+v", name, c)
		}
		want := "it refuses all 3 learned routes, the last one with: operation not permitted"
		if name == "what is learned is refused" && c.Message != want {
			t.Errorf("%s: %q, want %q", name, c.Message, want)
		}
		want = "it refuses all 3 routes, the last one with: operation not permitted"
		if name == "all are refused" && c.Message != want {
			t.Errorf("%s: %q, want %q", name, c.Message, want)
		}
	}
}

// One dead peer takes no node out of service: it is degraded, and says why.
func TestHealth(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Minute)
		up := bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")}, Established: true,
			EndOfRIB: true, GR: true}
		n.speaker.setStates(up)
		time.Sleep(time.Second)
		if s := n.agent.Status(); s.Health != HealthReady || len(s.Degraded) != 0 || !s.Ready {
			t.Errorf("%s, %v, %+v", s.Health, s.Degraded, s.Conditions)
		}
		n.speaker.setStates(bgp.PeerState{ID: up.ID})
		time.Sleep(time.Second)
		s := n.agent.Status()
		if s.Health != HealthDegraded || !s.Ready || !slices.Equal(s.Degraded,
			[]DegradedStatus{{"bgp", "sessions_down"}}) {
			t.Errorf("without its peer %s, %v", s.Health, s.Degraded)
		}
		n.dataplane.facts <- route.Facts{Problem: "no socket"}
		time.Sleep(time.Second)
		if s := n.agent.Status(); s.Health != HealthNotReady || s.Ready {
			t.Errorf("without a data plane %s", s.Health)
		}
	})
}

// Names come from etcd, whose keys are any bytes: none of them reaches a terminal as it is.
func TestAProblemIsNothingThatATerminalObeys(t *testing.T) {
	for text, want := range map[string]string{
		`Node(é "1") \`: `Node(é "1") \`, "a\x1b[2J": `a\x1b[2J`, "a\nb": `a\nb`, "a\xff": `a\xff`,
		"\u202ea": `\u202ea`,
	} {
		p := ProblemOf(calico.Problem{Key: text, Resource: text, Err: text})
		if p != (ProblemStatus{Key: want, Resource: want, Error: want}) {
			t.Errorf("%q is shown as %+v", text, p)
		}
	}
}

// The process is alive while its loop turns, whatever it waits for.
func TestLive(t *testing.T) {
	live := func(n *node) int {
		w := httptest.NewRecorder()
		n.agent.HealthHandler().ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		return w.Code
	}
	inBubble(t, func(t *testing.T, n *node) {
		time.Sleep(time.Hour)
		if got := live(n); got != http.StatusOK {
			t.Errorf("without data and data plane: %d", got)
		}
		n.speaker.setDelay(time.Hour)
		n.dataplane.facts <- route.Facts{Identity: "one"}
		n.snapshots <- cluster()
		time.Sleep(time.Minute)
		if got := live(n); got != http.StatusOK {
			t.Errorf("a minute after the last turn: %d", got)
		}
		time.Sleep(2 * time.Minute)
		if got := live(n); got != http.StatusServiceUnavailable {
			t.Errorf("three minutes after the last turn: %d", got)
		}
	})
}
