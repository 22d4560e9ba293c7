package gobgp

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/bgp"
)

// Whatever the sequence of plans, GoBGP has what the last one wants. What cannot be announced
// leaves its prefix as it was, and the rest goes on.
func TestAnnouncementsAreThoseOfThePlan(t *testing.T) {
	n := newLab(t).node(64512)
	set(t, n)
	prefixes := []netip.Prefix{pfx("10.1.0.0/26"), pfx("10.1.0.0/16"), pfx("10.1.0.64/26"),
		pfx("0.0.0.0/0"), pfx("10.1.0.9/32"), pfx("fd00:1::/122"), pfx("fd00:1::9/128")}
	hops := map[bool][]netip.Addr{true: {addr("192.0.2.1"), addr("192.0.2.2"), {}},
		false: {addr("2001:db8::1"), addr("2001:db8::2"), {}}}
	r := rand.New(rand.NewPCG(1, 2))
	is := map[netip.Prefix]bgp.Announcement{}
	for round := range 100 {
		var want []bgp.Announcement
		next, impossible := map[netip.Prefix]bgp.Announcement{}, false
		r.Shuffle(len(prefixes), func(i, j int) {
			prefixes[i], prefixes[j] = prefixes[j], prefixes[i]
		})
		for _, p := range prefixes[:r.IntN(len(prefixes)+1)] {
			a := bgp.Announcement{Prefix: p, NextHop: hops[p.Addr().Is4()][r.IntN(3)]}
			want = append(want, a)
			was, announced := is[p]
			switch {
			case a.NextHop.IsValid():
				next[p] = a
			case announced:
				next[p] = was
			}
			impossible = impossible || !a.NextHop.IsValid()
		}
		if len(want) > 0 && r.IntN(2) == 0 {
			want = append(want, want[0]) // twice
		}
		if r.IntN(4) == 0 {
			want, impossible = append(want, bgp.Announcement{}), true
		}
		n.plan.Announcements, is = want, next
		if err := n.Set(t.Context(), n.plan); (err != nil) != impossible {
			t.Fatalf("round %d: %v", round, err)
		}
		got := n.Announced()
		if !slices.IsSortedFunc(got, comparePrefixes) || len(got) != len(is) {
			t.Fatalf("round %d: announced %v, want %v", round, got, is)
		}
		n.ask(t.Context(), func(ctx context.Context) error {
			for _, p := range prefixes {
				a, ok := announcementOf(p, got)
				paths := n.localPaths(ctx, p)
				if a != is[p] || ok != (len(paths) == 1) || ok && paths[0].nextHop != a.NextHop {
					t.Errorf("round %d: %s: announced %v, %v in the table, want %v", round, p, a,
						paths, is[p])
				}
			}
			return nil
		})
	}
}
