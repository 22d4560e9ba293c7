package dataplanetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// counting is what a data plane without Lacks[Counters] has.
type counting interface {
	CountRoutes(ctx context.Context, keys []route.Key) (map[route.Key]route.Counts, error)
	CountNextHops(ctx context.Context) ([]route.HopCounts, error)
	CountTunnels(ctx context.Context) (map[netip.Addr]route.TunnelCounts, error)
}

var counterCases = []testCase{
	{"packets are counted by route", Counters, func(t *testing.T, b *bench) {
		one, two := to("198.18.81.0/24", b.via(0, b.v4(0, 2))), to("2001:db8:81::/64",
			b.via(0, b.v6(0, 2)))
		b.put(t, one, two)
		b.counts(t, one.Key, 0)
		b.Send(t, one.Key, 3)
		b.Send(t, two.Key, 2)
		b.counts(t, one.Key, 3)
		b.counts(t, two.Key, 2)
		if bytes := b.countRoutes(t, one.Key)[one.Key].Bytes; bytes <= 3*20 {
			t.Errorf("three packets have %d bytes", bytes)
		}
		all := b.countRoutes(t)
		if all[one.Key].Packets != 3 || all[two.Key].Packets != 2 || len(all) != 2 {
			t.Errorf("all routes of ours: %v", all)
		}
		// A route that goes another way stays the same entry, one that was deleted is another.
		one.Paths = []route.Path{b.via(1, b.v4(1, 2))}
		b.put(t, one)
		b.Send(t, one.Key, 1)
		b.counts(t, one.Key, 4)
		b.delete(t, one.Key)
		if got := b.countRoutes(t, one.Key, two.Key); len(got) != 1 || got[two.Key].Packets != 2 {
			t.Errorf("of one entry and one that went: %v", got)
		}
		b.put(t, one)
		b.counts(t, one.Key, 0)
	}},
	{"packets are counted by route in each table, and those of others", Counters,
		func(t *testing.T, b *bench) {
			k := key("198.18.82.0/24")
			ours := in(b.OtherTable, to("198.18.82.0/24", b.via(0, b.v4(0, 2))))
			b.put(t, ours)
			defer b.AddForeign(t, to("198.18.82.0/24", b.via(0, b.v4(0, 3))))()
			b.Send(t, k, 2)
			b.counts(t, k, 2)
			b.counts(t, ours.Key, 0)
			if all := b.countRoutes(t); len(all) != 1 {
				t.Errorf("all routes of ours: %v", all)
			}
		}},
	{"packets are counted by next hop where that is on", Counters,
		func(t *testing.T, b *bench) {
			if _, err := b.counting().CountNextHops(b.context(t)); !errors.Is(err, b.NoHopCounts) {
				t.Fatalf("while it is off: %v", err)
			}
			b.CountByHop(t, true)
			defer b.CountByHop(t, false)
			one, two := b.via(0, b.v4(0, 7)), b.via(1, b.v4(1, 7))
			shared, six := to("198.18.83.0/24", one, two), to("2001:db8:83::/64",
				b.via(0, b.v6(0, 7)))
			// One whose address on the link nobody knows is not counted.
			for _, p := range []route.Path{one, two, six.Paths[0]} {
				n := route.Neighbour{Interface: p.Interface, Address: p.NextHop,
					MAC: "02:00:00:00:00:07"}
				must(t, b.Dataplane.PutObject(b.context(t), n))
				defer b.Dataplane.DeleteObject(context.WithoutCancel(t.Context()), n.Key())
			}
			b.put(t, shared, six)
			b.Send(t, shared.Key, 16)
			b.Send(t, six.Key, 2)
			b.counts(t, shared.Key, 16)
			b.counts(t, six.Key, 2)
			hops := b.countNextHops(t)
			x, y, z := hops[bare(one)], hops[bare(two)], hops[bare(six.Paths[0])]
			if x.Packets == 0 || y.Packets == 0 || x.Packets+y.Packets != 16 || z.Packets != 2 {
				t.Errorf("%d and %d of 16 packets, %d of 2", x.Packets, y.Packets, z.Packets)
			}
			b.delete(t, shared.Key, six.Key)
		}},
	{"packets are counted by VXLAN tunnel, and by next hop behind tunnels", Counters,
		func(t *testing.T, b *bench) {
			link, ipip := b.vxlan(false), b.ipip()
			one, two, three := b.vtep(link, 2), b.vtep(link, 3), b.endpoint(2)
			from := route.Address{Interface: ipip.Name,
				Address: netip.MustParsePrefix("198.19.9.2/32")}
			for _, o := range []route.Object{link, route.Up{Interface: link.Name}, one, two, ipip,
				route.Up{Interface: ipip.Name}, from, three} {
				must(t, b.Dataplane.PutObject(b.context(t), o))
			}
			b.awaitLink(t, link.Name)
			b.awaitLink(t, ipip.Name)
			_, err := b.counting().CountNextHops(b.context(t)) // forgets the neighbours
			if !errors.Is(err, b.NoHopCounts) {
				t.Fatalf("while it is off: %v", err)
			}
			b.CountByHop(t, true)
			defer b.CountByHop(t, false)
			by := route.Path{NextHop: one.NextHop(), Interface: link.Name, Weight: 1}
			byIPIP := route.Path{NextHop: three.NextHop(), Interface: ipip.Name, Weight: 1}
			r, s := to("198.18.84.0/24", by), to("198.18.85.0/24", byIPIP)
			b.put(t, r, s)
			b.Send(t, r.Key, 3)
			b.Send(t, s.Key, 2)
			b.counts(t, r.Key, 3)
			got, err := b.counting().CountTunnels(b.context(t))
			must(t, err)
			if len(got) != 2 || got[one.Outer].Out.Packets != 3 ||
				got[two.Outer] != (route.TunnelCounts{}) {
				t.Errorf("of two tunnels and three packets by one of them: %v", got)
			}
			if got[one.Outer].Out.Bytes < 3*20 {
				t.Errorf("three packets have %d bytes", got[one.Outer].Out.Bytes)
			}
			hops := b.countNextHops(t)
			if hops[bare(by)].Packets != 3 || hops[bare(byIPIP)].Packets != 2 {
				t.Errorf("next hops: %v", hops)
			}
			b.delete(t, r.Key, s.Key)
			for _, k := range []route.ObjectKey{one.Key(), two.Key(), link.Key(), three.Key(),
				from.Key(), ipip.Key()} {
				must(t, b.Dataplane.DeleteObject(b.context(t), k))
			}
		}},
}

func (b *bench) counting() counting { return b.Dataplane.(counting) }

// countRoutes returns what all routes of ours have forwarded where no keys are given.
func (b *bench) countRoutes(t *testing.T, keys ...route.Key) map[route.Key]route.Counts {
	t.Helper()
	got, err := b.counting().CountRoutes(b.context(t), keys)
	must(t, err)
	return got
}

// counts fails the test unless so many packets come to be counted: VPP's workers do it at their
// leisure.
func (b *bench) counts(t *testing.T, k route.Key, packets uint64) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got, ok := b.countRoutes(t, k)[k]
		if ok && got.Packets == packets {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has forwarded %d packets (%t), want %d", k, got.Packets, ok, packets)
		}
	}
}

func (b *bench) countNextHops(t *testing.T) map[route.Path]route.Counts {
	t.Helper()
	all, err := b.counting().CountNextHops(b.context(t))
	must(t, err)
	got := map[route.Path]route.Counts{}
	for _, n := range all {
		got[n.Path] = n.Counts
	}
	return got
}

// bare is a path of a route as its next hop is counted.
func bare(p route.Path) route.Path {
	return route.Path{NextHop: p.NextHop, Interface: p.Interface}
}
