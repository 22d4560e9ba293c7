package bgp

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/ipam"
)

// defaultRestartTime is our graceful-restart time where no resource says one: BIRD's default.
// maxRestartTime is what fits into the capability's 12 bits (RFC 4724 §3).
const (
	defaultRestartTime = 120 * time.Second
	maxRestartTime     = 4095 * time.Second
)

// Planner computes the peers of the nodes of one snapshot. What they have in common it computes
// once. One goroutine at a time may use it.
type Planner struct {
	s      *calico.Snapshot
	sorted []calico.Node         // see nodes
	byAddr map[netip.Addr]string // ipam.NodesByAddress
	// sharing are Nodes by addresses for which byAddr has another's name; see at.
	sharing  map[netip.Addr][]calico.Node
	localASN map[uint32]bool // see isLocalAS

	// used again for each node: a reflector of a large cluster has thousands of peers, which are
	// large
	asked []Peer
	order []int
}

// NewPlanner returns the Planner of a snapshot, which may not change.
func NewPlanner(s *calico.Snapshot) *Planner {
	return &Planner{s: s, byAddr: ipam.NodesByAddress(s)}
}

// nodes are all Nodes, by name. They are sorted when the first peering asks for them.
func (p *Planner) nodes() []calico.Node {
	if p.sorted == nil {
		p.sorted = make([]calico.Node, 0, len(p.s.Nodes))
		for _, name := range slices.Sorted(maps.Keys(p.s.Nodes)) {
			n := p.s.Nodes[name]
			n.Name = name
			p.sorted = append(p.sorted, n)
		}
	}
	return p.sorted
}

// at returns the Nodes with an address, by name. It looks for those that share one only when a
// second is asked for.
func (p *Planner) at(addr netip.Addr) iter.Seq[calico.Node] {
	return func(yield func(calico.Node) bool) {
		name, known := p.byAddr[addr]
		first := p.s.Nodes[name]
		if first.Name = name; !known || !yield(first) {
			return
		}
		if p.sharing == nil {
			p.sharing = make(map[netip.Addr][]calico.Node)
			for _, n := range p.nodes() {
				for _, f := range families {
					if a, ok := addressOf(n, f); ok && p.byAddr[a] != n.Name {
						p.sharing[a] = append(p.sharing[a], n)
					}
				}
			}
		}
		for _, n := range p.sharing[addr] {
			if !yield(n) {
				return
			}
		}
	}
}

// isLocalAS reports whether an AS is the localASNumber of any BGPPeer.
func (p *Planner) isLocalAS(as uint32) bool {
	if p.localASN == nil {
		p.localASN = make(map[uint32]bool)
		for _, peer := range p.s.BGPPeers {
			p.localASN[peer.LocalASNumber] = true
		}
	}
	return p.localASN[as]
}

// peering is one computation of the peers of a node.
type peering struct {
	*Planner
	node     calico.Node
	problems []calico.Problem
}

func (p *Planner) of(self string) *peering {
	one := &peering{Planner: p, node: p.s.Nodes[self]}
	one.node.Name = self
	return one
}

// Peers returns the BGP sessions of node self, by ID, one each, as confd computes them for BIRD,
// except that ties are broken by name, a bad BGPPeer costs only itself, and of two Calico nodes
// exactly one dials. BGPPeers that contradict themselves or each other are problems.
func Peers(self string, s *calico.Snapshot) ([]Peer, []calico.Problem) {
	return NewPlanner(s).Peers(self)
}

// Peers is Peers of the Planner's snapshot.
func (p *Planner) Peers(self string) ([]Peer, []calico.Problem) {
	return p.AppendPeers(nil, self)
}

// AppendPeers appends what Peers returns.
func (p *Planner) AppendPeers(to []Peer, self string) ([]Peer, []calico.Problem) {
	one := p.of(self)
	given := one.readBGPPeers()
	one.asked = one.asked[:0]
	// Of sessions of one scope the first wins, in this order.
	one.forward(given, ScopeGlobal)
	one.workloads(given)
	one.mesh()
	one.forward(given, ScopeNode)
	one.reverse(given)
	return one.settle(to), sortProblems(one.problems)
}

// ask asks for a session.
func (p *peering) ask(session Peer) { p.asked = append(p.asked, session) }

