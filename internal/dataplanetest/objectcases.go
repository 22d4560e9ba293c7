package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
	"vpp-route-agent/internal/uplink"
)

// objectCases are about what we change besides routes: interfaces and their addresses.
var objectCases = []testCase{
	{"objects are found whoever made them", "", func(t *testing.T, b *bench) {
		for _, i := range b.Interfaces {
			for _, o := range []route.Object{route.Up{Interface: i.Name},
				route.Address{Interface: i.Name, Address: i.V4},
				route.Address{Interface: i.Name, Address: i.V6}} {
				if !b.hasObject(t, o) {
					t.Errorf("there is no %s", o.Key())
				}
			}
			for _, o := range []route.Object{
				route.Address{Interface: i.Name, Address: pfx("198.18.60.1/24")},
				route.Address{Interface: i.Name,
					Address: netip.PrefixFrom(i.V4.Addr(), i.V4.Bits()+1)}} {
				if b.hasObject(t, o) {
					t.Errorf("there is %s", o.Key())
				}
			}
		}
		for _, o := range []route.Object{route.Up{Interface: "nothing0"},
			route.Address{Interface: "nothing0", Address: pfx("198.18.60.1/24")}} {
			_, err := b.Dataplane.Object(b.context(t), o.Key())
			if !errors.Is(err, route.ErrNoLink) || !strings.Contains(err.Error(), "nothing0") {
				t.Errorf("%s on an interface that does not exist: %v", o.Key(), err)
			}
		}
	}},
	{"an address comes and goes, and brings its subnet", "", func(t *testing.T, b *bench) {
		for _, a := range []netip.Prefix{pfx("198.18.60.1/24"), pfx("2001:db8:60::1/64")} {
			before := b.addresses(t)
			for range 2 { // the second time it is there already
				must(t, b.addAddress(t, a))
				b.hasAddresses(t, append(before, a)...)
			}
			b.facts.await(t, "the new subnet", func(f route.Facts) bool {
				name, _, ok := f.Connected(0, a.Addr().Next())
				return ok && name == b.Interfaces[0].Name
			})
			for range 2 { // and then it is gone already
				must(t, b.removeAddress(t, a))
				b.hasAddresses(t, before...)
			}
			b.facts.await(t, "no new subnet", func(f route.Facts) bool {
				_, _, ok := f.Connected(0, a.Addr().Next())
				return !ok
			})
		}
	}},
	{"of two addresses in a subnet the first one stays", "", func(t *testing.T, b *bench) {
		before, addresses := b.Dump(t), b.addresses(t)
		for _, second := range []netip.Prefix{
			netip.PrefixFrom(b.v4(0, 8), b.Interfaces[0].V4.Bits()),
			netip.PrefixFrom(b.v6(0, 8), b.Interfaces[0].V6.Bits()),
		} {
			must(t, b.addAddress(t, second))
			must(t, b.removeAddress(t, second))
		}
		b.hasAddresses(t, addresses...)
		if after := b.Dump(t); !sameEntries(before, after, false) {
			t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
		}
	}},
	{"of two addresses in a subnet the second one stays", "", func(t *testing.T, b *bench) {
		addresses := b.addresses(t)
		for _, pair := range [][2]netip.Prefix{
			{pfx("198.18.66.1/24"), pfx("198.18.66.2/24")},
			{pfx("2001:db8:66::1/64"), pfx("2001:db8:66::2/64")},
		} {
			must(t, b.addAddress(t, pair[0]))
			must(t, b.addAddress(t, pair[1]))
			must(t, b.removeAddress(t, pair[0]))
			b.hasAddresses(t, append(addresses, pair[1])...)
			must(t, b.removeAddress(t, pair[1]))
		}
		b.hasAddresses(t, addresses...)
	}},
	{"a neighbour comes, is changed and goes", "", func(t *testing.T, b *bench) {
		before := b.Dump(t)
		for _, a := range []netip.Addr{b.v4(0, 9), b.v6(0, 9)} {
			n := route.Neighbour{Interface: b.Interfaces[0].Name, Address: a,
				MAC: "02:fe:00:00:00:01"}
			other := n
			other.MAC = "02:fe:00:00:00:02"
			for _, put := range []route.Neighbour{n, n, other} { // the second is there already
				must(t, b.Dataplane.PutObject(b.context(t), put))
				found, err := b.Dataplane.Object(b.context(t), put.Key())
				if must(t, err); found != put {
					t.Errorf("found %v instead of %v", found, put)
				}
			}
			for range 2 { // and then it is gone already
				must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
				if b.hasObject(t, other) {
					t.Errorf("%s is still there", n.Key())
				}
			}
		}
		if after := b.Dump(t); !sameEntries(before, after, false) {
			t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
		}
	}},
	{"a neighbour goes with its interface", Tables, func(t *testing.T, b *bench) {
		subnet, n := pfx("198.18.60.1/24"), route.Neighbour{MAC: "02:fe:00:00:00:01"}
		n.Address = subnet.Addr().Next()
		toNeighbour := route.Key{Prefix: route.HostPrefix(n.Address)}
		for round := range 3 { // the next one gets the index of the last
			name, remove := b.addLink(t)
			n.Interface = name
			if b.hasObject(t, n) {
				t.Errorf("there is %s before it is put", n.Key())
			}
			if round == 2 {
				must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
				remove()
				return
			}
			a := route.Address{Interface: name, Address: subnet}
			for _, o := range []route.Object{route.Up{Interface: name}, a, n} {
				must(t, b.Dataplane.PutObject(b.context(t), o))
			}
			b.leaves(t, toNeighbour, map[string]int{name: 1})
			must(t, b.Dataplane.DeleteObject(b.context(t), a.Key()))
			remove()
		}
	}},
	{"a neighbour's route is there while its interface is down, and moves with it", Tables,
		func(t *testing.T, b *bench) {
			name, remove := b.addLink(t)
			defer remove()
			n := neighbours(name)[0]
			a := route.Address{Interface: name, Address: pfx("198.18.60.1/24")}
			in := route.InTable{Interface: name,
				Table: route.Table{TableID: route.TableID{ID: b.OtherTable}}}
			is := func(table uint32) {
				t.Helper()
				for _, id := range []uint32{0, b.OtherTable} {
					_, there := b.Dump(t)[route.Key{Table: id, Prefix: route.HostPrefix(n.Address)}]
					if there != (id == table) {
						t.Errorf("in table %d: %t, want it in table %d", id, there, table)
					}
				}
			}
			must(t, b.Dataplane.PutObject(b.context(t), n))
			is(0)
			b.SetLink(t, name, true)
			must(t, b.Dataplane.PutObject(b.context(t), a))
			is(0)
			b.SetLink(t, name, false)
			is(0)
			must(t, b.Dataplane.DeleteObject(b.context(t), a.Key()))
			is(0)
			must(t, b.Dataplane.PutObject(b.context(t), in))
			is(b.OtherTable)
			must(t, b.Dataplane.DeleteObject(b.context(t), in.Key()))
			is(0)
			must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
			is(^uint32(0))
		}},
	{"a neighbour waits until one of a deleted interface is out of its way", Tables,
		func(t *testing.T, b *bench) { b.waitsForNeighbour(t, 0) }},
	{"a neighbour waits for one of an interface that was deleted in another table", Tables,
		func(t *testing.T, b *bench) { b.waitsForNeighbour(t, b.OtherTable) }},
	{"a neighbour stays until one of a deleted interface is out of its way", Tables,
		func(t *testing.T, b *bench) {
			name, remove := b.addLink(t)
			link := route.Link{Name: "tenant", Kind: route.Loopback}
			must(t, b.Dataplane.PutObject(b.context(t), link))
			for i, n := range neighbours(link.Name) {
				must(t, b.Dataplane.PutObject(b.context(t), n))
				must(t, b.Dataplane.PutObject(b.context(t), neighbours(name)[i]))
			}
			remove()
			for i, n := range neighbours(link.Name) {
				in := route.InTable{Interface: link.Name,
					Table: route.Table{TableID: route.TableID{ID: b.OtherTable, IPv6: i > 0}}}
				for _, err := range []error{b.Dataplane.DeleteObject(b.context(t), n.Key()),
					b.Dataplane.PutObject(b.context(t), in),
					b.Dataplane.DeleteObject(b.context(t), link.Key())} {
					if err == nil {
						t.Fatal("it has gone") // VPP would have crashed
					}
				}
			}
			next := route.Link{Name: "next", Kind: route.Loopback} // it gets the index
			must(t, b.Dataplane.PutObject(b.context(t), next))
			for _, n := range neighbours(link.Name) {
				must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), next.Key()))
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"an interface with neighbours waits for those of a deleted one before it changes tables",
		Tables, func(t *testing.T, b *bench) {
			name, remove := b.addLink(t)
			link := route.Link{Name: "tenant", Kind: route.Loopback}
			must(t, b.Dataplane.PutObject(b.context(t), link))
			for i, n := range neighbours(link.Name) {
				in := route.InTable{Interface: link.Name,
					Table: route.Table{TableID: route.TableID{ID: b.OtherTable, IPv6: i > 0}}}
				must(t, b.Dataplane.PutObject(b.context(t), in))
				must(t, b.Dataplane.PutObject(b.context(t), n))
				must(t, b.Dataplane.PutObject(b.context(t), neighbours(name)[i]))
			}
			remove()
			leave := func() (errs []error) {
				for _, six := range []bool{false, true} {
					k := route.InTable{Interface: link.Name,
						Table: route.Table{TableID: route.TableID{IPv6: six}}}.Key()
					errs = append(errs, b.Dataplane.DeleteObject(b.context(t), k))
				}
				return errs
			}
			for _, err := range leave() {
				if err == nil {
					t.Fatal("it has left its table") // VPP would have crashed
				}
			}
			next := route.Link{Name: "next", Kind: route.Loopback} // it gets the index
			must(t, b.Dataplane.PutObject(b.context(t), next))
			for _, err := range leave() {
				must(t, err)
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), next.Key()))
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"a neighbour waits for one of a deleted interface that a route hides", Tables,
		func(t *testing.T, b *bench) {
			name, remove := b.addLink(t)
			for i, n := range neighbours(name) {
				must(t, b.Dataplane.PutObject(b.context(t), n))
				on := b.Interfaces[0]
				hop := []netip.Prefix{on.V4, on.V6}[i].Addr().Next()
				defer b.AddForeign(t, to(route.HostPrefix(n.Address).String(),
					route.Path{NextHop: hop, Interface: on.Name, Weight: 1}))()
			}
			remove()
			link := route.Link{Name: "tenant", Kind: route.Loopback}
			for _, n := range neighbours(b.Interfaces[0].Name) {
				if err := b.Dataplane.PutObject(b.context(t), n); err == nil {
					t.Fatalf("%s was put", n.Key()) // VPP would have crashed
				}
			}
			must(t, b.Dataplane.PutObject(b.context(t), link)) // it gets the index
			for _, n := range neighbours(b.Interfaces[0].Name) {
				must(t, b.Dataplane.PutObject(b.context(t), n))
				must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"a neighbour leaves what has the old index of its interface", Tables,
		func(t *testing.T, b *bench) {
			name, other, remove := b.exchanged(t)
			defer remove()
			others := neighbours(other)
			for i, n := range neighbours(name) {
				must(t, b.Dataplane.PutObject(b.context(t), n))
				if b.hasObject(t, others[i]) {
					t.Errorf("there is %s", others[i].Key())
				}
				must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
			}
		}},
	{"a neighbour replaces that of another interface which had the index", Tables,
		func(t *testing.T, b *bench) {
			name, other, remove := b.exchanged(t)
			defer remove()
			for i, n := range neighbours(other) {
				if b.hasObject(t, n) {
					t.Errorf("there is %s", n.Key()) // it leads nowhere
				}
				must(t, b.Dataplane.PutObject(b.context(t), n))
				must(t, b.Dataplane.PutObject(b.context(t), neighbours(name)[i]))
				if !b.hasObject(t, n) {
					t.Errorf("there is no %s", n.Key())
				}
				must(t, b.Dataplane.DeleteObject(b.context(t), neighbours(name)[i].Key()))
				must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
			}
		}},
	{"an interface of ours has no neighbours of one that had its index", Tables,
		func(t *testing.T, b *bench) {
			name, remove := b.addLink(t)
			for _, n := range neighbours(name) {
				must(t, b.Dataplane.PutObject(b.context(t), n))
			}
			remove()
			link := route.Link{Name: "tenant", Kind: route.Loopback}
			must(t, b.Dataplane.PutObject(b.context(t), link))
			for _, n := range neighbours(link.Name) {
				if b.hasObject(t, n) {
					t.Errorf("there is %s", n.Key())
				}
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"nor has a tunnel of VXLAN", Tables, func(t *testing.T, b *bench) {
		link := b.vxlan(false)
		must(t, b.Dataplane.PutObject(b.context(t), link))
		name, remove := b.addLink(t)
		for _, n := range neighbours(name) {
			must(t, b.Dataplane.PutObject(b.context(t), n))
		}
		remove()
		must(t, b.Dataplane.PutObject(b.context(t), b.vtep(link, 2)))
		for _, n := range neighbours(name) {
			k := route.Key{Prefix: route.HostPrefix(n.Address)}
			if is, there := b.Dump(t)[k]; there {
				t.Errorf("there is %s %s", k, is)
			}
		}
		must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
	}},
	{"cross-connects come, are changed and go", CrossConnects, func(t *testing.T, b *bench) {
		for range 2 { // the second one gets the index of the first
			from, remove := b.addLink(t)
			to := b.Interfaces
			path := func(i Interface, hop netip.Addr) []route.Path {
				return []route.Path{{Interface: i.Name, NextHop: hop, Weight: 1}}
			}
			for _, puts := range [][2]route.Object{
				{route.L3CrossConnect{Interface: from, Paths: path(to[0], b.v4(0, 9))},
					route.L3CrossConnect{Interface: from, Paths: path(to[1], netip.Addr{})}},
				{route.L3CrossConnect{Interface: from, IPv6: true, Paths: path(to[0], b.v6(0, 9))},
					route.L3CrossConnect{Interface: from, IPv6: true,
						Paths: path(to[1], b.v6(1, 9))}},
				{route.L2CrossConnect{Interface: from, To: to[0].Name},
					route.L2CrossConnect{Interface: from, To: to[1].Name}},
			} {
				for _, o := range []route.Object{puts[0], puts[0], puts[1]} {
					must(t, b.Dataplane.PutObject(b.context(t), o))
					if !b.hasObject(t, o) {
						t.Errorf("there is no %s", o.Key())
					}
				}
				must(t, b.Dataplane.DeleteObject(b.context(t), puts[0].Key()))
				must(t, b.Dataplane.DeleteObject(b.context(t), puts[0].Key()))
				if b.hasObject(t, puts[1]) {
					t.Errorf("%s is still there", puts[1].Key())
				}
				must(t, b.Dataplane.PutObject(b.context(t), puts[0]))
			}
			remove()
		}
		from, remove := b.addLink(t)
		defer remove()
		for _, o := range []route.Object{route.L2CrossConnect{Interface: from},
			route.L3CrossConnect{Interface: from},
			route.L3CrossConnect{Interface: from, IPv6: true}} {
			if b.hasObject(t, o) {
				t.Errorf("there is %s, which went with its interface", o.Key())
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), o.Key()))
		}
	}},
	{"proxy ARP comes and goes", CrossConnects, func(t *testing.T, b *bench) {
		lo, hi := netip.MustParseAddr("198.18.61.1"), netip.MustParseAddr("198.18.61.9")
		in := route.ProxyARPRange{First: lo, Last: hi}
		other := in
		other.Table.ID = b.OtherTable
		for range 2 { // the second interface gets the index of the first
			name, remove := b.addLink(t)
			all := []route.Object{route.ProxyARP{Interface: name}, in, other}
			for _, o := range all {
				if b.hasObject(t, o) {
					t.Errorf("there is %s", o.Key())
				}
				for range 2 {
					must(t, b.Dataplane.PutObject(b.context(t), o))
					if !b.hasObject(t, o) {
						t.Errorf("there is no %s", o.Key())
					}
				}
			}
			for _, o := range all[1:] {
				for range 2 {
					must(t, b.Dataplane.DeleteObject(b.context(t), o.Key()))
					if b.hasObject(t, o) {
						t.Errorf("%s is still there", o.Key())
					}
				}
			}
			remove()
		}
		name, remove := b.addLink(t)
		must(t, b.Dataplane.DeleteObject(b.context(t), route.ProxyARP{Interface: name}.Key()))
		remove()
	}},
	{"an interface with addresses is not connected with another", CrossConnects,
		func(t *testing.T, b *bench) {
			x := route.L2CrossConnect{Interface: b.Interfaces[0].Name, To: b.Interfaces[1].Name}
			err := b.Dataplane.PutObject(b.context(t), x)
			if err == nil || !strings.Contains(err.Error(), b.Interfaces[0].V4.String()) {
				t.Errorf("the error is %v", err)
			}
			if b.hasObject(t, x) {
				t.Errorf("there is %s", x.Key())
			}
		}},
	{"an address with another length is another one", "", func(t *testing.T, b *bench) {
		own, addresses := b.Interfaces[0].V4, b.addresses(t)
		must(t, b.removeAddress(t, netip.PrefixFrom(own.Addr(), own.Bits()+1)))
		b.hasAddresses(t, addresses...)
	}},
	{"setting up what is up changes nothing, nor does wanting it no more", "",
		func(t *testing.T, b *bench) {
			before, up := b.Dump(t), route.Up{Interface: b.Interfaces[0].Name}
			must(t, b.Dataplane.PutObject(b.context(t), up))
			must(t, b.Dataplane.DeleteObject(b.context(t), up.Key()))
			if after := b.Dump(t); !sameEntries(before, after, false) || !b.hasObject(t, up) {
				t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
			}
		}},
	{"a link that is down comes up", Links, func(t *testing.T, b *bench) {
		up := route.Up{Interface: b.Interfaces[1].Name}
		b.SetLink(t, up.Interface, false)
		if b.hasObject(t, up) {
			t.Error("it is up")
		}
		must(t, b.Dataplane.PutObject(b.context(t), up))
		b.eventually(t, "the link is up", func() bool { return b.hasObject(t, up) })
		b.facts.await(t, "the link is up", func(f route.Facts) bool {
			l, _ := f.Interface(up.Interface)
			return l.Up
		})
		b.present(t)
	}},
	{"what cannot be is an error and changes nothing", "", func(t *testing.T, b *bench) {
		before := b.Dump(t)
		address := route.Address{Interface: "nothing0", Address: pfx("198.18.61.1/24")}
		unknown := route.ObjectKey{Kind: 200}
		_, unknownErr := b.Dataplane.Object(b.context(t), unknown)
		for _, err := range []error{
			b.Dataplane.PutObject(b.context(t), route.Up{Interface: "nothing0"}),
			b.Dataplane.PutObject(b.context(t), address),
			b.Dataplane.DeleteObject(b.context(t), unknown), unknownErr,
		} {
			if err == nil {
				t.Error("an interface that does not exist was changed")
			}
		}
		// With its interface an object is gone.
		must(t, b.Dataplane.DeleteObject(b.context(t), address.Key()))
		if after := b.Dump(t); !sameEntries(before, after, false) {
			t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
		}
	}},
	{"the uplink gets its address, keeps it, and gives it up for another", "",
		func(t *testing.T, b *bench) {
			dir, name := t.TempDir(), b.Interfaces[0].Name
			first := route.Address{Interface: name, Address: pfx("198.18.62.1/24")}
			second := route.Address{Interface: name, Address: pfx("198.18.62.2/24")}
			addresses := b.addresses(t)
			stop := b.runUplink(t, dir, name, first.Address)
			b.eventually(t, "the first address", func() bool { return b.hasObject(t, first) })
			must(t, b.removeAddress(t, first.Address)) // somebody's hand
			b.eventually(t, "the first address again", func() bool { return b.hasObject(t, first) })
			stop()
			stop = b.runUplink(t, dir, name, second.Address)
			b.eventually(t, "the second address instead", func() bool {
				return b.hasObject(t, second) && !b.hasObject(t, first)
			})
			stop()
			b.hasAddresses(t, append(addresses, second.Address)...)
			must(t, b.removeAddress(t, second.Address))
			b.hasAddresses(t, addresses...)
		}},
	{"the uplink is set up again after a restart", Connection, func(t *testing.T, b *bench) {
		addresses := b.addresses(t)
		a := route.Address{Interface: b.Interfaces[0].Name, Address: pfx("198.18.63.1/24")}
		stop := b.runUplink(t, t.TempDir(), a.Interface, a.Address)
		defer stop()
		there := func() bool {
			o, err := b.Dataplane.Object(b.context(t), a.Key())
			return err == nil && o != nil
		}
		b.eventually(t, "the address", there)
		b.restart(t)
		b.eventually(t, "the address after the restart", there)
		stop()
		must(t, b.removeAddress(t, a.Address))
		b.hasAddresses(t, addresses...)
	}},
}

