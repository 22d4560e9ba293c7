// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Destinations counts the entries of the table and of all Adj-RIB-Ins, also those without a path,
// which the API does not show.
func (s *BgpServer) Destinations(family bgp.RouteFamily) (loc, adjIn int) {
	s.mgmtOperation(func() error {
		loc = len(s.globalRib.Tables[family].GetDestinations())
		for _, peer := range s.neighborMap {
			adjIn += peer.adjRibIn.Destinations(family)
		}
		return nil
	}, false)
	return loc, adjIn
}
