package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// TestTunnels lists what a node wants of its data plane, as the Nodes, pools and MTUs are.
func TestTunnels(t *testing.T) {
	nodes := []string{"a 192.0.2.5/24", "b 192.0.2.9/24", "c 198.51.100.7/24"}
	const all = "new interface tunl0 / address 10.9.0.1/32 of tunl0 / interface tunl0 / " +
		"tunnel to 192.0.2.9 by tunl0 / tunnel to 198.51.100.7 by tunl0"
	for _, tc := range []struct {
		name        string
		pool        calico.IPPool
		change      func(*calico.Snapshot)
		uplink, mtu uint16
		want        string
	}{
		{"always", ipipPool("p", "10.1.0.0/16", calico.EncapAlways), nil, 1500, 1480, all},
		{"across subnets, also to a neighbour", ipipPool("p", "10.1.0.0/16",
			calico.EncapCrossSubnet), nil, 9000, 8980, all},
		{"never", ipipPool("p", "10.1.0.0/16", calico.EncapNever), nil, 1500, 0, ""},
		{"the uplink is not known", ipipPool("p", "10.1.0.0/16", calico.EncapAlways), nil, 0, 0,
			all},
		{"an MTU of Felix", ipipPool("p", "10.1.0.0/16", calico.EncapAlways),
			func(s *calico.Snapshot) {
				s.Felix = map[string]calico.FelixConfiguration{"default": {IPIPMTU: 1400},
					"node.b": {IPIPMTU: 1300}}
			}, 1500, 1400, all},
		{"one that is none", ipipPool("p", "10.1.0.0/16", calico.EncapAlways),
			func(s *calico.Snapshot) {
				s.Felix = map[string]calico.FelixConfiguration{"default": {IPIPMTU: 7}}
			}, 1500, 1480, all},
		{"without the address of the tunnel", ipipPool("p", "10.1.0.0/16", calico.EncapAlways),
			func(s *calico.Snapshot) {
				n := s.Nodes["a"]
				n.IPv4IPIPTunnelAddr = netip.Addr{}
				s.Nodes["a"] = n
			}, 1500, 0, ""},
		{"a node without an address", ipipPool("p", "10.1.0.0/16", calico.EncapAlways),
			func(s *calico.Snapshot) {
				s.Nodes["c"] = calico.Node{Name: "c"}
			}, 1500, 1480, strings.TrimSuffix(all, " / tunnel to 198.51.100.7 by tunl0")},
	} {
		s := encapCluster(nodes, tc.pool)
		if tc.change != nil {
			tc.change(s)
		}
		e, _ := Encapsulation("a", []route.Encap{route.IPIP}, false, s)
		var got []string
		for _, o := range Tunnels("a", e, s, MTUs{IPv4: tc.uplink}, false, nil) {
			got = append(got, o.Key().String())
			if l, ok := o.(route.Link); ok && (l.MTU != tc.mtu || l.Source != ip("192.0.2.5")) {
				t.Errorf("%s: %+v", tc.name, l)
			}
		}
		if text := strings.Join(got, " / "); text != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, text, tc.want)
		}
	}
}

// On Linux an IPIP device leads to all nodes, and routes of VXLAN name tunnel addresses.
func TestTunnelsOfLinux(t *testing.T) {
	s := encapCluster([]string{"a 192.0.2.5/24", "b 198.51.100.7/24"},
		ipipPool("i", "10.1.0.0/16", calico.EncapAlways),
		vxlanPool("v", "10.2.0.0/16", calico.EncapAlways))
	for name, n := range s.Nodes {
		n.IPv4VXLANTunnelAddr = ip("10.2.0." + map[string]string{"a": "1", "b": "2"}[name])
		s.Nodes[name] = n
	}
	e, _ := Encapsulation("a", []route.Encap{route.IPIP, route.VXLAN}, false, s)
	var got []route.Endpoint
	for _, o := range Tunnels("a", e, s, MTUs{IPv4: 1500}, true, nil) {
		if end, ok := o.(route.Endpoint); ok {
			got = append(got, end)
		}
	}
	if len(got) != 1 || got[0].Interface != "vxlan.calico" ||
		got[0].VXLAN.Tunnel != ip("10.2.0.2") {
		t.Errorf("%+v", got)
	}
}