func (b *bench) hasObject(t *testing.T, o route.Object) bool {
	t.Helper()
	found, err := b.Dataplane.Object(b.context(t), o.Key())
	must(t, err)
	if found != nil && (found.Key() != o.Key() || found.Digest() != o.Digest()) {
		t.Errorf("found %v instead of %v", found, o)
	}
	return found != nil
}

// waitsForNeighbour has another program delete an interface in a table.
func (b *bench) waitsForNeighbour(t *testing.T, table uint32) {
	name, remove := b.addLink(t)
	link := route.Link{Name: "tenant", Kind: route.Loopback}
	must(t, b.Dataplane.PutObject(b.context(t), link))
	for i, n := range neighbours(name) {
		if table != 0 {
			must(t, b.Dataplane.PutObject(b.context(t), route.InTable{Interface: name,
				Table: route.Table{TableID: route.TableID{ID: table, IPv6: i > 0}}}))
		}
		must(t, b.Dataplane.PutObject(b.context(t), n))
	}
	remove()
	for _, n := range neighbours(link.Name) {
		if err := b.Dataplane.PutObject(b.context(t), n); err == nil {
			t.Fatalf("%s was put", n.Key()) // VPP would have crashed
		}
	}
	next := route.Link{Name: "next", Kind: route.Loopback} // it gets the index
	must(t, b.Dataplane.PutObject(b.context(t), next))
	for _, n := range neighbours(link.Name) {
		must(t, b.Dataplane.PutObject(b.context(t), n))
		must(t, b.Dataplane.DeleteObject(b.context(t), n.Key()))
	}
	must(t, b.Dataplane.DeleteObject(b.context(t), next.Key()))
	must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
}

