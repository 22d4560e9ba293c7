package gobgp

import (
	"slices"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// tap has cfg.Tap called for each session that comes up.
func (s *Speaker) tap() {
	s.applied.server.TapSessions(func(t server.TappedSession) server.Tap {
		return s.cfg.Tap(bgp.Session{
			Peer: t.PeerAddress, Local: t.LocalAddress, PeerAS: t.PeerAS, LocalAS: t.LocalAS,
			FourOctetAS: t.FourOctetAS,
			IPv4:        sessionFamily(t, packet.RF_IPv4_UC),
			IPv6:        sessionFamily(t, packet.RF_IPv6_UC),
		})
	})
}

func sessionFamily(t server.TappedSession, family packet.RouteFamily) bgp.SessionFamily {
	return bgp.SessionFamily{On: slices.Contains(t.Families, family),
		PathIDs: slices.Contains(t.PathIDs, family)}
}
