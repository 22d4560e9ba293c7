package gobgp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A peer that floods is cut off with its routes; nobody else is concerned. It is tried again by
// itself, and stays if it behaves.
func TestPeerOverItsPrefixLimit(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512, func(c *Config) { c.LimitRetry = 2 * time.Second })
	n.farPeer("127.0.0.76", 64512)
	n.farPeer("127.0.0.77", 64512)
	n.plan.Peers[0].PrefixLimit = 10
	set(t, n)
	quiet := dialFar(t, n, "127.0.0.77", 64512, 90, true, gracefulCap(false))
	quiet.announce("10.77.0.0/26", "192.0.2.77")
	flood := dialFar(t, n, "127.0.0.76", 64512, 90, true, gracefulCap(false))
	for i := range 10 {
		flood.announce(fmt.Sprintf("10.76.%d.0/26", i), "192.0.2.76")
	}
	n.wantHops("10.76.9.0/26", "192.0.2.76")
	n.wantHops("10.77.0.0/26", "192.0.2.77")

	flood.announce("10.76.10.0/26", "192.0.2.76")
	eventually(t, "what is left of eleven prefixes of one peer and one of another", 1, n.size)
	n.wantDown("127.0.0.76", "it sent more prefixes than its limit")
	if s := n.farState("127.0.0.77"); !s.Established {
		t.Errorf("another peer suffered: %+v", s)
	}
	if c := n.Counters(); c.OverLimit != 1 {
		t.Errorf("counted %+v, not one peer over its limit", c)
	}
	flood.close()

	again := dialFar(t, n, "127.0.0.76", 64512, 90, true, gracefulCap(false))
	again.announce("10.76.1.0/26", "192.0.2.76")
	n.wantHops("10.76.1.0/26", "192.0.2.76")
	time.Sleep(3 * time.Second) // longer than the pause: it is not taken out once more
	if s := n.farState("127.0.0.76"); !s.Established {
		t.Errorf("state %+v", s)
	}
}

// A peer that does not read its NOTIFICATION loses its session and routes a second later, however
// long a write may take. Until then we keep no more prefixes than its limit and one message.
func TestNotificationToAPeerThatDoesNotRead(t *testing.T) {
	backlog := changes(t, flood, 100, ballast)
	for _, c := range []struct {
		name  string
		do    func(*far)
		why   string
		stays api.PeerState_AdminState
	}{
		{"over its limit", func(f *far) {
			for i := range 100 {
				f.announce(fmt.Sprintf("10.76.%d.0/26", i), "192.0.2.76")
			}
		}, "it sent more prefixes than its limit", api.PeerState_PFX_CT},
		{"wrong marker", func(f *far) {
			f.announce("10.76.0.0/26", "192.0.2.76")
			f.conn.Write(make([]byte, packet.BGP_HEADER_LENGTH))
		}, "malformed message: the marker is not all ones", api.PeerState_UP},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			n, other := l.reflecting([]string{"127.0.0.76", "127.0.0.77"})
			n.plan.Peers[0].PrefixLimit = 10
			n.plan.Peers[0].KeepaliveTime = patience // and the hold time is three times that
			set(t, n)
			deaf := dialFar(t, n, "127.0.0.76", 64512, 600, true, gracefulCap(false))
			defer n.deafen(deaf, other, backlog)()
			eventually(t, "UPDATEs read", flood, func() int {
				return int(n.farState("127.0.0.77").UpdatesReceived)
			})
			c.do(deaf)
			kept := 0
			eventually(t, "established", false, func() bool {
				s := n.farState("127.0.0.76")
				kept = max(kept, s.Received)
				return s.Established
			})
			if kept > 11 {
				t.Errorf("%d prefixes were kept", kept)
			}
			n.wantDown("127.0.0.76", c.why)
			n.wantHops("10.76.0.0/26")
			if stays := n.adminState("127.0.0.76"); stays != c.stays {
				t.Errorf("it stays %s", stays)
			}
		})
	}
}

