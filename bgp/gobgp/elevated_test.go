package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// What is Static stays announced whatever LOCAL_PREF a peer gives it; the address of a workload
// moves with the highest. A node that is being drained gives way.
func TestOwnBlockStays(t *testing.T) {
	const normal, high = 2147482623, 2147483135
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.93", 64512)
	n.farPeer("127.0.0.97", 65001)
	n.plan.Policies = bgp.Policies{ExportPools: []netip.Prefix{pfx("10.0.0.0/8")},
		Normal4: normal, Normal6: normal}
	static := func(a *bgp.Announcement) { a.Static = true }
	n.announce("10.1.0.0/26", "192.0.2.5", static)
	n.announce("10.2.0.9/32", "192.0.2.5")
	set(t, n)
	source := dialFar(t, n, "127.0.0.93", 64512, 90, true, gracefulCap(false))
	tor := dialFar(t, n, "127.0.0.97", 65001, 90, true, gracefulCap(false))
	hop := func(prefix string) func() string {
		return func() string {
			_, hop, _ := strings.Cut(tor.routes()[pfx(prefix)], " hop ")
			hop, _, _ = strings.Cut(hop, " ")
			return hop
		}
	}
	learned := n.addr.String() // NEXT_HOP of what is passed on
	eventually(t, "our block", "192.0.2.5", hop("10.1.0.0/26"))
	source.announcePref("10.1.0.0/26", "192.0.2.1", high)
	source.announcePref("10.2.0.9/32", "192.0.2.1", high)
	eventually(t, "the workload moves", learned, hop("10.2.0.9/32"))
	if got := hop("10.1.0.0/26")(); got != "192.0.2.5" {
		t.Errorf("the block goes out with next hop %q", got)
	}
	if got := source.received(); !slices.Contains(got, pfx("10.1.0.0/26")) {
		t.Errorf("who sent it has %v of us", got)
	}
	n.announce("10.1.0.0/26", "192.0.2.5", static,
		func(a *bgp.Announcement) { a.GracefulShutdown, a.LocalPref = true, 0 })
	set(t, n)
	eventually(t, "drained", learned, hop("10.1.0.0/26"))
	n.announce("10.1.0.0/26", "192.0.2.5", static)
	set(t, n)
	eventually(t, "our block again", "192.0.2.5", hop("10.1.0.0/26"))
	n.withdraw("10.1.0.0/26")
	set(t, n)
	eventually(t, "no block of ours any more", learned, hop("10.1.0.0/26"))
	n.announce("10.1.0.0/26", "192.0.2.5", static)
	set(t, n)
	eventually(t, "a block that comes after the path", "192.0.2.5", hop("10.1.0.0/26"))
}
