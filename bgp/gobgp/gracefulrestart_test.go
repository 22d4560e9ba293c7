package gobgp

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// How long the routes of a peer are kept whose connection broke (RFC 4724 §4.2).

// restartCap is a capability for a restart time in seconds, which lists IPv4 with or without the F
// bit.
func restartCap(
	restarting bool, seconds uint16, forwarding bool,
) packet.ParameterCapabilityInterface {
	return packet.NewCapGracefulRestart(restarting, false, seconds,
		[]*packet.CapGracefulRestartTuple{
			packet.NewCapGracefulRestartTuple(packet.RF_IPv4_UC, forwarding),
		})
}

// broken is a node with an iBGP peer that sent one route and End-of-RIB, and whose connection
// has just broken.
func (l *lab) broken(peer string, caps ...packet.ParameterCapabilityInterface) *node {
	l.t.Helper()
	n := l.node(64512)
	n.farPeer(peer, 64512)
	set(l.t, n)
	n.breakSession(peer, caps...)
	return n
}

func (n *node) breakSession(peer string, caps ...packet.ParameterCapabilityInterface) {
	n.t.Helper()
	f := dialFar(n.t, n, peer, 64512, 90, true, caps...)
	f.announce("10.1.0.0/26", "192.0.2.1")
	f.endOfRIB()
	eventually(n.t, "End-of-RIB", true, func() bool { return n.farState(peer).EndOfRIB })
	f.close()
	eventually(n.t, "down", false, func() bool { return n.farState(peer).Established })
}

// failedAttempt connects as a peer, waits for the node's OPEN and says answer, if anything, instead
// of its own.
func (n *node) failedAttempt(peer string, answer *packet.BGPMessage) {
	n.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(peer)}}
	eventually(n.t, "the node's OPEN", true, func() bool {
		c, err := d.DialContext(n.t.Context(), "tcp",
			net.JoinHostPort(n.addr.String(), strconv.Itoa(int(n.port))))
		if err != nil {
			n.t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = io.ReadFull(c, make([]byte, 19))
		if err == nil && answer != nil {
			b, _ := answer.Serialize()
			c.Write(b)
		}
		return err == nil
	})
	time.Sleep(200 * time.Millisecond) // longer than Idle lasts, and what goes with the attempt
	eventually(n.t, "the attempt failed", "Active", func() string { return n.stateNow(peer) })
}

// stateNow is the state of a peer as GoBGP has it now: what Peers shows may be older.
func (n *node) stateNow(peer string) string {
	p, err := n.listPeer(n.t.Context(), first(peer))
	if err != nil {
		n.t.Fatal(err)
	}
	return stateNames[p.GetState().GetSessionState()]
}

// A connection that comes to nothing says nothing of the routes: they are kept until the restart
// time ends, and no longer.
func TestFailedAttemptsWhileAPeerRestarts(t *testing.T) {
	const peer = "127.0.0.160"
	n := newLab(t).broken(peer, restartCap(false, 30, true))
	began := time.Now()
	time.Sleep(10 * time.Second) // an attempt that started the time anew would show
	n.failedAttempt(peer, nil)
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	n.failedAttempt(peer,
		packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE,
			packet.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION, nil))
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	// and breaks in OpenConfirm
	n.failedAttempt(peer, packet.NewBGPOpenMessage(64512, 90, "9.9.9.160", nil))
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	time.Sleep(time.Until(began.Add(25 * time.Second)))
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26")
	if took := time.Since(began); took > 38*time.Second {
		t.Errorf("kept for %s, and the restart time was 30 s", took)
	}

	// Back after that, it is a peer like any other.
	f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(true))
	f.announce("10.1.0.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
}

// Peers are to drop the routes of this node as soon as it is gone.
func TestRestartTimeOfZeroIsSent(t *testing.T) {
	const peer = "127.0.0.169"
	n := newLab(t).node(64512)
	n.farPeer(peer, 64512)
	n.plan.Peers[0].RestartTime = 0
	set(t, n)
	all := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false)).gracefulRestart()
	if len(all) != 1 || all[0].Time != 0 || len(all[0].Tuples) != 1 {
		t.Errorf("graceful restart: %+v", all)
	}
}