// exchanged returns two interfaces, each of which has the index that the other one had before they
// were deleted. The first had neighbours then.
func (b *bench) exchanged(t *testing.T) (name, other string, remove func()) {
	name, removeFirst := b.addLink(t)
	_, removeNext := b.addLink(t)
	for _, n := range neighbours(name) {
		must(t, b.Dataplane.PutObject(b.context(t), n))
	}
	removeFirst()
	removeNext()
	again, removeAgain := b.addLink(t) // it gets the index that was freed last
	other, removeOther := b.addLink(t)
	if again != name {
		t.Fatalf("%s came back as %s", name, again)
	}
	return name, other, func() { removeOther(); removeAgain() }
}

// neighbours are one of each family.
func neighbours(on string) []route.Neighbour {
	n := route.Neighbour{Interface: on, MAC: "02:fe:00:00:00:01"}
	four, six := n, n
	four.Address = netip.MustParseAddr("198.18.60.2")
	six.Address = netip.MustParseAddr("2001:db8:60::2")
	return []route.Neighbour{four, six}
}

// addLink adds an interface without addresses to table 0. What it and remove did is known when they
// return.
func (b *bench) addLink(t *testing.T) (name string, remove func()) {
	t.Helper()
	name, rm := b.AddLink(t, 0)
	there := func(f route.Facts) bool { _, ok := f.Interface(name); return ok }
	b.facts.await(t, "the interface", there)
	return name, func() {
		rm()
		b.facts.await(t, "no interface", func(f route.Facts) bool { return !there(f) })
	}
}

