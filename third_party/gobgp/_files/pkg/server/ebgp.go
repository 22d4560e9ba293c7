// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// fromOutside returns the attributes of an eBGP peer's UPDATE without those that only iBGP peers may send: LOCAL_PREF (RFC 4271 §5.1.5), ORIGINATOR_ID
// and CLUSTER_LIST (RFC 7606 §7.9, §7.10).
func fromOutside(attributes []bgp.PathAttributeInterface) []bgp.PathAttributeInterface {
	return slices.DeleteFunc(attributes, func(a bgp.PathAttributeInterface) bool {
		switch a.GetType() {
		case bgp.BGP_ATTR_TYPE_LOCAL_PREF, bgp.BGP_ATTR_TYPE_ORIGINATOR_ID, bgp.BGP_ATTR_TYPE_CLUSTER_LIST:
			return true
		}
		return false
	})
}
