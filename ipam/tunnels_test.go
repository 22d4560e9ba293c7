package ipam

import (
	"net/netip"
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
		for _, o := range Tunnels("a", e, s, MTUs{IPv4: tc.uplink}) {
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

// Hosts that publish an address of their own for plain packets get plain ones, whatever the pool.
func TestPublishedAddressesArePlain(t *testing.T) {
	s := encapCluster([]string{"a 192.0.2.5/24", "b 198.51.100.9/24", "c 198.51.100.7/24"},
		ipipPool("p", "10.1.0.0/16", calico.EncapAlways))
	s.PeerIPs = map[calico.PeerIP]netip.Addr{{Host: "b"}: ip("198.51.100.99"),
		{Host: "c"}: ip("198.51.100.7")}
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
		if hop == "198.51.100.99" && l.Reason != "IPPool(p) has IPIP, but b publishes "+
			"198.51.100.99 as its address, which is not that of its Node" {
			t.Error(l.Reason)
		}
	}
}
