package gobgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

func withPassword(p *bgp.Peer) { p.Password = &calico.SecretKeyRef{Name: "bgp", Key: "mesh"} }

// It fails where the listener is MPTCP, which knows no TCP_MD5SIG: see godebug in go.mod.
func TestPasswordOnTheListeningSide(t *testing.T) {
	l := newLab(t)
	secret := func(pw string) func(*Config) {
		return func(c *Config) { c.Passwords = passwords(map[string]string{"bgp/mesh": pw}) }
	}
	a := l.node(64512, secret("s3cret"))
	b := l.node(64512, secret("s3cret"))
	wrong := l.node(64512, secret("other"))
	connect(a, b, withPassword)
	connect(a, wrong, withPassword)
	set(t, a, b, wrong)
	up(t, a, b)
	if s := a.state(wrong); s.Established {
		t.Errorf("a session came up with different passwords: %+v", s)
	}

	// Taking the password away from both ends must also take it off a's listener.
	connect(a, b)
	set(t, a, b)
	eventually(t, "old session gone", true, func() bool {
		return a.state(b).Since.After(time.Time{})
	})
	up(t, a, b)
}

func TestUnknownPasswordKeepsThePeerOut(t *testing.T) {
	l := newLab(t)
	var known atomic.Bool
	fromNow := func(c *Config) {
		c.Passwords = knownWhen(&known)
	}
	a, b, c := l.node(64512, fromNow), l.node(64512, fromNow), l.node(64512)
	connect(a, b, withPassword)
	connect(a, c)
	set(t, a, b, c)
	up(t, a, c) // one peer without its password holds up no other
	if s := a.state(b); s.Established || !strings.Contains(s.LastError, "password bgp/mesh") {
		t.Errorf("peer without its password: %+v", s)
	}
	known.Store(true)
	up(t, a, b) // without another Set
	since := a.state(b).Since
	known.Store(false) // a secret that goes away, perhaps for a moment, ends no session
	set(t, a, b)
	if s := a.state(b); !s.Established || s.Since != since {
		t.Errorf("peer whose password went away: %+v", s)
	}
}

// A peer that is taken out because its new password is not known is down, and not one that has sent
// all it knows.
func TestPeerTakenOutIsDown(t *testing.T) {
	l := newLab(t)
	secret := func(c *Config) { c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret"}) }
	a, b := l.node(64512, secret), l.node(64512, secret)
	connect(a, b, withPassword)
	set(t, a, b)
	eventually(t, "End-of-RIB", true, func() bool { return a.state(b).EndOfRIB })
	since := a.state(b).Since
	a.peer(b, func(p *bgp.Peer) { p.Password = &calico.SecretKeyRef{Name: "bgp", Key: "unknown"} })
	set(t, a)
	s := a.state(b)
	if s.Established || s.EndOfRIB || s.State != "Idle" || !s.LastUpdate.IsZero() ||
		s.Finished(time.Now()) || !s.Since.After(since) {
		t.Errorf("state %+v", s)
	}
	a.peer(b, withPassword)
	set(t, a)
	up(t, a, b)

	a.peer(b, func(p *bgp.Peer) { p.Password = &calico.SecretKeyRef{Name: "bgp", Key: "unknown"} })
	set(t, a)
	a.plan.Peers = nil
	set(t, a)
	if facts := a.sessions.snapshot(); len(facts) > 0 {
		t.Errorf("still known: %v", facts)
	}
}

// A peer whose password is changed at one end is taken out and in. What is shown is what it waits
// for now.
func TestPeerTakenOutAndInSaysWhatItWaitsFor(t *testing.T) {
	l := newLab(t)
	secret := func(c *Config) {
		c.Passwords = passwords(map[string]string{"bgp/mesh": "s3cret", "bgp/other": "0ther"})
	}
	a, b := l.node(64512, secret), l.node(64512, secret)
	connect(a, b, withPassword)
	set(t, a, b)
	up(t, a, b)
	a.peer(b, func(p *bgp.Peer) { p.Password = &calico.SecretKeyRef{Name: "bgp", Key: "other"} })
	set(t, a)
	eventually(t, "the old session's end", false, func() bool { return b.state(a).Established })
	eventually(t, "what it waits for", true, func() bool {
		return strings.HasPrefix(a.state(b).LastError, "the peer has not ")
	})
}

// GoBGP's events come later than what is done meanwhile.
func TestLateEventOfAPeerTakenOut(t *testing.T) {
	ss, peer, now := newSessions(), first("192.0.2.1"), time.Now()
	ss.add(peer, false)
	ss.takeOut(peer)
	ss.state(peer, true, now)
	if s := ss.snapshot()[peer]; s.up || !s.since.IsZero() {
		t.Errorf("a peer that is not configured came up: %+v", s)
	}
	ss.add(peer, false)
	ss.state(peer, true, now)
	if s := ss.snapshot()[peer]; !s.up || s.since != now {
		t.Errorf("session %+v", s)
	}

	// Taken out and in at once, it seems up from what comes late; but its end comes late, too
	// (TestWatchOfAPeerTakenOutAndIn).
	ss.takeOut(peer)
	ss.add(peer, false)
	ss.state(peer, true, now)
	ss.state(peer, false, now)
	if s := ss.snapshot()[peer]; s.up {
		t.Errorf("session %+v", s)
	}
}

func TestPassiveSideWithTTLSecurity(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64513)
	gtsm := func(p *bgp.Peer) { p.TTLSecurity, p.Multihop = 1, false }
	connect(a, b, gtsm)
	set(t, a, b)
	up(t, a, b)
}

