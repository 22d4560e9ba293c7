package dataplanetest

import (
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/route"
)

// linkCases are about interfaces that we make.
var linkCases = []testCase{
	{"an interface is made, found again, made anew and deleted", Tables,
		func(t *testing.T, b *bench) {
			for _, name := range []string{"tenant", "loop77"} {
				link := route.Link{Name: name, Kind: route.Loopback}
				other := link
				other.MAC = "02:fe:00:00:00:07"
				if b.hasObject(t, link) {
					t.Errorf("there is %s", link.Key())
				}
				for _, l := range []route.Link{link, link, other} { // the second is there already
					must(t, b.Dataplane.PutObject(b.context(t), l))
					b.isMade(t, l)
				}
				address := route.Address{Interface: name, Address: pfx("198.18.70.1/24")}
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
					_, ok := f.Interface(name)
					return !ok
				})
				if b.hasObject(t, link) {
					t.Errorf("there is still %s", link.Key())
				}
			}
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

// isMade fails the test unless there is an interface that we have made like this.
func (b *bench) isMade(t *testing.T, l route.Link) {
	t.Helper()
	found, err := b.Dataplane.Object(b.context(t), l.Key())
	must(t, err)
	if want := (route.FoundLink{Name: l.Name, Mark: l.Digest()}); found != want {
		t.Errorf("found %v instead of %v", found, want)
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
