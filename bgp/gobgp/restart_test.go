package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// restarted is a node that comes back with a FIB that kept forwarding, and with these far peers in
// its first plan.
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

func (f *far) wantRestartBits(want bool) {
	f.t.Helper()
	if r, forwarding := f.restartBits(); r != want || forwarding != want {
		f.t.Errorf("%s: OPEN with R %t, F %t; want both %t",
			f.conn.LocalAddr(), r, forwarding, want)
	}
}

// BIRD flushes what it kept of us as soon as it sees an OPEN without the F bit, so each peer of the
// start has to get it, also those that come when others are done.
func TestLatePeerGetsRestartBits(t *testing.T) {
	l := newLab(t)
	n := l.restarted(nil, "127.0.0.71", "127.0.0.72", "127.0.0.73")
	first := dialFar(t, n, "127.0.0.71", 64512, 90, true, gracefulCap(false))
	first.wantRestartBits(true)
	first.endOfRIB()
	eventually(t, "the first peer has all, though others are away", true, first.hasAll)
	time.Sleep(4 * time.Second)

	late := dialFar(t, n, "127.0.0.72", 64512, 90, true, gracefulCap(false))
	late.wantRestartBits(true)
	late.announce("10.3.0.0/26", "192.0.2.72")
	late.endOfRIB()
	n.wantHops("10.3.0.0/26", "192.0.2.72")
	eventually(t, "the late peer has all", true, late.hasAll)
	for _, f := range []*far{first, late} {
		eventually(t, "our block", []netip.Prefix{pfx("10.1.0.0/26")}, f.received)
	}

	// A peer of before the restart is sent no R bit when it comes again.
	late.close()
	eventually(t, "down", false, func() bool { return n.farState("127.0.0.72").Established })
	again := dialFar(t, n, "127.0.0.72", 64512, 90, true, gracefulCap(true))
	if restarted, _ := again.restartBits(); restarted {
		t.Error("the R bit was sent twice")
	}
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

// What we pass on is complete only when all peers have sent all their routes. An End-of-RIB before
// that would make peers drop live routes.
func TestPassedOnRoutesAreWaitedFor(t *testing.T) {
	l := newLab(t)
	n := l.restarted(func(n *node) {
		n.farPeer("127.0.0.75", 65001)
		n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	}, "127.0.0.74", "127.0.0.79")
	router := dialFar(t, n, "127.0.0.75", 65001, 90, true, gracefulCap(false))
	router.wantRestartBits(true)
	router.endOfRIB()
	time.Sleep(2 * time.Second)
	inner := dialFar(t, n, "127.0.0.74", 64512, 90, true, gracefulCap(false))
	inner.wantRestartBits(true)
	inner.announce("10.3.0.0/26", "192.0.2.74")
	n.wantHops("10.3.0.0/26", "192.0.2.74")
	time.Sleep(2 * time.Second)
	if got := router.received(); router.hasAll() || len(got) > 0 {
		t.Errorf("the router has %v, End-of-RIB %t, while a peer was not complete",
			got, router.hasAll())
	}
	if s := n.farState("127.0.0.75"); !s.Deferring || s.Advertised > 0 {
		t.Errorf("the router's state is %+v, want nothing advertised, and deferring", s)
	}
	inner.endOfRIB()
	// The third one never comes. It counts no more once it is out of the plan.
	n.plan.Peers = slices.DeleteFunc(n.plan.Peers, func(p bgp.Peer) bool {
		return p.Address == addr("127.0.0.79")
	})
	set(t, n)
	start := time.Now()
	eventually(t, "the router has all", true, router.hasAll)
	if took := time.Since(start); took > learnedDeferral/2 {
		t.Errorf("the router has all %s after the last peer was complete, want not to wait "+
			"for the deferral", took)
	}
	eventually(t, "the router's UPDATEs wait", false, func() bool {
		return n.farState("127.0.0.75").Deferring
	})
	eventually(t, "routes of the router",
		[]netip.Prefix{pfx("10.1.0.0/26"), pfx("10.3.0.0/26")}, router.received)
	eventually(t, "the inner peer has all", true, inner.hasAll)
}

// Peers that kept nothing wait for nobody.
func TestPeerWithoutARestartTimeHasAllAtOnce(t *testing.T) {
	l := newLab(t)
	n := l.restarted(func(n *node) {
		n.farPeer("127.0.0.75", 65001)
		for i := range n.plan.Peers {
			n.plan.Peers[i].RestartTime = 0
		}
	}, "127.0.0.74")
	router := dialFar(t, n, "127.0.0.75", 65001, 90, true, gracefulCap(false))
	router.wantRestartBits(false)
	start := time.Now()
	eventually(t, "the router has all", true, router.hasAll)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the router has all %s after it came up", took)
	}
}

