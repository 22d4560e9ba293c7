package dataplanetest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// externalCases are about items of external configuration that are objects: made, changed, deleted,
// pending and back.
var externalCases = []testCase{
	{"an interface gains what a client wants, and loses only that", "",
		func(t *testing.T, b *bench) {
			dir, name, before := t.TempDir(), b.Interfaces[0].Name, b.addresses(t)
			c := b.runClient(t, dir)
			first, six := pfx("198.18.70.1/24"), pfx("2001:db8:70::1/64")
			c.put(onLink(name, first, six))
			c.await(t, "CONFIGURED ")
			b.hasAddresses(t, append(before, first, six)...)
			second := pfx("198.18.70.2/24")
			c.put(onLink(name, second, b.Interfaces[0].V4)) // which is there by another's hand
			c.await(t, "CONFIGURED ")
			b.hasAddresses(t, append(before, second)...)
			c.put()
			c.await(t, "REMOVED ")
			b.hasAddresses(t, before...)
			c.put(onLink(name, first))
			c.await(t, "CONFIGURED ")
			b.hasAddresses(t, append(before, first)...) // it is later in the facts
			c.stop()
			c = b.runClient(t, dir) // which has lost its item meanwhile
			defer c.stop()
			c.put()
			b.hasAddresses(t, before...)
		}},
	{"an address that another interface has is refused with its name", Overlaps,
		func(t *testing.T, b *bench) {
			before := b.addresses(t)
			c := b.runClient(t, t.TempDir())
			defer c.stop()
			has := netip.PrefixFrom(b.v4(1, 7), b.Interfaces[1].V4.Bits())
			other := pfx("198.18.70.1/24")
			c.put(onLink(b.Interfaces[0].Name, has, other))
			c.await(t, fmt.Sprintf("FAILED %s overlaps %s of %s", has, b.Interfaces[1].V4,
				b.Interfaces[1].Name))
			b.hasAddresses(t, append(before, other)...)
			c.put()
			b.hasAddresses(t, before...)
		}},
	{"what a client wants of an interface waits for it", Tables, func(t *testing.T, b *bench) {
		c := b.runClient(t, t.TempDir())
		defer c.stop()
		name, remove := b.AddLink(t, 0)
		remove()
		address := route.Address{Interface: name, Address: pfx("198.18.70.1/24")}
		c.put(onLink(name, address.Address))
		for range 2 { // the second time it comes back
			c.await(t, "PENDING there is no interface "+name)
			_, remove := b.AddLink(t, 0)
			c.await(t, "CONFIGURED ")
			if !b.hasObject(t, address) {
				t.Errorf("there is no %s", address.Key())
			}
			remove()
		}
		c.await(t, "PENDING there is no interface "+name)
	}},
	{"a client's interface is made with all that is on it, and takes it along", Tables,
		func(t *testing.T, b *bench) {
			c := b.runClient(t, t.TempDir())
			defer c.stop()
			made, rest := tenant("02:fe:00:00:00:07"), []item{
				{"config/vpp/v2/arp/loop88/198.18.70.9", `{"interface":"loop88","static":true,` +
					`"ip_address":"198.18.70.9","phys_address":"02:fe:00:00:00:01"}`},
				{"config/vpp/v2/route/if/loop88/vrf/0/dst/198.18.71.0/24/gw/198.18.70.9",
					`{"outgoing_interface":"loop88","dst_network":"198.18.71.0/24",` +
						`"next_hop_addr":"198.18.70.9"}`},
			}
			complete := func() {
				t.Helper()
				c.await(t, "CONFIGURED ")
				b.hasAll(t, tenantObjects...)
				b.leaves(t, key("198.18.71.0/24"), map[string]int{"loop88": 1})
			}
			for range 2 { // the second time it comes back
				c.put(append(rest, made)...)
				complete()
				c.put(append(rest, tenant("02:fe:00:00:00:08"))...) // which is made anew
				complete()
				c.put(rest...)
				c.await(t, "PENDING vpp: there is no interface loop88",
					"PENDING there is no interface loop88", "REMOVED ")
			}
			c.put()
			c.await(t, "REMOVED ")
		}},
	{"a client's sub-interface waits for its parent and goes with it", Tables,
		func(t *testing.T, b *bench) {
			c := b.runClient(t, t.TempDir())
			defer c.stop()
			sub := func(vlan int) item {
				return item{"config/vpp/v2/interfaces/vlan", fmt.Sprintf(`{"name":"vlan",`+
					`"type":"SUB_INTERFACE","sub":{"parent_name":"loop88","sub_id":%d},`+
					`"enabled":true,"ip_addresses":["198.18.72.1/24"]}`, vlan)}
			}
			address := route.Address{Interface: "vlan", Address: pfx("198.18.72.1/24")}
			c.put(sub(7))
			c.await(t, "PENDING there is no interface loop88")
			for range 2 { // the second time it comes back
				c.put(sub(7), tenant(""))
				c.await(t, "CONFIGURED ")
				b.hasAll(t, address)
				c.put(sub(8), tenant("")) // which is made anew
				c.await(t, "CONFIGURED ")
				b.hasAll(t, address)
				c.put(sub(8))
				c.await(t, "PENDING there is no interface loop88", "REMOVED ")
			}
			c.put(sub(8), tenant(""))
			c.await(t, "CONFIGURED ")
			c.put()
			c.await(t, "REMOVED ")
		}},
	{"a client's interface changes tables", Tables, func(t *testing.T, b *bench) {
		c := b.runClient(t, t.TempDir())
		defer c.stop()
		id, tables := b.MissingTable, []item{}
		for _, family := range []string{"IPV4", "IPV6"} {
			tables = append(tables, item{
				fmt.Sprintf("config/vpp/v2/vrf-table/id/%d/protocol/%s", id, family),
				fmt.Sprintf(`{"id":%d,"protocol":%q,"label":"tenant"}`, id, family)})
		}
		isIn := func(table uint32) {
			t.Helper()
			c.await(t, "CONFIGURED ")
			b.facts.await(t, fmt.Sprintf("loop88 in table %d", table), func(f route.Facts) bool {
				l, _ := f.Interface("loop88")
				return l.Table == table && slices.Contains(l.Addresses, pfx("198.18.70.1/24")) &&
					slices.Contains(l.Addresses, pfx("2001:db8:70::1/64"))
			})
		}
		for range 2 { // the second time it comes back
			c.put(append(tables, tenantIn(id))...)
			isIn(id)
			c.put(append(tables, tenant(""))...)
			isIn(0)
			c.put(append(tables, tenantIn(id))...)
			isIn(id)
			c.put(tenantIn(id))
			c.await(t, fmt.Sprintf("PENDING there is no VRF table %[1]d (IPv4), there is no VRF "+
				"table %[1]d (IPv6)", id), "REMOVED ")
			b.hasTable(t, false)
		}
		c.put()
		c.await(t, "REMOVED ")
	}},
	{"a client's interface has the MTU that it wants", Tables, func(t *testing.T, b *bench) {
		b.awaitNoTenant(t)
		dir := t.TempDir()
		c := b.runClient(t, dir)
		is := func(mtu uint32) {
			t.Helper()
			c.await(t, "CONFIGURED ")
			if _, got := b.Made(t, "loop88"); got != mtu {
				t.Errorf("the MTU is %d instead of %d", got, mtu)
			}
			b.hasAll(t, tenantObjects...)
		}
		for _, mtu := range []uint32{1400, 65535, 0} {
			c.put(tenantWith(mtu))
			is(cmp.Or(mtu, defaultMTU))
		}
		c.put(tenantWith(1500))
		is(1500)
		before := b.awaitTenant(t)
		c.stop()
		c = b.runClient(t, dir)
		defer c.stop()
		c.put(tenantWith(1500))
		is(1500)
		if now := b.awaitTenant(t); now.Generation != before.Generation {
			t.Errorf("it was %+v and is %+v", before, now)
		}
		c.put()
		c.await(t, "REMOVED ")
	}},
	{"a client's interface outlives the agent, and is made again after a restart", Connection,
		func(t *testing.T, b *bench) {
			b.awaitNoTenant(t)
			dir := t.TempDir()
			c := b.runClient(t, dir)
			c.put(tenantWith(1400))
			c.await(t, "CONFIGURED ")
			before := b.awaitTenant(t)
			c.stop()
			c = b.runClient(t, dir)
			defer c.stop()
			c.put(tenantWith(1400))
			c.await(t, "CONFIGURED ")
			if now := b.awaitTenant(t); now.Index != before.Index ||
				now.Generation != before.Generation {
				t.Errorf("it was %+v and is %+v", before, now)
			}
			b.restart(t)
			b.eventually(t, "its objects after the restart", func() bool {
				for _, o := range tenantObjects {
					found, err := b.Dataplane.Object(b.context(t), o.Key())
					if err != nil || found == nil {
						return false
					}
				}
				return true
			})
			c.await(t, "CONFIGURED ")
			if _, got := b.Made(t, "loop88"); got != 1400 {
				t.Errorf("the MTU after the restart is %d", got)
			}
			c.put()
			c.await(t, "REMOVED ")
		}},
	{"what a client wants of an interface is back after a restart", Connection,
		func(t *testing.T, b *bench) {
			c := b.runClient(t, t.TempDir())
			defer c.stop()
			address := b.address(pfx("198.18.70.1/24"))
			c.put(onLink(address.Interface, address.Address))
			c.await(t, "CONFIGURED ")
			b.restart(t)
			b.eventually(t, "the address after the restart", func() bool {
				o, err := b.Dataplane.Object(b.context(t), address.Key())
				return err == nil && o == address
			})
			c.await(t, "CONFIGURED ")
			c.put()
			c.await(t, "REMOVED ")
		}},
}

