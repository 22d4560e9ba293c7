// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// dropNonTransitive takes away the extended communities that do not leave the AS (RFC 4360 §6,
// RFC 5701 §2). Attributes keep their Partial bit (RFC 4271 §5).
func (path *Path) dropNonTransitive() {
	for _, kind := range []bgp.BGPAttrType{
		bgp.BGP_ATTR_TYPE_EXTENDED_COMMUNITIES, bgp.BGP_ATTR_TYPE_IP6_EXTENDED_COMMUNITIES,
	} {
		switch a := path.getPathAttr(kind).(type) {
		case *bgp.PathAttributeExtendedCommunities:
			left := *a
			left.Value = transitive(a.Value)
			path.reduce(&left, len(left.Value), len(a.Value))
		case *bgp.PathAttributeIP6ExtendedCommunities:
			left := *a
			left.Value = transitive(a.Value)
			path.reduce(&left, len(left.Value), len(a.Value))
		}
	}
}

// transitive returns those that leave the AS.
func transitive(all []bgp.ExtendedCommunityInterface) []bgp.ExtendedCommunityInterface {
	const not = 0x40 // RFC 4360 §2
	return slices.DeleteFunc(slices.Clone(all), func(c bgp.ExtendedCommunityInterface) bool {
		kind, _ := c.GetTypes()
		return kind&not != 0
	})
}

// reduce replaces an attribute by what is left of it.
func (path *Path) reduce(left bgp.PathAttributeInterface, n, of int) {
	switch n {
	case of:
	case 0:
		path.delPathAttr(left.GetType())
	default:
		path.setPathAttr(left)
	}
}
