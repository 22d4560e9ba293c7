package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/bgp"
)

func (n *node) reject(hops ...string) {
	n.t.Helper()
	var all []netip.Addr
	for _, h := range hops {
		all = append(all, addr(h))
	}
	if err := n.SetUsable(n.t.Context(), usableBut(all...)); err != nil {
		n.t.Fatal(err)
	}
}

// usableBut says that all next hops but some can be used.
func usableBut(dead ...netip.Addr) func(netip.Prefix, netip.Addr) bool {
	return func(_ netip.Prefix, hop netip.Addr) bool { return !slices.Contains(dead, hop) }
}

// Paths whose next hop dies leave the best-path sets, and come back with it, also those that came
// while it was dead.
func TestDeadNextHop(t *testing.T) {
	l := newLab(t)
	c := l.node(64512)
	var others []*node
	for i := range 3 {
		n := l.node(64512)
		connect(n, c)
		n.announce(fmt.Sprintf("10.1.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i+1))
		others = append(others, n)
	}
	set(t, append(others, c)...)
	for i := range others {
		c.wantHops(fmt.Sprintf("10.1.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i+1))
	}
	c.reject("192.0.2.1")
	c.wantHops("10.1.0.0/26")
	c.reject("192.0.2.2", "192.0.2.77")
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	c.wantHops("10.1.1.0/26")
	others[2].announce("10.1.9.0/26", "192.0.2.2")
	set(t, others[2])
	eventually(t, "the path has come", 2, func() int { return c.state(others[2]).Received })
	c.wantHops("10.1.9.0/26")
	c.reject()
	c.wantHops("10.1.1.0/26", "192.0.2.2")
	c.wantHops("10.1.9.0/26", "192.0.2.2")
}

// GoBGP has accepted the second best path before its next hop died, and no event followed.
func TestDeadNextHopBehindABetterPath(t *testing.T) {
	l := newLab(t)
	a, b, d, c := l.node(64512), l.node(64512), l.node(64512), l.node(64512)
	for i, n := range []*node{a, b, d} {
		connect(n, c)
		n.announce("10.1.0.0/26", fmt.Sprintf("192.0.2.%d", i+1), func(x *bgp.Announcement) {
			x.LocalPref = uint32(300 - i)
		})
	}
	set(t, a, b, d, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	for _, n := range []*node{b, d} {
		eventually(t, "all paths have come", 1, func() int { return c.state(n).Received })
	}
	c.reject("192.0.2.2")
	a.withdraw("10.1.0.0/26")
	set(t, a)
	c.wantHops("10.1.0.0/26", "192.0.2.3")
	c.reject()
	c.wantHops("10.1.0.0/26", "192.0.2.2")
}

// A peer that comes back while a next hop is dead has all of its paths checked; when the hop lives
// again they must be found.
func TestDeadNextHopOfAPeerThatComesBack(t *testing.T) {
	l := newLab(t)
	a, c := l.node(64512), l.node(64512)
	connect(a, c)
	a.announce("10.1.0.0/26", "192.0.2.1")
	set(t, a, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	c.reject("192.0.2.1")
	c.wantHops("10.1.0.0/26")
	peers := c.plan.Peers
	c.plan.Peers = nil
	set(t, c)
	c.plan.Peers = peers
	set(t, c)
	eventually(t, "back", 1, func() int { return c.state(a).Received })
	c.wantHops("10.1.0.0/26")
	c.reject()
	c.wantHops("10.1.0.0/26", "192.0.2.1")
}

// A next hop that cannot be used for one prefix can be for another, and a second path takes over.
func TestNextHopOfOnePrefixIsDead(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node(64512), l.node(64512), l.node(64512)
	for i, n := range []*node{a, b} {
		connect(n, c)
		for _, p := range []string{"10.1.0.0/26", "10.2.0.0/26"} {
			n.announce(p, fmt.Sprintf("192.0.2.%d", i+1), func(x *bgp.Announcement) {
				x.LocalPref = uint32(300 - i)
			})
		}
	}
	set(t, a, b, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	c.wantHops("10.2.0.0/26", "192.0.2.1")
	err := c.SetUsable(t.Context(), func(p netip.Prefix, hop netip.Addr) bool {
		return p != netip.MustParsePrefix("10.1.0.0/26") || hop != addr("192.0.2.1")
	})
	if err != nil {
		t.Fatal(err)
	}
	c.wantHops("10.1.0.0/26", "192.0.2.2")
	c.wantHops("10.2.0.0/26", "192.0.2.1")
}
