// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"bytes"
	"slices"
)

// KeepEncoding makes u, which was decoded from body, pass on attributes as they were received.
// GoBGP encodes some of them differently: an unknown IPv6 extended community gets 8 bytes instead
// of 20, and neighbours end their sessions for it.
func KeepEncoding(u *BGPUpdate, body []byte) {
	_, rest, _ := prefixedBy16(body)
	for attributes, _, _ := prefixedBy16(rest); len(attributes) > 0; {
		a, _ := firstAttribute(attributes)
		attributes = attributes[len(a.bytes):]
		i := slices.IndexFunc(u.PathAttributes, a.sameType)
		if i < 0 {
			continue
		}
		switch p := u.PathAttributes[i].(type) {
		case *PathAttributeExtendedCommunities:
			keepEncoding(p.Value, a.value, 8)
		case *PathAttributeIP6ExtendedCommunities:
			keepEncoding(p.Value, a.value, 20)
		case *PathAttributeTunnelEncap, *PathAttributePrefixSID:
			again, err := p.Serialize()
			sent, ok := firstAttribute(again)
			if err != nil || !ok || !bytes.Equal(sent.value, a.value) {
				unknown := &PathAttributeUnknown{}
				if unknown.DecodeFromBytes(a.bytes) == nil {
					u.PathAttributes[i] = unknown
				}
			}
		}
	}
}

func (a attribute) sameType(p PathAttributeInterface) bool { return p.GetType() == a.kind }

// keepEncoding replaces communities that GoBGP would encode differently by their bytes in value,
// size bytes each.
func keepEncoding(communities []ExtendedCommunityInterface, value []byte, size int) {
	for i, c := range communities {
		came := value[i*size : (i+1)*size]
		if again, err := c.Serialize(); err != nil || !bytes.Equal(again, came) {
			communities[i] = &UnknownExtended{
				Type: ExtendedCommunityAttrType(came[0]), Value: came[1:],
			}
		}
	}
}
