// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"cmp"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
)

// localAS is our AS towards a peer. What is internal and what is a loop goes by it, not by that of
// the node.
func localAS(g *oc.Global, p *oc.Neighbor) uint32 { return cmp.Or(p.Config.LocalAs, g.Config.As) }
