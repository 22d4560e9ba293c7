package gobgp

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
)

// bare is a connection with a node on which the test says everything itself.
type bare struct {
	*far
	id string // BGP identifier
}

// dialBare connects to the node from local, and says nothing.
func dialBare(t *testing.T, n *node, local, id string) *bare {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	conn, err := d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(n.addr, n.port).String())
	if err != nil {
		t.Fatal(err)
	}
	return newBare(t, conn, id)
}

func newBare(t *testing.T, conn net.Conn, id string) *bare {
	t.Cleanup(func() { conn.Close() })
	return &bare{far: &far{t: t, conn: conn}, id: id}
}

// wantState waits until the session with a far speaker is in this state.
func (n *node) wantState(local, state string) {
	n.t.Helper()
	eventually(n.t, local, state, func() string { return n.farState(local).State })
}

// acceptBare waits for the node to dial.
func acceptBare(t *testing.T, l net.Listener, id string) *bare {
	t.Helper()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(2 * time.Minute))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("the node did not dial: %v", err)
	}
	return newBare(t, conn, id)
}

func (b *bare) open(as uint32, caps ...packet.ParameterCapabilityInterface) {
	caps = append([]packet.ParameterCapabilityInterface{
		packet.NewCapMultiProtocol(packet.RF_IPv4_UC), packet.NewCapFourOctetASNumber(as),
	}, caps...)
	b.send(packet.NewBGPOpenMessage(uint16(as), 90, b.id,
		[]packet.OptionParameterInterface{packet.NewOptionParameterCapability(caps)}))
}

// expect reads messages: "OPEN", "KEEPALIVE", "6/7" for a NOTIFICATION, "closed" for the end,
// "silence" for nothing in half a second.
func (b *bare) expect(want ...string) {
	b.t.Helper()
	for _, w := range want {
		wait := 30 * time.Second
		if w == "silence" {
			wait = 500 * time.Millisecond
		}
		b.conn.SetReadDeadline(time.Now().Add(wait))
		m, err := b.read()
		got := "closed"
		switch e, timeout := err.(net.Error); {
		case timeout && e.Timeout():
			got = "silence"
		case err != nil:
		case m.Header.Type == packet.BGP_MSG_OPEN:
			got = "OPEN"
		case m.Header.Type == packet.BGP_MSG_KEEPALIVE:
			got = "KEEPALIVE"
		case m.Header.Type == packet.BGP_MSG_NOTIFICATION:
			n := m.Body.(*packet.BGPNotification)
			got = fmt.Sprintf("%d/%d", n.ErrorCode, n.ErrorSubcode)
		case m.Header.Type == packet.BGP_MSG_UPDATE:
			got = "UPDATE"
		}
		if got != w {
			b.t.Fatalf("got %s, want %s", got, w)
		}
	}
	b.conn.SetReadDeadline(time.Time{})
}

// Connections from a peer's address that stay silent must not keep the real peer out.
func TestSilentConnectionKeepsNobodyOut(t *testing.T) {
	for _, silent := range []int{1, 20} {
		t.Run(strconv.Itoa(silent), func(t *testing.T) {
			n := newLab(t).node(64512)
			n.farPeer("127.0.0.90", 64512)
			set(t, n)
			n.wantState("127.0.0.90", "Active")
			for range silent {
				dialBare(t, n, "127.0.0.90", "")
			}
			time.Sleep(200 * time.Millisecond)
			peer := dialBare(t, n, "127.0.0.90", "9.9.9.90")
			peer.open(64512)
			peer.expect("OPEN", "KEEPALIVE")
			peer.send(packet.NewBGPKeepAliveMessage())
			n.wantState("127.0.0.90", "Established")
		})
	}
}

// Neither may it keep the node from dialling, and it is closed after a short time.
func TestSilentConnectionStopsNoDial(t *testing.T) {
	n, l := newLab(t).activeNode("127.0.0.91")
	first := acceptBare(t, l, "")
	first.expect("OPEN")
	silent := dialBare(t, n, "127.0.0.91", "")
	first.conn.Close()
	peer := acceptBare(t, l, "9.9.9.91")
	peer.expect("OPEN")
	peer.open(64512)
	peer.expect("KEEPALIVE")
	peer.send(packet.NewBGPKeepAliveMessage())
	n.wantState("127.0.0.91", "Established")
	silent.expect("OPEN")
	start := time.Now()
	silent.conn.SetReadDeadline(start.Add(15 * time.Second))
	if _, err := silent.read(); err != nil {
		t.Errorf("after %s without OPEN: %v, not a NOTIFICATION", time.Since(start), err)
	}
}

