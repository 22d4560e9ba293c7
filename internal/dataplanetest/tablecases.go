package dataplanetest

import (
	"slices"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// tableCases are about tables that are made when a route in them is wanted.
var tableCases = []testCase{
	{"a put makes its table, once none is wanted it goes", Tables, func(t *testing.T, b *bench) {
		r := in(b.MissingTable, to("198.18.50.0/24", b.via(0, b.v4(0, 2))))
		six := in(b.MissingTable, to("2001:db8:50::/64", b.via(0, b.v6(0, 2))))
		for range 2 { // the second time as the first
			b.put(t, r, six)
			b.has(t, r, six)
			b.hasTable(t, true)
			b.keepTables(t, b.MissingTable)
			b.has(t, r, six)
			b.delete(t, r.Key, six.Key)
			b.hasTable(t, true) // until we are told that it is not needed
			b.keepTables(t)
			b.hasTable(t, false)
		}
	}},
	{"a table that an earlier agent made goes", Tables, func(t *testing.T, b *bench) {
		r := in(b.MissingTable, sink("198.18.51.0/24", route.Drop))
		b.put(t, r)
		b.use(t, b.Reopen(t))
		b.has(t, r)
		b.put(t, in(b.MissingTable, sink("198.18.51.0/25", route.Drop)))
		b.delete(t, r.Key, in(b.MissingTable, sink("198.18.51.0/25", route.Drop)).Key)
		b.keepTables(t)
		b.hasTable(t, false)
	}},
	{"a table with somebody else's route in it stays", Tables, func(t *testing.T, b *bench) {
		// VPP itself deletes it. The routes stay in memory and are seen again in whatever table is
		// made next.
		r := in(b.MissingTable, sink("198.18.52.0/24", route.Drop))
		b.put(t, r)
		remove := b.AddForeign(t, in(b.MissingTable, to("198.18.53.0/24", b.via(0, b.v4(0, 9)))))
		b.delete(t, r.Key)
		if err := b.Dataplane.(fib.TableKeeper).KeepTables(b.context(t), nil); err == nil {
			t.Error("no word about a table that cannot go")
		}
		b.hasTable(t, true)
		remove()
		b.keepTables(t)
		b.hasTable(t, false)
	}},
	{"a table with an interface in it stays", Tables, func(t *testing.T, b *bench) {
		// VPP counts the locks on a table's multicast half, on the rest it does not: a second
		// deletion takes what the interface holds.
		r := in(b.MissingTable, sink("198.18.58.0/24", route.Drop))
		b.put(t, r)
		remove := b.AddLink(t, b.MissingTable)
		b.delete(t, r.Key)
		for range 2 {
			if err := b.Dataplane.(fib.TableKeeper).KeepTables(b.context(t), nil); err == nil {
				t.Error("no word about a table that cannot go")
			}
			b.hasTable(t, true)
		}
		remove()
		b.keepTables(t)
		b.hasTable(t, false)
	}},
	{"a table with a route of ours in it stays", Tables, func(t *testing.T, b *bench) {
		r := in(b.MissingTable, sink("198.18.54.0/24", route.Drop))
		b.put(t, r)
		if err := b.Dataplane.(fib.TableKeeper).KeepTables(b.context(t), nil); err == nil {
			t.Error("no word about a table that cannot go")
		}
		b.has(t, r)
	}},
	{"a table that next hops are resolved in goes with the last of them", Tables,
		func(t *testing.T, b *bench) {
			under := in(b.MissingTable, to("198.18.55.0/24", b.via(1, b.v4(1, 2))))
			over := to("198.18.56.0/24", route.Path{
				NextHop: pfx("198.18.55.1/32").Addr(), Table: b.MissingTable, Weight: 1,
			})
			b.put(t, under, over)
			b.delete(t, under.Key)
			b.keepTables(t)
			b.hasTable(t, true)
			b.put(t, under) // has it back for good
			b.leaves(t, over.Key, b.by(1))
			b.delete(t, over.Key)
			b.has(t, under)
			b.hasTable(t, true)
			b.delete(t, under.Key)
			b.keepTables(t)
			b.hasTable(t, false)
		}},
	{"a restart takes tables along, a put makes them again", Connection,
		func(t *testing.T, b *bench) {
			r := in(b.MissingTable, to("198.18.57.0/24", b.via(0, b.v4(0, 2))))
			b.put(t, r)
			b.restart(t)
			if slices.Contains(b.Tables(t), b.MissingTable) {
				t.Fatal("the table outlived the data plane")
			}
			b.put(t, r)
			b.has(t, r)
		}},
}
