package reflector

import (
	"net/netip"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Left is what a node keeps of its routes when that has come true which a question asks about.
type Left struct {
	peers map[bgp.PeerID]peerLeft
	// nodes are Calico nodes by their BGP addresses and by the router IDs that they may have.
	nodes map[netip.Addr]string
}

// peerLeft is what is left of a session with a Calico node.
type peerLeft struct {
	ended bool
	// passes has the nodes whose routes the peer passes on. That is nobody's where it is no
	// reflector: one that has just stopped being one may not have withdrawn them yet.
	passes map[string]bool
}

// Keeps reports whether a path of a node's table stays.
type Keeps func(peer bgp.PeerID, originator, nextHop netip.Addr) bool

// Keeps reports whether a path stays. Originator is that of a path that was reflected (RFC 4456
// §8), zero: it was not. A reflected route stays as long as its peer would still pass it on. The
// originator tells whose it is, or the next hop; what is nobody's, stays with the reflector.
func (l Left) Keeps(peer bgp.PeerID, originator, nextHop netip.Addr) bool {
	p, ok := l.peers[peer]
	switch {
	case !ok:
		return true
	case p.ended || originator.IsValid() && len(p.passes) == 0:
		return false
	case !originator.IsValid():
		return true
	}
	for _, a := range []netip.Addr{originator, nextHop} {
		if owner, ok := l.nodes[a]; ok {
			return p.passes[owner]
		}
	}
	return true
}

// Left says what node self keeps when q has come true in s.
func (q Question) Left(self string, s *calico.Snapshot) Left { return q.suppose(s).left(self) }

// supposed is a question about a snapshot, and what was computed for its answers.
type supposed struct {
	q             Question
	before, after *calico.Snapshot
	nodes         map[netip.Addr]string
	peers         map[string][]bgp.Peer // by node, after
	passes        map[passing]map[string]bool
}

// passing is a reflector, to whom it passes routes on, and in which family.
type passing struct {
	reflector    string
	toClient, v4 bool
}

func (q Question) suppose(s *calico.Snapshot) *supposed {
	after := s
	if q.Cover == "" {
		after = q.after(s)
	}
	return &supposed{
		q: q, before: s, after: after, nodes: nodesByAddress(s),
		peers: map[string][]bgp.Peer{}, passes: map[passing]map[string]bool{},
	}
}

func nodesByAddress(s *calico.Snapshot) map[netip.Addr]string {
	all := make(map[netip.Addr]string, 3*len(s.Nodes))
	for name := range s.Nodes {
		if id, err := bgp.ChooseRouterID("hash", name, netip.Addr{}); err == nil {
			all[id] = name
		}
	}
	for name, n := range s.Nodes { // an address says more than a hash
		for _, p := range []netip.Prefix{n.IPv4, n.IPv6} {
			if p.IsValid() {
				all[p.Addr()] = name
			}
		}
	}
	return all
}

func (s *supposed) left(self string) Left {
	before, _ := bgp.Peers(self, s.before)
	l := Left{map[bgp.PeerID]peerLeft{}, s.nodes}
	after := map[bgp.PeerID]bgp.Peer{}
	for _, p := range s.peersOf(self) {
		after[p.ID()] = p
	}
	for _, p := range before {
		then, stays := after[p.ID()]
		switch {
		case p.CalicoNode == "" && s.q.Cover != "":
		case s.q.Cover != "" && s.q.Cover == p.CalicoNode:
			l.peers[p.ID()] = peerLeft{passes: s.passedOn(self, p)}
		case s.q.Cover != "":
			l.peers[p.ID()] = peerLeft{ended: s.q.Cover != self}
		case !stays || Resets(p, then) || s.q.Resets && p.Scope != then.Scope:
			l.peers[p.ID()] = peerLeft{ended: true}
		case p.CalicoNode != "" && then.Reflector:
			l.peers[p.ID()] = peerLeft{passes: s.passedOn(self, then)}
		case p.CalicoNode != "":
			l.peers[p.ID()] = peerLeft{}
		}
	}
	return l
}

// peersOf are those of a node once q has come true.
func (s *supposed) peersOf(node string) []bgp.Peer {
	peers, ok := s.peers[node]
	if !ok {
		peers, _ = bgp.Peers(node, s.after)
		s.peers[node] = peers
	}
	return peers
}

// passedOn are the nodes whose routes a reflector passes on to node self, whose peer it is: those
// of its own clients to everybody, to clients those of all its peers, and what reflectors with
// another cluster ID pass on to it. The last it will have, if its own answer says so.
func (s *supposed) passedOn(self string, reflector bgp.Peer) map[string]bool {
	key := passing{reflector.CalicoNode, false, reflector.Address.Is4()}
	peers := s.sessions(key)
	for _, p := range peers {
		key.toClient = key.toClient || p.CalicoNode == self && p.Served()
	}
	all, ok := s.passes[key]
	if ok {
		return all
	}
	all = map[string]bool{}
	for _, p := range peers {
		if p.Served() || key.toClient {
			all[p.CalicoNode] = true
		}
		other := s.after.Nodes[p.CalicoNode].RouteReflectorClusterID
		own := s.after.Nodes[key.reflector].RouteReflectorClusterID
		if !key.toClient || !p.Reflector || other == own {
			continue
		}
		for _, client := range s.sessions(passing{p.CalicoNode, false, key.v4}) {
			if client.Served() {
				all[client.CalicoNode] = true
			}
		}
	}
	s.passes[key] = all
	return all
}

// sessions are those of a reflector with Calico nodes in one family.
func (s *supposed) sessions(of passing) (all []bgp.Peer) {
	for _, p := range s.peersOf(of.reflector) {
		if p.CalicoNode != "" && p.Address.Is4() == of.v4 {
			all = append(all, p)
		}
	}
	return all
}
