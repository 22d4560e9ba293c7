package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
)

// forward asks for the sessions that the BGPPeers of one scope give this node: to their peerIP, or
// to the nodes of their peerSelector.
func (p *peering) forward(all []given, scope Scope) {
	for _, g := range all {
		switch {
		case g.scope() != scope || g.LocalWorkloadSelector != "" || !g.isFor(p.node):
		case g.PeerIP != "":
			p.toAddress(g)
		default:
			for _, f := range families {
				p.toNodes(g, f, scope, func(n calico.Node) bool {
					return g.peers.Matches(n.Labels)
				})
			}
		}
	}
}

// toAddress asks for the session to the peerIP of g.
func (p *peering) toAddress(g given) {
	if g.ASNumber == 0 { // BIRD refuses it, too; the other end knows our AS
		p.problem(g.key, "no session to %s: asNumber is missing, which peerIP needs", g.addr)
		return
	}
	own, ok := addressOf(p.node, familyOf(g.addr))
	if !ok {
		if g.Node != "" { // a peer of several nodes may well be meant for the others
			p.noAddress(g)
		}
		return
	}
	if g.addr == own {
		if g.Node != "" { // one of several nodes is meant for the others
			p.problem(g.key, "no session to peerIP %s: it is this node's own address", own)
		}
		return
	}
	if g.addr.IsLoopback() && !own.IsLoopback() {
		p.problem(g.key, "peerIP %s is a loopback address: the session can only be one with a "+
			"program on this host", g.addr)
	}
	session := p.session(own, g.addr, g.ASNumber)
	session.Port = cmp.Or(g.port, p.portOf(g.addr, g.ASNumber))
	if g.scope() == ScopeNode && !p.speaks(g.addr, session.Port, g.ASNumber) {
		session.Passive = false // another speaker of that host, if any; BIRD dials it, too
	}
	session.LocalAS = cmp.Or(g.LocalASNumber, session.LocalAS)
	session.AllowLocalAS = p.allowed(g)
	// confd does not ask which node an address belongs to: another reflector that is addressed so
	// is a client, also one of this cluster.
	session.Client = p.isClient(session, "")
	p.ask(p.apply(g, g.scope(), session))
}

// noAddress says that the node has no address of the family of peerIP.
func (p *peering) noAddress(g given) {
	p.problem(g.key, "no session to %s: Node(%s) has no %s address", g.addr, p.node.Name,
		familyOf(g.addr))
}

// Elsewhere says which BGPPeers of several nodes can have a session with others alone, since this
// one has no address of their family. In a cluster of mixed nodes that is no mistake.
func Elsewhere(self string, s *calico.Snapshot) []calico.Problem {
	p := NewPlanner(s).of(self)
	given := p.readBGPPeers()
	p.problems = nil
	for _, g := range given {
		if g.PeerIP == "" || g.Node != "" || !g.isFor(p.node) {
			continue
		}
		if _, ok := addressOf(p.node, familyOf(g.addr)); !ok {
			p.noAddress(g)
		}
	}
	return p.problems
}

// toNodes asks for the sessions of g to the other nodes that are meant, in one family.
func (p *peering) toNodes(g given, f family, scope Scope, meant func(calico.Node) bool) {
	own, ok := addressOf(p.node, f)
	if !ok {
		return
	}
	for _, n := range p.nodes() {
		addr, ok := addressOf(n, f)
		if !ok || addr == own || !meant(n) {
			continue
		}
		session := p.toNode(own, addr, n)
		session.Client = p.isClient(session, n.RouteReflectorClusterID)
		if g.addr == own && g.port != 0 && g.port != listenPort(p.node.Name, p.s) {
			session.Passive = false // nobody listens where the other end dials
		}
		p.ask(p.apply(g, scope, session))
	}
}

