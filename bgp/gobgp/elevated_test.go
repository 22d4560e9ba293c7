package gobgp

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/bgp"
)

// A machine that moves is announced by its new node with a higher LOCAL_PREF, and may come from
// inside a block of ours. Then its address is passed on, to clients and to eBGP peers, as long as
// it is so and no longer; other addresses inside the block are not.
func TestElevatedIsPassedOn(t *testing.T) {
	const normal, high = 2147482623, 2147483135
	l := newLab(t)
	n := l.node(64512)
	for i, as := range []uint32{64512, 64512, 65001} {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 90+i), as)
	}
	n.plan.Peers[0].Client, n.plan.Peers[1].Client = true, true
	n.plan.Policies = bgp.Policies{
		Reflects: true, OwnBlocks: []netip.Prefix{pfx("10.1.0.0/26")},
		ExportPools: []netip.Prefix{pfx("10.0.0.0/8")}, Normal4: normal, Normal6: normal,
	}
	set(t, n)
	var fars []*far
	for i, as := range []uint32{64512, 64512, 65001} {
		fars = append(fars,
			dialFar(t, n, fmt.Sprintf("127.0.0.%d", 90+i), as, 90, true, gracefulCap(false)))
	}
	source, client, tor := fars[0], fars[1], fars[2]
	source.announcePref("10.1.0.9/32", "192.0.2.1", high)
	source.announcePref("10.1.0.8/32", "192.0.2.1", normal)
	source.announcePref("10.2.0.0/26", "192.0.2.1", normal)
	gets := func(what string, want ...string) {
		t.Helper()
		for _, f := range []*far{client, tor} {
			eventually(t, what, fmt.Sprint(want), func() string { return fmt.Sprint(f.received()) })
		}
	}
	gets("elevated", "10.1.0.9/32", "10.2.0.0/26")
	want := fmt.Sprintf("path [] pref %d med - hop 192.0.2.1 communities []", high)
	if got := client.routes()[pfx("10.1.0.9/32")]; got != want {
		t.Errorf("the client gets %s, want %s", got, want)
	}
	since := n.farState("127.0.0.91").Since

	source.announcePref("10.1.0.9/32", "192.0.2.1", normal)
	gets("over", "10.2.0.0/26")
	source.announcePref("10.1.0.9/32", "192.0.2.1", high)
	gets("again", "10.1.0.9/32", "10.2.0.0/26")
	source.withdraw("10.1.0.9/32")
	gets("gone", "10.2.0.0/26")

	// The block comes after the path, and a change of what is normal counts for the paths that are
	// there.
	n.plan.Policies.OwnBlocks = nil
	set(t, n)
	source.announcePref("10.1.0.9/32", "192.0.2.1", high)
	gets("no block", "10.1.0.8/32", "10.1.0.9/32", "10.2.0.0/26")
	n.plan.Policies.OwnBlocks = []netip.Prefix{pfx("10.1.0.0/26")}
	set(t, n)
	gets("block", "10.1.0.9/32", "10.2.0.0/26")
	n.plan.Policies.Normal4 = high
	set(t, n)
	gets("it is normal", "10.2.0.0/26")
	n.plan.Policies.Normal4 = normal - 1
	set(t, n)
	gets("everything is above normal", "10.1.0.8/32", "10.1.0.9/32", "10.2.0.0/26")
	if now := n.farState("127.0.0.91").Since; now != since {
		t.Errorf("the session was reset at %s", now)
	}
}
