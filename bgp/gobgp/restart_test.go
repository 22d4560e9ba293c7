package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

// restarted is a node that comes back with a FIB that kept forwarding, and with these far peers in its first plan.
func (l *lab) restarted(change func(*node), peers ...string) *node {
	l.t.Helper()
	n := l.unset(64512)
	n.plan.Restarting = true
	n.announce("10.1.0.0/26", "192.0.2.1")
	for _, p := range peers {
		n.farPeer(p, 64512)
	}
	if change != nil {
		change(n)
	}
	set(l.t, n)
	return n
}

func (f *far) wantToldOfRestart(want bool) {
	f.t.Helper()
	if r, forwarding := f.toldOfRestart(); r != want || forwarding != want {
		f.t.Errorf("%s: OPEN with R %t, F %t; want both %t", f.conn.LocalAddr(), r, forwarding, want)
	}
}

// BIRD flushes what it kept of us as soon as it sees an OPEN without the F bit, so each peer of the start has to get it, also those that
// come when others are done.
func TestLatePeerIsToldOfTheRestart(t *testing.T) {
	l := newLab(t)
	n := l.restarted(nil, "127.0.0.71", "127.0.0.72", "127.0.0.73")
	first := dialFar(t, n, "127.0.0.71", 64512, 90, true, gracefulCap(false))
	first.wantToldOfRestart(true)
	first.endOfRIB()
	eventually(t, "the first peer has all, though others are away", true, first.hasAll)
	time.Sleep(4 * time.Second)

	late := dialFar(t, n, "127.0.0.72", 64512, 90, true, gracefulCap(false))
	late.wantToldOfRestart(true)
	late.announce("10.3.0.0/26", "192.0.2.72")
	late.endOfRIB()
	n.wantHops("10.3.0.0/26", "192.0.2.72")
	eventually(t, "the late peer has all", true, late.hasAll)
	for _, f := range []*far{first, late} {
		eventually(t, "our block", []netip.Prefix{pfx("10.1.0.0/26")}, f.received)
	}

	// Who was there already is told of no restart when it comes again.
	late.close()
	eventually(t, "down", false, func() bool { return n.farState("127.0.0.72").Established })
	again := dialFar(t, n, "127.0.0.72", 64512, 90, true, gracefulCap(true))
	if restarted, _ := again.toldOfRestart(); restarted {
		t.Error("told of the restart twice")
	}

	// The third one counts no more once it is out of the plan, and nothing is left of the restart.
	n.plan.Peers = n.plan.Peers[:2]
	set(t, n)
	n.wantNeighbors("127.0.0.71", "127.0.0.72")
}

// wantNeighbors waits until GoBGP has exactly these neighbours.
func (n *node) wantNeighbors(want ...string) {
	n.t.Helper()
	eventually(n.t, "GoBGP's neighbours", want, func() (got []string) {
		for addr := range n.listPeers().peers {
			got = append(got, addr.String())
		}
		slices.Sort(got)
		return got
	})
}

// What we pass on is complete only when all peers have told what they know. Before that, End-of-RIB would make peers drop live routes.
func TestPassedOnRoutesAreWaitedFor(t *testing.T) {
	l := newLab(t)
	n := l.restarted(func(n *node) {
		n.farPeer("127.0.0.75", 65001)
		n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	}, "127.0.0.74")
	router := dialFar(t, n, "127.0.0.75", 65001, 90, true, gracefulCap(false))
	router.wantToldOfRestart(true)
	router.endOfRIB()
	time.Sleep(2 * time.Second)
	inner := dialFar(t, n, "127.0.0.74", 64512, 90, true, gracefulCap(false))
	inner.wantToldOfRestart(true)
	inner.announce("10.3.0.0/26", "192.0.2.74")
	n.wantHops("10.3.0.0/26", "192.0.2.74")
	time.Sleep(2 * time.Second)
	if got := router.received(); router.hasAll() || len(got) > 0 {
		t.Errorf("the router was told of %v, End-of-RIB %t, while a peer was not complete", got, router.hasAll())
	}
	inner.endOfRIB()
	start := time.Now()
	eventually(t, "the router has all", true, router.hasAll)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the router has all %s after the last peer was complete, want not to wait for the deferral", took)
	}
	eventually(t, "routes of the router", []netip.Prefix{pfx("10.1.0.0/26"), pfx("10.3.0.0/26")}, router.received)
	eventually(t, "the inner peer has all", true, inner.hasAll)
	n.wantNeighbors("127.0.0.74", "127.0.0.75")
}

func TestPeerWithALatePasswordIsToldOfTheRestart(t *testing.T) {
	l := newLab(t)
	var known atomic.Bool
	a := l.unset(64512, func(c *Config) {
		c.Passwords = knownWhen(&known)
	})
	b := l.node(64512, func(c *Config) { c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret"}) })
	a.plan.Restarting = true
	connect(a, b, withPassword)
	a.farPeer("127.0.0.76", 64512)
	set(t, a, b)
	dialFar(t, a, "127.0.0.76", 64512, 90, true, gracefulCap(false)).endOfRIB()
	known.Store(true)
	up(t, a, b)
	if !b.state(a).Restarting {
		t.Error("the peer was not told of the restart")
	}
}

// The holdout needs a listener; sessions do not.
func TestRestartWithoutListener(t *testing.T) {
	l := newLab(t)
	a := l.unset(64512)
	b, c := l.node(64512), l.node(64512)
	a.plan.Restarting, a.plan.Speaker.ListenPort = true, 0
	connect(a, b)
	connect(a, c)
	set(t, a, b, c)
	up(t, a, b)
	up(t, a, c)
}

// A whole mesh comes up within seconds: no peer may fall between the End-of-RIB of one and the OPEN to another.
func TestEveryPeerOfAMeshIsToldOfTheRestart(t *testing.T) {
	l := newLab(t)
	var peers []string
	for i := range 40 {
		peers = append(peers, fmt.Sprintf("127.0.7.%d", i+1))
	}
	n := l.restarted(nil, peers...)
	for _, p := range peers {
		f := dialFar(t, n, p, 64512, 90, true, gracefulCap(false))
		f.endOfRIB()
		f.wantToldOfRestart(true)
	}
}

func TestHoldoutAddress(t *testing.T) {
	peers := []bgp.Peer{{Address: addr("127.0.0.2")}, {Address: addr("127.0.0.1")}}
	for name, tc := range map[string]struct {
		listen []netip.Addr
		peers  []bgp.Peer
		want   string
	}{
		"all addresses":               {nil, nil, "127.0.0.2"},
		"a peer on this machine":      {nil, peers, "127.0.0.3"},
		"wildcards":                   {[]netip.Addr{netip.IPv6Unspecified(), netip.IPv4Unspecified()}, nil, "127.0.0.2"},
		"bound to the node's address": {[]netip.Addr{addr("fd00::7"), addr("10.0.0.7")}, nil, "fd00::7"},
	} {
		t.Run(name, func(t *testing.T) {
			got := holdoutAddress(bgp.Plan{Speaker: bgp.Speaker{ListenAddresses: tc.listen}, Peers: tc.peers})
			if got != addr(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
