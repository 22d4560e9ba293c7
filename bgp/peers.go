package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
)

// defaultRestartTime is our graceful-restart time where no resource says one: BIRD's default. maxRestartTime is what fits into the
// capability's 12 bits (RFC 4724 §3).
const (
	defaultRestartTime = 120 * time.Second
	maxRestartTime     = 4095 * time.Second
)

// wish is a session that a resource asks for. Several resources may ask for one address; settle picks one.
type wish struct {
	Peer
	// refused says why the session must not come up: a field we cannot honour and whose absence could leak or accept routes. It
	// still keeps its place: a looser wish for the same address must not slip in.
	refused string
}

// peering is one computation of the peers of node self.
type peering struct {
	node     calico.Node
	s        *calico.Snapshot
	nodes    []calico.Node         // all of them, by name
	byAddr   map[netip.Addr]string // node names by BGP address; the first by name of those that share one
	problems []calico.Problem
}

// Peers returns the BGP sessions of node self, by address, one each, as confd computes them for BIRD, with these differences: ties are
// broken by name and not by chance, one bad BGPPeer costs only itself, and of two ends that are Calico nodes exactly one
// dials. A node that does not exist or has no BGP address has no peers.
//
// BGPPeers that cannot be followed yet or contradict each other are named in the problems.
func Peers(self string, s *calico.Snapshot) ([]Peer, []calico.Problem) {
	p := newPeering(self, s)
	// First in this list wins: global, mesh, node is what remains up in Calico ≥ 3.32, where BIRD's protocols are sorted by name.
	var all []wish
	given := p.readBGPPeers()
	all = append(all, p.forward(given, ScopeGlobal)...)
	all = append(all, p.mesh()...)
	all = append(all, p.forward(given, ScopeNode)...)
	all = append(all, p.reverse(given)...)
	peers := p.settle(all)
	return peers, sortProblems(p.problems)
}

func newPeering(self string, s *calico.Snapshot) *peering {
	p := &peering{node: s.Nodes[self], s: s, byAddr: map[netip.Addr]string{}}
	p.node.Name = self
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		n.Name = name
		p.nodes = append(p.nodes, n)
		for _, f := range families {
			a, ok := addressOf(n, f)
			if _, taken := p.byAddr[a]; ok && !taken {
				p.byAddr[a] = name
			}
		}
	}
	return p
}

func (p *peering) problem(key, format string, args ...any) {
	p.problems = append(p.problems, calico.Problem{Key: key, Err: fmt.Sprintf(format, args...)})
}

// mesh returns the node-to-node mesh. Route reflectors stay out of it on both sides; whom they peer with stands in BGPPeers.
func (p *peering) mesh() []wish {
	conf := p.s.BGPConfigurations["default"]
	if conf.NodeToNodeMeshEnabled != nil && !*conf.NodeToNodeMeshEnabled || p.node.RouteReflectorClusterID != "" {
		return nil
	}
	restart := p.restartTime("BGPConfiguration(default)", "nodeMeshMaxRestartTime", conf.NodeMeshMaxRestartTime)
	var all []wish
	for _, f := range families {
		own, ok := addressOf(p.node, f)
		if !ok {
			continue
		}
		for _, n := range p.nodes {
			addr, ok := addressOf(n, f)
			if !ok || n.RouteReflectorClusterID != "" || n.Name == p.node.Name {
				continue
			}
			if addr == own { // confd too knows itself by address, not by name
				p.problem(nodeKey(n.Name), "has the address %s of this node, %s: no session", addr, p.node.Name)
				continue
			}
			session := p.session(own, addr, nodeAS(n, p.s))
			session.Port = listenPort(n.Name, p.s)
			session.Scope = ScopeMesh
			session.Source = nodeKey(n.Name)
			session.Password = conf.NodeMeshPassword
			session.RestartTime = restart
			all = append(all, wish{Peer: session})
		}
	}
	return all
}

// session returns what every session from own to addr has.
func (p *peering) session(own, addr netip.Addr, remoteAS uint32) Peer {
	node := p.byAddr[addr]
	return Peer{
		Address:      addr,
		CalicoNode:   node,
		RemoteAS:     remoteAS,
		LocalAS:      nodeAS(p.node, p.s),
		LocalAddress: own,
		Passive:      node != "" && !dials(own, addr),
		RestartTime:  defaultRestartTime,
	}
}

// dials reports whether own dials addr, when both are Calico nodes: the greater string does. It is a comparison of text, "10.0.0.9" being
// greater than "10.0.0.10", because confd compares text: two ends that both wait never meet, and a second inbound connection flaps
// BIRD. In BGPPeer sessions BIRD may dial as well; then the collision is resolved as usual (RFC 4271 §6.8).
func dials(own, addr netip.Addr) bool { return own.String() > addr.String() }

// settle picks one wish per address, the first.
func (p *peering) settle(all []wish) []Peer {
	winners := map[netip.Addr]wish{}
	for _, w := range all {
		w.Multihop = w.External() && w.TTLSecurity == 0
		first, taken := winners[w.Address]
		if !taken {
			winners[w.Address] = w
			continue
		}
		if reason := conflict(first, w); reason != "" {
			p.problem(w.Source, "the %s session to %s is ignored: %s asks for it too %s", w.Scope, w.Address, first.Source, reason)
		}
	}
	var peers []Peer
	for _, addr := range slices.SortedFunc(maps.Keys(winners), netip.Addr.Compare) {
		w := winners[addr]
		if w.refused != "" {
			p.problem(w.Source, "the session to %s is not brought up: %s", addr, w.refused)
			continue
		}
		peers = append(peers, w.Peer)
	}
	return peers
}

// conflict says why the first of two wishes for one address wins, or "" when nothing is lost by that: two BGPPeers that want the
// same, such as one for each direction of a peering.
func conflict(first, later wish) string {
	switch {
	case first.Scope == ScopeMesh && later.Scope == ScopeMesh:
		return "having the same address, and comes first"
	case first.Scope == ScopeMesh || later.Scope == ScopeMesh: // BIRD would keep a second, idle protocol for it
		return fmt.Sprintf("and %s goes before %s", first.Scope, later.Scope)
	}
	if sameSession(first, later) {
		return ""
	}
	if first.Scope != later.Scope {
		return fmt.Sprintf("in another way, and %s goes before %s", first.Scope, later.Scope)
	}
	return "in another way, and comes first"
}

func sameSession(a, b wish) bool {
	b.Scope, b.Source = a.Scope, a.Source
	return a.refused == b.refused && a.Peer.Equal(b.Peer)
}

// restartTime returns a graceful-restart time as it can be sent: whole seconds, the default where none is given.
func (p *peering) restartTime(key, field string, d time.Duration) time.Duration {
	d = d.Round(time.Second)
	switch {
	case d < 0:
		p.problem(key, "%s is negative: %s is used", field, defaultRestartTime)
		return defaultRestartTime
	case d == 0:
		return defaultRestartTime
	case d > maxRestartTime:
		p.problem(key, "%s is %s, which the protocol cannot carry: %s is used", field, d, maxRestartTime)
		return maxRestartTime
	}
	return d
}

func nodeKey(name string) string { return "Node(" + name + ")" }

// sortProblems sorts and drops repetitions: both families may find the same.
func sortProblems(all []calico.Problem) []calico.Problem {
	slices.SortFunc(all, compareProblems)
	return slices.Compact(all)
}