// reverse asks for the other ends of peerings: where a BGPPeer makes other nodes peer with this
// one, this one peers with them.
func (p *peering) reverse(all []given) {
	for _, g := range all {
		if g.ReversePeering == "Manual" || g.LocalWorkloadSelector != "" {
			continue
		}
		for _, f := range families {
			if p.isPeerOf(g, f) {
				p.toNodes(g, f, ScopeNode, g.isFor)
			}
		}
	}
}

// isPeerOf reports whether this node is a peer that g means in family f: it has the labels, or the
// peerIP, AS and port. As in confd (client.go, nodesWithIPPortAndAS), an AS that is not given is
// the cluster's, and any port will do where no listenPort is set.
func (p *peering) isPeerOf(g given, f family) bool {
	if g.PeerSelector != "" {
		return g.peers.Matches(p.node.Labels)
	}
	own, ok := addressOf(p.node, f)
	set := listenPortSet(p.node.Name, p.s)
	return ok && own == g.addr && cmp.Or(g.ASNumber, globalAS(p.s)) == nodeAS(p.node, p.s) &&
		(g.port == 0 || set == 0 || g.port == set)
}

// portOf returns the port to dial at addr where none is given: a Calico node of that address and AS
// listens where its BGPConfiguration says, all others on 179.
func (p *peering) portOf(addr netip.Addr, as uint32) uint16 {
	for n := range p.at(addr) {
		if nodeAS(n, p.s) == as {
			return listenPort(n.Name, p.s)
		}
	}
	return defaultPort
}

// speaks reports whether a Calico node has the address, listens on the port, and may be of the AS:
// its own one, or what any BGPPeer has it say.
func (p *peering) speaks(addr netip.Addr, port uint16, as uint32) bool {
	for n := range p.at(addr) {
		if listenPort(n.Name, p.s) == port && (nodeAS(n, p.s) == as || p.isLocalAS(as)) {
			return true
		}
	}
	return false
}

// isClient reports whether this node reflects to a peer (RFC 4456): iBGP, and not a reflector of
// the same cluster, as far as its cluster is known.
func (p *peering) isClient(session Peer, cluster string) bool {
	own := p.node.RouteReflectorClusterID
	return own != "" && !session.External() && cluster != own
}

// workloads asks for the sessions to workloads of this node: each waits for the workload, which
// dials localWorkloadPeeringIPV4 or IPV6 of the BGPConfiguration. A stock node knows them from
// files that Felix writes; here they are in the datastore.
func (p *peering) workloads(all []given) {
	for _, g := range all {
		if g.LocalWorkloadSelector == "" || !g.isFor(p.node) {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(p.s.WorkloadEndpoints)) {
			w := p.s.WorkloadEndpoints[id]
			if w.Node == p.node.Name && g.workloads.Matches(w.Labels) {
				p.toWorkload(g, w)
			}
		}
	}
}

// toWorkload asks for the sessions to the first address of each family. Of the BGPPeer only AS
// numbers and filters count, as in confd (client.go, localBGPPeerDataAsBGPPeers).
func (p *peering) toWorkload(g given, w calico.WorkloadEndpoint) {
	for _, f := range families {
		i := slices.IndexFunc(w.IPNetworks, func(n netip.Prefix) bool {
			return n.IsSingleIP() && familyOf(n.Addr()) == f
		})
		own, ok := addressOf(p.node, f)
		if i < 0 || !ok {
			continue
		}
		session := p.session(own, w.IPNetworks[i].Addr(), g.ASNumber)
		session.Scope, session.Source, session.Filters = ScopeLocalWorkload, g.key, g.Filters
		session.LocalAS = cmp.Or(g.LocalASNumber, session.LocalAS)
		session.Port, session.Passive, session.LocalAddress = defaultPort, true, netip.Addr{}
		session.Client = p.isClient(session, "")
		p.ask(session)
	}
}

