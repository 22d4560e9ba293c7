package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// BenchmarkPlan is what each change of Calico's data costs at least, beside nodes with VXLAN.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1000, 4000} {
		for _, mesh := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d nodes, mesh %t", n, mesh), func(b *testing.B) {
				s := vxlanNodes(n)
				s.BGPConfigurations = map[string]calico.BGPConfiguration{
					"default": {NodeToNodeMeshEnabled: &mesh}}
				o := bgp.Options{Tunnels: []route.Encap{route.IPIP, route.VXLAN}}
				f := Facts{InterfacesRead: true, NodeMTUs: ipam.MTUs{IPv4: 1500}}
				b.ReportAllocs()
				for b.Loop() {
					p := PlanFor("node-0", s, o, f)
					f.Overlay, f.Tunnels = p.Overlay.Routes, p.Tunnels
				}
			})
		}
	}
}

// vxlanNodes has n nodes, each with a block of a pool with VXLAN.
func vxlanNodes(n int) *calico.Snapshot {
	s := &calico.Snapshot{
		Nodes: map[string]calico.Node{},
		IPPools: map[string]calico.IPPool{"pods": {Name: "pods", CIDR: pfx("30.0.0.0/8"),
			VXLANMode: calico.EncapAlways}},
		Blocks: map[netip.Prefix]calico.Block{},
		Affinities: map[netip.Prefix]calico.AffinityState{
			pfx("30.0.0.64/26"): calico.AffinityConfirmed},
	}
	for i := range n {
		name, hi, lo := fmt.Sprintf("node-%d", i), byte(i>>8), byte(i)
		s.Nodes[name] = calico.Node{Name: name,
			IPv4:                netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 3, hi, lo}), 16),
			IPv4VXLANTunnelAddr: netip.AddrFrom4([4]byte{30, hi, lo, 64}),
			VXLANTunnelMACAddr:  fmt.Sprintf("66:00:00:00:%02x:%02x", hi, lo)}
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{30, hi, lo, 64}), 26)
		s.Blocks[block] = calico.Block{CIDR: block, Owner: calico.Owner{Host: name}}
	}
	return s
}
