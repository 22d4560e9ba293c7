package gobgp

import (
	"fmt"
	"net/netip"
	"testing"
)

// A block moves from us to another node, a machine moves with its address: whatever comes first,
// our announcement is taken back from those that heard it as soon as another's path is best, and at
// the latest when it is withdrawn here.
func TestAnotherTakesOurPlace(t *testing.T) {
	const better, worse = 2147483135, 100
	heard := func(third *far) {
		t.Helper()
		eventually(t, "ours is heard", "[10.1.5.0/26 10.9.9.0/26]", func() string {
			return fmt.Sprint(third.received())
		})
	}
	for _, tc := range []struct {
		name  string
		steps func(n *node, other, third *far)
	}{
		{"theirs comes and is better", func(n *node, other, third *far) {
			n.announce("10.1.5.0/26", n.addr.String())
			set(t, n)
			heard(third)
			other.announcePref("10.1.5.0/26", "192.0.2.1", better)
			n.wantHops("10.1.5.0/26", "192.0.2.1")
		}},
		{"theirs was there and is better than ours", func(n *node, other, third *far) {
			other.announcePref("10.1.5.0/26", "192.0.2.1", better)
			n.wantHops("10.1.5.0/26", "192.0.2.1")
			n.announce("10.1.5.0/26", n.addr.String())
			set(t, n)
		}},
		{"theirs comes and is worse, then ours goes", func(n *node, other, third *far) {
			n.announce("10.1.5.0/26", n.addr.String())
			set(t, n)
			heard(third)
			other.announcePref("10.1.5.0/26", "192.0.2.1", worse)
			eventually(t, "theirs is there", 1, func() int { return n.Peers()[0].Accepted })
			n.plan.Announcements = n.plan.Announcements[:1]
			set(t, n)
			n.wantHops("10.1.5.0/26", "192.0.2.1")
		}},
		{"theirs was there and is worse, ours comes and goes", func(n *node, other, third *far) {
			other.announcePref("10.1.5.0/26", "192.0.2.1", worse)
			n.wantHops("10.1.5.0/26", "192.0.2.1")
			n.announce("10.1.5.0/26", n.addr.String())
			set(t, n)
			heard(third)
			n.plan.Announcements = n.plan.Announcements[:1]
			set(t, n)
			n.wantHops("10.1.5.0/26", "192.0.2.1")
			set(t, n)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			n := l.node(64512)
			for i := range 2 {
				n.farPeer(fmt.Sprintf("127.0.0.%d", 80+i), 64512)
			}
			n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
			n.announce("10.9.9.0/26", n.addr.String())
			set(t, n)
			other := dialFar(t, n, "127.0.0.80", 64512, 90, true, gracefulCap(false))
			third := dialFar(t, n, "127.0.0.81", 64512, 90, true, gracefulCap(false))
			eventually(t, "before", "[10.9.9.0/26]", func() string {
				return fmt.Sprint(third.received())
			})
			tc.steps(n, other, third)
			eventually(t, "ours is taken back", "[10.9.9.0/26]", func() string {
				return fmt.Sprint(third.received())
			})
		})
	}
}
