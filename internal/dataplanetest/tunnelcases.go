package dataplanetest

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// tunnelCases are about tunnels to other nodes.
var tunnelCases = []testCase{
	{"an IPIP tunnel is made, found again, made anew and deleted", Tunnels,
		func(t *testing.T, b *bench) {
			link := b.ipip()
			other := link
			other.Source = b.v4(1, 1)
			b.isMadeAndGoes(t, link, other)
			other.MTU = 1400
			b.isMadeAndGoes(t, link, other)
		}},
	{"a tunnel leads to the nodes that are wanted, and to no others", Tunnels,
		func(t *testing.T, b *bench) {
			link := b.ipip()
			must(t, b.Dataplane.PutObject(b.context(t), link))
			one, two := b.endpoint(2), b.endpoint(3)
			b.hasEndpoints(t)
			for _, e := range []route.Endpoint{one, one, two} { // the second is there already
				must(t, b.Dataplane.PutObject(b.context(t), e))
			}
			b.hasEndpoints(t, one, two)
			b.use(t, b.Reopen(t))
			b.hasEndpoints(t, one, two)
			for range 2 { // and then it is gone already
				must(t, b.Dataplane.DeleteObject(b.context(t), one.Key()))
			}
			b.hasEndpoints(t, two)
			// What is left does not become another interface's.
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
			must(t, b.Dataplane.DeleteObject(b.context(t), two.Key()))
			must(t, b.Dataplane.PutObject(b.context(t), link))
			b.hasEndpoints(t)
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
			if err := b.Dataplane.PutObject(b.context(t), one); err == nil {
				t.Error("there is an endpoint without an interface")
			}
		}},
	{"a next hop is plain for one route and a tunnel for the next", Tunnels,
		func(t *testing.T, b *bench) {
			link, e := b.ipip(), b.endpoint(2)
			for _, o := range []route.Object{link, route.Up{Interface: link.Name}, e} {
				must(t, b.Dataplane.PutObject(b.context(t), o))
			}
			b.awaitLink(t, link.Name)
			plain := to("198.18.1.0/24", b.via(0, e.Outer))
			tunnelled := to("198.18.2.0/24", route.Path{NextHop: e.NextHop(),
				Interface: link.Name, Weight: 1})
			b.put(t, plain, tunnelled)
			b.has(t, plain, tunnelled)
			b.leaves(t, plain.Key, b.by(0))
			// The neighbour on the uplink is what it was when the tunnel to it goes.
			b.delete(t, tunnelled.Key)
			must(t, b.Dataplane.DeleteObject(b.context(t), e.Key()))
			b.leaves(t, plain.Key, b.by(0))
			b.delete(t, plain.Key)
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}},
	{"a thousand nodes are reached at once", Tunnels, func(t *testing.T, b *bench) {
		link := b.ipip()
		must(t, b.Dataplane.PutObject(b.context(t), link))
		var ops []route.ObjectOp
		var want []route.Endpoint
		for i := range 1000 {
			e := route.Endpoint{Interface: link.Name,
				Outer: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}
			ops, want = append(ops, route.ObjectOp{Key: e.Key(), Put: e}), append(want, e)
		}
		missing := route.Endpoint{Interface: "missing9", Outer: b.v4(0, 9)}
		b.applyObjects(t, append(ops, route.ObjectOp{Key: missing.Key(), Put: missing}), 1000)
		b.hasEndpoints(t, want...)
		for i := range ops {
			ops[i].Put = nil
		}
		b.applyObjects(t, append(ops, route.ObjectOp{Key: missing.Key()})) // it is not there
		b.hasEndpoints(t)
		must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
	}},
}