// activeNode is a node that dials a peer at local, and the peer's listener.
func (l *lab) activeNode(local string, change ...func(*Config)) (*node, net.Listener) {
	l.t.Helper()
	n := l.node(64512, change...)
	peer, err := net.Listen("tcp4", netip.AddrPortFrom(addr(local), n.port).String())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { peer.Close() })
	n.farPeer(local, 64512)
	n.plan.Peers[0].Passive, n.plan.Peers[0].Port = false, n.port
	set(l.t, n)
	return n, peer
}

const (
	lower  = "1.0.0.1" // than the node's 127.0.0.11
	higher = "200.0.0.1"
)

// Of two connections that both ends opened at once the one of the higher BGP identifier stays
// (RFC 4271 §6.8).
func TestConnectionCollision(t *testing.T) {
	type ends struct{ ours, theirs *bare } // who opened the connection
	established := func(n *node, b *bare) {
		b.expect("KEEPALIVE")
		b.send(packet.NewBGPKeepAliveMessage())
		n.wantState("127.0.0.92", "Established")
	}
	for name, tc := range map[string]struct {
		id  string
		run func(*node, ends)
	}{
		"the peer's is the higher, its OPEN comes first": {higher, func(n *node, c ends) {
			c.theirs.open(64512)
			c.ours.expect("6/7", "closed")
			established(n, c.theirs)
		}},
		"the peer's is the higher, OPEN comes on ours first": {higher, func(n *node, c ends) {
			c.ours.open(64512)
			c.ours.expect("KEEPALIVE")
			c.theirs.open(64512)
			c.ours.expect("6/7", "closed")
			established(n, c.theirs)
		}},
		"ours is the higher, OPEN comes on theirs first": {lower, func(n *node, c ends) {
			c.theirs.open(64512)
			c.theirs.expect("silence")
			c.ours.open(64512)
			c.theirs.expect("6/7", "closed")
			established(n, c.ours)
		}},
		"ours is the higher, OPEN comes on it first": {lower, func(n *node, c ends) {
			c.ours.open(64512)
			c.ours.expect("KEEPALIVE")
			c.theirs.open(64512)
			c.theirs.expect("6/7", "closed")
			c.ours.send(packet.NewBGPKeepAliveMessage())
			n.wantState("127.0.0.92", "Established")
		}},
		"ours is the higher, but comes to nothing": {lower, func(n *node, c ends) {
			c.theirs.open(64512)
			c.theirs.expect("silence")
			c.ours.conn.Close()
			established(n, c.theirs)
		}},
		"ours is up": {higher, func(n *node, c ends) {
			c.ours.open(64512, gracefulCap(false))
			c.ours.expect("KEEPALIVE")
			c.ours.send(packet.NewBGPKeepAliveMessage())
			n.wantState("127.0.0.92", "Established")
			since := n.farState("127.0.0.92").Since
			time.Sleep(3 * time.Second) // by then a new connection would be a restart
			c.theirs.open(64512, gracefulCap(false))
			c.theirs.expect("6/7", "closed")
			if s := n.farState("127.0.0.92"); !s.Established || !s.Since.Equal(since) {
				t.Errorf("state %+v", s)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n, l := newLab(t).activeNode("127.0.0.92")
			c := ends{ours: acceptBare(t, l, tc.id)}
			c.ours.expect("OPEN")
			c.theirs = dialBare(t, n, "127.0.0.92", tc.id)
			c.theirs.expect("OPEN")
			tc.run(n, c)
		})
	}
}

// Two ends that both dial come up, and stay.
func TestBothEndsDial(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b, func(p *bgp.Peer) { p.Passive = false })
	set(t, a, b)
	up(t, a, b)
	since := a.state(b).Since
	time.Sleep(3 * time.Second)
	if s := a.state(b); !s.Established || !s.Since.Equal(since) {
		t.Errorf("state %+v", s)
	}
}