// A peer with graceful restart exceeds its limit and closes the connection at once, mostly before
// the server has counted its prefixes.
func TestPeerOverItsPrefixLimitThatLeaves(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	var peers []string
	for i := range 20 {
		peers = append(peers, fmt.Sprintf("127.0.2.%d", 1+i))
		n.farPeer(peers[i], 64512)
		n.plan.Peers[i].PrefixLimit = 10
	}
	set(t, n)
	for _, peer := range peers {
		f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false))
		n.wantState(peer, "Established")
		if rest := f.write(changes(t, 11, 11), patience); len(rest) > 0 {
			t.Fatalf("%d bytes were not taken", len(rest))
		}
		f.close()
		n.wantDown(peer, "it sent more prefixes than its limit")
		eventually(t, "admin state", api.PeerState_PFX_CT, func() api.PeerState_AdminState {
			return n.adminState(peer)
		})
	}
	eventually(t, "prefixes", 0, n.size)
}

// A limit that is lowered below what was kept for a peer that is away says nothing about it.
func TestLimitLoweredWhileThePeerIsAway(t *testing.T) {
	const peer = "127.0.0.76"
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer(peer, 64512)
	n.plan.Peers[0].PrefixLimit = 100
	set(t, n)
	f := dialFar(t, n, peer, 64512, 90, true, gracefulCap(false))
	if rest := f.write(changes(t, 20, 20), patience); len(rest) > 0 {
		t.Fatalf("%d bytes were not taken", len(rest))
	}
	eventually(t, "prefixes", 20, n.size)
	f.close()
	eventually(t, "established", false, func() bool { return n.farState(peer).Established })
	n.plan.Peers = slices.Clone(n.plan.Peers)
	n.plan.Peers[0].PrefixLimit = 10
	set(t, n)
	if over := n.Counters().OverLimit; over != 0 {
		t.Errorf("over its limit %d times", over)
	}
	again := dialFar(t, n, peer, 64512, 90, true)
	again.announce("10.76.0.0/26", "192.0.2.76")
	n.wantHops("10.76.0.0/26", "192.0.2.76")
}

// adminState returns the peer's administrative state in GoBGP.
func (n *node) adminState(peer string) (is api.PeerState_AdminState) {
	n.t.Helper()
	is = -1
	err := n.applied.server.ListPeer(n.t.Context(), &api.ListPeerRequest{Address: peer},
		func(p *api.Peer) { is = p.GetState().GetAdminState() })
	if err != nil {
		n.t.Error(err)
	}
	return is
}

// deafen has 127.0.0.76 read no more until end, while 127.0.0.77 sends what is to be passed on.
func (n *node) deafen(deaf, other *far, backlog []byte) (end func()) {
	n.t.Helper()
	eventually(n.t, "sessions", true, func() bool {
		return n.farState("127.0.0.76").Established && n.farState("127.0.0.77").Established
	})
	deaf.mu.Lock() // its receiver takes one UPDATE more
	if rest := other.write(backlog, patience); len(rest) > 0 {
		deaf.mu.Unlock()
		n.t.Fatalf("%d bytes were not taken", len(rest))
	}
	return deaf.mu.Unlock
}

// A peer that sends keepalives and reads nothing is named as such, whether its routes are kept or
// not.
func TestPeerThatDoesNotRead(t *testing.T) {
	backlog := changes(t, flood, 100, ballast)
	for name, caps := range map[string][]packet.ParameterCapabilityInterface{
		"without graceful restart": nil, "with it": {gracefulCap(false)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			n, other := l.reflecting([]string{"127.0.0.76", "127.0.0.77"})
			set(t, n)
			deaf := dialFar(t, n, "127.0.0.76", 64512, 9, true, caps...)
			defer n.deafen(deaf, other, backlog)()
			n.wantDown("127.0.0.76", "the peer took no data for the hold time")
		})
	}
}
