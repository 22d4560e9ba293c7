package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

const (
	// ipipHeader is an IPv4 header without options, in bytes.
	ipipHeader = 20
	// minMTU is what IPv4 asks of every link, in bytes (RFC 791 §3.2); below, a value is no MTU.
	minMTU = 68
)

// Tunnels are what e needs in the data plane: the tunnel interface with its address, and an
// endpoint for each other node, also for those to which packets leave plain, since their packets
// may come tunnelled. They are sorted. uplink is the MTU of the interface that tunnelled packets
// leave by, 0: not known.
func Tunnels(self string, e *route.Encapsulation, s *calico.Snapshot,
	uplink uint16) []route.Object {
	if !slices.ContainsFunc(e.Pools, func(p route.Pool) bool {
		return p.Encap == route.IPIP && p.Waits == ""
	}) {
		return nil
	}
	name := route.IPIP.Interface()
	all := []route.Object{
		route.Link{Name: name, Kind: route.IPIPTunnel, Source: e.Own4.Addr(),
			MTU: ipipMTU(s.FelixOn(self).IPIPMTU, uplink)},
		route.Address{Interface: name, Address: netip.PrefixFrom(
			s.Nodes[self].IPv4IPIPTunnelAddr, 32)},
		route.Up{Interface: name},
	}
	for _, a := range slices.SortedFunc(maps.Keys(e.Nodes), netip.Addr.Compare) {
		if a.Is4() {
			all = append(all, route.Endpoint{Interface: name, Outer: a})
		}
	}
	return all
}

// ipipMTU is what the operator set, else what fits into the uplink.
func ipipMTU(set int, uplink uint16) uint16 {
	switch {
	case set >= minMTU && set <= 1<<16-1:
		return uint16(set)
	case uplink >= minMTU+ipipHeader:
		return uplink - ipipHeader
	}
	return 0
}
