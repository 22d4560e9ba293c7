// This file is vpp-route-agent's, not GoBGP's.

package table

import "github.com/osrg/gobgp/v3/pkg/packet/bgp"

// Destinations counts the entries of a family, also those without a path.
func (adj *AdjRib) Destinations(family bgp.RouteFamily) int {
	if t, ok := adj.table[family]; ok {
		return len(t.destinations)
	}
	return 0
}

// Table returns the entries of a family; nil: there are none.
func (adj *AdjRib) Table(family bgp.RouteFamily) *Table { return adj.table[family] }
