// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"bytes"
	"slices"
)

// Faithful has u, which was decoded from body, pass on attributes as they came. GoBGP has other bytes for
// some that it decoded: a neighbour would end its session for an extended community of IPv6 that it does
// not know, which has 8 bytes then and not 20.
func Faithful(u *BGPUpdate, body []byte) {
	_, rest, _ := prefixedBy16(body)
	for attributes, _, _ := prefixedBy16(rest); len(attributes) > 0; {
		a, _ := firstAttribute(attributes)
		attributes = attributes[len(a.bytes):]
		i := slices.IndexFunc(u.PathAttributes, func(p PathAttributeInterface) bool { return p.GetType() == a.kind })
		if i < 0 {
			continue
		}
		switch p := u.PathAttributes[i].(type) {
		case *PathAttributeExtendedCommunities:
			p.Value = faithful(p.Value, a.value, 8)
		case *PathAttributeIP6ExtendedCommunities:
			p.Value = faithful(p.Value, a.value, 20)
		case *PathAttributeTunnelEncap, *PathAttributePrefixSID:
			again, err := p.Serialize()
			if sent, ok := firstAttribute(again); err != nil || !ok || !bytes.Equal(sent.value, a.value) {
				unknown := &PathAttributeUnknown{}
				if unknown.DecodeFromBytes(a.bytes) == nil {
					u.PathAttributes[i] = unknown
				}
			}
		}
	}
}

// faithful returns communities, each of which came in so many bytes of value, with those that would go out
// in another form as what has none.
func faithful(communities []ExtendedCommunityInterface, value []byte, size int) []ExtendedCommunityInterface {
	for i, c := range communities {
		came := value[i*size : (i+1)*size]
		if again, err := c.Serialize(); err != nil || !bytes.Equal(again, came) {
			communities[i] = &UnknownExtended{Type: ExtendedCommunityAttrType(came[0]), Value: came[1:]}
		}
	}
	return communities
}
