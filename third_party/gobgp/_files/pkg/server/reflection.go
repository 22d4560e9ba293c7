// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
)

// SetClusterID changes the cluster ID (RFC 4456 §7) of all neighbours, in sessions that are up as
// well: what is sent from now on has it, and what has it already is not reflected.
func (s *BgpServer) SetClusterID(id net.IP) {
	s.mgmtOperation(func() error {
		for _, peer := range s.neighborMap {
			peer.fsm.lock.Lock()
			peer.fsm.pConf.RouteReflector.State.RouteReflectorClusterId = oc.RrClusterIdType(
				id.String())
			peer.fsm.peerInfo.RouteReflectorClusterID = id.To4()
			peer.fsm.lock.Unlock()
		}
		return nil
	}, false)
}
