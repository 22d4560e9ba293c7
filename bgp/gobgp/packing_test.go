package gobgp

import (
	"fmt"
	"testing"

	"vpp-route-agent/bgp"
)

// What changes together and has equal attributes is one UPDATE, in both families.
func TestChangesMadeTogetherAreOneUpdate(t *testing.T) {
	for family, c := range map[string]struct{ block, hop string }{
		"ipv4": {"10.1.%d.0/26", "192.0.2.1"},
		"ipv6": {"fd01::%d:0/122", "2001:db8::1"},
	} {
		t.Run(family, func(t *testing.T) {
			l := newLab(t)
			var n *node
			var f *far
			if family == "ipv6" {
				n, f = l.farOverIPv6()
			} else {
				n = l.unset(64512)
				n.farPeer("127.0.0.149", 64512)
				set(t, n)
				f = dialFar(t, n, "127.0.0.149", 64512, 90, true, gracefulCap(false))
			}
			n.announce(fmt.Sprintf(c.block, 0), c.hop)
			set(t, n)
			eventually(t, "a route", 1, f.count)
			for i := range 50 {
				n.announce(fmt.Sprintf(c.block, 1+i), c.hop)
			}
			set(t, n)
			n.announce(fmt.Sprintf(c.block, 51), c.hop, func(a *bgp.Announcement) {
				a.LocalPref = 7
			})
			set(t, n) // the last, so that what came before is counted
			eventually(t, "50 new routes, and one", 3, f.count)
			for i := range 50 {
				n.withdraw(fmt.Sprintf(c.block, 1+i))
			}
			set(t, n)
			n.withdraw(fmt.Sprintf(c.block, 51))
			set(t, n)
			eventually(t, "50 withdrawals, and one", 5, f.count)
			f.mu.Lock()
			defer f.mu.Unlock()
			if have := len(f.table) + len(f.six); have != 1 {
				t.Errorf("%d routes are left", have)
			}
		})
	}
}
