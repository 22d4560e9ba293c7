package dataplanetest

import (
	"errors"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// linkCases are about interfaces that we make.
var linkCases = []testCase{
	{"a route over an interface that was made anew leads nowhere", Tables,
		func(t *testing.T, b *bench) {
			on, remove := b.addLink(t)
			b.SetLink(t, on, true)
			at := func(next string) route.Path {
				return route.Path{NextHop: netip.MustParseAddr(next), Interface: on, Weight: 1}
			}
			beside := func(next string) route.Path {
				return route.Path{NextHop: netip.MustParseAddr(next), Weight: 1,
					Interface: b.Interfaces[0].Name}
			}
			alone := route.Path{Interface: on, Weight: 1}
			all := []route.Route{to("198.18.41.0/24", at("198.18.40.2"), at("198.18.40.3")),
				to("2001:db8:41::/64", at("2001:db8:40::2"), at("2001:db8:40::3")),
				to("198.18.44.0/24", beside("198.18.40.1"), at("198.18.40.2"),
					beside("198.18.40.3")),
				to("198.18.42.0/24", alone), to("2001:db8:42::/64", alone),
				to("198.18.43.1/32", alone), to("198.18.43.2/32", alone)}
			b.put(t, all...)
			remove()
			again, remove := b.addLink(t)
			defer remove()
			if again != on {
				t.Fatalf("%s came back as %s: not the case that is meant", on, again)
			}
			b.SetLink(t, on, true)
			leadsNowhere := func(r route.Route) {
				t.Helper()
				_, ok, err := b.Dataplane.Lookup(b.context(t), r.Key)
				if !ok || !errors.Is(err, route.DeadPathError{Interface: on}) {
					t.Errorf("%s: %t, %v", r, ok, err)
				}
			}
			for _, r := range all {
				leadsNowhere(r)
			}
			others, last := all[:len(all)-1], all[len(all)-1]
			for _, r := range others {
				b.delete(t, r.Key)
			}
			b.put(t, others...)
			for _, r := range others {
				if found, _ := b.lookup(t, r.Key); !found.SameForwarding(r) {
					t.Errorf("%s is %s", r, found)
				}
			}
			leadsNowhere(last)
			b.delete(t, last.Key)
			b.has(t, others...)
			for _, r := range others {
				b.delete(t, r.Key)
			}
		}},
	{"an interface is made, found again, made anew and deleted", Tables,
		func(t *testing.T, b *bench) {
			for _, name := range []string{"tenant", "loop77"} {
				link := route.Link{Name: name, Kind: route.Loopback}
				other := link
				other.MAC = "02:fe:00:00:00:07"
				b.isMadeAndGoes(t, link, other)
			}
		}},
	{"an interface with another MTU is made anew", Tables, func(t *testing.T, b *bench) {
		for _, link := range []route.Link{
			{Name: "tenant", Kind: route.Loopback},
			{Name: "tenant", Kind: route.SubInterface, Parent: b.Interfaces[0].Name, VLAN: 7},
			b.memif("tenant", 1),
			{Name: "tenant", Kind: route.AFPacket, HostName: b.HostLink},
		} {
			small, large := link, link
			small.MTU, large.MTU = 68, 65535
			b.isMadeAndGoes(t, small, large)
			b.isMadeAndGoes(t, large, link)
		}
	}},
	{"a memif is made, found again, made anew and deleted", Tables,
		func(t *testing.T, b *bench) {
			sockets := b.MemifSockets(t)
			link := b.memif("tenant", 1)
			other := link
			other.MAC, other.Memif.Secret = "02:fe:00:00:00:07", "another"
			b.isMadeAndGoes(t, link, other)
			other.Memif = route.MemifSettings{Socket: b.MemifSocket, ID: 1, RingSize: 512,
				BufferSize: 4096, RxQueues: 2, TxQueues: 2}
			b.isMadeAndGoes(t, link, other)
			b.hasMemifSockets(t, sockets)
		}},
	{"memifs share a socket, in one role each", Tables, func(t *testing.T, b *bench) {
		sockets := b.MemifSockets(t)
		links := []route.Link{b.memif("master1", 1), b.memif("master2", 2), b.memif("slave1", 1)}
		links[2].Memif.Master = false
		for i, l := range links {
			must(t, b.Dataplane.PutObject(b.context(t), l))
			if n := len(b.MemifSockets(t)) - len(sockets); n != []int{1, 1, 2}[i] {
				t.Errorf("%d sockets after %s", n, l.Name)
			}
		}
		same := b.memif("same", 2)
		if err := b.Dataplane.PutObject(b.context(t), same); err == nil ||
			!strings.Contains(err.Error(), "there is a memif 2 at socket "+b.MemifSocket) {
			t.Errorf("a second one with the same ID: %v", err)
		}
		for _, l := range []route.Link{links[0], links[2]} {
			must(t, b.Dataplane.PutObject(b.context(t), route.Up{Interface: l.Name}))
		}
		b.facts.await(t, "both ends up", func(f route.Facts) bool {
			master, _ := f.Interface("master1")
			slave, _ := f.Interface("slave1")
			return master.Up && slave.Up
		})
		if unconnected := b.awaitLink(t, "master2"); unconnected.Up {
			t.Errorf("%+v is up without another end", unconnected)
		}
		b.use(t, b.Reopen(t))
		for i, l := range links {
			must(t, b.Dataplane.DeleteObject(b.context(t), l.Key()))
			if n := len(b.MemifSockets(t)) - len(sockets); n != []int{2, 1, 0}[i] {
				t.Errorf("%d sockets without %s", n, l.Name)
			}
		}
		b.hasMemifSockets(t, sockets)
	}},
	{"a memif whose socket cannot be made leaves nothing", Tables,
		func(t *testing.T, b *bench) {
			sockets := b.MemifSockets(t)
			link := b.memif("tenant", 1)
			link.Memif.Socket = filepath.Join(filepath.Dir(b.MemifSocket), "missing", "memif.sock")
			if err := b.Dataplane.PutObject(b.context(t), link); err == nil ||
				!strings.Contains(err.Error(), "VPP cannot listen at "+link.Memif.Socket) {
				t.Errorf("put: %v", err)
			}
			b.hasMemifSockets(t, sockets)
			if b.hasObject(t, link) {
				t.Errorf("there is %s", link.Key())
			}
			link.Memif.Socket = b.MemifSocket
			must(t, b.Dataplane.PutObject(b.context(t), link))
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"an interface of the kernel is bound once, if it is there", Tables,
		func(t *testing.T, b *bench) {
			link := route.Link{Name: "tenant", Kind: route.AFPacket, HostName: b.HostLink}
			other := link
			other.MAC = "02:fe:00:00:00:07"
			b.isMadeAndGoes(t, link, other)
			must(t, b.Dataplane.PutObject(b.context(t), link))
			for host, want := range map[string]string{
				b.HostLink: "another interface is bound to " + b.HostLink,
				"missing9": "the kernel has no interface missing9",
			} {
				second := route.Link{Name: "second", Kind: route.AFPacket, HostName: host}
				if err := b.Dataplane.PutObject(b.context(t), second); err == nil ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("bound to %s: %v", host, err)
				}
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"a TAP is made, found again, made anew and deleted", TAPs, func(t *testing.T, b *bench) {
		link := route.Link{Name: "tenant", Kind: route.TAP, HostName: "vpptap9"}
		other := link
		other.TAP = route.TAPSettings{RxRing: 512, TxRing: 1024, GSO: true}
		other.MTU = 1400
		b.isMadeAndGoes(t, link, other)
		link.HostName = "" // the kernel's choice
		other.MAC = "02:fe:00:00:00:07"
		b.isMadeAndGoes(t, link, other)
		must(t, b.Dataplane.PutObject(b.context(t), other))
		second := other
		second.Name = "second"
		if err := b.Dataplane.PutObject(b.context(t), second); err == nil {
			t.Error("two have one name in the kernel")
		}
		must(t, b.Dataplane.DeleteObject(b.context(t), other.Key()))
	}},
	{"an interface of another program is not ours", Tables, func(t *testing.T, b *bench) {
		name, remove := b.AddLink(t, 0)
		b.awaitLink(t, name)
		link := route.Link{Name: name, Kind: route.Loopback}
		found, err := b.Dataplane.Object(b.context(t), link.Key())
		must(t, err)
		if found == nil || found.Marked() || found.Digest() == link.Digest() {
			t.Errorf("found %v", found)
		}
		if err := b.Dataplane.PutObject(b.context(t), link); err == nil {
			t.Error("it was made ours")
		}
		up := route.Up{Interface: name}
		must(t, b.Dataplane.PutObject(b.context(t), up))
		must(t, b.Dataplane.DeleteObject(b.context(t), up.Key()))
		must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		if !b.hasObject(t, up) {
			t.Errorf("%s is gone or down", name)
		}
		remove()
	}},
	{"an interface is put into a table, and comes back", Tables, func(t *testing.T, b *bench) {
		b.makeTables(t)
		link := route.Link{Name: "tenant", Kind: route.Loopback}
		must(t, b.Dataplane.PutObject(b.context(t), link))
		for i, table := range b.ownTables() {
			in := route.InTable{Interface: link.Name, Table: table}
			address := route.Address{Interface: link.Name, Table: table.ID,
				Address: []netip.Prefix{pfx("198.18.70.1/24"), pfx("2001:db8:70::1/64")}[i]}
			if b.hasObject(t, in) {
				t.Errorf("there is %s", in.Key())
			}
			for _, o := range []route.Object{in, in, address} { // the second is there already
				must(t, b.Dataplane.PutObject(b.context(t), o))
			}
			if !b.hasObject(t, in) {
				t.Errorf("there is no %s", in.Key())
			}
			b.facts.await(t, "the interface in its table", func(f route.Facts) bool {
				l, _ := f.Interface(link.Name)
				return l.Table == table.ID && slices.Contains(l.Addresses, address.Address)
			})
			if !b.hasObject(t, address) {
				t.Errorf("there is no %s", address.Key())
			}
			if err := b.Dataplane.DeleteObject(b.context(t), in.Key()); err == nil {
				t.Error("it came back with an address")
			}
			elsewhere := address
			elsewhere.Table = b.OtherTable
			if err := b.Dataplane.PutObject(b.context(t), elsewhere); err == nil {
				t.Errorf("%s is in table %d, and was put into table %d", link.Name, table.ID,
					elsewhere.Table)
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), address.Key()))
			for range 2 { // and then it is back already
				must(t, b.Dataplane.DeleteObject(b.context(t), in.Key()))
			}
			if b.hasObject(t, in) {
				t.Errorf("there is still %s", in.Key())
			}
		}
		must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		b.deleteTables(t)
		b.hasTable(t, false)
	}},
	{"an interface that another program has put into a table gains addresses there", Tables,
		func(t *testing.T, b *bench) {
			name, remove := b.AddLink(t, b.OtherTable)
			b.awaitLink(t, name)
			address := route.Address{Interface: name, Address: pfx("198.18.71.1/24")}
			must(t, b.Dataplane.PutObject(b.context(t), address))
			b.facts.await(t, "the address in its table", func(f route.Facts) bool {
				l, _ := f.Interface(name)
				return l.Table == b.OtherTable && slices.Contains(l.Addresses, address.Address)
			})
			must(t, b.Dataplane.DeleteObject(b.context(t), address.Key()))
			remove()
		}},
	{"the interfaces of tunnels are listed, without a tunnel that is one", VXLAN,
		func(t *testing.T, b *bench) {
			b.listsLinks(t)
			if b.Lacks[Tables] == "" { // clients have that made, and may want it still
				other := route.Link{Name: "tenant", Kind: route.Loopback}
				must(t, b.Dataplane.PutObject(b.context(t), other))
				defer func() {
					must(t, b.Dataplane.DeleteObject(b.context(t), other.Key()))
				}()
			}
			link, end := b.vxlan(false), b.vtep(b.vxlan(false), 7)
			must(t, b.Dataplane.PutObject(b.context(t), link))
			must(t, b.Dataplane.PutObject(b.context(t), route.Up{Interface: link.Name}))
			must(t, b.Dataplane.PutObject(b.context(t), end))
			b.listsLinks(t, route.FoundLink{Name: link.Name, Mark: link.Digest()})
			must(t, b.Dataplane.DeleteObject(b.context(t), end.Key()))
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
			b.listsLinks(t)
		}},
	{"an interface that we have made goes down when nobody wants it up", Tables,
		func(t *testing.T, b *bench) {
			link := route.Link{Name: "tenant", Kind: route.Loopback}
			up := route.Up{Interface: link.Name}
			must(t, b.Dataplane.PutObject(b.context(t), link))
			if b.hasObject(t, up) {
				t.Error("it is up before")
			}
			must(t, b.Dataplane.PutObject(b.context(t), up))
			if !b.hasObject(t, up) {
				t.Error("it is not up")
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), up.Key()))
			if b.hasObject(t, up) {
				t.Error("it is still up")
			}
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
}

// isMadeAndGoes makes an interface, makes it anew with other settings, finds that after a restart
// of the agent, and deletes it.
func (b *bench) isMadeAndGoes(t *testing.T, link, other route.Link) {
	t.Helper()
	if b.hasObject(t, link) {
		t.Errorf("there is %s", link.Key())
	}
	for _, l := range []route.Link{link, link, other} { // the second is there already
		must(t, b.Dataplane.PutObject(b.context(t), l))
		b.isMade(t, l)
	}
	address := route.Address{Interface: link.Name, Address: pfx("198.18.70.1/24")}
	must(t, b.Dataplane.PutObject(b.context(t), address))
	b.use(t, b.Reopen(t))
	b.isMade(t, other)
	if !b.hasObject(t, address) {
		t.Errorf("there is no %s", address.Key())
	}
	for range 2 { // and then it is gone already
		must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
	}
	b.facts.await(t, "the interface is gone", func(f route.Facts) bool {
		_, ok := f.Interface(link.Name)
		return !ok
	})
	if b.hasObject(t, link) {
		t.Errorf("there is still %s", link.Key())
	}
}

// listsLinks fails the test unless these are the interfaces of tunnels.
func (b *bench) listsLinks(t *testing.T, want ...route.Object) {
	t.Helper()
	all, err := b.Dataplane.(fib.Bulk).Objects(b.context(t), route.MadeLink)
	if must(t, err); !slices.Equal(all, want) {
		t.Errorf("listed are %v instead of %v", all, want)
	}
}

// memif is a master at the socket that another program has given a number, too.
func (b *bench) memif(name string, id uint32) route.Link {
	return route.Link{Name: name, Kind: route.Memif, Memif: route.MemifSettings{
		Socket: b.MemifSocket, Master: true, ID: id, Secret: "shared"}}
}

func (b *bench) hasMemifSockets(t *testing.T, want map[uint32]string) {
	t.Helper()
	if got := b.MemifSockets(t); !maps.Equal(got, want) {
		t.Errorf("sockets of memifs %v, want %v", got, want)
	}
}

// defaultMTU is VPP's. A sub-interface has none: VPP then goes by the same number.
const defaultMTU = 9000

// isMade fails the test unless there is an interface that we have made like this.
func (b *bench) isMade(t *testing.T, l route.Link) {
	t.Helper()
	found, err := b.Dataplane.Object(b.context(t), l.Key())
	must(t, err)
	if want := (route.FoundLink{Name: l.Name, Mark: l.Digest()}); found != want {
		t.Errorf("found %v instead of %v", found, want)
	}
	want := uint32(l.MTU)
	if want == 0 && l.Kind != route.SubInterface {
		want = defaultMTU
	}
	mac, mtu := b.Made(t, l.Name)
	if mtu != want || l.MAC != "" && mac != l.MAC {
		t.Errorf("%v has MAC address %s and MTU %d", l, mac, mtu)
	}
	b.awaitLink(t, l.Name)
}

func (b *bench) awaitLink(t *testing.T, name string) (found route.Interface) {
	t.Helper()
	b.facts.await(t, "the interface "+name, func(f route.Facts) (ok bool) {
		found, ok = f.Interface(name)
		return ok
	})
	return found
}