// vxlanCases are tunnelCases of VXLAN.
var vxlanCases = []testCase{
	{"a VXLAN interface is made, found again, made anew and deleted", VXLAN,
		func(t *testing.T, b *bench) {
			link := b.vxlan(false)
			other := link
			other.VXLAN.VNI = 7
			b.isMadeAndGoes(t, link, other)
			other.MTU = 1400
			b.isMadeAndGoes(t, link, other)
		}},
	{"a VXLAN tunnel leads to the nodes that are wanted, and to no others", VXLAN,
		func(t *testing.T, b *bench) {
			for _, six := range []bool{false, true} {
				link := b.vxlan(six)
				one, two := b.vtep(link, 2), b.vtep(link, 3)
				if err := b.Dataplane.PutObject(b.context(t), one); err == nil {
					t.Error("there is an endpoint without an interface")
				}
				must(t, b.Dataplane.PutObject(b.context(t), link))
				b.hasTunnels(t)
				for _, e := range []route.Endpoint{one, one, two} { // the second is there already
					must(t, b.Dataplane.PutObject(b.context(t), e))
				}
				b.hasTunnels(t, one, two)
				b.use(t, b.Reopen(t))
				b.hasTunnels(t, one, two)
				one.VXLAN.MAC = "66:00:00:00:00:99"
				must(t, b.Dataplane.PutObject(b.context(t), one))
				b.hasTunnels(t, one, two)
				for range 2 { // and then it is gone already
					must(t, b.Dataplane.DeleteObject(b.context(t), one.Key()))
				}
				b.hasTunnels(t, two)
				must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
				b.hasTunnels(t)
				must(t, b.Dataplane.DeleteObject(b.context(t), two.Key()))
				must(t, b.Dataplane.PutObject(b.context(t), link))
				must(t, b.Dataplane.PutObject(b.context(t), two))
				other := link
				other.VXLAN.VNI = 7
				must(t, b.Dataplane.PutObject(b.context(t), other)) // made anew, without tunnels
				b.hasTunnels(t)
				must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
			}
		}},
	{"the address of a VXLAN interface is put again when another program deletes it", VXLAN,
		func(t *testing.T, b *bench) {
			for _, six := range []bool{false, true} {
				link := b.vxlan(six)
				end := b.vtep(link, 2)
				must(t, b.Dataplane.PutObject(b.context(t), link))
				must(t, b.Dataplane.PutObject(b.context(t), end))
				b.isMade(t, link)
				own := route.Address{Interface: link.Name, Address: netip.PrefixFrom(
					link.VXLAN.Address, link.VXLAN.Address.BitLen())}
				must(t, b.Dataplane.DeleteObject(b.context(t), own.Key()))
				found, err := b.Dataplane.Object(b.context(t), link.Key())
				must(t, err)
				if !found.Marked() || found.Digest() == link.Digest() {
					t.Errorf("without its address there is %v", found)
				}
				must(t, b.Dataplane.PutObject(b.context(t), link))
				b.isMade(t, link)
				b.hasAll(t, own)
				must(t, b.Dataplane.PutObject(b.context(t), end))
				b.hasTunnels(t, end)
				must(t, b.Dataplane.DeleteObject(b.context(t), end.Key()))
				must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
			}
		}},
	{"routes lead through VXLAN tunnels", VXLAN, func(t *testing.T, b *bench) {
		for _, six := range []bool{false, true} {
			link := b.vxlan(six)
			one, two := b.vtep(link, 2), b.vtep(link, 3)
			for _, o := range []route.Object{link, route.Up{Interface: link.Name}, one, two} {
				must(t, b.Dataplane.PutObject(b.context(t), o))
			}
			b.awaitLink(t, link.Name)
			dest, plain := "198.18.1.0/24", to("198.18.2.0/24", b.via(0, one.Outer))
			if six {
				dest, plain = "2001:db8:1::/64", to("2001:db8:2::/64", b.via(0, one.Outer))
			}
			through := func(e route.Endpoint) route.Route {
				return to(dest, route.Path{NextHop: e.NextHop(), Interface: link.Name, Weight: 1})
			}
			b.put(t, plain, through(one))
			b.has(t, plain, through(one))
			b.put(t, through(two))
			b.has(t, plain, through(two))
			b.leaves(t, plain.Key, b.by(0))
			b.use(t, b.Reopen(t))
			b.awaitLink(t, link.Name)
			b.has(t, plain, through(two))
			b.delete(t, plain.Key, through(two).Key)
			must(t, b.Dataplane.DeleteObject(b.context(t), one.Key()))
			must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
		}
	}},
	{"a thousand nodes are reached by VXLAN at once", VXLAN, func(t *testing.T, b *bench) {
		link := b.vxlan(false)
		must(t, b.Dataplane.PutObject(b.context(t), link))
		var ops []route.ObjectOp
		var want []route.Endpoint
		for i := range 1000 {
			e := b.vtep(link, 2)
			e.Outer = netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
			if b.TunnelAddresses {
				e.VXLAN.Tunnel = netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)})
			}
			e.VXLAN.MAC = fmt.Sprintf("66:00:00:01:%02x:%02x", i>>8, i&255)
			ops, want = append(ops, route.ObjectOp{Key: e.Key(), Put: e}), append(want, e)
		}
		bad := b.vtep(link, 2)
		bad.Outer = bad.VXLAN.Source
		b.applyObjects(t, append(ops, route.ObjectOp{Key: bad.Key(), Put: bad}), 1000)
		b.hasTunnels(t, want...)
		for i := range ops {
			ops[i].Put = nil
		}
		b.applyObjects(t, append(ops, route.ObjectOp{Key: bad.Key()})) // it is not there
		b.hasTunnels(t)
		must(t, b.Dataplane.DeleteObject(b.context(t), link.Key()))
	}},
}

