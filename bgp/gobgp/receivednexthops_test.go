package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/bgp"
)

// TestImportByInterface: where next hops lead out changes what is accepted while sessions stay up,
// and next hops of rejected routes are known.
func TestImportByInterface(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.74", 64512)
	n.farPeer("127.0.0.75", 64512)
	n.plan.Peers[0].Filters = []string{"f"}
	n.plan.Policies.Filters = map[string]bgp.Filter{"f": {Import4: []bgp.Rule{
		{Name: "f[0]", Match: bgp.Match{Interface: "eth0"}, Accept: true}, {Name: "f[1]"},
	}}}
	set(t, n)
	one := dialFar(t, n, "127.0.0.74", 64512, 90, true, gracefulCap(false))
	other := dialFar(t, n, "127.0.0.75", 64512, 90, true, gracefulCap(false))
	for i := range 3 {
		one.announce(fmt.Sprintf("10.1.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i))
	}
	other.announce("10.2.0.0/26", "192.0.2.9")
	eventually(t, "learned", 1, n.size)
	hops := func() string {
		return fmt.Sprint(n.NextHops())
	}
	eventually(t, "next hops of what is rejected", "[192.0.2.0 192.0.2.1 192.0.2.2]", hops)
	since := n.Peers()[0].Since

	n.plan.Policies.Behind = map[string][]netip.Prefix{"eth0": {pfx("192.0.2.0/31")}}
	set(t, n)
	eventually(t, "those by eth0", "[10.1.0.0/26 10.1.1.0/26 10.2.0.0/26]", n.prefixes)
	n.plan.Policies.Behind = map[string][]netip.Prefix{"eth0": {pfx("192.0.2.2/32")}}
	set(t, n)
	eventually(t, "the way is another", "[10.1.2.0/26 10.2.0.0/26]", n.prefixes)
	n.locked(func() { clear(n.seen) })
	n.plan.Policies.Behind = map[string][]netip.Prefix{
		"eth0": {pfx("192.0.2.2/32")}, "eth1": {pfx("192.0.2.0/31")},
	}
	set(t, n)
	n.locked(func() {
		if len(n.seen) > 0 {
			t.Errorf("an interface that nobody asks for: the sink has %v", n.seen)
		}
	})
	if now := n.Peers()[0].Since; !now.Equal(since) {
		t.Error("the session was reset")
	}
	n.plan.Peers = slices.Clone(n.plan.Peers)
	n.plan.Peers[0].Filters = nil
	set(t, n)
	eventually(t, "without the filter", 4, n.size)
	eventually(t, "nobody asks", "[]", hops)
}

// TestReceivedNextHopsAreBounded: a peer cannot have any number of next hops looked up.
func TestReceivedNextHopsAreBounded(t *testing.T) {
	s := &Speaker{}
	one, other := first("127.0.0.74"), first("127.0.0.75")
	hop := addr("10.0.0.0")
	for range hopsPerPeer + 9 {
		hop = hop.Next()
		s.received.add(one, hop)
	}
	s.received.add(other, addr("10.0.0.1"))
	s.received.add(other, addr("192.0.2.1"))
	if got := len(s.NextHops()); got != hopsPerPeer+1 {
		t.Errorf("%d next hops, want %d", got, hopsPerPeer+1)
	}
	s.received.keep(map[bgp.PeerID]bool{other: true})
	if got := fmt.Sprint(s.NextHops()); got != "[10.0.0.1 192.0.2.1]" {
		t.Errorf("of the peer that stays: %s", got)
	}
}