// tenant is an item that makes an interface, whose name is that in VPP as well; tenantObjects are
// what it wants of it.
func tenant(mac string) item {
	return item{"config/vpp/v2/interfaces/loop88", fmt.Sprintf(`{"name":"loop88",`+
		`"type":"SOFTWARE_LOOPBACK","enabled":true,"phys_address":%q,`+
		`"ip_addresses":["198.18.70.1/24","2001:db8:70::1/64"]}`, mac)}
}

// tenantIn is in a table.
func tenantIn(table uint32) item { return tenantHas("vrf", table) }

// tenantWith has an MTU; 0: VPP's choice.
func tenantWith(mtu uint32) item { return tenantHas("mtu", mtu) }

func tenantHas(field string, number uint32) item {
	i := tenant("")
	i.value = strings.Replace(i.value, "{", fmt.Sprintf("{%q:%d,", field, number), 1)
	return i
}

var tenantObjects = []route.Object{
	route.Up{Interface: "loop88"},
	route.Address{Interface: "loop88", Address: pfx("198.18.70.1/24")},
	route.Address{Interface: "loop88", Address: pfx("2001:db8:70::1/64")},
}

func (b *bench) hasAll(t *testing.T, all ...route.Object) {
	t.Helper()
	for _, o := range all {
		if !b.hasObject(t, o) {
			t.Errorf("there is no %s", o.Key())
		}
	}
}