func (p *peering) problem(key, format string, args ...any) {
	p.problems = append(p.problems, calico.Problem{
		Resource: key, Err: fmt.Sprintf(format, args...),
	})
}

// mesh asks for the node-to-node mesh. Route reflectors stay out of it on both sides; whom they
// peer with stands in BGPPeers.
func (p *peering) mesh() {
	conf := p.s.BGPConfigurations["default"]
	if conf.NodeToNodeMeshEnabled != nil && !*conf.NodeToNodeMeshEnabled ||
		p.node.RouteReflectorClusterID != "" {
		return
	}
	restart := p.restartTime("BGPConfiguration(default)", "nodeMeshMaxRestartTime",
		conf.NodeMeshMaxRestartTime)
	for _, f := range families {
		own, ok := addressOf(p.node, f)
		if !ok {
			continue
		}
		p.asked = slices.Grow(p.asked, len(p.nodes()))
		for _, n := range p.nodes() {
			addr, ok := addressOf(n, f)
			if !ok || n.RouteReflectorClusterID != "" || n.Name == p.node.Name {
				continue
			}
			if addr == own { // confd too knows itself by address, not by name
				p.problem(nodeKey(n.Name), "has the address %s of this node, %s: no session",
					addr, p.node.Name)
				continue
			}
			session := p.toNode(own, addr, n)
			session.Scope = ScopeMesh
			session.Source = nodeKey(n.Name)
			session.Password = conf.NodeMeshPassword
			session.RestartTime = restart
			p.ask(session)
		}
	}
}

// session returns what every session from own to addr has.
func (p *peering) session(own, addr netip.Addr, remoteAS uint32) Peer {
	node, known := p.byAddr[addr]
	return Peer{
		Address:      addr,
		CalicoNode:   node,
		RemoteAS:     remoteAS,
		LocalAS:      nodeAS(p.node, p.s),
		LocalAddress: own,
		Passive:      known && !dials(own, addr),
		Reflector:    known && p.s.Nodes[node].RouteReflectorClusterID != "",
		RestartTime:  defaultRestartTime,
	}
}

// toNode returns the session from own to the address addr of another Calico node.
func (p *peering) toNode(own, addr netip.Addr, n calico.Node) Peer {
	session := p.session(own, addr, nodeAS(n, p.s))
	session.CalicoNode = n.Name
	session.Port = listenPort(n.Name, p.s)
	return session
}

// dials reports whether own dials addr, when both are Calico nodes: the greater string does. It is
// a comparison of text, "10.0.0.9" being greater than "10.0.0.10", because confd compares text: two
// ends that both wait never meet, and a second inbound connection flaps BIRD. In BGPPeer sessions
// BIRD may dial as well; then the collision is resolved as usual (RFC 4271 §6.8).
func dials(own, addr netip.Addr) bool {
	var a, b [64]byte // without a zone it has at most 39
	return bytes.Compare(own.AppendTo(a[:0]), addr.AppendTo(b[:0])) > 0
}

// settle appends one session for each port of an address, as BIRD has one protocol for each that
// can start; one session for an address where the peer dials, since then ports say nothing.
func (p *peering) settle(peers []Peer) []Peer {
	all, order := p.asked, p.order[:0] // by address; rivals stay in their order
	for i := range all {
		all[i].Multihop = all[i].External() && all[i].TTLSecurity == 0
		order = append(order, i)
	}
	p.order = order
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(all[a].Address.Compare(all[b].Address), cmp.Compare(a, b))
	})
	peers = slices.Grow(peers, len(all))
	for len(order) > 0 {
		rivals := order[:1]
		for len(rivals) < len(order) && all[order[len(rivals)]].Address == all[order[0]].Address {
			rivals = order[:len(rivals)+1]
		}
		order = order[len(rivals):]
		if len(rivals) == 1 {
			peers = append(peers, all[rivals[0]])
			continue
		}
		slices.SortStableFunc(rivals, func(a, b int) int { return p.compareRivals(all[a], all[b]) })
		var taken []Peer
		for _, r := range rivals {
			w := all[r]
			i := slices.IndexFunc(taken, func(t Peer) bool {
				return t.Port == w.Port || t.Passive || w.Passive
			})
			if i < 0 {
				taken = append(taken, w)
			} else if reason := conflict(taken[i], w); reason != "" {
				p.problem(w.Source, "the %s session to %s is ignored: %s asks for it too %s",
					w.Scope, nameOf(w, taken), taken[i].Source, reason)
			}
		}
		for i := range taken {
			taken[i].Further = i > 0
		}
		p.shareGateway(taken, rivals)
		slices.SortFunc(taken, func(a, b Peer) int { return a.ID().Compare(b.ID()) })
		peers = append(peers, taken...)
	}
	return peers
}