func (b *bench) vxlan(six bool) route.Link {
	source, own := b.Interfaces[0].V4.Addr(), netip.MustParseAddr("198.19.9.1")
	if six {
		source, own = b.Interfaces[0].V6.Addr(), netip.MustParseAddr("2001:db8:9::1")
	}
	return route.Link{Name: route.VXLAN.Interface(source), Kind: route.VXLANTunnel,
		Source: source, MAC: "66:00:00:00:00:01", MTU: 1430,
		VXLAN: route.VXLANLink{Address: own, VNI: 4096, Port: 4789}}
}

// vtep is a neighbour of the first interface.
func (b *bench) vtep(on route.Link, host byte) route.Endpoint {
	outer, tunnel := b.v4(0, host), netip.AddrFrom4([4]byte{198, 19, 8, host})
	if on.Source.Is6() {
		outer, tunnel = b.v6(0, host), netip.MustParseAddr(fmt.Sprintf("2001:db8:8::%d", host))
	}
	if !b.TunnelAddresses {
		tunnel = netip.Addr{}
	}
	return route.Endpoint{Interface: on.Name, Outer: outer, VXLAN: route.VXLANSettings{
		Source: on.Source, VNI: on.VXLAN.VNI, Port: on.VXLAN.Port,
		MAC: fmt.Sprintf("66:00:00:00:00:%02x", host), Tunnel: tunnel}}
}

// hasTunnels is hasEndpoints for VXLAN, with digests.
func (b *bench) hasTunnels(t *testing.T, want ...route.Endpoint) {
	t.Helper()
	all, err := b.Dataplane.(fib.Bulk).Objects(b.context(t), route.TunnelEndpoint)
	must(t, err)
	found := map[route.ObjectKey]uint64{}
	for _, o := range all {
		found[o.Key()] = o.Digest()
	}
	for _, e := range want {
		if found[e.Key()] != e.Digest() {
			t.Errorf("of %s there is %d, want %d", e.Key(), found[e.Key()], e.Digest())
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d are listed instead of %d: %v", len(all), len(want), all)
	}
}

func (b *bench) ipip() route.Link {
	return route.Link{Name: "tunl0", Kind: route.IPIPTunnel, Source: b.Interfaces[0].V4.Addr(),
		MTU: 1480}
}

// endpoint is a neighbour of the first interface: what leads there plain may not change.
func (b *bench) endpoint(host byte) route.Endpoint {
	return route.Endpoint{Interface: "tunl0", Outer: b.v4(0, host)}
}

func (b *bench) hasEndpoints(t *testing.T, want ...route.Endpoint) {
	t.Helper()
	all, err := b.Dataplane.(fib.Bulk).Objects(b.context(t), route.TunnelEndpoint)
	must(t, err)
	found := map[route.Object]bool{}
	for _, o := range all {
		found[o] = true
	}
	for i, e := range want {
		if i < 3 && !b.hasObject(t, e) { // one by one takes long
			t.Errorf("there is no %s", e.Key())
		}
		if !found[e] {
			t.Errorf("%s is not listed", e.Key())
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d are listed instead of %d: %v", len(all), len(want), all)
	}
}

// applyObjects fails the test unless just those of bad are refused.
func (b *bench) applyObjects(t *testing.T, ops []route.ObjectOp, bad ...int) {
	t.Helper()
	answers := map[int]error{}
	b.Dataplane.(fib.Bulk).ApplyObjects(b.context(t), ops, func(i int, err error) {
		if _, ok := answers[i]; ok {
			t.Errorf("%s is answered twice", ops[i].Key)
		}
		answers[i] = err
	})
	refused := ""
	for i := range ops {
		if err, ok := answers[i]; !ok || err != nil {
			refused += fmt.Sprintln(i)
		}
	}
	want := ""
	for _, i := range bad {
		want += fmt.Sprintln(i)
	}
	if refused != want {
		t.Errorf("refused or not answered are\n%sinstead of\n%s", refused, want)
	}
}
