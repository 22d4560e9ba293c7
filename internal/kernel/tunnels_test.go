package kernel

import (
	"path/filepath"
	"slices"
	"strings"
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
		w := fib.Wanted{Encapsulation: &route.Encapsulation{Own4: pfx("10.0.1.1/24"),
			Pools: []route.Pool{{Name: "i", Prefix: pfx("10.9.0.0/16"), Encap: route.IPIP},
				{Name: "c", Prefix: pfx("10.8.0.0/16"), Encap: route.IPIP, CrossSubnet: true},
				{Name: "f", Prefix: pfx("10.7.0.0/16"), Encap: route.VXLAN, Felix: true}},
			Nodes: route.Nodes{{Address: addr("10.0.1.2"), Name: "near"},
				{Address: addr("172.16.0.1"), Name: "far"}}}}
		e.Set(w)
		for _, r := range []route.Route{via("10.9.0.0/26", "10.0.1.2"),
			via("10.9.0.64/26", "172.16.0.1"), via("10.9.0.128/26", "10.0.1.2", "172.16.0.1"),
			via("10.8.0.0/26", "10.0.1.2"), via("10.7.0.0/26", "10.0.1.2"),
			via("10.6.0.0/26", "172.16.0.1")} {
			learn(e, r)
		}
		w.Complete = true // else what was not learned yet would be swept
		e.Set(w)
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

// A device of Felix' name and kind is taken over; one of another kind is another program's.
func TestTunnelDevicesThatAreThere(t *testing.T) {
	_, node, _ := newNamespaces(t)
	b := &bed{t: t, ns: node}
	d := start(t, Config{Namespace: node.Path()})
	vxlan := route.Link{Name: "vxlan.calico", Kind: route.VXLANTunnel, MAC: "66:00:00:00:00:01",
		MTU: 1450, Source: addr("10.0.1.1"),
		VXLAN: route.VXLANLink{Address: addr("10.9.0.1"), VNI: 4096, Port: 4789}}
	lists := func(want ...route.Object) {
		t.Helper()
		all, err := d.Objects(t.Context(), route.MadeLink)
		if err != nil || !slices.Equal(all, want) {
			t.Errorf("listed are %v (%v), want %v", all, err, want)
		}
	}
	// Felix' device of another VNI, with an address that is not the node's any more
	b.ip("link add vxlan.calico type vxlan id 7 dstport 4789 local 10.0.1.1 dev eth1 nolearning")
	b.ip("addr add 10.9.0.9/32 dev vxlan.calico")
	found, err := d.Object(t.Context(), vxlan.Key())
	if err != nil || found != nil {
		t.Errorf("found %v, %v", found, err)
	}
	lists()
	check(t, d.PutObject(t.Context(), vxlan))
	lists(route.FoundLink{Name: vxlan.Name, Mark: vxlan.Digest()})
	found, err = d.Object(t.Context(), vxlan.Key())
	if want := (route.FoundLink{Name: vxlan.Name, Mark: vxlan.Digest()}); err != nil ||
		found != want {
		t.Errorf("found %v, %v, want %v", found, err, want)
	}
	b.ip("addr add 10.9.0.9/32 dev vxlan.calico")
	check(t, d.PutObject(t.Context(), vxlan))
	if out := b.ip("-4 -br addr show dev vxlan.calico"); !strings.Contains(out, "10.9.0.1/32") ||
		strings.Contains(out, "10.9.0.9") {
		t.Errorf("addresses %q", out)
	}
	check(t, d.DeleteObject(t.Context(), vxlan.Key()))

	ipip := route.Link{Name: "tunl0", Kind: route.IPIPTunnel, Source: addr("10.0.1.1"), MTU: 1480}
	for _, l := range []route.Link{vxlan, ipip} {
		b.ip("link add " + l.Name + " type veth")
		found, err := d.Object(t.Context(), l.Key())
		if err != nil || found == nil || found.Marked() {
			t.Errorf("found %v, %v", found, err)
		}
		if err := d.PutObject(t.Context(), l); err == nil ||
			!strings.Contains(err.Error(), "another program's: a veth device") {
			t.Errorf("%v", err)
		}
		check(t, d.DeleteObject(t.Context(), l.Key()))
		b.ip("link set " + l.Name + " alias " + aliasFor(l.Digest()))
		lists()
		b.ip("link del " + l.Name) // which fails where it was deleted
	}
	// Where the kernel has IPIP its tunl0 is used, and stays.
	if err := d.PutObject(t.Context(), ipip); err == nil {
		t.Attr("part", "IPIP of this kernel")
		check(t, d.DeleteObject(t.Context(), ipip.Key()))
	} else if !strings.Contains(err.Error(), "this kernel has no IPIP") {
		t.Errorf("%v", err)
	}
}
