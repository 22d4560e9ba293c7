package kernel

import (
	"net/netip"
	"path/filepath"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// TestRoutesThroughTunl0 has a device in user space, as the test kernel may have no ipip: routes
// are as those of BIRD and Felix, via the node, whether that is a neighbour or not.
func TestRoutesThroughTunl0(t *testing.T) {
	_, node, _ := newNamespaces(t)
	b := &bed{t: t, ns: node}
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	tunnel, err := node.IPIP("tunl0", addr("10.0.1.1"))
	check(t, err)
	defer func() { check(t, tunnel.Close()) }()
	journal := filepath.Join(t.TempDir(), "journal")
	for _, restarted := range []bool{false, true} {
		e, stop := agent(t, b, fib.Config{Journal: journal})
		e.Set(fib.Wanted{Complete: true, Encapsulation: &route.Encapsulation{
			Own4: pfx("10.0.1.1/24"),
			Pools: []route.Pool{{Name: "i", Prefix: pfx("10.9.0.0/16"), Encap: route.IPIP},
				{Name: "c", Prefix: pfx("10.8.0.0/16"), Encap: route.IPIP, CrossSubnet: true},
				{Name: "f", Prefix: pfx("10.7.0.0/16"), Encap: route.VXLAN, Felix: true}},
			Nodes: map[netip.Addr]route.Node{addr("10.0.1.2"): {Name: "near"},
				addr("172.16.0.1"): {Name: "far"}}}})
		for _, r := range []route.Route{via("10.9.0.0/26", "10.0.1.2"),
			via("10.9.0.64/26", "172.16.0.1"), via("10.9.0.128/26", "10.0.1.2", "172.16.0.1"),
			via("10.8.0.0/26", "10.0.1.2"), via("10.7.0.0/26", "10.0.1.2"),
			via("10.6.0.0/26", "172.16.0.1")} {
			learn(e, r)
		}
		eventually(t, "a neighbour", b.goes("10.9.0.0/26", "via 10.0.1.2 dev tunl0", "onlink"))
		eventually(t, "far", b.goes("10.9.0.64/26", "via 172.16.0.1 dev tunl0", "onlink"))
		eventually(t, "CrossSubnet", b.goes("10.8.0.0/26", "via 10.0.1.2 dev eth1"))
		eventually(t, "no pool", b.goes("10.6.0.0/26", "via 10.0.1.2 dev eth1"))
		eventually(t, "nearest", b.goes("10.9.0.128/26", "via 10.0.1.2 dev tunl0"))
		eventually(t, "Felix'", func() bool {
			found, _ := e.Find([]route.Key{{Prefix: pfx("10.7.0.0/26")}})
			return len(found) == 1 && found[0].State == fib.Unusable
		})
		if b.goes("10.7.0.0/26")() {
			t.Error("a route that is Felix' is programmed")
		}
		s := e.Stats()
		if s.Errors != 0 || s.Drift.Different != 0 || restarted && s.Put != 0 {
			t.Errorf("restarted %v: %+v", restarted, s)
		}
		stop()
	}
	// One that has put nothing reads what the first has put.
	found, ok, err := start(t, Config{Namespace: node.Path()}).Lookup(t.Context(),
		route.Key{Prefix: pfx("10.9.0.64/26")})
	put := via("10.9.0.64/26", route.EndpointHop(addr("172.16.0.1")).String()+" tunl0")
	if err != nil || !ok || !found.SameForwarding(put) {
		t.Errorf("read as %s, %v, %v, was put as %s", found, ok, err, put)
	}
}
