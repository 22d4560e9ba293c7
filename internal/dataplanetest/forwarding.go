package dataplanetest

import (
	"errors"
	"math"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// forwardingCases look at where packets go, not at what was written.
var forwardingCases = []testCase{
	{"packets leave by the interface of the next hop", "", func(t *testing.T, b *bench) {
		linkLocal := netip.MustParseAddr("fe80::9")
		for k, p := range map[string]route.Path{
			"198.18.60.0/24":    b.via(0, b.v4(0, 2)),
			"198.18.60.1/32":    b.via(0, b.v4(0, 3)),
			"198.18.61.0/24":    b.via(0, b.v6(0, 2)), // IPv4 over an IPv6 next hop
			"198.18.62.0/24":    b.via(0, linkLocal),
			"2001:db8:60::/64":  b.via(0, b.v6(0, 2)),
			"2001:db8:61::/64":  b.via(0, linkLocal),
			"2001:db8:62::/64":  {Interface: b.Interfaces[0].Name, Weight: 1},
			"2001:db8:60::/128": b.via(0, linkLocal),
		} {
			b.put(t, to(k, p))
			b.leaves(t, key(k), b.by(0))
		}
	}},
	{"the same link-local next hop on two interfaces is two paths", "",
		func(t *testing.T, b *bench) {
			linkLocal := netip.MustParseAddr("fe80::9")
			r := to("2001:db8:63::/64", b.via(0, linkLocal), b.via(1, linkLocal))
			b.put(t, r)
			b.has(t, r)
			b.leaves(t, r.Key, map[string]int{b.Interfaces[0].Name: 1, b.Interfaces[1].Name: 1})
			r = to("2001:db8:63::/64", b.via(1, linkLocal))
			b.put(t, r)
			b.leaves(t, r.Key, b.by(1))
		}},
	{"weights are shares of the packets", "", func(t *testing.T, b *bench) {
		one, three := b.via(0, b.v4(0, 2)), b.via(1, b.v4(1, 2))
		three.Weight = 3
		r := to("198.18.64.0/24", one, three)
		b.put(t, r)
		b.leaves(t, r.Key, map[string]int{b.Interfaces[0].Name: 1, b.Interfaces[1].Name: 3})
		r = to("198.18.64.0/24", one, b.via(1, b.v4(1, 2)))
		b.put(t, r)
		b.leaves(t, r.Key, map[string]int{b.Interfaces[0].Name: 1, b.Interfaces[1].Name: 1})
	}},
	{"uneven weights come out within a tenth", "", func(t *testing.T, b *bench) {
		// VPP spreads over a power of two of buckets: of 9 to 1 it makes 7 to 1.
		for _, weight := range []uint8{2, 5, 9, 100} {
			heavy := b.via(0, b.v4(0, 2))
			heavy.Weight = weight
			r := to("198.18.64.0/24", heavy, b.via(1, b.v4(1, 2)))
			b.put(t, r)
			got := b.Egress(t, r.Key)
			x, y := float64(got[b.Interfaces[0].Name]), float64(got[b.Interfaces[1].Name])
			if want := float64(weight) / float64(weight+1); math.Abs(x/(x+y)-want) > 0.1 {
				t.Errorf("weights %d and 1: packets leave by %v", weight, got)
			}
		}
	}},
	{"nothing leaves by drop, unreachable and prohibit", "", func(t *testing.T, b *bench) {
		// what covers them would forward
		b.put(t, to("198.18.64.0/18", b.via(0, b.v4(0, 2))),
			to("2001:db8::/33", b.via(0, b.v6(0, 2))))
		for kind, ks := range map[route.Kind][2]string{
			route.Drop:        {"198.18.65.0/24", "2001:db8:65::/64"},
			route.Unreachable: {"198.18.66.0/24", "2001:db8:66::/64"},
			route.Prohibit:    {"198.18.67.0/24", "2001:db8:67::/64"},
		} {
			for _, k := range ks {
				b.put(t, sink(k, kind))
				b.leaves(t, key(k), map[string]int{})
			}
		}
	}},
	{"nothing leaves by a standby path while a better one is there", Preference,
		func(t *testing.T, b *bench) {
			r := to("198.18.68.0/24", b.via(0, b.v4(0, 2)), standby(b.via(1, b.v4(1, 2))))
			b.put(t, r)
			b.leaves(t, r.Key, b.by(0))
		}},
	{"a standby path takes over when the interface goes down, and gives back", Links,
		func(t *testing.T, b *bench) {
			attached := to("198.18.69.0/24", b.via(0, b.v4(0, 2)), standby(b.via(1, b.v4(1, 2))))
			mixed := to("198.18.70.0/24", b.via(0, b.v4(0, 2)),
				standby(route.Path{NextHop: b.v4(1, 2), Weight: 1}))
			six := to("2001:db8:69::/64", b.via(0, b.v6(0, 2)), standby(b.via(1, b.v6(1, 2))))
			rs := []route.Route{attached, mixed, six}
			b.put(t, rs...)
			b.down(t, 0, func() {
				for _, r := range rs {
					b.leaves(t, r.Key, b.by(1))
				}
				b.has(t, rs...) // what is written stays as it is
			})
			for _, r := range rs {
				b.leaves(t, r.Key, b.by(0))
			}
		}},
	{"what is left of equal paths carries all when an interface goes down", Links,
		func(t *testing.T, b *bench) {
			heavy := b.via(0, b.v4(0, 2))
			heavy.Weight = 7
			r := to("198.18.71.0/24", heavy, b.via(1, b.v4(1, 2)))
			alone := to("198.18.72.0/24", b.via(0, b.v4(0, 2)))
			b.put(t, r, alone)
			b.down(t, 0, func() {
				b.leaves(t, r.Key, b.by(1))
				b.leaves(t, alone.Key, map[string]int{})
				b.has(t, r, alone)
			})
			b.leaves(t, r.Key, map[string]int{b.Interfaces[0].Name: 7, b.Interfaces[1].Name: 1})
			b.leaves(t, alone.Key, b.by(0))
		}},
	{"a put over an interface that is down is taken", Links, func(t *testing.T, b *bench) {
		r := to("198.18.73.0/24", b.via(0, b.v4(0, 2)))
		b.down(t, 0, func() {
			b.put(t, r)
			b.has(t, r)
			b.leaves(t, r.Key, map[string]int{})
		})
		b.leaves(t, r.Key, b.by(0))
	}},
	{"an interface that is down takes its connected routes along", Links,
		func(t *testing.T, b *bench) {
			b.down(t, 0, func() {
				for _, a := range []netip.Addr{b.v4(0, 5), b.v6(0, 5)} {
					if got := b.resolve(t, a); !got.Equal(route.Resolution{}) {
						t.Errorf("resolve %s: %+v, want nothing", a, got)
					}
				}
			})
		}},
	{"a next hop follows this node's own route to it", Recursive, func(t *testing.T, b *bench) {
		// The first next hop is behind a router; the others are in a connected subnet.
		for _, next := range []netip.Addr{pfx("198.18.74.1/32").Addr(), b.v4(0, 5), b.v6(0, 5)} {
			under := func(n int) route.Route {
				r := to(route.HostPrefix(next).String(), b.via(n, b.v4(n, 2)))
				if next.Is6() {
					r.Paths = []route.Path{b.via(n, b.v6(n, 2))}
				}
				r.Origin = route.Own
				return r
			}
			over := to("198.18.75.0/24", route.Path{NextHop: next})
			if next.Is6() {
				over = to("2001:db8:75::/64", route.Path{NextHop: next})
			}
			b.put(t, under(0), over)
			b.leaves(t, over.Key, b.by(0))
			b.put(t, under(1))
			b.comesToLeave(t, over.Key, b.by(1))
			b.put(t, under(0))
			b.has(t, over, under(0))
			b.comesToLeave(t, over.Key, b.by(0))
			b.delete(t, over.Key, under(0).Key)
		}
	}},
	{"a recursive next hop follows what it resolves through", Recursive,
		func(t *testing.T, b *bench) {
			for _, table := range []uint32{0, b.OtherTable} {
				under := func(n int) route.Route {
					return in(table, to("198.18.74.0/24", b.via(n, b.v4(n, 2))))
				}
				over := to("198.18.75.0/24", route.Path{
					NextHop: pfx("198.18.74.1/32").Addr(), Table: table, Weight: 1,
				})
				b.put(t, over)
				b.leaves(t, over.Key, map[string]int{}) // there is nothing to resolve through yet
				b.put(t, under(0))
				b.leaves(t, over.Key, b.by(0))
				b.put(t, under(1))
				b.leaves(t, over.Key, b.by(1))
				b.has(t, over, under(1))
				b.delete(t, under(0).Key)
				b.leaves(t, over.Key, map[string]int{})
				b.delete(t, over.Key)
			}
		}},
	{"a recursive next hop is resolved in its own table alone", Recursive,
		func(t *testing.T, b *bench) {
			next := pfx("198.18.76.1/32").Addr()
			b.put(t,
				to("198.18.76.0/24", b.via(0, b.v4(0, 2))),
				in(b.OtherTable, to("198.18.76.0/24", b.via(1, b.v4(1, 2)))),
				to("198.18.77.0/24", route.Path{NextHop: next}),
				to("198.18.78.0/24", route.Path{NextHop: next, Table: b.OtherTable}))
			b.leaves(t, key("198.18.77.0/24"), b.by(0))
			b.leaves(t, key("198.18.78.0/24"), b.by(1))
		}},
	{"a route that is its own next hop forwards nothing", Recursive, func(t *testing.T, b *bench) {
		// VPP takes it without a word and makes it a drop.
		r := to("198.18.79.1/32", route.Path{NextHop: pfx("198.18.79.1/32").Addr()})
		b.put(t, r)
		b.leaves(t, r.Key, map[string]int{})
	}},
	{"the owner of a route that goes before ours is reported", "", func(t *testing.T, b *bench) {
		for _, r := range []route.Route{
			// packets to its first address are asked about, and match
			to("198.18.83.0/24", b.via(0, b.v4(0, 2))),
			sink("198.18.84.0/24", route.Drop),
			to("2001:db8:83::/48", b.via(0, b.v6(0, 2))),
			to("0.0.0.0/0", b.via(0, b.v4(0, 2))),
			in(b.OtherTable, to("198.18.85.0/24", b.via(0, b.v4(0, 2)))),
		} {
			theirs := to(r.Prefix.String(), b.via(1, b.v4(1, 9)))
			if r.Prefix.Addr().Is6() {
				theirs = to(r.Prefix.String(), b.via(1, b.v6(1, 9)))
			}
			if r.Kind == route.Drop {
				theirs.Kind, theirs.Paths = route.Drop, nil
			}
			theirs.Table = r.Table
			b.put(t, r)
			b.has(t, r)
			remove := b.AddForeign(t, theirs)
			b.hidden(t, r.Key)
			b.overseen(t, r, true)
			remove()
			b.has(t, r)
			b.overseen(t, r, false)
			b.delete(t, r.Key)
		}
	}},
	{"another's route goes before ours and hides it", Hiding, func(t *testing.T, b *bench) {
		ours := to("198.18.80.0/24", b.via(0, b.v4(0, 2)))
		theirs := to("198.18.80.0/24", b.via(1, b.v4(1, 9)))
		remove := b.AddForeign(t, theirs)
		b.hidden(t, ours.Key) // one cannot see that none is there
		b.put(t, ours)
		b.hidden(t, ours.Key)
		b.has(t) // a listing lacks it
		b.leaves(t, ours.Key, b.by(1))
		remove()
		b.has(t, ours)
		b.leaves(t, ours.Key, b.by(0))
	}},
	{"a connected subnet goes before ours and hides it", Hiding, func(t *testing.T, b *bench) {
		subnet := to(b.Interfaces[0].V4.Masked().String(), b.via(1, b.v4(1, 2)))
		b.put(t, subnet)
		b.hidden(t, subnet.Key)
		b.delete(t, subnet.Key)
	}},
	{"a gap and a next hop in use hide nothing", Hiding, func(t *testing.T, b *bench) {
		next := pfx("198.18.81.1/32").Addr()
		b.put(t, to("198.18.82.0/24", route.Path{NextHop: next}))
		// VPP itself shows a drop, and an entry of its own
		for _, k := range []string{"0.0.0.0/0", "::/0", "198.18.81.1/32"} {
			if r, ok := b.lookup(t, key(k)); ok {
				t.Errorf("lookup of %s found %s", k, r)
			}
		}
		host := to("198.18.81.1/32", b.via(1, b.v4(1, 2)))
		b.put(t, host)
		b.has(t, host, to("198.18.82.0/24", route.Path{NextHop: next, Weight: 1}))
	}},
}

func standby(p route.Path) route.Path {
	p.Preference = 10
	return p
}

// down has f run while the n-th interface is down.
func (b *bench) down(t *testing.T, n int, f func()) {
	t.Helper()
	name := b.Interfaces[n].Name
	b.SetLink(t, name, false)
	b.facts.await(t, name+" down", func(f route.Facts) bool {
		i, _ := f.Interface(name)
		return !i.Up
	})
	f()
	b.SetLink(t, name, true)
	b.present(t)
}

// overseen fails the test unless a data plane that lists r also where it is hidden says whether it
// is.
func (b *bench) overseen(t *testing.T, r route.Route, want bool) {
	t.Helper()
	o, ok := b.Dataplane.(fib.Overseer)
	if !ok {
		return
	}
	by, err := o.Hidden(b.context(t), []route.Route{r})
	if _, hidden := by[r.Key]; err != nil || hidden != want || len(by) > 1 {
		t.Errorf("hidden %s: %v, %v; want %t", r, by, err, want)
	}
	if found, ok, _ := b.Dataplane.Lookup(b.context(t), r.Key); !ok || !found.SameForwarding(r) {
		t.Errorf("behind another's: %s, %t; want %s", found, ok, r)
	}
}

// hidden fails the test unless a look-up of k says that another's route stands before ours.
func (b *bench) hidden(t *testing.T, k route.Key) {
	t.Helper()
	r, ok, err := b.Dataplane.Lookup(b.context(t), k)
	if by := (route.HiddenError{}); !errors.As(err, &by) || by.By == "" {
		t.Errorf("lookup %s: %s, %t, %v; want it hidden by somebody", k, r, ok, err)
	}
}