// A changed TTL or timer is applied without a reset.
func TestLiveChangeKeepsTheSession(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	set(t, a, b)
	up(t, a, b)
	since := a.state(b).Since
	a.peer(b, func(p *bgp.Peer) { p.KeepaliveTime = 7 * time.Second })
	set(t, a)
	a.peer(b, func(p *bgp.Peer) {
		p.KeepaliveTime, p.Scope = 7*time.Second, bgp.ScopeGlobal
		p.Source, p.CalicoNode = "BGPPeer(x)", "edge-7"
	})
	set(t, a)
	if s := a.state(b); !s.Established || s.Since != since {
		t.Errorf("the session was reset: %+v", s)
	}
}

// A peer that heard nothing for the hold time is gone, so that time has room for three keepalives,
// however rare they are asked to be. Peers with the same BGPPeer are as rare themselves.
func TestHoldTimeHasRoomForKeepalives(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	asked := []time.Duration{0, 5 * time.Second, 45 * time.Second, 100 * time.Second}
	for i, d := range asked {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 90+i), 64512)
		n.plan.Peers[i].KeepaliveTime = d
	}
	set(t, n)
	for i, want := range []struct {
		offered              uint16
		negotiated, interval uint64
	}{{90, 90, 30}, {90, 90, 5}, {135, 135, 45}, {300, 240, 80}} {
		local := fmt.Sprintf("127.0.0.%d", 90+i)
		f := dialFar(t, n, local, 64512, 240, true, gracefulCap(false)) // 240 is BIRD's
		eventually(t, local, "Established", func() string { return n.farState(local).State })
		p, err := n.listPeer(t.Context(), first(local))
		if err != nil {
			t.Fatal(err)
		}
		s := p.Timers.State
		if f.opened.HoldTime != want.offered || s.NegotiatedHoldTime != want.negotiated ||
			s.KeepaliveInterval != want.interval {
			t.Errorf("keepalive %s: offered %d, negotiated %d, keepalive %d, want %+v",
				asked[i], f.opened.HoldTime, s.NegotiatedHoldTime, s.KeepaliveInterval, want)
		}
	}
}

