// This file is vpp-route-agent's, not GoBGP's.

package table

import "github.com/osrg/gobgp/v3/pkg/packet/bgp"

// withoutAnnounced returns the withdrawals of an UPDATE without those of routes that it announces:
// RFC 4271 §4.3 has them treated as if they were not there. GoBGP would carry them out last.
func withoutAnnounced(
	withdrawn []bgp.AddrPrefixInterface, announced []*Path,
) []bgp.AddrPrefixInterface {
	if len(withdrawn) == 0 || len(announced) == 0 {
		return withdrawn
	}
	type route struct {
		family bgp.RouteFamily
		prefix string
		id     uint32 // RFC 7911 §3: with ADD-PATH the identifier is part of what names a route
	}
	of := func(n bgp.AddrPrefixInterface) route {
		return route{bgp.AfiSafiToRouteFamily(n.AFI(), n.SAFI()), n.String(), n.PathIdentifier()}
	}
	there := make(map[route]bool, len(announced))
	for _, p := range announced {
		there[of(p.GetNlri())] = true
	}
	out := make([]bgp.AddrPrefixInterface, 0, len(withdrawn))
	for _, n := range withdrawn {
		if !there[of(n)] {
			out = append(out, n)
		}
	}
	return out
}