// Hosts that publish an address of their own for plain packets get plain ones, whatever the pool.
func TestTooLarge(t *testing.T) {
	s := encapCluster([]string{"a 192.0.2.5/24", "b 198.51.100.7/24"},
		ipipPool("i", "10.1.0.0/16", calico.EncapAlways),
		vxlanPool("v", "10.2.0.0/16", calico.EncapAlways),
		vxlanPool("six", "fd02::/48", calico.EncapAlways))
	n := s.Nodes["a"]
	n.IPv6, n.IPv6VXLANTunnelAddr = pfx("fd77::5/64"), ip("fd02::1")
	s.Nodes["a"] = n
	e, _ := Encapsulation("a", allTunnels, false, s)
	const ends = "; larger packets may be lost"
	for _, tc := range []struct {
		felix   map[string]calico.FelixConfiguration
		uplinks MTUs
		want    string
	}{
		{nil, MTUs{1500, 1500}, ""},
		{nil, MTUs{70, 70}, ""}, // too small for any of ours
		{map[string]calico.FelixConfiguration{"default": {IPIPMTU: 1480, VXLANMTU: 1450,
			VXLANMTUV6: 1430}}, MTUs{1500, 1500}, ""},
		{map[string]calico.FelixConfiguration{"default": {IPIPMTU: 1481}}, MTUs{}, ""},
		{map[string]calico.FelixConfiguration{"default": {IPIPMTU: 9000},
			"node.a": {VXLANMTU: 1451, VXLANMTUV6: 1431}}, MTUs{1500, 1500},
			"FelixConfiguration(default): ipipMTU 9000: the MTU of the interface with 192.0.2.5 " +
				"is 1500, of which IPIP takes 20" + ends +
				"\nFelixConfiguration(node.a): vxlanMTU 1451: the MTU of the interface with " +
				"192.0.2.5 is 1500, of which VXLAN takes 50" + ends +
				"\nFelixConfiguration(node.a): vxlanMTUV6 1431: the MTU of the interface with " +
				"fd77::5 is 1500, of which VXLAN takes 70" + ends},
	} {
		s.Felix = tc.felix
		var got []string
		for _, p := range TooLarge("a", e, s, tc.uplinks) {
			got = append(got, p.String())
			if !p.Harmless {
				t.Errorf("%s costs something", p)
			}
		}
		if all := strings.Join(got, "\n"); all != tc.want {
			t.Errorf("%+v:\n%s\nwant\n%s", tc.uplinks, all, tc.want)
		}
	}
}

func TestPublishedAddressesArePlain(t *testing.T) {
	s := encapCluster([]string{"a 192.0.2.5/24", "b 198.51.100.9/24",
		"c 198.51.100.7/24 fd77::7/64"}, ipipPool("p", "10.1.0.0/16", calico.EncapAlways))
	s.PeerIPs = map[calico.PeerIP]netip.Addr{{Host: "b"}: ip("198.51.100.99"),
		{Host: "c"}: ip("198.51.100.7"), {Host: "c", IPv6: true}: ip("fd77::7")}
	e, _ := Encapsulation("a", []route.Encap{route.IPIP}, false, s)
	for hop, want := range map[string]string{
		"198.51.100.99": "plain", "198.51.100.98": "refused",
		"198.51.100.9": "IPIP 192.0.2.5>198.51.100.9",
		"198.51.100.7": "IPIP 192.0.2.5>198.51.100.7",
	} {
		l := e.Leaves(e.PoolOf(pfx("10.1.2.0/26")), ip(hop))
		if got := leavesText(l); got != want {
			t.Errorf("%s: %s, want %s", hop, got, want)
		}
		if hop == "198.51.100.99" && l.Reason() != "IPPool(p) has IPIP, but b publishes "+
			"198.51.100.99 as its address, which is not that of its Node" {
			t.Error(l.Reason())
		}
	}
	if len(e.Published) != 1 {
		t.Errorf("published, and of no Node: %v", e.Published)
	}
}

// What tunnels were before saves work, and decides nothing.
func TestTunnelsByThoseBefore(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var last []route.Object
	for range 300 {
		me := calico.Node{Name: "a", IPv4: pfx("10.0.0.1/24"), IPv6: pfx("fd00::1/64"),
			IPv4IPIPTunnelAddr: ip("10.9.0.1"), IPv4VXLANTunnelAddr: ip("10.8.0.1"),
			IPv6VXLANTunnelAddr: ip("fd08::1")}
		e := &route.Encapsulation{Own4: me.IPv4, Own6: me.IPv6}
		for prefix, kind := range map[string]route.Encap{"10.1.0.0/16": route.IPIP,
			"10.2.0.0/16": route.VXLAN, "fd02::/64": route.VXLAN} {
			if r.IntN(4) > 0 {
				e.Pools = append(e.Pools, route.Pool{Prefix: pfx(prefix), Encap: kind})
			}
		}
		for i := range 6 {
			vtep := &route.VTEP{MAC: fmt.Sprintf("66:00:00:00:00:0%d", r.IntN(2))}
			for _, a := range []string{"10.0.0.%d", "fd00::%d"} {
				if r.IntN(3) > 0 {
					n := route.Node{Address: ip(fmt.Sprintf(a, i+2)), VXLAN: vtep}
					e.Nodes = e.Nodes.With(route.Nodes{n}, nil)
				}
			}
		}
		s := &calico.Snapshot{Nodes: map[string]calico.Node{"a": me}}
		want := Tunnels("a", e, s, MTUs{IPv4: 1500, IPv6: 1500}, false, nil)
		got := Tunnels("a", e, s, MTUs{IPv4: 1500, IPv6: 1500}, false, last)
		if !slices.Equal(got, want) {
			t.Fatalf("after %v\ngot %v\nwant %v", last, got, want)
		}
		last = got
	}
}
