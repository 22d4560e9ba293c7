// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// dropNonTransitive takes away the extended communities that do not leave the AS (RFC 4360 §6).
func (path *Path) dropNonTransitive() {
	const nonTransitive = 0x40 // RFC 4360 §2
	all := path.GetExtCommunities()
	kept := slices.DeleteFunc(all, func(c bgp.ExtendedCommunityInterface) bool {
		kind, _ := c.GetTypes()
		return kind&nonTransitive != 0
	})
	switch {
	case len(kept) == len(all):
	case len(kept) == 0:
		path.delPathAttr(bgp.BGP_ATTR_TYPE_EXTENDED_COMMUNITIES)
	default:
		path.SetExtCommunities(kept, true)
	}
}
