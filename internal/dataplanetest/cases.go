package dataplanetest

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// testCase is one promise of a data plane.
type testCase struct {
	name  string
	needs Feature // "" for what every data plane has
	run   func(t *testing.T, b *bench)
}

var cases = slices.Concat(routeCases, forwardingCases, elevatedCases, tableCases,
	connectionCases, objectCases, linkCases, tunnelCases, vxlanCases, externalCases,
	counterCases)

var routeCases = []testCase{
	{"an attached next hop reads back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t, to("198.18.1.0/26", b.via(0, b.v4(0, 2))))
	}},
	{"a host route reads back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t, to("198.18.1.1/32", b.via(0, b.v4(0, 2))))
	}},
	{"an IPv6 next hop reads back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t, to("2001:db8:1::/64", b.via(0, b.v6(0, 2))),
			to("2001:db8:1::1/128", b.via(1, b.v6(1, 2))))
	}},
	{"an IPv4 route over an IPv6 next hop reads back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t, to("198.18.2.0/24", b.via(0, b.v6(0, 3))))
	}},
	{"a link-local next hop reads back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t, to("2001:db8:2::/64", b.via(1, netip.MustParseAddr("fe80::9"))))
	}},
	{"an interface alone reads back as put", "", func(t *testing.T, b *bench) {
		link := route.Path{Interface: b.Interfaces[0].Name, Weight: 1}
		b.putAndRead(t, to("198.18.3.0/24", link), to("198.18.3.7/32", link),
			to("2001:db8:3::/64", link), to("2001:db8:3::7/128", link))
	}},
	{"equal paths with weights read back as put", "", func(t *testing.T, b *bench) {
		one, three := b.via(0, b.v4(0, 2)), b.via(1, b.v4(1, 2))
		three.Weight = 3
		six, seven := b.via(0, b.v6(0, 2)), b.via(1, b.v6(1, 2))
		seven.Weight = 200
		b.putAndRead(t, to("198.18.4.0/24", one, three, b.via(0, b.v4(0, 3))),
			to("2001:db8:4::/64", six, seven))
	}},
	{"standby paths read back as put", Preference, func(t *testing.T, b *bench) {
		standby := b.via(1, b.v4(1, 2))
		standby.Preference = 10
		b.putAndRead(t, to("198.18.5.0/24", b.via(0, b.v4(0, 2)), standby))
	}},
	{"a recursive next hop reads back as put", Recursive, func(t *testing.T, b *bench) {
		b.putAndRead(t,
			to("198.18.6.0/24", b.via(0, b.v4(0, 2))),
			to("198.18.7.0/24", route.Path{NextHop: netip.MustParseAddr("198.18.6.1")}),
			to("2001:db8:7::/64", route.Path{NextHop: b.v6(0, 2)}),
			to("198.18.8.0/24", route.Path{NextHop: b.v6(1, 2)}))
	}},
	{"a recursive next hop in another table reads back as put", Recursive,
		func(t *testing.T, b *bench) {
			b.putAndRead(t,
				to("198.18.9.0/24", route.Path{
					NextHop: netip.MustParseAddr("198.18.10.1"), Table: b.OtherTable,
				}))
		}},
	{"drop, unreachable and prohibit read back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t,
			sink("198.18.11.0/26", route.Drop), sink("2001:db8:11::/122", route.Drop),
			sink("198.18.12.0/26", route.Unreachable), sink("2001:db8:12::/122", route.Unreachable),
			sink("198.18.13.0/26", route.Prohibit), sink("2001:db8:13::/122", route.Prohibit),
			sink("198.18.14.1/32", route.Drop))
	}},
	{"default routes read back as put", "", func(t *testing.T, b *bench) {
		b.putAndRead(t, to("0.0.0.0/0", b.via(0, b.v4(0, 2))), to("::/0", b.via(0, b.v6(0, 2))))
	}},
	{"a route in another table stays there", "", func(t *testing.T, b *bench) {
		in0 := to("198.18.15.0/24", b.via(0, b.v4(0, 2)))
		other := to("198.18.15.0/24", b.via(1, b.v4(1, 2)))
		other.Table = b.OtherTable
		other6 := sink("2001:db8:15::/64", route.Drop)
		other6.Table = b.OtherTable
		b.put(t, in0, other, other6)
		b.has(t, in0, other, other6)
		b.delete(t, in0.Key)
		b.has(t, other, other6)
	}},
	{"host bits are masked", "", func(t *testing.T, b *bench) {
		sloppy := to("198.18.16.77/24", b.via(0, b.v4(0, 2)))
		b.put(t, sloppy)
		b.has(t, to("198.18.16.0/24", b.via(0, b.v4(0, 2))))
		b.delete(t, sloppy.Key)
		b.has(t)
	}},
	{"a put replaces all paths", "", func(t *testing.T, b *bench) {
		k := "198.18.17.0/24"
		for _, r := range []route.Route{
			to(k, b.via(0, b.v4(0, 2)), b.via(1, b.v4(1, 2))),
			to(k, b.via(1, b.v4(1, 3))),
			sink(k, route.Drop),
			to(k, b.via(0, b.v4(0, 4))),
			sink(k, route.Unreachable),
		} {
			b.put(t, r)
			b.has(t, r)
			b.put(t, r) // putting what is there changes nothing
			b.has(t, r)
		}
	}},
	{"recursive paths are replaced", Recursive, func(t *testing.T, b *bench) {
		x := route.Path{NextHop: b.v4(1, 2), Weight: 1}
		y := route.Path{NextHop: b.v4(1, 3), Weight: 1}
		heavy, standby := x, x
		heavy.Weight, standby.Preference = 3, 1
		for _, k := range []string{
			"198.18.41.0/24", "198.18.41.1/32", "2001:db8:41::/64", "0.0.0.0/0",
		} {
			for _, paths := range [][]route.Path{
				{x}, {heavy}, {x, y}, {y}, {heavy, y}, {b.via(0, b.v4(0, 2))}, {x},
				{b.via(0, b.v4(0, 2)), standby}, {x, b.via(0, b.v4(0, 2))}, {x},
			} {
				r := to(k, paths...)
				b.put(t, r)
				b.has(t, r)
			}
			b.put(t, sink(k, route.Drop))
			b.put(t, to(k, y))
			b.delete(t, key(k))
		}
	}},
	{"ops on one key happen in order", "", func(t *testing.T, b *bench) {
		first := to("198.18.18.0/24", b.via(0, b.v4(0, 2)))
		last := to("198.18.18.0/24", b.via(1, b.v4(1, 2)))
		b.mustApply(t, append(puts(first), append(deletes(first.Key), puts(last)...)...)...)
		b.has(t, last)
	}},
	{"a delete removes, twice as well", "", func(t *testing.T, b *bench) {
		r, s := to("198.18.19.0/24", b.via(0, b.v4(0, 2))), sink("2001:db8:19::/64", route.Drop)
		keep := to("198.18.0.0/16", b.via(0, b.v4(0, 2)))
		b.put(t, r, s, keep)
		b.delete(t, r.Key, s.Key)
		b.has(t, keep)
		b.delete(t, r.Key, s.Key)
		b.has(t, keep)
	}},
	{"a refused op holds up no other", "", func(t *testing.T, b *bench) {
		good := to("198.18.20.0/24", b.via(0, b.v4(0, 2)))
		fine := to("198.18.22.0/24", b.via(0, b.v4(0, 2)))
		nowhere := route.Path{NextHop: b.v4(0, 2), Interface: "no-such-link", Weight: 1}
		b.refuses(t, []route.Op{
			{Route: good},
			{Route: to("198.18.21.0/24", nowhere)},                          // unknown interface
			{Route: to("198.18.21.0/24")},                                   // no path
			{Route: to("198.18.21.0/24", route.Path{Weight: 1})},            // a path to nowhere
			{Route: route.Route{Paths: []route.Path{b.via(0, b.v4(0, 2))}}}, // no prefix
			{Route: fine},
		}, 1, 2, 3, 4)
		b.has(t, good, fine)
	}},
	{"a next hop in an unknown table is refused, and makes none", Tables,
		func(t *testing.T, b *bench) {
			good := to("198.18.23.0/24", b.via(0, b.v4(0, 2)))
			recursive := to("198.18.24.0/24", route.Path{
				NextHop: b.v4(0, 2), Table: b.MissingTable,
			})
			b.refuses(t, []route.Op{{Route: recursive}, {Route: good}}, 0)
			b.has(t, good)
			b.hasTable(t, false)
			if r, ok := b.lookup(t, in(b.MissingTable, good).Key); ok {
				t.Errorf("lookup in a missing table: %s", r)
			}
			b.delete(t, in(b.MissingTable, good).Key) // what is not there is deleted already
			b.hasTable(t, false)
		}},
	{"somebody else's route is untouched and invisible", "", func(t *testing.T, b *bench) {
		theirs := to("198.18.25.0/24", b.via(0, b.v4(0, 9)))
		ours := to("198.18.26.0/24", b.via(0, b.v4(0, 2)))
		defer b.AddForeign(t, theirs)()
		before := b.Dump(t)
		if before[theirs.Key] == "" {
			t.Fatal("the foreign route is not in the dump")
		}
		b.put(t, ours)
		b.has(t, ours)
		if r, ok := b.lookup(t, theirs.Key); ok {
			t.Errorf("lookup shows somebody else's %s", r)
		}
		b.mustApply(t, deletes(theirs.Key)...) // deletes ours, of which there is none
		// Both have one now; who wins is the data plane's affair, but ours goes without harm to
		// theirs.
		b.put(t, to("198.18.25.0/24", b.via(1, b.v4(1, 2))))
		b.delete(t, theirs.Key, ours.Key)
		if after := b.Dump(t); after[theirs.Key] != before[theirs.Key] {
			t.Errorf("foreign route was %s, is %s", before[theirs.Key], after[theirs.Key])
		}
	}},
	{"ten thousand routes in one call", "", func(t *testing.T, b *bench) {
		var rs []route.Route
		var ks []route.Key
		a := netip.MustParseAddr("198.18.128.0")
		for i := range 10_000 {
			r := route.Route{
				Key:   route.Key{Prefix: netip.PrefixFrom(a, 32)},
				Paths: []route.Path{b.via(i%2, b.v4(i%2, 2))},
			}
			rs, ks, a = append(rs, r), append(ks, r.Key), a.Next()
		}
		start := time.Now()
		b.put(t, rs...)
		added := time.Since(start)
		b.has(t, rs...)
		start = time.Now()
		b.delete(t, ks...)
		t.Logf("10000 puts in %s, deletes in %s", added, time.Since(start))
		b.has(t)
	}},
	{"no ops are no work", "", func(t *testing.T, b *bench) { b.mustApply(t) }},
	{"lookup of what is not there", "", func(t *testing.T, b *bench) {
		b.put(t, to("198.18.27.0/24", b.via(0, b.v4(0, 2))))
		for _, k := range []string{
			"198.18.27.0/25", "198.18.27.0/23", "198.18.27.1/32", "0.0.0.0/0", "2001:db8::/64",
		} {
			if r, ok := b.lookup(t, key(k)); ok {
				t.Errorf("lookup of %s found %s", k, r)
			}
		}
	}},
	{"resolve finds connected neighbours", "", func(t *testing.T, b *bench) {
		for n, i := range b.Interfaces {
			for a, subnet := range map[netip.Addr]netip.Prefix{
				b.v4(n, 5): i.V4.Masked(), b.v6(n, 5): i.V6.Masked(),
			} {
				got := b.resolve(t, a)
				want := (route.Resolution{Prefix: subnet, Usable: true, Interface: i.Name})
				if !got.Equal(want) {
					t.Errorf("resolve %s: %+v, want %+v", a, got, want)
				}
			}
		}
	}},
	{"resolve knows its own routes by the longest match", "", func(t *testing.T, b *bench) {
		b.put(t, to("198.18.28.0/24", b.via(0, b.v4(0, 2))), sink("198.18.29.0/24", route.Drop),
			to("2001:db8:28::/64", b.via(0, b.v6(0, 2))))
		for a, p := range map[string]string{
			"198.18.28.1": "198.18.28.0/24", "198.18.29.1": "198.18.29.0/24",
			"2001:db8:28::1": "2001:db8:28::/64",
		} {
			got := b.resolve(t, netip.MustParseAddr(a))
			want := (route.Resolution{Prefix: pfx(p), Ours: true})
			if !got.Equal(want) {
				t.Errorf("resolve %s: %+v, want %+v", a, got, want)
			}
		}
	}},
	{"resolve says when nothing matches", "", func(t *testing.T, b *bench) {
		for _, a := range []string{"198.19.255.1", "2001:db8:ffff::1"} {
			if got := b.resolve(t, netip.MustParseAddr(a)); !got.Equal(route.Resolution{}) {
				t.Errorf("resolve %s: %+v, want nothing", a, got)
			}
		}
	}},
	{"resolve follows somebody else's routes", "", func(t *testing.T, b *bench) {
		defer b.AddForeign(t, to("198.18.30.0/24", b.via(0, b.v4(0, 9))))()
		defer b.AddForeign(t, sink("198.18.31.0/24", route.Drop))()
		for a, want := range map[string]route.Resolution{
			"198.18.30.1": {
				Prefix: pfx("198.18.30.0/24"), Usable: true, Interface: b.Interfaces[0].Name,
			},
			"198.18.31.1": {Prefix: pfx("198.18.31.0/24")},
		} {
			if got := b.resolve(t, netip.MustParseAddr(a)); !got.Equal(want) {
				t.Errorf("resolve %s: %+v, want %+v", a, got, want)
			}
		}
	}},
	{"resolve sees the cover of a next hop in use", Recursive, func(t *testing.T, b *bench) {
		// VPP keeps an entry of its own for each next hop that it resolves.
		under := netip.MustParseAddr("198.18.37.1")
		b.put(t,
			to("198.18.37.0/24", b.via(0, b.v4(0, 2))),
			to("198.18.38.0/24", route.Path{NextHop: under}),
			to("198.18.39.0/24", route.Path{NextHop: b.v4(1, 5)}),
			to("2001:db8:39::/64", route.Path{NextHop: b.v6(1, 5)}),
			to("198.18.40.0/24", route.Path{NextHop: netip.MustParseAddr("198.19.255.1")}))
		for a, want := range map[netip.Addr]route.Resolution{
			under: {Prefix: pfx("198.18.37.0/24"), Ours: true},
			b.v4(1, 5): {
				Prefix: b.Interfaces[1].V4.Masked(), Usable: true, Interface: b.Interfaces[1].Name,
			},
			b.v6(1, 5): {
				Prefix: b.Interfaces[1].V6.Masked(), Usable: true, Interface: b.Interfaces[1].Name,
			},
			netip.MustParseAddr("198.19.255.1"): {},
		} {
			if got := b.resolve(t, a); !got.Equal(want) {
				t.Errorf("resolve %s: %+v, want %+v", a, got, want)
			}
		}
	}},
	{"an own address is no next hop", "", func(t *testing.T, b *bench) {
		if got := b.resolve(t, b.Interfaces[0].V4.Addr()); got.Usable {
			t.Errorf("resolve of the own address: %+v", got)
		}
	}},
}

// putAndRead puts the routes and reads them back, then deletes them.
func (b *bench) putAndRead(t *testing.T, rs ...route.Route) {
	t.Helper()
	b.put(t, rs...)
	b.has(t, rs...)
	dump := b.Dump(t)
	var ks []route.Key
	for _, r := range rs {
		if dump[r.Key] == "" {
			t.Errorf("the data plane itself does not show %s", r.Key)
		}
		ks = append(ks, r.Key)
	}
	b.delete(t, ks...)
	b.has(t)
}

// refuses applies ops and expects errors for exactly the ones numbered bad.
func (b *bench) refuses(t *testing.T, ops []route.Op, bad ...int) {
	t.Helper()
	want := map[int]bool{}
	for _, i := range bad {
		want[i] = true
	}
	for i, err := range b.apply(t, ops...) {
		if (err != nil) != want[i] {
			t.Errorf("op %d (%s): error %v", i, ops[i].Route, err)
		}
	}
}