// addAddress adds an address to the first interface, removeAddress removes one.
func (b *bench) addAddress(t *testing.T, a netip.Prefix) error {
	return b.Dataplane.PutObject(b.context(t), b.address(a))
}

func (b *bench) removeAddress(t *testing.T, a netip.Prefix) error {
	return b.Dataplane.DeleteObject(b.context(t), b.address(a).Key())
}

func (b *bench) address(a netip.Prefix) route.Address {
	return route.Address{Interface: b.Interfaces[0].Name, Address: a}
}

// addresses returns those of the first interface.
func (b *bench) addresses(t *testing.T) []netip.Prefix {
	t.Helper()
	return b.addressesIn(b.present(t))
}

// addressesIn leaves out link-local ones, which come by themselves.
func (b *bench) addressesIn(f route.Facts) []netip.Prefix {
	i, _ := f.Interface(b.Interfaces[0].Name)
	return slices.DeleteFunc(slices.Clone(i.Addresses), func(p netip.Prefix) bool {
		return p.Addr().IsLinkLocalUnicast()
	})
}

func (b *bench) hasAddresses(t *testing.T, want ...netip.Prefix) {
	t.Helper()
	want = slices.SortedFunc(slices.Values(want), route.ComparePrefixes)
	b.facts.await(t, fmt.Sprintf("addresses %v", want), func(f route.Facts) bool {
		return slices.Equal(b.addressesIn(f), want)
	})
}

