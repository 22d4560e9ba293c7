package dataplanetest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/route"
)

// tableCases are about tables, which are made before a route is put into them.
var tableCases = []testCase{
	{"a table comes, and goes when it is empty", Tables, func(t *testing.T, b *bench) {
		r := in(b.MissingTable, to("198.18.50.0/24", b.via(0, b.v4(0, 2))))
		six := in(b.MissingTable, to("2001:db8:50::/64", b.via(0, b.v6(0, 2))))
		for range 2 { // the second time as the first
			for _, table := range b.ownTables() {
				if b.hasObject(t, table) {
					t.Errorf("there is %s", table.Key())
				}
				for range 2 {
					must(t, b.Dataplane.PutObject(b.context(t), table))
				}
				if !b.hasObject(t, table) {
					t.Errorf("there is no %s", table.Key())
				}
			}
			b.put(t, r, six)
			b.has(t, r, six)
			b.hasTable(t, true)
			b.delete(t, r.Key, six.Key)
			b.hasTable(t, true)
			for range 2 {
				b.deleteTables(t)
			}
			b.hasTable(t, false)
		}
	}},
	{"a put into a table that is missing is refused and makes none", Tables,
		func(t *testing.T, b *bench) {
			good := to("198.18.59.0/24", b.via(0, b.v4(0, 2)))
			b.refuses(t, []route.Op{{Route: in(b.MissingTable, good)}, {Route: good}}, 0)
			b.has(t, good)
			b.hasTable(t, false)
		}},
	{"a table that an earlier agent made is ours", Tables, func(t *testing.T, b *bench) {
		r := in(b.MissingTable, sink("198.18.51.0/24", route.Drop))
		b.makeTables(t)
		b.put(t, r)
		b.use(t, b.Reopen(t))
		b.has(t, r)
		if table := b.ownTables()[0]; !b.hasObject(t, table) {
			t.Errorf("there is no %s", table.Key())
		}
		b.delete(t, r.Key)
		b.deleteTables(t)
		b.hasTable(t, false)
	}},
	{"a table of another name is another's", Tables, func(t *testing.T, b *bench) {
		ours := route.Table{TableID: route.TableID{ID: b.OtherTable}, Name: "ours"}
		found, err := b.Dataplane.Object(b.context(t), ours.Key())
		must(t, err)
		if found == nil || found.Digest() == ours.Digest() {
			t.Errorf("found %v", found)
		}
		err = b.Dataplane.PutObject(b.context(t), ours)
		if err == nil || !strings.Contains(err.Error(), "name") {
			t.Errorf("put: %v", err)
		}
		must(t, b.Dataplane.DeleteObject(b.context(t), ours.Key()))
		b.hasTable(t, false) // which looks for OtherTable, too
	}},
	{"a table with somebody else's route in it stays", Tables, func(t *testing.T, b *bench) {
		// VPP itself deletes it. The routes stay in memory and are seen again in whatever table is
		// made next.
		b.makeTables(t)
		remove := b.AddForeign(t, in(b.MissingTable, to("198.18.53.0/24", b.via(0, b.v4(0, 9)))))
		b.cannotDelete(t)
		remove()
		b.deleteTables(t)
		b.hasTable(t, false)
	}},
	{"a table with an interface in it stays", Tables, func(t *testing.T, b *bench) {
		// VPP counts the locks on a table's multicast half, on the rest it does not: a second
		// deletion takes what the interface holds.
		b.makeTables(t)
		_, remove := b.AddLink(t, b.MissingTable)
		for range 2 {
			b.cannotDelete(t)
		}
		remove()
		b.deleteTables(t)
		b.hasTable(t, false)
	}},
	{"a table with a route of ours in it stays", Tables, func(t *testing.T, b *bench) {
		r := in(b.MissingTable, sink("198.18.54.0/24", route.Drop))
		b.makeTables(t)
		b.put(t, r)
		b.cannotDelete(t)
		b.has(t, r)
	}},
	{"a table that next hops are resolved in goes with the last of them", Tables,
		func(t *testing.T, b *bench) {
			under := in(b.MissingTable, to("198.18.55.0/24", b.via(1, b.v4(1, 2))))
			over := to("198.18.56.0/24", route.Path{
				NextHop: pfx("198.18.55.1/32").Addr(), Table: b.MissingTable, Weight: 1,
			})
			b.makeTables(t)
			b.put(t, under, over)
			b.delete(t, under.Key)
			b.deleteTables(t)
			b.hasTable(t, true)
			b.makeTables(t) // has it back for good
			b.put(t, under)
			b.leaves(t, over.Key, b.by(1))
			b.delete(t, over.Key)
			b.has(t, under)
			b.hasTable(t, true)
			b.delete(t, under.Key)
			b.deleteTables(t)
			b.hasTable(t, false)
		}},
	{"packets are looked up again in another table", Tables, func(t *testing.T, b *bench) {
		b.makeTables(t)
		all := []route.Route{
			to("198.18.64.0/24", lookup4(b.MissingTable)),
			in(b.MissingTable, to("198.18.65.0/24", lookup4(0))),
			in(b.MissingTable, to("0.0.0.0/0", lookup4(0))),
			to("2001:db8:64::/64", lookup6(b.MissingTable)),
			in(b.MissingTable, to("2001:db8:65::1/128", lookup6(0))),
		}
		b.put(t, all...)
		b.has(t, all...)
		for _, r := range all {
			if found, ok := b.lookup(t, r.Key); !ok || !found.SameForwarding(r) {
				t.Errorf("found %s, want %s", found, r)
			}
		}
	}},
	{"a table stays while a route of another imports from it", Tables,
		func(t *testing.T, b *bench) {
			b.makeTables(t)
			link := route.Link{Name: "tenant", Kind: route.Loopback}
			must(t, b.Dataplane.PutObject(b.context(t), link))
			must(t, b.Dataplane.PutObject(b.context(t), route.Up{Interface: link.Name}))
			b.awaitLink(t, link.Name)
			alone := route.Path{Interface: link.Name, Weight: 1}
			for i, table := range b.ownTables() {
				in := route.InTable{Interface: link.Name, Table: table}
				must(t, b.Dataplane.PutObject(b.context(t), in))
				r := to([]string{"198.18.42.1/32", "2001:db8:42::1/128"}[i], alone)
				b.put(t, r)
				must(t, b.Dataplane.DeleteObject(b.context(t), in.Key()))
				if err := b.Dataplane.DeleteObject(b.context(t), table.Key()); err == nil {
					t.Errorf("%s was deleted", table.Key()) // VPP would have crashed
				}
				b.put(t, r) // where the interface is now
				must(t, b.Dataplane.DeleteObject(b.context(t), table.Key()))
				b.delete(t, r.Key)
			}
			b.hasTable(t, false)
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"a restart takes tables along", Connection, func(t *testing.T, b *bench) {
		b.makeTables(t)
		b.restart(t)
		b.hasTable(t, false)
	}},
}

// lookup4 and lookup6 are paths that look a packet up again.
func lookup4(table uint32) route.Path {
	return route.Path{NextHop: netip.IPv4Unspecified(), Table: table, Weight: 1}
}

func lookup6(table uint32) route.Path {
	return route.Path{NextHop: netip.IPv6Unspecified(), Table: table, Weight: 1}
}

// ownTables are the missing table of both families, by our name.
func (b *bench) ownTables() (all []route.Table) {
	for _, six := range []bool{false, true} {
		all = append(all, route.Table{
			TableID: route.TableID{ID: b.MissingTable, IPv6: six}, Name: "tenant",
		})
	}
	return all
}

func (b *bench) makeTables(t *testing.T) {
	t.Helper()
	for _, table := range b.ownTables() {
		must(t, b.Dataplane.PutObject(b.context(t), table))
	}
}

func (b *bench) deleteTables(t *testing.T) {
	t.Helper()
	for _, table := range b.ownTables() {
		must(t, b.Dataplane.DeleteObject(b.context(t), table.Key()))
	}
}

// cannotDelete: the IPv4 table is not empty.
func (b *bench) cannotDelete(t *testing.T) {
	t.Helper()
	if err := b.Dataplane.DeleteObject(b.context(t), b.ownTables()[0].Key()); err == nil {
		t.Error("a table that is not empty was deleted")
	}
	b.hasTable(t, true)
}

// hasTable fails the test unless there is the table that is missing at first, or not.
func (b *bench) hasTable(t *testing.T, want bool) {
	t.Helper()
	all := b.Tables(t)
	if slices.Contains(all, b.MissingTable) != want {
		t.Errorf("tables are %d; with %d: want %t", all, b.MissingTable, want)
	}
	if !slices.Contains(all, b.OtherTable) {
		t.Errorf("somebody else's table %d is gone: %d are left", b.OtherTable, all)
	}
}
