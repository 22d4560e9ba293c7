package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Host is an address on this node.
type Host struct {
	Prefix netip.Prefix // /32 or /128
	// Source says where the address comes from: "WorkloadEndpoint(shop/edge--7-k8s-cart--0-eth0)"
	// or "ipipTunnelAddress of Node(edge-7)".
	Source string
	// Interface is the interface behind which the address is, "" if unknown.
	Interface string
	// Block is the own block that covers Prefix, invalid if there is none. A block of one address
	// equals Prefix and is announced only while its host exists.
	Block netip.Prefix
}

// Borrowed reports an address outside every own block: it needs a route of its own.
func (h Host) Borrowed() bool { return !h.Block.IsValid() }

// Hosts returns the addresses on node self, sorted, each once: those of its workload endpoints, and
// tunnel addresses from its Node or from IPAM. Allocations of workloads do not count: they exist
// before the workload runs and may outlive it. Nor does the target of a live migration before its
// end.
func Hosts(self string, own []netip.Prefix, s *calico.Snapshot) (hosts []Host, skipped []Skipped) {
	found := map[netip.Prefix]Host{}
	add := func(p netip.Prefix, source, iface string) {
		if _, ok := found[p]; !ok {
			found[p] = Host{Prefix: p, Source: source, Interface: iface, Block: blockOf(own, p)}
		}
	}

	arriving := Arriving(self, s)
	for _, name := range slices.Sorted(maps.Keys(s.WorkloadEndpoints)) {
		w := s.WorkloadEndpoints[name]
		if w.Node != self {
			continue
		}
		if migration, ok := arriving[name]; ok {
			for _, p := range w.IPNetworks {
				skipped = append(skipped,
					Skipped{p, fmt.Sprintf("WorkloadEndpoint(%s) is on its way here: %s", name,
						migration)})
			}
			continue
		}
		for _, p := range w.IPNetworks {
			if !p.IsSingleIP() {
				skipped = append(skipped,
					Skipped{p, fmt.Sprintf("ipNetworks of WorkloadEndpoint(%s) is not a "+
						"single address", name)})
				continue
			}
			add(route.HostPrefix(p.Addr()), fmt.Sprintf("WorkloadEndpoint(%s)", name),
				w.InterfaceName)
		}
		for _, a := range w.FloatingIPs {
			skipped = append(skipped,
				Skipped{route.HostPrefix(a),
					fmt.Sprintf("floating IP of WorkloadEndpoint(%s): these are not announced",
						name)})
		}
	}
	for _, t := range s.Nodes[self].Tunnels() {
		p := route.HostPrefix(t.Address)
		if a, ok := allocationOf(p.Addr(), s); ok && a.Node != self {
			skipped = append(skipped,
				Skipped{p, fmt.Sprintf("%s of Node(%s) is allocated to node %s", t.Type, self,
					a.Node)})
			continue
		}
		add(p, fmt.Sprintf("%s of Node(%s)", t.Type, self), tunnelDevices[t.Type])
	}
	isTunnel := func(a calico.Allocation) bool {
		return a.Node == self && tunnelDevices[a.Type] != ""
	}
	var with []netip.Prefix
	for cidr, b := range s.Blocks {
		if slices.ContainsFunc(b.Allocations, isTunnel) {
			with = append(with, cidr)
		}
	}
	slices.SortFunc(with, route.ComparePrefixes)
	for _, cidr := range with {
		for _, a := range s.Blocks[cidr].Allocations {
			if isTunnel(a) {
				add(route.HostPrefix(a.Address), fmt.Sprintf("%s of Node(%s)", a.Type, self),
					tunnelDevices[a.Type])
			}
		}
	}

	for _, h := range found {
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b Host) int { return route.ComparePrefixes(a.Prefix, b.Prefix) })
	sortSkipped(skipped)
	return hosts, skipped
}

// tunnelDevices are Felix' devices of tunnel addresses, by allocation type (libcalico-go
// lib/ipam/ipam_types.go). Other types are addresses of Services, which are on no node.
var tunnelDevices = map[string]string{
	"ipipTunnelAddress":        "tunl0",
	"vxlanTunnelAddress":       "vxlan.calico",
	"vxlanV6TunnelAddress":     "vxlan-v6.calico",
	"wireguardTunnelAddress":   "wireguard.cali",
	"wireguardV6TunnelAddress": "wg-v6.cali",
}

// allocationOf returns the allocation of addr that names a node, from the longest block that has
// one.
func allocationOf(addr netip.Addr, s *calico.Snapshot) (found calico.Allocation, ok bool) {
	bits := -1
	for cidr, b := range s.Blocks {
		if !cidr.Contains(addr) || cidr.Bits() < bits {
			continue
		}
		for _, a := range b.Allocations {
			if a.Address == addr && a.Node != "" {
				found, ok, bits = a, true, cidr.Bits()
			}
		}
	}
	return found, ok
}

// blockOf returns the longest block that covers p, or the zero Prefix.
func blockOf(blocks []netip.Prefix, p netip.Prefix) (block netip.Prefix) {
	for _, b := range blocks {
		if b.Contains(p.Addr()) && b.Bits() > block.Bits() {
			block = b
		}
	}
	return block
}
