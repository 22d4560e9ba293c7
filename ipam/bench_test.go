package ipam

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// BenchmarkCluster computes what each change of Calico's data costs: the routes to other nodes, how
// their packets leave, and the tunnels for that. What one node takes is not to grow with their
// number.
func BenchmarkCluster(b *testing.B) {
	for _, n := range []int{1000, 4000} {
		s := benchCluster(n)
		e, _ := Encapsulation("node", []route.Encap{route.IPIP}, false, s)
		routes := Remotes("node", []AddressSource{NodeObject}, nil, s, nil).Routes
		tunnels := Tunnels("node", e, s, MTUs{IPv4: 1500}, false, nil)
		own := benchCluster(n) // blocks of one address
		own.Affinities = map[netip.Prefix]calico.AffinityState{}
		for i := range 200 {
			own.Affinities[netip.PrefixFrom(netip.AddrFrom4([4]byte{30, 255, 0, byte(i)}), 32)] = ""
		}
		for name, f := range map[string]func(){
			"200 own blocks": func() { OwnBlocks("node", own) },
			"routes": func() {
				Remotes("node", []AddressSource{NodeObject}, e, s, routes)
			},
			"encapsulation": func() { Encapsulation("node", []route.Encap{route.IPIP}, false, s) },
			"tunnels":       func() { Tunnels("node", e, s, MTUs{IPv4: 1500}, false, tunnels) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
	}
}

// benchCluster has this node and n others, each with a block of a pool with IPIP.
func benchCluster(n int) *calico.Snapshot {
	s := &calico.Snapshot{
		Nodes: map[string]calico.Node{"node": {Name: "node", IPv4: pfx("10.1.0.1/16"),
			IPv4IPIPTunnelAddr: ip("10.2.0.1")}},
		IPPools: map[string]calico.IPPool{"pods": {Name: "pods", CIDR: pfx("30.0.0.0/8"),
			IPIPMode: calico.EncapAlways}},
		Blocks: map[netip.Prefix]calico.Block{},
	}
	for i := range n {
		name := fmt.Sprintf("peer-%d", i)
		hi, lo := byte(i>>8), byte(i)
		s.Nodes[name] = calico.Node{Name: name,
			IPv4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 3, hi, lo}), 16)}
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{30, hi, lo, 64}), 26)
		s.Blocks[block] = calico.Block{CIDR: block, Owner: calico.Owner{Host: name}}
	}
	return s
}
