package agent

import (
	"net/netip"
	"slices"
	"sync"
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
// session. It asks for the peers of the speaker, which may take a second, once at most, and only
// where that plan has a route and not its peer.
func (fp *formerPeers) step(now time.Time, inForce Plan,
	speaks func() []bgp.PeerState) (routes []route.Route) {
	next := map[route.Key]time.Time{}
	spoken := sync.OnceValue(speaks)
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
			case hasPeer(inForce.BGP.Peers, a), hasSession(spoken(), a):
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

// hasPeer searches peers that are sorted by ID, as a plan has them.
func hasPeer(peers []bgp.Peer, a netip.Addr) bool {
	_, has := slices.BinarySearchFunc(peers, a,
		func(p bgp.Peer, a netip.Addr) int { return p.Address.Compare(a) })
	return has
}

// hasSession searches states that are sorted by ID, as the speaker has them.
func hasSession(states []bgp.PeerState, a netip.Addr) bool {
	_, has := slices.BinarySearchFunc(states, a,
		func(s bgp.PeerState, a netip.Addr) int { return s.ID.Address.Compare(a) })
	return has
}
