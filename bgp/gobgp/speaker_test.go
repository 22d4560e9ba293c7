package gobgp

import (
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

func TestRoutesComeAndGo(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	a.announce("10.1.0.0/26", "192.0.2.1")
	a.announce("fd00:1::/122", "2001:db8::1")
	set(t, a, b)
	up(t, a, b)
	b.wantHops("10.1.0.0/26", "192.0.2.1")
	want := bgp.Path{
		Peer: bgp.PeerID{Address: a.addr}, NextHop: addr("192.0.2.1"), LocalPref: 2147482623,
	}
	b.locked(func() {
		if got := b.sets[pfx("10.1.0.0/26")][0]; got != want {
			t.Errorf("path %+v, want %+v", got, want)
		}
	})
	eventually(t, "End-of-RIB", true, func() bool {
		s := b.state(a)
		return s.EndOfRIB && s.GR && s.Finished(time.Now())
	})
	if n := a.size(); n != 0 {
		t.Errorf("the originator learned %d prefixes of its own", n)
	}

	a.announce("10.1.0.0/26", "192.0.2.9") // a changed attribute replaces the path
	set(t, a)
	b.wantHops("10.1.0.0/26", "192.0.2.9")
	a.withdraw("10.1.0.0/26")
	set(t, a)
	b.wantHops("10.1.0.0/26")
}

func TestSetChangesOnlyOnePeer(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node(64512), l.node(64512), l.node(64512)
	connect(a, b)
	connect(a, c)
	a.announce("10.1.0.0/26", "192.0.2.1")
	set(t, a, b, c)
	up(t, a, b)
	up(t, a, c)
	since := a.state(b).Since
	a.plan.Peers = a.plan.Peers[:1]
	set(t, a)
	c.wantHops("10.1.0.0/26")
	eventually(t, "reason", true, func() bool {
		return strings.Contains(c.state(a).LastError, "Cease: Peer De-configured")
	})
	if s := a.state(b); !s.Established || s.Since != since {
		t.Errorf("the other session was touched: %+v", s)
	}
}
