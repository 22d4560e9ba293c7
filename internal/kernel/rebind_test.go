package kernel

import (
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

func TestRecursiveNextHopFollowsTheOtherRoutes(t *testing.T) {
	b := newBed(t)
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	b.ip("route add fd99::/64 via fd00:1::2")
	routes := []route.Route{via("198.18.1.0/24", "172.16.0.1"), via("2001:db8::/48", "fd99::1")}
	b.apply(put(routes...))
	b.want(routes...)
	gateways := func() string {
		return b.ip("route show proto 179") + b.ip("-6 route show proto 179")
	}
	if got := gateways(); !strings.Contains(got, "via 10.0.1.2 dev eth1") ||
		!strings.Contains(got, "via fd00:1::2 dev eth1") {
		t.Fatalf("programmed: %s", got)
	}
	b.ip("route add 172.16.0.0/24 via 10.0.2.2")
	b.ip("route replace fd99::/64 via fd00:2::2")
	eventually(t, "both routes move to eth2", func() bool {
		got := gateways()
		return strings.Contains(got, "via 10.0.2.2 dev eth2") &&
			strings.Contains(got, "via fd00:2::2 dev eth2")
	})
	b.comesToWant(routes...)
	b.ip("route replace 172.16.0.0/24 nexthop via 10.0.2.2 nexthop via 10.0.1.3")
	eventually(t, "both legs of the underlay are used", func() bool {
		return strings.Count(b.ip("route show 198.18.1.0/24"), "nexthop") == 2
	})
	b.comesToWant(routes...)
	b.apply(del("198.18.1.0/24", "2001:db8::/48"))
	b.want()
	if len(b.recalled) != 0 {
		t.Errorf("still remembered: %v", b.recalled)
	}
}

// TestNextHopFollowsARouteThatCarriesIt: a route of this node's own or of external configuration
// carries next hops if its gateways are neighbours. No other route of ours does.
func TestNextHopFollowsARouteThatCarriesIt(t *testing.T) {
	b := newBed(t)
	carrier := func(r route.Route, origin route.Origin) []route.Op {
		r.Origin = origin
		return put(r)
	}
	gateways := func(want string) func() bool {
		return func() bool { return strings.Contains(b.ip("route show 198.18.1.0/24"), want) }
	}
	over := via("198.18.1.0/24", "172.16.0.1")
	b.apply(append(carrier(via("172.16.0.1/32", "10.0.1.2 eth1"), route.Own), put(over)...))
	b.want(via("172.16.0.1/32", "10.0.1.2 eth1"), over)
	b.apply(carrier(via("172.16.0.1/32", "10.0.1.3 eth1", "10.0.2.2 eth2"), route.External))
	eventually(t, "both ways are used", gateways("nexthop via 10.0.2.2 dev eth2"))
	b.apply(del("172.16.0.1/32"))
	time.Sleep(2 * settle)
	if !gateways("nexthop via 10.0.2.2 dev eth2")() {
		t.Error("the route went although there is no other way yet")
	}
	b.ip("route add 172.16.0.0/16 via 10.0.1.4")
	eventually(t, "what others have is used", gateways("via 10.0.1.4 dev eth1"))
	b.apply(carrier(via("172.16.0.0/24", "10.0.2.2"), route.Own)) // itself recursive
	for _, origin := range []route.Origin{route.BGP, route.Etcd} {
		b.apply(carrier(via("172.16.0.1/32", "10.0.2.2 eth2"), origin))
		errs := b.try(put(via("198.18.2.0/24", "172.16.0.1"), via("198.18.2.0/24", "172.16.0.2")))
		for i, through := range []string{"172.16.0.1/32", "172.16.0.0/24"} {
			want := "reached only through our own route " + through
			if errs[i] == nil || !strings.Contains(errs[i].Error(), want) {
				t.Errorf("through %s of %s: %v", through, origin, errs[i])
			}
		}
	}
	b.apply(carrier(via("172.16.0.1/32", "10.0.2.2 eth2"), route.Own))
	eventually(t, "it carries once it is this node's own", gateways("via 10.0.2.2 dev eth2"))
}

// TestRecursiveRouteComesBackWithItsInterface: nobody else would put it again.
func TestRecursiveRouteComesBackWithItsInterface(t *testing.T) {
	b := newBed(t)
	r := via("198.18.1.0/24", "10.0.1.2")
	b.apply(put(r))
	check(t, b.ns.SetLink("eth1", false))
	b.want() // gone, and there is no way to it
	time.Sleep(2 * settle)
	check(t, b.ns.SetLink("eth1", true))
	eventually(t, "the route is back", func() bool {
		_, ok, err := b.Lookup(t.Context(), r.Key)
		return ok && err == nil
	})
	b.want(r)
}

// TestRecursiveRouteComesBackAlthoughRunIsLate: Run's goroutine has its first turn when the
// interface is down already.
func TestRecursiveRouteComesBackAlthoughRunIsLate(t *testing.T) {
	_, node, peer := newNamespaces(t)
	b := &bed{t: t, ns: node, peer: peer, Dataplane: create(t, Config{Namespace: node.Path()})}
	r := via("198.18.1.0/24", "10.0.1.2")
	b.apply(put(r))
	check(t, b.ns.SetLink("eth1", false))
	b.want()
	t.Cleanup(run(t, b.Dataplane))
	check(t, b.ns.SetLink("eth1", true))
	eventually(t, "the route is back", func() bool {
		_, ok, err := b.Lookup(t.Context(), r.Key)
		return ok && err == nil
	})
	b.want(r)
}

// TestAfterARestartARecursiveRouteReadsAsResolved, and putting it again makes it read as put.
func TestAfterARestartARecursiveRouteReadsAsResolved(t *testing.T) {
	b := newBed(t)
	b.apply(put(via("198.18.1.0/24", "10.0.1.2")))
	again := &bed{t: t, ns: b.ns, Dataplane: start(t, Config{Namespace: b.ns.Path()})}
	again.want(via("198.18.1.0/24", "10.0.1.2 eth1"))
	again.apply(put(via("198.18.1.0/24", "10.0.1.2")))
	again.want(via("198.18.1.0/24", "10.0.1.2"))
	if got, want := (<-again.Facts()).Identity, (<-b.Facts()).Identity; got != want || got == "" {
		t.Errorf("identity %q, before the restart %q", got, want)
	}
}
