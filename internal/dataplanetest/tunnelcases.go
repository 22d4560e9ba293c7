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
