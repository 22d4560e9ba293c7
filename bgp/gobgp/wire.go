package gobgp

import (
	"net"
	"net/netip"

	api "github.com/osrg/gobgp/v3/api"
)

// wired is what the GoBGP that make builds can do besides (internal/gobgpguard/server.go.txt). Another one does without: a reflector's cluster ID is
// then its router ID.
type wired interface {
	// SetClusterID changes the cluster ID of all peers (RFC 4456 §7), in sessions that are up as well.
	SetClusterID(net.IP)
	// SendSeveralPaths says whether peers with ADD-PATH are sent all paths of a prefix that export policy lets out, or the best alone.
	SendSeveralPaths(bool)
}

// sendsPaths reports whether this GoBGP can send with ADD-PATH: the stock one would leave at the peer what policy lets out no more.
func (s *Speaker) sendsPaths() bool {
	_, ok := any(s.applied.server).(wired)
	return ok
}

// sendSeveral has peers with ADD-PATH hear all paths while this node reflects, as clients of BIRD do.
func (s *Speaker) sendSeveral(yes bool) {
	if w, ok := any(s.applied.server).(wired); ok {
		w.SendSeveralPaths(yes)
	}
}

// setClusterID makes id the cluster ID of this node; zero is the router ID. What was sent with another one is for policies to send again.
func (s *Speaker) setClusterID(id netip.Addr) {
	if w, ok := any(s.applied.server).(wired); ok && id != s.applied.clusterID {
		s.applied.clusterID = id
		if !id.IsValid() {
			id = s.applied.speaker.RouterID
		}
		w.SetClusterID(id.AsSlice())
	}
}

// identify puts the cluster ID into a peer that is to be added.
func (s *Speaker) identify(p *api.Peer) {
	if p.RouteReflector != nil && s.applied.clusterID.IsValid() {
		p.RouteReflector.RouteReflectorClusterId = s.applied.clusterID.String()
	}
}
