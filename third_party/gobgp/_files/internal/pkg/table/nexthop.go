// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// withoutNextHop returns the attributes for routes of MP_REACH_NLRI, which has a next hop of its
// own (RFC 4760 §3).
func withoutNextHop(attrs []bgp.PathAttributeInterface) []bgp.PathAttributeInterface {
	return slices.DeleteFunc(slices.Clone(attrs), func(a bgp.PathAttributeInterface) bool {
		return a.GetType() == bgp.BGP_ATTR_TYPE_NEXT_HOP
	})
}
