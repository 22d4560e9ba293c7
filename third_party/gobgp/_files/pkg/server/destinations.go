// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Destinations counts the entries of the table, also those without a path, which the API does not
// show.
func (s *BgpServer) Destinations(family bgp.RouteFamily) (n int) {
	s.mgmtOperation(func() error {
		n = len(s.globalRib.Tables[family].GetDestinations())
		return nil
	}, false)
	return n
}
