package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Pools returns the pools in use, sorted by CIDR. Of pools with one CIDR only the first by name is
// used, as in Calico.
func Pools(s *calico.Snapshot) []calico.IPPool {
	byCIDR := make(map[netip.Prefix]bool, len(s.IPPools))
	pools := make([]calico.IPPool, 0, len(s.IPPools))
	for _, name := range slices.Sorted(maps.Keys(s.IPPools)) {
		if p := s.IPPools[name]; !byCIDR[p.CIDR] {
			byCIDR[p.CIDR] = true
			pools = append(pools, p)
		}
	}
	slices.SortFunc(pools, func(a, b calico.IPPool) int {
		return route.ComparePrefixes(a.CIDR, b.CIDR)
	})
	return pools
}