// A peer that lost its session without our noticing opens a new one, which is its restart
// (RFC 4724 §5).
func TestSecondConnectionIsTheRestart(t *testing.T) {
	graceful := []packet.ParameterCapabilityInterface{gracefulCap(false)}
	others := []struct {
		name, local, id string
		as              uint32
		before          []packet.ParameterCapabilityInterface
	}{
		{"another router ID", "127.0.0.94", "9.9.9.1", 64512, graceful},
		{"another AS", "127.0.0.95", "9.9.9.95", 64513, graceful},
		{"no graceful restart", "127.0.0.96", "9.9.9.96", 64512, nil},
		{"a connection, but no OPEN", "127.0.0.97", "", 0, graceful},
	}
	n := newLab(t).node(64512)
	n.farPeer("127.0.0.93", 64512)
	for _, o := range others {
		n.farPeer(o.local, 64512)
	}
	set(t, n)
	f := dialFar(t, n, "127.0.0.93", 64512, 90, true, graceful...)
	f.announce("10.93.0.0/26", "192.0.2.93")
	f.announce("10.93.1.0/26", "192.0.2.93")
	n.wantHops("10.93.0.0/26", "192.0.2.93")
	n.wantHops("10.93.1.0/26", "192.0.2.93")
	since := map[string]time.Time{}
	for _, o := range others {
		dialFar(t, n, o.local, 64512, 90, true, o.before...)
		n.wantState(o.local, "Established")
		since[o.local] = n.farState(o.local).Since
	}
	time.Sleep(3 * time.Second) // sooner it would be one of two that both ends opened at once

	for _, o := range others {
		if b := dialBare(t, n, o.local, o.id); o.as != 0 {
			b.open(o.as, graceful...)
		}
	}
	restarted := time.Now()
	b := dialBare(t, n, "127.0.0.93", "9.9.9.93")
	b.open(64512, graceful...)
	b.expect("OPEN", "KEEPALIVE")
	b.send(packet.NewBGPKeepAliveMessage())
	eventually(t, "the new session", true, func() bool {
		s := n.farState("127.0.0.93")
		return s.Established && s.Since.After(restarted)
	})
	n.wantHops("10.93.0.0/26", "192.0.2.93")
	n.wantHops("10.93.1.0/26", "192.0.2.93")
	b.announce("10.93.0.0/26", "192.0.2.93")
	b.endOfRIB()
	n.wantHops("10.93.1.0/26")
	n.locked(func() {
		for _, paths := range n.all[:len(n.all)-1] {
			if len(paths) == 0 {
				t.Errorf("a route was gone meanwhile: %v", n.all)
			}
		}
	})
	if s := n.farState("127.0.0.93"); s.LastError != "the peer opened a new connection" {
		t.Errorf("state %+v", s)
	}
	for _, o := range others {
		s := n.farState(o.local)
		if !s.Established || !s.Since.Equal(since[o.local]) || s.LastError != "" {
			t.Errorf("%s: state %+v", o.name, s)
		}
	}
}

// What comes in OPEN's place on a connection is answered, counted and shown.
func TestFirstMessageIsNoOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		kind      uint8
		body      string
		code      string
		malformed int
	}{
		"of an unknown type": {0xff, "", "1/3", 1},
		"too long":           {packet.BGP_MSG_OPEN, strings.Repeat("x", 5000), "1/2", 1},
		"KEEPALIVE":          {packet.BGP_MSG_KEEPALIVE, "", "5/1", 1},
		"OPEN cut short":     {packet.BGP_MSG_OPEN, "\x04\xfc", "1/2", 1},
		"of another AS": {
			packet.BGP_MSG_OPEN, "\x04\xfc\x01\x00\x5a\x09\x09\x09\x5a\x00", "2/2", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLab(t).node(64512)
			n.farPeer("127.0.0.90", 64512)
			set(t, n)
			b := dialBare(t, n, "127.0.0.90", "")
			b.bytes(tc.kind, []byte(tc.body))
			b.expect("OPEN", tc.code, "closed")
			eventually(t, "counted", tc.malformed, func() int { return n.Counters().Malformed })
			eventually(t, "status says why", true, func() bool {
				return n.farState("127.0.0.90").LastError != "the peer has not dialled"
			})
		})
	}
}