// Who takes the peer out does not mean to keep its routes.
func TestRestartingPeerIsTakenOut(t *testing.T) {
	const peer = "127.0.0.161"
	for _, state := range []string{"Idle", "Active"} {
		for what, takeOut := range map[string]func(*testing.T, *node){
			"out of the plan": func(t *testing.T, n *node) {
				n.plan.Peers = nil
				set(t, n)
			},
			"by gobgp": func(t *testing.T, n *node) {
				err := n.applied.server.DisablePeer(t.Context(), &api.DisablePeerRequest{
					Address: peer,
				})
				if err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(state+" "+what, func(t *testing.T) {
				n := newLab(t).broken(peer, gracefulCap(false))
				if state == "Idle" { // for longer after each short session, up to 5 s
					n.breakSession(peer, gracefulCap(false))
					n.breakSession(peer, gracefulCap(false))
					for n.stateNow(peer) != "Idle" {
						n.breakSession(peer, gracefulCap(false))
					}
				} else {
					eventually(t, "state", state, func() string { return n.stateNow(peer) })
				}
				n.wantHops("10.1.0.0/26", "192.0.2.1")
				takeOut(t, n)
				n.wantHops("10.1.0.0/26")
			})
		}
	}
}

// A session that is up again and then ends with CEASE ends the restart, too: nothing is kept, and
// nothing is left over for the next one.
func TestCeaseEndsTheRestart(t *testing.T) {
	const peer = "127.0.0.162"
	n := newLab(t).broken(peer, gracefulCap(false))
	f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(true))
	eventually(t, "back", true, func() bool { return n.farState(peer).Established })
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	f.send(packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE,
		packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET, nil))
	n.wantHops("10.1.0.0/26")
	f.close()
	n.wantRestarting(peer, false)
	n.failedAttempt(peer, nil)

	f = dialFar(t, n, peer, 64512, 90, true)
	f.announce("10.1.0.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	since := n.farState(peer).Since
	time.Sleep(2 * time.Second) // restartIncomplete looks each second
	if s := n.farState(peer); !s.Established || !s.Since.Equal(since) {
		t.Errorf("reset for nothing: %+v", s)
	}
}

// wantRestarting waits until GoBGP says that it keeps routes for the peer, or that it does not.
func (n *node) wantRestarting(peer string, want bool) {
	n.t.Helper()
	eventually(n.t, "GoBGP waits for "+peer, want, func() bool {
		return n.listPeers().peers[first(peer)].GetGracefulRestart().GetPeerRestarting()
	})
}

// A peer that comes back and does not say by the F bit that it kept forwarding did not: what was
// kept goes at once, and its session stays. The same where the family, or the whole capability, is
// missing.
func TestPeerThatDidNotKeepForwarding(t *testing.T) {
	six := packet.NewCapGracefulRestart(true, false, 120, []*packet.CapGracefulRestartTuple{
		packet.NewCapGracefulRestartTuple(packet.RF_IPv6_UC, true),
	})
	for what, caps := range map[string][]packet.ParameterCapabilityInterface{
		"restarted":     {restartCap(true, 120, false)},
		"other family":  {six},
		"no capability": nil,
	} {
		t.Run(what, func(t *testing.T) {
			const peer = "127.0.0.163"
			n := newLab(t).broken(peer, gracefulCap(false))
			n.wantHops("10.1.0.0/26", "192.0.2.1")
			f := dialFar(t, n, peer, 64512, 90, true, caps...)
			n.wantHops("10.1.0.0/26")
			eventually(t, "back", true, func() bool { return n.farState(peer).Established })
			since := n.farState(peer).Since
			f.announce("10.1.1.0/26", "192.0.2.1")
			n.wantHops("10.1.1.0/26", "192.0.2.1")
			time.Sleep(2 * time.Second) // restartIncomplete looks each second
			if s := n.farState(peer); !s.Established || !s.Since.Equal(since) {
				t.Errorf("reset for nothing: %+v", s)
			}
		})
	}
}

