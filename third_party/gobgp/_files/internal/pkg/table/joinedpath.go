// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// joined returns what path is: a change of last, where that is a change of before and nobody else's. So a policy leaves one change of what
// it was given, with what each attribute is in the end. GoBGP leaves one for each statement: all of them are searched for an attribute, and stay in memory as long
// as the path.
func (path *Path) joined(last, before *Path) *Path {
	if path == nil || path == last || last == before || path.parent != last {
		return path
	}
	for _, a := range path.pathAttrs {
		last.dels = slices.DeleteFunc(last.dels, func(d bgp.BGPAttrType) bool { return d == a.GetType() })
		last.setPathAttr(a)
	}
	for _, t := range path.dels { // which count before what was set
		last.pathAttrs = slices.DeleteFunc(last.pathAttrs, func(a bgp.PathAttributeInterface) bool { return a.GetType() == t })
		if !slices.Contains(last.dels, t) {
			last.dels = append(last.dels, t)
		}
	}
	return last
}