// A hold time of 0 is a session without keepalives (RFC 4271 §4.2), not one in which nothing can be
// sent in time.
func TestHoldTimeZero(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.94", 64512)
	n.announce("10.1.0.0/26", n.addr.String())
	set(t, n)
	f := dialFar(t, n, "127.0.0.94", 64512, 0, false, gracefulCap(false))
	eventually(t, "up", true, func() bool { return n.farState("127.0.0.94").Established })
	since := n.farState("127.0.0.94").Since
	eventually(t, "ours", 1, func() int { return len(f.received()) })
	f.announce("10.2.0.0/26", "192.0.2.1")
	n.wantHops("10.2.0.0/26", "192.0.2.1")
	time.Sleep(2 * time.Second)
	n.announce("10.1.1.0/26", n.addr.String())
	set(t, n)
	eventually(t, "ours", 2, func() int { return len(f.received()) })
	if s := n.farState("127.0.0.94"); !s.Since.Equal(since) {
		t.Errorf("state %+v", s)
	}
}

func TestSpeakerChangeIsLeftToANewProcess(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	a.announce("10.1.0.0/26", "192.0.2.1")
	set(t, a, b)
	b.wantHops("10.1.0.0/26", "192.0.2.1")
	since := a.state(b).Since

	taken, err := net.Listen("tcp4", netip.AddrPortFrom(a.addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const (
		nothing = iota // is taken, and the process is to be replaced
		neither        // that nor this: it could not listen
		rest           // is taken by what runs
	)
	used := func(sp *bgp.Speaker) { sp.ListenPort = uint16(taken.Addr().(*net.TCPAddr).Port) }
	for name, c := range map[string]struct {
		change func(*bgp.Speaker)
		want   int
	}{
		"AS": {func(sp *bgp.Speaker) { sp.AS = 64599 }, nothing},
		"router ID": {
			func(sp *bgp.Speaker) { sp.RouterID = addr("192.0.2.99") }, nothing,
		},
		"addresses": {
			func(sp *bgp.Speaker) { sp.ListenAddresses = []netip.Addr{addr("127.0.0.99")} },
			nothing,
		},
		"no listener":         {func(sp *bgp.Speaker) { sp.ListenPort = 0 }, nothing},
		"a port that is used": {used, rest},
		"a foreign address": {
			func(sp *bgp.Speaker) { sp.ListenAddresses = []netip.Addr{addr("203.0.113.9")} }, rest,
		},
		"AS, and a port in use": {func(sp *bgp.Speaker) { sp.AS = 64599; used(sp) }, neither},
		"no router ID, port used": {
			func(sp *bgp.Speaker) { sp.RouterID = netip.Addr{}; used(sp) }, neither,
		},
	} {
		plan := a.plan
		c.change(&plan.Speaker)
		plan.Announcements = nil
		err := a.Set(t.Context(), plan)
		if err == nil || errors.Is(err, bgp.ErrSpeakerChanged) != (c.want == nothing) {
			t.Errorf("%s: %v", name, err)
		}
		if withdrawn := len(a.Announced()) == 0; withdrawn != (c.want == rest) {
			t.Errorf("%s: the rest of the plan is taken: %t", name, withdrawn)
		}
		set(t, a) // as it was
	}
	if s := a.state(b); !s.Established || s.Since != since || len(a.Announced()) != 1 {
		t.Errorf("the session was touched: %+v, announced %v", s, a.Announced())
	}
	b.wantHops("10.1.0.0/26", "192.0.2.1")
}

// A peer that is silent for the hold time takes its paths with it at once, also with graceful
// restart.
func TestHoldTimerExpiryDropsPaths(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.90", 64512)
	set(t, n)
	const hold = 9 // the route is to be seen before
	f := dialFar(t, n, "127.0.0.90", 64512, hold, false, gracefulCap(false))
	start := time.Now()
	f.announce("10.3.0.0/26", "192.0.2.3")
	n.wantHops("10.3.0.0/26", "192.0.2.3")
	n.wantHops("10.3.0.0/26") // long before the restart time
	if took := time.Since(start); took < hold*time.Second {
		t.Errorf("paths left after %s, before the hold time of %d s", took, hold)
	}
	n.wantDown("127.0.0.90", "hold timer expired")
	f.close()
	eventually(t, "down", false, func() bool { return n.farState("127.0.0.90").Established })
	again := dialFar(t, n, "127.0.0.90", 64512, 90, true, gracefulCap(false))
	again.announce("10.3.0.0/26", "192.0.2.3")
	n.wantHops("10.3.0.0/26", "192.0.2.3")
}

// A broken connection is another thing: the paths stay, but not beside fresh ones.
func TestStalePathsStandAside(t *testing.T) {
	l := newLabAlone(t)
	n := l.node(64512)
	n.farPeer("127.0.0.91", 64512)
	n.farPeer("127.0.0.92", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.91", 64512, 90, true, gracefulCap(false))
	g := dialFar(t, n, "127.0.0.92", 64512, 90, true, gracefulCap(false))
	for _, p := range []string{"10.3.0.0/26", "10.3.1.0/26"} {
		f.announce(p, "192.0.2.91")
		g.announce(p, "192.0.2.92")
	}
	f.announce("10.3.2.0/26", "192.0.2.91")
	f.endOfRIB()
	both := []string{"192.0.2.91", "192.0.2.92"}
	n.wantHops("10.3.0.0/26", both...)
	n.wantHops("10.3.1.0/26", both...)
	n.wantHops("10.3.2.0/26", "192.0.2.91")
	f.close()
	n.wantHops("10.3.0.0/26", "192.0.2.92")
	n.wantHops("10.3.1.0/26", "192.0.2.92")
	n.wantHops("10.3.2.0/26", "192.0.2.91") // the only one there is
	n.wantDown("127.0.0.91", "the connection broke")

	// Back, it announces one of them unchanged, of which GoBGP makes no event, and the others no
	// more. A clock would take a second or two each time, a busy machine does not.
	for round := 1; ; round++ {
		f = dialFar(t, n, "127.0.0.91", 64512, 90, true, gracefulCap(true))
		f.announce("10.3.0.0/26", "192.0.2.91")
		eventually(t, "R bit", true, func() bool {
			s := n.farState("127.0.0.91")
			return s.Restarting && !s.EndOfRIB && s.Finished(time.Now())
		})
		complete := time.Now()
		f.endOfRIB()
		n.wantHops("10.3.0.0/26", both...)
		took := time.Since(complete)
		if took < time.Second {
			break
		}
		if round == 5 {
			t.Errorf("the path that it announced again is used %s after End-of-RIB", took)
			break
		}
		f.close()
		n.wantHops("10.3.0.0/26", "192.0.2.92")
	}
	n.wantHops("10.3.1.0/26", "192.0.2.92")
	n.wantHops("10.3.2.0/26")
}

// slowSink takes its time over each set once there is one.
type slowSink struct {
	Sink
	pause atomic.Int64
}

func (s *slowSink) Learned(prefix netip.Prefix, paths []bgp.Path) {
	s.Sink.Learned(prefix, paths)
	time.Sleep(time.Duration(s.pause.Load()))
}

// However long it takes to hand over what a restarted peer did not announce again: it is not used
// again.
func TestStalePathsAreNotUsedAgain(t *testing.T) {
	l := newLab(t)
	slow := &slowSink{}
	n := l.node(64512, func(c *Config) {
		slow.Sink = c.Sink
		c.Sink = slow
	})
	n.farPeer("127.0.0.91", 64512)
	n.farPeer("127.0.0.92", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.91", 64512, 90, true, gracefulCap(false))
	g := dialFar(t, n, "127.0.0.92", 64512, 90, true, gracefulCap(false))
	prefixes := []string{"10.3.0.0/26", "10.3.1.0/26", "10.3.2.0/26", "10.3.3.0/26"}
	for _, p := range prefixes {
		f.announce(p, "192.0.2.91")
		g.announce(p, "192.0.2.92")
		n.wantHops(p, "192.0.2.91", "192.0.2.92")
	}
	f.close()
	for _, p := range prefixes {
		n.wantHops(p, "192.0.2.92")
	}
	var before int
	n.locked(func() { before = len(n.all) })

	slow.pause.Store(int64(1200 * time.Millisecond))
	dialFar(t, n, "127.0.0.91", 64512, 90, true, gracefulCap(true)).endOfRIB()
	eventually(t, "all have arrived", true, func() (all bool) {
		n.locked(func() { all = len(n.all) >= before+len(prefixes) })
		return all
	})
	slow.pause.Store(0)
	time.Sleep(2 * time.Second)
	n.locked(func() {
		for _, paths := range n.all[before:] {
			if len(paths) != 1 || paths[0].NextHop != addr("192.0.2.92") {
				t.Errorf("handed on %v after the restart", paths)
			}
		}
	})
}

// GoBGP keeps the paths of a broken session until End-of-RIB, also when the peer does not send one
// any more (upstream issue 2430).
func TestPeerReturnsWithoutGracefulRestart(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.97", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.97", 64512, 90, true, gracefulCap(false))
	f.announce("10.3.0.0/26", "192.0.2.97")
	f.announce("10.3.1.0/26", "192.0.2.97")
	f.endOfRIB()
	n.wantHops("10.3.1.0/26", "192.0.2.97")
	f.close()
	eventually(t, "down", false, func() bool { return n.farState("127.0.0.97").Established })

	f = dialFar(t, n, "127.0.0.97", 64512, 90, true)
	f.announce("10.3.0.0/26", "192.0.2.97")
	n.wantHops("10.3.1.0/26")
	f.close()
	eventually(t, "down", false, func() bool { return n.farState("127.0.0.97").Established })
	again := time.Now()
	f = dialFar(t, n, "127.0.0.97", 64512, 90, true)
	f.announce("10.3.0.0/26", "192.0.2.97")
	eventually(t, "the new session is up", true, func() bool {
		return n.farState("127.0.0.97").Since.After(again)
	})
	n.wantHops("10.3.0.0/26", "192.0.2.97")
	n.wantHops("10.3.1.0/26")

	// That was once. Now GoBGP knows the peer without graceful restart, and when its connection
	// breaks nothing is kept.
	since := n.farState("127.0.0.97").Since
	time.Sleep(3 * time.Second)
	if s := n.farState("127.0.0.97"); !s.Established || s.Since != since {
		t.Errorf("the session was ended again: %+v", s)
	}
	f.close()
	n.wantHops("10.3.0.0/26")
}

func TestPeerReturnsAndIsNeverComplete(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	const never, late = "127.0.0.98", "127.0.0.99"
	n.farPeer(never, 64512)
	n.farPeer(late, 64512)
	set(t, n)
	prefixes := map[string]string{never: "10.3.0.0/26", late: "10.3.1.0/26"}
	far := map[string]*far{}
	for peer, prefix := range prefixes {
		f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false))
		f.announce(prefix, "192.0.2.1")
		f.endOfRIB()
		n.wantHops(prefix, "192.0.2.1")
		f.close()
		eventually(t, "down", false, func() bool { return n.farState(peer).Established })
	}
	since := map[string]time.Time{}
	for peer := range prefixes {
		far[peer] = dialFar(t, n, peer, 64512, 90, true, gracefulCap(true))
		eventually(t, "back", true, func() bool { return n.farState(peer).Established })
		since[peer] = n.farState(peer).Since
	}
	// lookAt has the speaker look at the peers as if it were that much later.
	lookAt := func(later time.Duration) {
		t.Helper()
		err := n.ask(t.Context(), func(ctx context.Context) error {
			n.restartIncomplete(ctx, time.Now().Add(later))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	lookAt(staleTime - time.Minute)
	for peer, prefix := range prefixes {
		if s := n.farState(peer); s.Since != since[peer] || len(n.hops(prefix)) != 1 {
			t.Errorf("lost patience too early: %+v, %v", s, n.hops(prefix))
		}
	}
	far[late].announce(prefixes[late], "192.0.2.1")
	far[late].endOfRIB()
	eventually(t, "End-of-RIB", true, func() bool { return n.farState(late).EndOfRIB })
	lookAt(staleTime)
	n.wantHops(prefixes[never])
	if s := n.farState(late); s.Since != since[late] || len(n.hops(prefixes[late])) != 1 {
		t.Errorf("a peer that is complete was touched: %+v", s)
	}
	dialFar(t, n, never, 64512, 90, true, gracefulCap(true)).announce(prefixes[never], "192.0.2.1")
	n.wantHops(prefixes[never], "192.0.2.1")
	lookAt(staleTime)
	if s := n.farState(never); !s.Established {
		t.Errorf("nothing is kept of it any more, and yet: %+v", s)
	}
}

// Each break is a reason to keep what the peer said, but not for ever what it said before the first
// of them.
func TestPeerThatBreaksAgainAndAgain(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	peer := first("192.0.2.1")
	var ss *sessions
	var now time.Time
	back := func(after time.Duration) session { // when it has gone for so long
		ss.state(peer, false, now)
		now = now.Add(after)
		ss.state(peer, true, now)
		return ss.returned(now)[peer]
	}
	begin := func() {
		ss, now = newSessions(), start
		ss.add(peer, false)
		ss.state(peer, true, now)
		ss.endOfRIB(peer)
	}

	begin()
	first := back(2 * longestStale).since // its restart time is a long one
	if got := ss.returned(now)[peer].overdue(); got != first.Add(staleTime) {
		t.Errorf("back for the first time, it is overdue after %s, not %s",
			got.Sub(first), staleTime)
	}
	for now.Before(first.Add(longestStale - 2*time.Minute)) {
		now = now.Add(time.Minute) // for which it is up
		back(time.Minute)
	}
	if got := ss.returned(now)[peer].overdue(); got != first.Add(longestStale) {
		t.Errorf("back again and again, it is overdue %s after the first time, not %s",
			got.Sub(first), longestStale)
	}
	ss.nothingKept(peer, now)
	if got := back(time.Minute).overdue(); got != now.Add(staleTime) {
		t.Errorf("though nothing older is kept, it is overdue after %s, not %s",
			got.Sub(now), staleTime)
	}

	begin()
	for range 10 {
		back(time.Minute)
		ss.endOfRIB(peer)
		now = now.Add(time.Minute)
	}
	if got := back(time.Minute).overdue(); got != now.Add(staleTime) {
		t.Errorf("after complete sessions it is overdue after %s, not %s", got.Sub(now), staleTime)
	}
}

// A clean end is no restart.
func TestCeaseDropsPaths(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.93", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.93", 64512, 90, true, gracefulCap(false))
	f.announce("10.3.0.0/26", "192.0.2.3")
	n.wantHops("10.3.0.0/26", "192.0.2.3")
	f.send(packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE,
		packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN, nil))
	n.wantHops("10.3.0.0/26")
	eventually(t, "reason", true, func() bool {
		return strings.HasPrefix(n.farState("127.0.0.93").LastError, "peer sent Cease")
	})
}

// What the wire sees: the same plan twice is silence, and a change is one UPDATE.
func TestSetTwiceIsSilent(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.94", 64512)
	for _, p := range []string{"10.1.0.0/26", "10.1.0.64/26", "10.1.9.9/32"} {
		n.announce(p, n.addr.String())
	}
	set(t, n)
	f := dialFar(t, n, "127.0.0.94", 64512, 90, true, gracefulCap(false))
	eventually(t, "first dump", 1, f.count) // packed into one UPDATE
	for range 3 {
		set(t, n)
	}
	n.announce("10.1.0.64/26", "192.0.2.77")
	set(t, n)
	n.withdraw("10.1.9.9/32")
	set(t, n)
	eventually(t, "two changes", 3, f.count)
	time.Sleep(300 * time.Millisecond)
	if c := f.count(); c != 3 {
		t.Errorf("%d UPDATEs, want 3: the dump, a changed route, a withdrawal", c)
	}
}

func TestStopSaysCease(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	a.announce("10.1.0.0/26", "192.0.2.1")
	b.announce("10.2.0.0/26", "192.0.2.2")
	set(t, a, b)
	b.wantHops("10.1.0.0/26", "192.0.2.1")
	a.wantHops("10.2.0.0/26", "192.0.2.2")
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantHops("10.1.0.0/26")
	time.Sleep(200 * time.Millisecond)
	a.wantHops("10.2.0.0/26", "192.0.2.2") // the FIB forwards on
	if err := a.Set(context.Background(), a.plan); err != errEnded {
		t.Errorf("Set after Stop: %v", err)
	}
}

// When its context ends, Run leaves without a word: the peer keeps the session until the process is
// gone, and the routes beyond that.
func TestRunLeavesWithoutCease(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	a.announce("10.1.0.0/26", "192.0.2.1")
	set(t, a, b)
	b.wantHops("10.1.0.0/26", "192.0.2.1")
	t.Cleanup(a.applied.server.Stop) // after Run nobody else does
	a.cancel()
	if err := <-a.ended; err != nil {
		t.Fatal(err)
	}
	a.ended <- nil // for the cleanup
	time.Sleep(500 * time.Millisecond)
	if s := b.state(a); !s.Established || len(b.hops("10.1.0.0/26")) != 1 {
		t.Errorf("after Run: %+v", s)
	}
}

// A plan without a speaker, because the node lost its BGP address in the datastore, changes
// nothing.
func TestPlanWithoutSpeakerIsRefused(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	set(t, a, b)
	up(t, a, b)
	err := a.Set(t.Context(), bgp.Plan{})
	if err == nil || !strings.Contains(err.Error(), "router ID") {
		t.Errorf("Set: %v", err)
	}
	if !a.state(b).Established {
		t.Error("the session was ended")
	}
}

// After a restart with a FIB that kept forwarding, only the peers of the start are sent the R bit.
func TestRestartingIsClaimedAtTheStartOnly(t *testing.T) {
	l := newLab(t)
	a, b, c := l.unset(64512), l.node(64512), l.node(64512)
	a.plan.Restarting = true
	connect(a, b)
	set(t, a, b)
	eventually(t, "R bit", true, func() bool { return b.state(a).Restarting })
	connect(a, c)
	set(t, a, c)
	up(t, a, c)
	if c.state(a).Restarting {
		t.Error("a peer that came later was sent the R bit")
	}
}

// Sessions read on while the speaker stops. Only the race detector sees that GoBGP wrote then what
// they read.
func TestStopWhileUpdatesCome(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.95", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.95", 64512, 90, true, gracefulCap(false))
	f.announce("10.3.0.0/26", "192.0.2.3")
	n.wantHops("10.3.0.0/26", "192.0.2.3")
	stopped := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range 100_000 {
			select {
			case <-stopped:
				return
			default:
				f.announcePref("10.3.0.0/26", "192.0.2.3", uint32(i))
			}
		}
	})
	time.Sleep(100 * time.Millisecond) // until they come
	err := n.Stop(t.Context())
	close(stopped)
	sending.Wait()
	if err != nil {
		t.Error(err)
	}
}