// BIRD, FRR and GoBGP say neither bit when only a connection broke: that is no reason to lose
// anything before End-of-RIB.
func TestPeerWhoseConnectionBrokeAlone(t *testing.T) {
	const peer = "127.0.0.166"
	n := newLab(t).broken(peer, gracefulCap(false))
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	f := dialFar(t, n, peer, 64512, 90, true, restartCap(false, 120, false))
	eventually(t, "back", true, func() bool { return n.farState(peer).Established })
	f.announce("10.1.1.0/26", "192.0.2.1")
	n.wantHops("10.1.1.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	f.endOfRIB()
	n.wantHops("10.1.0.0/26")
	n.wantHops("10.1.1.0/26", "192.0.2.1")
}

// The other side of it: a connection that breaks costs us no forwarding, so the next OPEN says that
// it goes on. What a new process says first is for the restart to say (restart_test.go).
func TestForwardingIsKeptWhenAConnectionBreaks(t *testing.T) {
	const peer = "127.0.0.164"
	l := newLab(t)
	n := l.node(64512)
	n.farPeer(peer, 64512)
	set(t, n)
	for i, want := range []bool{false, true, true} {
		f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false))
		if restarted, forwarding := f.restartBits(); restarted || forwarding != want {
			t.Errorf("session %d: OPEN with R %t, F %t; want F %t",
				i+1, restarted, forwarding, want)
		}
		eventually(t, "up", true, func() bool { return n.farState(peer).Established })
		if shown := n.showsForwarding(peer); shown != want {
			t.Errorf("session %d: gobgp shows F %t", i+1, shown)
		}
		f.close()
		eventually(t, "down", false, func() bool { return n.farState(peer).Established })
	}
}

// showsForwarding reports whether GoBGP shows the F bit among the capabilities that it offered.
func (n *node) showsForwarding(peer string) bool {
	for _, c := range n.listPeers().peers[first(peer)].GetState().GetLocalCap() {
		var gr api.GracefulRestartCapability
		if c.MessageIs(&gr) && c.UnmarshalTo(&gr) == nil {
			return gr.Tuples[0].Flags&0x80 != 0
		}
	}
	return false
}

// What counts is the capability of the session that breaks, not one of an earlier session.
func TestGracefulRestartIsNegotiatedAnew(t *testing.T) {
	const peer = "127.0.0.165"
	l := newLab(t)
	n := l.node(64512)
	n.farPeer(peer, 64512)
	set(t, n)
	six := packet.NewCapGracefulRestart(false, false, 600, []*packet.CapGracefulRestartTuple{
		packet.NewCapGracefulRestartTuple(packet.RF_IPv6_UC, true),
	})
	for _, caps := range [][]packet.ParameterCapabilityInterface{nil, {six}} {
		with := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false))
		with.announce("10.1.0.0/26", "192.0.2.1")
		n.wantHops("10.1.0.0/26", "192.0.2.1")
		with.send(packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE,
			packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET, nil))
		n.wantHops("10.1.0.0/26")
		with.close()
		eventually(t, "down", false, func() bool { return n.farState(peer).Established })

		without := dialFar(t, n, peer, 64512, 90, true, caps...)
		without.announce("10.1.0.0/26", "192.0.2.1")
		n.wantHops("10.1.0.0/26", "192.0.2.1")
		without.close()
		n.wantHops("10.1.0.0/26")
	}
}

// What is changed in a session that stays up leaves what was negotiated in it: when the connection
// breaks, routes are kept as before.
func TestLiveChangeKeepsGracefulRestart(t *testing.T) {
	const peer = "127.0.0.166"
	l := newLab(t)
	n := l.node(64512)
	n.farPeer(peer, 64512)
	set(t, n)
	f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false))
	f.announce("10.1.0.0/26", "192.0.2.1")
	f.endOfRIB()
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	n.plan.Peers[0].KeepaliveTime = 20 * time.Second
	n.plan.Peers[0].PrefixLimit = 10
	set(t, n)
	f.close()
	eventually(t, "down", false, func() bool { return n.farState(peer).Established })
	n.wantRestarting(peer, true)
	n.wantHops("10.1.0.0/26", "192.0.2.1")

	f = dialFar(t, n, peer, 64512, 90, true, gracefulCap(true))
	f.endOfRIB()
	n.wantHops("10.1.0.0/26")
	for i := range 12 { // and the limit is the new one
		f.announce(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i), 0}), 26).String(),
			"192.0.2.1")
	}
	eventually(t, "over its limit", 1, func() int { return n.Counters().OverLimit })
}
