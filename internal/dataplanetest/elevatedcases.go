package dataplanetest

import (
	"testing"

	"vpp-route-agent/internal/route"
)

// elevatedCases are about routes that go before those of the node's own workloads.
var elevatedCases = []testCase{
	{"an elevated route goes before a workload's and leaves it as it is", "",
		func(t *testing.T, b *bench) {
			for _, k := range []string{"198.18.90.1/32", "2001:db8:90::1/128"} {
				theirs, six := to(k, b.via(1, b.v4(1, 9))), pfx(k).Addr().Is6()
				ours := to(k, b.via(0, b.v4(0, 2)))
				if six {
					theirs, ours = to(k, b.via(1, b.v6(1, 9))), to(k, b.via(0, b.v6(0, 2)))
				}
				remove := b.AddWorkload(t, theirs)
				b.put(t, ours)
				b.leaves(t, ours.Key, b.by(1)) // ours waits behind it
				b.delete(t, ours.Key)
				b.put(t, elevated(ours))
				b.leaves(t, ours.Key, b.by(0))
				b.has(t, elevated(ours))
				b.delete(t, elevated(ours).Key)
				b.leaves(t, ours.Key, b.by(1))
				b.has(t)
				b.put(t, elevated(ours))
				remove()
				b.has(t, elevated(ours))
				b.leaves(t, ours.Key, b.by(0))
				b.delete(t, elevated(ours).Key)
			}
		}},
	{"an elevated route that comes first goes before as well", "", func(t *testing.T, b *bench) {
		ours := elevated(to("198.18.91.1/32", b.via(0, b.v4(0, 2))))
		b.put(t, ours)
		defer b.AddWorkload(t, to("198.18.91.1/32", b.via(1, b.v4(1, 9))))()
		b.leaves(t, ours.Key, b.by(0))
		b.has(t, ours)
		r := to("198.18.91.1/32", b.via(0, b.v4(0, 3)), b.via(0, b.v4(0, 4)))
		b.put(t, elevated(r))
		b.has(t, elevated(r))
		b.delete(t, ours.Key)
		b.leaves(t, ours.Key, b.by(1))
	}},
	{"a route becomes elevated and normal again, the new one first", "",
		func(t *testing.T, b *bench) {
			for _, table := range []uint32{0, b.OtherTable} {
				r := in(table, to("198.18.92.1/32", b.via(0, b.v4(0, 2))))
				six := in(table, to("2001:db8:92::1/128", b.via(0, b.v6(0, 2))))
				b.put(t, r, six)
				for range 3 {
					b.mustApply(t,
						append(puts(elevated(r), elevated(six)), deletes(r.Key, six.Key)...)...)
					b.has(t, elevated(r), elevated(six))
					b.leaves(t, r.Key, b.by(0))
					b.mustApply(t,
						append(puts(r, six), deletes(elevated(r).Key, elevated(six).Key)...)...)
					b.has(t, r, six)
					b.leaves(t, r.Key, b.by(0))
				}
				b.delete(t, r.Key, six.Key)
			}
		}},
	{"a recursive route becomes elevated and normal again", Recursive,
		func(t *testing.T, b *bench) {
			// The old one goes first: VPP 25.10 crashes when two sources have a recursive route for
			// one prefix. Beside another's, and beside one of ours that does not recurse, there is
			// no harm.
			k := "198.18.93.1/32"
			remove := b.AddWorkload(t, to(k, b.via(1, b.v4(1, 9))))
			over := func(hosts ...byte) route.Route {
				var paths []route.Path
				for _, h := range hosts {
					paths = append(paths, route.Path{NextHop: b.v4(0, h), Weight: 1})
				}
				return to(k, paths...)
			}
			b.put(t, over(2))
			for n := range byte(200) {
				x, y, attached := over(2+n%3), over(3+n%3, 5), to(k, b.via(0, b.v4(0, 2+n%5)))
				b.mustApply(t, append(deletes(x.Key), puts(elevated(x))...)...)
				b.mustApply(t, puts(elevated(y), attached, elevated(x))...)
				b.mustApply(t,
					append(deletes(elevated(x).Key), puts(y, elevated(attached), x)...)...)
				b.delete(t, elevated(x).Key)
			}
			b.delete(t, key(k))
			b.put(t, elevated(over(2)))
			b.leaves(t, key(k), b.by(0))
			b.has(t, elevated(over(2)))
			remove()
			b.delete(t, elevated(over(2)).Key)
			b.put(t, over(3))
			b.has(t, over(3))
		}},
	{"the next agent knows elevated routes again", "", func(t *testing.T, b *bench) {
		r := to("198.18.94.1/32", b.via(0, b.v4(0, 2)))
		normal := to("198.18.94.2/32", b.via(0, b.v4(0, 2)))
		b.put(t, elevated(r), normal)
		b.use(t, b.Reopen(t))
		b.has(t, elevated(r), normal)
		b.put(t, elevated(normal))
		b.delete(t, r.Key, normal.Key) // of these there is none now, and the latter
		b.has(t, elevated(r), elevated(normal))
	}},
	{"resolve knows an elevated route as ours", "", func(t *testing.T, b *bench) {
		r := to("198.18.95.1/32", b.via(0, b.v4(0, 2)))
		b.put(t, elevated(r))
		got, want := b.resolve(t, r.Prefix.Addr()), (route.Resolution{Prefix: r.Prefix, Ours: true})
		if !got.Equal(want) {
			t.Errorf("resolve %s: %+v, want %+v", r.Prefix.Addr(), got, want)
		}
	}},
}

func elevated(r route.Route) route.Route {
	r.Elevated = true
	return r
}