// apply gives a session what its BGPPeer says in every form and for both directions.
func (p *peering) apply(g given, scope Scope, session Peer) Peer {
	session.Scope = scope
	session.Source = g.key
	session.Password = g.Password
	session.TTLSecurity = g.TTLSecurity
	session.RestartTime = p.restartTime(g.key, "maxRestartTime", g.MaxRestartTime)
	session.KeepaliveTime = p.keepaliveTime(g)
	session.Filters = g.Filters
	session.NextHop = p.nextHopMode(g, session)
	session.ReachableBy = p.gateway(g, session.Address)
	switch g.SourceAddress {
	case "", "UseNodeIP":
	case "None":
		session.LocalAddress = netip.Addr{}
	default:
		p.problem(g.key, "sourceAddress %q is neither UseNodeIP nor None: UseNodeIP is used",
			g.SourceAddress)
	}
	if r := g.ReversePeering; r != "" && r != "Auto" && r != "Manual" {
		p.problem(g.key, "reversePeering %q is neither Auto nor Manual: Auto is used", r)
	}
	return session
}

// nextHopMode: the older keepOriginalNextHop counts where the newer field is absent, and towards
// eBGP peers only.
func (p *peering) nextHopMode(g given, session Peer) NextHopMode {
	switch g.NextHopMode {
	case "":
		if g.KeepOriginalNextHop && session.External() {
			return NextHopKeep
		}
	case "Auto":
	case "Self":
		return NextHopSelf
	case "Keep":
		return NextHopKeep
	default:
		p.problem(g.key, "nextHopMode %q is none of Auto, Self, Keep: Auto is used",
			g.NextHopMode)
	}
	return NextHopAuto
}

// gateway reads reachableBy for one of the peers of g: those of the other family are reached
// without.
func (p *peering) gateway(g given, peer netip.Addr) netip.Addr {
	if g.ReachableBy == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(g.ReachableBy)
	a = a.Unmap()
	switch {
	case err != nil || !isRouter(a) || a.IsLoopback():
		p.problem(g.key,
			"reachableBy %q is not the address of a gateway: the session runs without the route",
			g.ReachableBy)
		return netip.Addr{}
	case g.PeerIP != "" && familyOf(a) != familyOf(peer):
		p.problem(g.key,
			"reachableBy %s is of another family than peerIP %s: the session runs "+
				"without the route", a, peer)
		return netip.Addr{}
	case familyOf(a) != familyOf(peer) || a == peer:
		return netip.Addr{}
	}
	return a
}

// maxAllowedLocalAS is what GoBGP can count; BIRD and Calico allow as much as fits into it.
const maxAllowedLocalAS = 255

func (p *peering) allowed(g given) int {
	n := g.NumAllowedLocalASNumbers
	if n < 0 || n > maxAllowedLocalAS {
		p.problem(g.key, "numAllowedLocalASNumbers %d is not in 0…%d: %d is used",
			n, maxAllowedLocalAS, min(max(n, 0), maxAllowedLocalAS))
	}
	return min(max(n, 0), maxAllowedLocalAS)
}

// restartTime returns a graceful-restart time as it can be sent: whole seconds, the default where
// none is given. With 0 peers drop our routes as soon as the session is gone.
func (p *peering) restartTime(key, field string, given *time.Duration) time.Duration {
	if given == nil {
		return defaultRestartTime
	}
	d := given.Round(time.Second)
	switch {
	case d < 0:
		p.problem(key, "%s is negative: %s is used", field, defaultRestartTime)
		return defaultRestartTime
	case d > maxRestartTime:
		p.problem(key, "%s is %s, which the protocol cannot carry: %s is used",
			field, d, maxRestartTime)
		return maxRestartTime
	}
	return d
}

// maxKeepaliveTime is a third of the longest hold time (RFC 4271 §4.2, §4.4).
const maxKeepaliveTime = 21845 * time.Second

func (p *peering) keepaliveTime(g given) time.Duration {
	d := g.KeepaliveTime.Round(time.Second)
	if d < 0 || d > maxKeepaliveTime {
		p.problem(g.key, "keepaliveTime %s is not in 0…%s: a third of the hold time is used",
			d, maxKeepaliveTime)
		return 0
	}
	return d
}

func nodeKey(name string) string { return fmt.Sprintf("Node(%s)", name) }