// Where nobody else is waited for, the last End-of-RIB is answered at once.
func TestLastPeerToBeCompleteHasAllAtOnce(t *testing.T) {
	// What a look would find is not found.
	n := newLab(t).unset(64512, func(c *Config) { c.look = time.Hour })
	n.plan.Restarting = true
	n.announce("10.1.0.0/26", "192.0.2.1")
	n.farPeer("127.0.0.75", 65001)
	set(t, n)
	router := dialFar(t, n, "127.0.0.75", 65001, 90, true, gracefulCap(false))
	eventually(t, "UPDATEs wait", true, func() bool { return n.farState("127.0.0.75").Deferring })
	n.lister.mu.Lock() // as if GoBGP had taken long for its list, while it learns many routes
	n.lister.last.until = time.Now().Add(listingAge)
	n.lister.mu.Unlock()
	start := time.Now()
	router.endOfRIB()
	eventually(t, "the router has all", true, router.hasAll)
	eventually(t, "UPDATEs wait", false, func() bool { return n.farState("127.0.0.75").Deferring })
	if took := time.Since(start); took > learnedDeferral/2 { // at its end all is sent anyway
		t.Errorf("the router has all %s after it was complete", took)
	}
}

// GoBGP's timer ends the wait without a word. A list from before that may be in use for a minute.
func TestDeferringEndsWithTheTimer(t *testing.T) {
	p := bgp.Peer{Address: addr("192.0.2.1")}
	for passed, want := range map[time.Duration]bool{time.Second: true, 31 * time.Second: false} {
		up := time.Now().Add(-passed)
		st := stateOf(p, session{up: true, since: up}, listing{at: up.Add(time.Millisecond),
			peers: map[bgp.PeerID]*api.Peer{p.ID(): {State: &api.PeerState{},
				GracefulRestart: &api.GracefulRestart{LocalRestarting: true, DeferralTime: 30}}}})
		if st.Deferring != want {
			t.Errorf("deferring %t after %s", st.Deferring, passed)
		}
	}
}

func TestPeerWithALatePasswordGetsRestartBits(t *testing.T) {
	l := newLab(t)
	var known atomic.Bool
	a := l.unset(64512, func(c *Config) {
		c.Passwords = knownWhen(&known)
	})
	b := l.node(64512, func(c *Config) {
		c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret"})
	})
	a.plan.Restarting = true
	connect(a, b, withPassword)
	a.farPeer("127.0.0.76", 64512)
	set(t, a, b)
	dialFar(t, a, "127.0.0.76", 64512, 90, true, gracefulCap(false)).endOfRIB()
	known.Store(true)
	up(t, a, b)
	if !b.state(a).Restarting {
		t.Error("the peer was sent no R bit")
	}
}

// The same where only we dial.
func TestLatePeerGetsRestartBitsWithoutListener(t *testing.T) {
	l := newLab(t)
	a := l.unset(64512)
	b, c := l.unset(64512), l.unset(64512)
	a.plan.Restarting, a.plan.Speaker.ListenPort = true, 0
	connect(a, b)
	connect(a, c)
	set(t, a, b)
	up(t, a, b)
	eventually(t, "the first peer is complete", true, func() bool { return a.state(b).EndOfRIB })
	set(t, c)
	up(t, a, c)
	for _, peer := range []*node{b, c} {
		if !peer.state(a).Restarting {
			t.Errorf("%s was sent no R bit", peer.addr)
		}
	}
}

// A session that breaks while UPDATEs still wait has had the R bit: in the next OPEN it would be
// wrong.
func TestPeerGetsRestartBitsOnceWhileOthersAreMissing(t *testing.T) {
	l := newLab(t)
	n := l.restarted(func(n *node) { n.farPeer("127.0.0.75", 65001) }, "127.0.0.74")
	const peer = "127.0.0.75"
	first := dialFar(t, n, peer, 65001, 90, true, gracefulCap(false))
	first.wantRestartBits(true)
	eventually(t, "up", true, func() bool { return n.farState(peer).Established })
	first.close()
	eventually(t, "down", false, func() bool { return n.farState(peer).Established })

	again := dialFar(t, n, peer, 65001, 90, true, gracefulCap(false))
	if restarted, forwarding := again.restartBits(); restarted || !forwarding {
		t.Errorf("OPEN with R %t, F %t; want F alone", restarted, forwarding)
	}
	again.endOfRIB()
	time.Sleep(2 * time.Second) // watchRestart looks each second
	if again.hasAll() {
		t.Error("End-of-RIB before the other peer has sent all its routes")
	}
}

// After the restart time nobody keeps routes of ours: the R bit has no meaning any more.
func TestPeerAfterTheRestartTimeGetsNoRestartBits(t *testing.T) {
	l := newLab(t)
	n := l.restarted(func(n *node) {
		for i := range n.plan.Peers {
			n.plan.Peers[i].RestartTime = 6 * time.Second
		}
	}, "127.0.0.77", "127.0.0.78")
	first := dialFar(t, n, "127.0.0.77", 64512, 90, true, gracefulCap(false))
	first.wantRestartBits(true)
	time.Sleep(8 * time.Second) // watchRestart looks each second
	dialFar(t, n, "127.0.0.78", 64512, 90, true, gracefulCap(false)).wantRestartBits(false)
}

// A whole mesh comes up within seconds: no peer may fall between the End-of-RIB of one and the OPEN
// to another.
func TestEveryPeerOfAMeshGetsRestartBits(t *testing.T) {
	l := newLab(t)
	var peers []string
	for i := range 40 {
		peers = append(peers, fmt.Sprintf("127.0.7.%d", i+1))
	}
	n := l.restarted(nil, peers...)
	for _, p := range peers {
		f := dialFar(t, n, p, 64512, 90, true, gracefulCap(false))
		f.endOfRIB()
		f.wantRestartBits(true)
	}
}
