package gobgp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

// A session that is lost is counted, by whomever it was ended; UPDATEs are counted both ways.
func TestPeersAreCounted(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	keepalive := func(p *bgp.Peer) { p.KeepaliveTime = time.Second }
	connect(a, b, keepalive)
	before := time.Now().Add(-time.Second)
	set(t, a, b)
	up(t, a, b)
	b.announce("10.1.0.0/26", b.addr.String())
	set(t, b)
	a.wantHops("10.1.0.0/26", b.addr.String())
	eventually(t, "UPDATEs with the route and End-of-RIB", [2]bool{true, true}, func() [2]bool {
		return [2]bool{a.state(b).UpdatesReceived >= 2, b.state(a).UpdatesSent >= 2}
	})
	heard := a.state(b).LastContact
	if heard.Before(before) || heard.After(time.Now()) || a.state(b).Flaps != 0 {
		t.Errorf("%+v", a.state(b))
	}
	eventually(t, "contact by KEEPALIVE", true, func() bool {
		return a.state(b).LastContact.After(heard)
	})

	b.plan.Peers = nil
	set(t, b)
	eventually(t, "the peer ended it", 1, func() int { return a.state(b).Flaps })
	b.peer(a, keepalive)
	set(t, b)
	up(t, a, b)
	a.peer(b, keepalive, withPassword) // the password is not known
	set(t, a)
	eventually(t, "we ended it", 2, func() int { return a.state(b).Flaps })
}

// Connections from where no peer is are counted; those of a peer that waits for its password are
// not.
func TestStrangersAreCounted(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer("127.0.0.80", 64512)
	withPassword(&n.plan.Peers[0])
	set(t, n)
	for _, from := range []string{"127.0.0.90", "127.0.0.80", "127.0.0.90"} {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr(from), 0))}
		c, err := d.Dial("tcp4", netip.AddrPortFrom(n.addr, n.port).String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s was answered", from)
		}
		c.Close()
	}
	eventually(t, "strangers", 2, func() int { return n.Counters().Strangers })
}
