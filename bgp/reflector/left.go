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
	after         *calico.Snapshot
	before, later *bgp.Planner // of the snapshot that is there, and of after
	nodes         map[netip.Addr]string
	sessions      map[string][]session // of reflectors, by node, after
	passes        map[passing]map[string]bool
	peers         []bgp.Peer // of one node, used again
}

// session is one with a Calico node, as far as it matters for what a reflector passes on: a hundred
// reflectors have half a million of them in a cluster of 5000 nodes.
type session struct {
	node                  string
	served, reflector, v4 bool
}

// passing is a reflector, to whom it passes routes on, and in which family.
type passing struct {
	reflector    string
	toClient, v4 bool
}

func (q Question) suppose(s *calico.Snapshot) *supposed {
	before, after := bgp.NewPlanner(s), s
	later := before
	if q.Cover == "" {
		after = q.after(s)
		later = bgp.NewPlanner(after)
	}
	return &supposed{
		q: q, after: after, before: before, later: later, nodes: nodesByAddress(s),
		sessions: map[string][]session{}, passes: map[passing]map[string]bool{},
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
	before, _ := s.before.Peers(self)
	l := Left{map[bgp.PeerID]peerLeft{}, s.nodes}
	after := map[bgp.PeerID]bgp.Peer{}
	peers, _ := s.later.Peers(self)
	for _, p := range peers {
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

// passedOn are the nodes whose routes a reflector passes on to node self, whose peer it is: those
// of its own clients to everybody, to clients those of all its peers, and what reflectors with
// another cluster ID pass on to it. The last it will have, if its own answer says so.
func (s *supposed) passedOn(self string, reflector bgp.Peer) map[string]bool {
	key := passing{reflector.CalicoNode, false, reflector.Address.Is4()}
	sessions := s.sessionsOf(key.reflector)
	for _, p := range sessions {
		key.toClient = key.toClient || p.v4 == key.v4 && p.node == self && p.served
	}
	all, ok := s.passes[key]
	if ok {
		return all
	}
	all = make(map[string]bool, len(sessions))
	for _, p := range sessions {
		if p.v4 != key.v4 {
			continue
		}
		if p.served || key.toClient {
			all[p.node] = true
		}
		other := s.after.Nodes[p.node].RouteReflectorClusterID
		own := s.after.Nodes[key.reflector].RouteReflectorClusterID
		if !key.toClient || !p.reflector || other == own {
			continue
		}
		for _, client := range s.sessionsOf(p.node) {
			if client.v4 == key.v4 && client.served {
				all[client.node] = true
			}
		}
	}
	s.passes[key] = all
	return all
}

// sessionsOf are those of a node with Calico nodes once q has come true.
func (s *supposed) sessionsOf(node string) []session {
	all, ok := s.sessions[node]
	if ok {
		return all
	}
	s.peers, _ = s.later.AppendPeers(s.peers[:0], node)
	all = make([]session, 0, len(s.peers))
	for _, p := range s.peers {
		if p.CalicoNode != "" {
			all = append(all, session{p.CalicoNode, p.Served(), p.Reflector, p.Address.Is4()})
		}
	}
	s.sessions[node] = all
	return all
}