// shareGateway has all sessions to an address go by the gateway of the first rival that has one:
// there is one host route to the address. As in confd (bird_aggr.cfg) the mesh takes nobody's place
// in that, and of several rivals for one port the first alone counts.
func (p *peering) shareGateway(sessions []Peer, rivals []int) {
	if !slices.ContainsFunc(rivals, func(r int) bool { return p.asked[r].ReachableBy.IsValid() }) {
		return
	}
	by := &Peer{}
	var ports []uint16
	for _, r := range rivals {
		w := &p.asked[r]
		if w.Scope == ScopeMesh || slices.Contains(ports, w.Port) {
			continue
		}
		ports = append(ports, w.Port)
		switch {
		case !by.ReachableBy.IsValid():
			by = w
		case w.ReachableBy.IsValid() && w.ReachableBy != by.ReachableBy:
			p.problem(w.Source, "reachableBy %s is ignored: %s is reached by %s of %s, whatever "+
				"the port", w.ReachableBy, w.Address, by.ReachableBy, by.Source)
		}
	}
	for i := range sessions {
		sessions[i].ReachableBy = by.ReachableBy
	}
}

// nameOf names a session that is not wanted beside those that are to its address.
func nameOf(w Peer, taken []Peer) PeerID {
	w.Further = w.Port != taken[0].Port && !w.Passive && !taken[0].Passive
	return w.ID()
}

// compareRivals finds the first of several sessions to one address. It puts last the one to a port
// on which the Calico node of that address does not listen, then the one of the scope that goes
// behind, then the one that is not to BGP's own port.
func (p *peering) compareRivals(a, b Peer) int {
	last := func(is func(Peer) bool) int {
		switch {
		case is(a) == is(b):
			return 0
		case is(a):
			return 1
		}
		return -1
	}
	byScope := cmp.Compare(precedence(a.Scope), precedence(b.Scope))
	return cmp.Or(last(p.Misses), byScope, last(offBGPPort))
}

// Misses reports whether a session would dial a Calico node where that does not listen.
func (p *Planner) Misses(w Peer) bool {
	return !w.Passive && w.CalicoNode != "" && w.Port != listenPort(w.CalicoNode, p.s)
}

func offBGPPort(w Peer) bool { return w.Port != defaultPort }

// precedence is what remains up in Calico ≥ 3.32, where BIRD's protocols are sorted by name.
func precedence(s Scope) int {
	return slices.Index([]Scope{ScopeGlobal, ScopeLocalWorkload, ScopeMesh, ScopeNode}, s)
}

// conflict says why the first of two sessions to one address and port wins, or "" when nothing is
// lost by that: two BGPPeers that want the same, such as one for each direction of a peering.
func conflict(first, later Peer) string {
	switch {
	case first.Scope == ScopeMesh && later.Scope == ScopeMesh:
		return "having the same address, and comes first"
	// BIRD would keep a second, idle protocol for it
	case first.Scope == ScopeMesh || later.Scope == ScopeMesh:
		return fmt.Sprintf("and %s goes before %s", first.Scope, later.Scope)
	}
	same := later
	same.Scope, same.Source = first.Scope, first.Source
	if first.Passive {
		same.Port = first.Port // it is not dialled
	}
	switch {
	case first.Equal(same):
		return ""
	case first.Scope != later.Scope:
		return fmt.Sprintf("in another way, and %s goes before %s", first.Scope, later.Scope)
	}
	return "in another way, and comes first"
}

// sortProblems sorts and drops repetitions: both families may find the same.
func sortProblems(all []calico.Problem) []calico.Problem {
	slices.SortFunc(all, compareProblems)
	return slices.Compact(all)
}
