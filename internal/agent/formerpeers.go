package agent

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// formerPeers decides how long the host route to a peer (BGPPeer reachableBy) outlives the peer.
// Without the route, the CEASE that ends the session would take another way, or none.
type formerPeers struct {
	// since has each of these host routes, and when the speaker was first seen without the former
	// peer; zero: it has not been.
	since map[route.Key]time.Time
}

// ceaseTime is how long TCP may take to deliver the CEASE of a peer that the speaker has removed.
const ceaseTime = 5 * time.Second

// step returns the host routes of the plan in force of which the peers have, or may have, a
// session. It asks for the peers of the speaker only where that plan has a route and not its peer.
func (fp *formerPeers) step(now time.Time, inForce Plan,
	speaks func() []bgp.PeerState) (routes []route.Route) {
	next := map[route.Key]time.Time{}
	for _, p := range inForce.BGP.Peers {
		if p.ReachableBy.IsValid() {
			next[route.Key{Prefix: route.HostPrefix(p.Address)}] = time.Time{}
		}
	}
	for _, r := range inForce.Own {
		if _, planned := next[r.Key]; !planned {
			since, before := fp.since[r.Key]
			if !before {
				continue // it leads to no peer
			}
			a := r.Prefix.Addr()
			switch {
			case hasPeer(inForce.BGP.Peers, a), slices.ContainsFunc(speaks(),
				func(s bgp.PeerState) bool { return s.ID.Address == a }):
				since = time.Time{}
			case since.IsZero():
				since = now
			}
			if !since.IsZero() && now.Sub(since) >= ceaseTime {
				continue
			}
			next[r.Key] = since
		}
		routes = append(routes, r)
	}
	fp.since = next
	return routes
}

func hasPeer(peers []bgp.Peer, a netip.Addr) bool {
	return slices.ContainsFunc(peers, func(p bgp.Peer) bool { return p.Address == a })
}