// onLink is an item about an interface that is up and has these addresses.
func onLink(name string, addresses ...netip.Prefix) item {
	var list []string
	for _, a := range addresses {
		list = append(list, fmt.Sprintf("%q", a))
	}
	return item{"config/vpp/v2/interfaces/" + name, fmt.Sprintf(
		`{"name":%q,"enabled":true,"ip_addresses":[%s]}`, name, strings.Join(list, ","))}
}

// item is one of external configuration, in JSON.
type item struct{ key, value string }

// client is the only source of external configuration of an engine.
type client struct {
	*fib.Engine
	snapshots chan external.Snapshot
	revision  int64
	stop      func()

	mu     sync.Mutex // guards answer
	answer external.Answer
}

// runClient runs one, which has not spoken yet.
func (b *bench) runClient(t *testing.T, dir string) *client {
	c := &client{snapshots: make(chan external.Snapshot, 1)}
	c.stop = b.runEngine(t, dir, func(e *fib.Engine) func(context.Context) error {
		c.Engine = e
		return external.NewController([]external.Adapter{c}, external.Plane{FIB: c,
			Policy: external.Policy{Table0: true}}).Run
	})
	t.Cleanup(c.stop)
	return c
}

// put sets all items.
func (c *client) put(all ...item) {
	c.revision++
	items := map[string]external.Item{}
	for _, i := range all {
		items[i.key] = external.DecodeJSON(i.key, []byte(i.value), external.Item{})
	}
	select {
	case <-c.snapshots:
	default:
	}
	c.snapshots <- external.Snapshot{Complete: true, Revision: c.revision,
		Sources: []external.Source{{Name: c.Name(), Items: items}}}
}

// await waits until the items, by key, and then what was deleted, stand as wanted, each in its
// state and with its details. The last of want is for all that follow.
func (c *client) await(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	eventually(t, strings.Join(want, "; "), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		got = nil
		as := c.answer.Revision == c.revision && len(c.answer.Verdicts) >= len(want)
		for i, v := range c.answer.Verdicts {
			got = append(got, v.State.String()+" "+strings.Join(v.Details, ", "))
			as = as && got[i] == want[min(i, len(want)-1)]
		}
		return as
	}, func() string { return strings.Join(got, "; ") })
}

// Name implements external.Adapter.
func (c *client) Name() string { return "client" }

// Snapshots implements external.Adapter.
func (c *client) Snapshots() <-chan external.Snapshot { return c.snapshots }

// Answer implements external.Adapter.
func (c *client) Answer(a external.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = a
}

// Want implements external.FIB.
func (c *client) Want(all fib.Source) uint64 {
	var w fib.Wanted
	w.Sources[route.External] = all
	return c.Set(w)
}

// Changed implements external.FIB.
func (c *client) Changed() <-chan struct{} { return c.ExternalChanged() }

// Away implements external.FIB.
func (c *client) Away() string {
	if c.Facts().Identity == "" {
		return "the data plane is away"
	}
	return ""
}

// awaitTenant waits until the facts have the tenant's interface with all that is on it.
func (b *bench) awaitTenant(t *testing.T) (found route.Interface) {
	t.Helper()
	b.facts.await(t, "loop88, up and with two addresses", func(f route.Facts) bool {
		found, _ = f.Interface("loop88")
		return found.Up && len(found.Addresses) == 2
	})
	return found
}

// awaitNoTenant waits until the facts have lost the interface of the case before.
func (b *bench) awaitNoTenant(t *testing.T) {
	t.Helper()
	b.facts.await(t, "no loop88", func(f route.Facts) bool {
		_, found := f.Interface("loop88")
		return !found
	})
}
