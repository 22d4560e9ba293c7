package gobgp

import (
	"net/netip"

	api "github.com/osrg/gobgp/v3/api"
)

// setClusterID makes id the cluster ID of this node. What was sent with another one is for policies
// to send again.
func (s *Speaker) setClusterID(id netip.Addr) {
	if id != s.applied.clusterID {
		s.applied.clusterID = id
		s.applied.server.SetClusterID(id.AsSlice())
	}
}

// identify puts the cluster ID into a peer that is to be added.
func (s *Speaker) identify(p *api.Peer) {
	if p.RouteReflector != nil {
		p.RouteReflector.RouteReflectorClusterId = s.applied.clusterID.String()
	}
}
