package gobgp

import (
	"net/netip"
	"strings"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A peer whose connection broke comes back with another BGP identifier, that of a peer to which its
// routes went. What it does not announce again leaves that peer, and what it does is there once.
func TestPeerIsBackWithAnotherRouterID(t *testing.T) {
	n := newLab(t).node(64512)
	n.farPeer("127.0.0.90", 64512)
	n.farPeer("127.0.0.91", 64512)
	n.plan.Policies.Reflects = true
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	for i := range n.plan.Peers {
		n.plan.Peers[i].Client = true
	}
	set(t, n)
	f := dialFar(t, n, "127.0.0.90", 64512, 90, true, gracefulCap(false))
	other := dialFar(t, n, "127.0.0.91", 64512, 90, true, gracefulCap(false))
	for _, p := range []string{"10.90.0.0/26", "10.90.1.0/26", "10.90.2.0/26"} {
		f.announce(p, "192.0.2.90")
	}
	eventually(t, "routes passed on", 3, func() int { return len(other.received()) })
	f.close()
	eventually(t, "down", false, func() bool { return n.farState("127.0.0.90").Established })

	b := dialBare(t, n, "127.0.0.90", "9.9.9.91")
	b.open(64512, gracefulCap(true))
	b.expect("OPEN", "KEEPALIVE")
	b.send(packet.NewBGPKeepAliveMessage())
	b.announce("10.90.0.0/26", "192.0.2.190")
	b.endOfRIB()
	n.wantHops("10.90.0.0/26", "192.0.2.190")
	n.wantHops("10.90.1.0/26")
	n.wantHops("10.90.2.0/26")
	// It ignores what has its own identifier as ORIGINATOR_ID (RFC 4456 §8); the old routes are
	// gone.
	eventually(t, "routes of the other peer", "10.90.0.0/26", func() string {
		var left []string
		for _, p := range other.received() {
			left = append(left, p.String())
		}
		return strings.Join(left, " ")
	})
	eventually(t, "routes of the peer", 1, func() int { return n.farState("127.0.0.90").Accepted })

	b.withdraw("10.90.0.0/26")
	n.wantHops("10.90.0.0/26")
}
