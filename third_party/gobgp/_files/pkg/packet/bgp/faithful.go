// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"bytes"
	"slices"
)

// Faithful has u, which was decoded from body, pass on attributes as they came. GoBGP has other
// bytes for some that it decoded: an extended community of IPv6 of a type that it does not know has
// 8 bytes then, and not 20, for which neighbours end their sessions.
func Faithful(u *BGPUpdate, body []byte) {
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
			faithful(p.Value, a.value, 8)
		case *PathAttributeIP6ExtendedCommunities:
			faithful(p.Value, a.value, 20)
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

// faithful has those of communities that would go out in another form do so as they came: each in
// size bytes of value.
func faithful(communities []ExtendedCommunityInterface, value []byte, size int) {
	for i, c := range communities {
		came := value[i*size : (i+1)*size]
		if again, err := c.Serialize(); err != nil || !bytes.Equal(again, came) {
			communities[i] = &UnknownExtended{
				Type: ExtendedCommunityAttrType(came[0]), Value: came[1:],
			}
		}
	}
}
