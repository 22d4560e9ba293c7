package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
)

func TestStatusShowsRemovals(t *testing.T) {
	for _, left := range []int{0, 812} {
		b := &strings.Builder{}
		s := agent.Status{BGP: agent.BGPStatus{RouterID: "192.0.2.1", PeersToRemove: left}}
		if err := printStatus(b, s); err != nil {
			t.Fatal(err)
		}
		shown := strings.Contains(b.String(), "812 peers are still to be removed")
		if shown != (left > 0) {
			t.Errorf("%d left: %s", left, b)
		}
	}
}

// Of 5002 sessions 5000 are down: the summary says so, and the page stays short.
func TestStatusOfManySessions(t *testing.T) {
	s := agent.Status{Ready: true, BGP: agent.BGPStatus{RouterID: "192.0.2.1"}}
	for i := range 5002 {
		p := agent.PeerStatus{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			State: "Connect", LastError: strings.Repeat("no password ", 12)}
		if i < 2 {
			p = agent.PeerStatus{Address: p.Address, State: "Established", Established: true}
		}
		p.Peer = bgp.PeerID{Address: p.Address}
		s.BGP.Peers = append(s.BGP.Peers, p)
		s.Problems = append(s.Problems, agent.ProblemStatus{Key: "k", Error: "e"})
	}
	b := &strings.Builder{}
	if err := printStatus(b, s); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{"2 of 5002 sessions up", "and 4952 more: 4950 down, 2 up",
		"and 4992 more of the problems", "INFO    | ERROR\n", "Connect | no password"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\n"); n > 80 {
		t.Errorf("%d lines", n)
	}
	frame := out[strings.Index(out, "+"):]
	if frame = frame[:strings.Index(frame, "\n")]; len(frame) > 80 {
		t.Errorf("the table is %d columns wide", len(frame))
	}
	if got := whatIsWrong(s); !slices.Equal(got, []string{"5000 of 5002 sessions down"}) {
		t.Errorf("wrong: %q", got)
	}
}

// Sessions that are up have no error; their lines keep the columns of the others.
func TestPeersKeepTheirColumns(t *testing.T) {
	peers := []agent.PeerStatus{{Source: "BGPPeer(tor)", LastError: "x"},
		{Source: "Node(b)", Established: true}, {Source: "BGPPeer(reflectors)", LastError: "x"}}
	b := &strings.Builder{}
	if err := printPeers(b, peers); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if at := strings.Index(lines[0], "ERROR"); strings.LastIndex(lines[1], "x") != at ||
		strings.LastIndex(lines[3], "x") != at {
		t.Errorf("errors are not below their heading:\n%s", b)
	}
}

func TestRoutesOfAnAddress(t *testing.T) {
	ours := []agent.AnnouncementStatus{{Prefix: netip.MustParsePrefix("10.1.0.0/26")}}
	drop, via := agent.RouteStatus{Kind: "drop"}, agent.RouteStatus{Kind: "via"}
	byDefault := agent.MatchStatus{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Forwards: new(true),
		Owner: "proto dhcp, metric 100",
		Paths: []agent.PathStatus{{NextHop: "10.0.0.1", Interface: "eth0"}}}
	for _, c := range []struct {
		prefix string
		routes []agent.RouteStatus
		want   string
	}{
		{"10.1.0.7/32", []agent.RouteStatus{drop}, "10.1.0.7/32 is of this node, which announces"},
		{"10.1.0.7/32", []agent.RouteStatus{drop, via}, ""}, // lives elsewhere
		{"10.9.0.7/32", []agent.RouteStatus{via}, ""},
		{"10.9.0.7/32", nil, "no route of ours leads to 10.9.0.7: the default route (proto dhcp, " +
			"metric 100) does, via 10.0.0.1 eth0\n"},
		{"10.0.0.0/8", nil, "no route of ours leads to 10.0.0.0/8"},
	} {
		got := remark(netip.MustParsePrefix(c.prefix), c.routes, ours,
			func() (agent.MatchStatus, error) { return byDefault, nil })
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.prefix, got, c.want)
		}
	}
}

func TestMatchOfAnotherProgram(t *testing.T) {
	wider := netip.MustParsePrefix("10.9.0.0/16")
	for want, m := range map[string]agent.MatchStatus{
		"nor does any other route, packets are dropped": {},
		"the route to 10.9.0.0/16 (source CLI) matches, and does not forward": {Prefix: wider,
			Owner: "source CLI"},
		"the route to 10.9.0.0/16 (source CLI) does, via host-eth1": {Prefix: wider,
			Owner: "source CLI", Forwards: new(true),
			Paths: []agent.PathStatus{{Interface: "host-eth1"}}},
	} {
		if got := matched(m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAuditWithoutDriftRepairsNothing(t *testing.T) {
	for _, x := range []struct {
		audit agent.AuditStatus
		want  string
	}{
		{agent.AuditStatus{Listed: 2, Compared: 2, Repair: true},
			"2 routes listed, 2 compared: 0 missing, 0 different, 0 extra, " +
				"0 hidden by routes of other owners\n"},
		{agent.AuditStatus{Listed: 2, Compared: 3, Missing: 1, Repair: true},
			"2 routes listed, 3 compared: 1 missing, 0 different, 0 extra (being repaired), " +
				"0 hidden by routes of other owners\n"},
		{agent.AuditStatus{Listed: 3, Compared: 2, Extra: 1},
			"3 routes listed, 2 compared: 0 missing, 0 different, 1 extra (only reported), " +
				"0 hidden by routes of other owners\n"},
	} {
		var out strings.Builder
		if err := printAudit(&out, x.audit); err != nil || out.String() != x.want {
			t.Errorf("%q, %v; want %q", out.String(), err, x.want)
		}
	}
}