// runUplink runs an uplink, and an engine beside it, until stop.
func (b *bench) runUplink(t *testing.T, dir, name string, addresses ...netip.Prefix) (stop func()) {
	return b.runEngine(t, dir, func(e *fib.Engine) func(context.Context) error {
		return uplink.New(uplink.Config{
			FIB: e, Interface: name, Addresses: addresses, StateDir: dir, Log: testlog.New(t),
			Want: func(all fib.Source) {
				var w fib.Wanted
				w.Sources[route.Uplink] = all
				e.Set(w)
			},
		}).Run
	})
}

// runEngine runs an engine, and the part that wants something of it, until stop.
func (b *bench) runEngine(t *testing.T, dir string,
	part func(*fib.Engine) func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ours, theirs := b.newSharing(), b.newSharing()
	theirs.facts <- b.facts.last
	b.facts.plane = ours
	engine := fib.New(fib.Config{
		Dataplane: theirs, Journal: filepath.Join(dir, "journal"), ListRoutes: true,
		Log: testlog.New(t),
	})
	var done sync.WaitGroup
	done.Go(func() { share(ctx, b.Dataplane, ours, theirs) })
	for _, run := range []func(context.Context) error{engine.Run, part(engine)} {
		done.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		done.Wait()
		b.facts.plane = b.Dataplane
		select {
		case b.facts.last = <-ours.facts:
		default:
		}
	})
}

// sharing is a data plane whose facts have several readers.
type sharing struct {
	fib.Dataplane
	facts chan route.Facts
}

func (b *bench) newSharing() sharing { return sharing{b.Dataplane, make(chan route.Facts, 1)} }

func (s sharing) Facts() <-chan route.Facts { return s.facts }

// share passes facts on until ctx ends; the newest wins.
func share(ctx context.Context, from fib.Dataplane, among ...sharing) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-from.Facts():
			for _, to := range among {
				select {
				case <-to.facts:
				default:
				}
				to.facts <- f
			}
		}
	}
}

func (b *bench) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventually(t, what, holds, func() string { return "not" })
}

// eventually fails the test with what there is instead.
func eventually(t *testing.T, what string, holds func() bool, instead func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s, but %s", patience, what, instead())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
