package gobgp

import (
	"net/netip"

	api "github.com/osrg/gobgp/v3/api"
)

// setClusterID makes id the cluster ID of this node; zero is the router ID. What was sent with
// another one is for policies to send again.
func (s *Speaker) setClusterID(id netip.Addr) {
	if id == s.applied.clusterID {
		return
	}
	s.applied.clusterID, s.applied.otherCluster = id, true
	if !id.IsValid() {
		id = s.applied.speaker.RouterID
	}
	s.applied.server.SetClusterID(id.AsSlice())
}

// identify puts the cluster ID into a peer that is to be added.
func (s *Speaker) identify(p *api.Peer) {
	if p.RouteReflector != nil && s.applied.clusterID.IsValid() {
		p.RouteReflector.RouteReflectorClusterId = s.applied.clusterID.String()
	}
}
