// This file is vpp-route-agent's, not GoBGP's.

package table

import "github.com/osrg/gobgp/v3/pkg/packet/bgp"

// SharedPathAttrs returns what GetPathAttrs returns, without a copy if nothing was changed since
// the path was received. It must not be edited: all paths of a message share it.
func (path *Path) SharedPathAttrs() []bgp.PathAttributeInterface {
	p := path
	for p.parent != nil && len(p.pathAttrs) == 0 && len(p.dels) == 0 {
		p = p.parent
	}
	if p.parent != nil || len(p.dels) > 0 {
		return p.GetPathAttrs()
	}
	return p.pathAttrs
}
