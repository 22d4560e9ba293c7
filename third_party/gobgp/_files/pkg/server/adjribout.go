// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// adjOut is the Adj-RIB-Out (RFC 4271 §3.2) of all peers, which GoBGP computes anew from today's
// policy. The server goroutine owns it. Peers that are sent the same are one group, with one table
// and one encoding of each message. The table notes whom a route came from: that peer does not get
// it.
type adjOut struct {
	policy   Policy
	groups   map[groupKey]*outGroup
	changed  []*table.Update // of prefixes, in order, that no group has seen yet
	batching bool            // no group is updated for now
	// index of the change that a group is being updated for; behind the last: it packs
	current int
}

func newAdjOut() *adjOut { return &adjOut{groups: map[groupKey]*outGroup{}} }

// groupKey is all that the routes which a peer is sent depend on.
type groupKey struct {
	Group
	family             bgp.RouteFamily
	addPath, twoByteAS bool
	external           bool
	as, localAS        uint32
	localAddress       netip.Addr
	clusterID          string
}

// outGroup are the peers that are sent the same in one family.
type outGroup struct {
	key     groupKey
	members []*peer
	rib     map[routeName]sentRoute

	dump *updates // what a new member is sent; nil since rib has changed
}

// routeName names a route in a session. It has no pointers, since there may be millions.
type routeName struct {
	addr [16]byte
	id   uint32 // the path identifier with ADD-PATH (RFC 7911 §3), else 0
	bits uint8
	six  bool
}

// sentRoute is what a group's members have of a route.
type sentRoute struct {
	digest uint64          // of the attributes
	source *table.PeerInfo // who sent it to us
}

// nameOf returns the name of a route; ok is false for families that no neighbour of ours has.
func nameOf(nlri bgp.AddrPrefixInterface, id uint32) (name routeName, ok bool) {
	name.id = id
	switch n := nlri.(type) {
	case *bgp.IPv6AddrPrefix:
		name.bits, name.six = n.Length, true
		copy(name.addr[:], n.Prefix.To16())
	case *bgp.IPAddrPrefix:
		name.bits = n.Length
		copy(name.addr[:], n.Prefix.To4())
	default:
		return name, false
	}
	return name, true
}

func (n routeName) prefix() netip.Prefix {
	if n.six {
		return netip.PrefixFrom(netip.AddrFrom16(n.addr), int(n.bits))
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(n.addr[:4])), int(n.bits))
}

// note queues changes of prefixes for updateGroups.
func (s *BgpServer) note(dsts []*table.Update) {
	s.adjOut.changed = append(s.adjOut.changed, dsts...)
}

// updateGroups updates the groups for the prefixes that have changed since its last call.
func (s *BgpServer) updateGroups() {
	if s.adjOut == nil || s.adjOut.batching || len(s.adjOut.changed) == 0 {
		return
	}
	for _, g := range s.adjOut.groups {
		s.updateGroup(g)
	}
	s.adjOut.changed = nil
}

func (s *BgpServer) updateGroup(g *outGroup) {
	b := newBuilder(s, g)
	for i, u := range s.adjOut.changed {
		s.adjOut.current = i
		b.addPrefix(u.KnownPathList, u.OldKnownPathList)
	}
	s.adjOut.current = len(s.adjOut.changed)
	b.deliver()
}

// join makes a peer whose session is up, and that gets routes, a member of its groups. The peer is
// sent their routes and then, if it supports graceful restart, End-of-RIB.
func (s *BgpServer) join(peer *peer, families []bgp.RouteFamily) {
	if !needToAdvertise(peer) {
		return
	}
	if peer.out == nil {
		peer.out = s.newOutPeer(peer)
	}
	negotiated := peer.negotiatedRFList()
	for _, f := range families {
		if !slices.Contains(negotiated, f) ||
			slices.ContainsFunc(peer.out.groups, func(g *outGroup) bool {
				return g.key.family == f
			}) {
			continue
		}
		key := s.groupKey(peer, f)
		g := s.adjOut.groups[key]
		if g == nil {
			g = &outGroup{key: key, rib: map[routeName]sentRoute{}}
			s.adjOut.groups[key] = g
		}
		g.members = append(g.members, peer)
		peer.out.groups = append(peer.out.groups, g)
		peer.out.send(s.contents(g))
		if peer.isGracefulRestartEnabled() {
			peer.out.send(endOfRIB(f))
		}
	}
}

// refreshPause is the shortest time between two dumps that a peer asks for.
const refreshPause = time.Second

// refresh sends a peer all of its routes again (RFC 2918 §4). Requests within refreshPause share
// one answer.
func (s *BgpServer) refresh(peer *peer, families []bgp.RouteFamily) []*table.Path {
	if s.adjOut == nil {
		paths, _ := s.getBestFromLocal(peer, families)
		return paths
	}
	if peer.out == nil { // it gets its routes when our restart is over
		return nil
	}
	out := peer.out
	wait := refreshPause - time.Since(out.refreshed)
	if out.dumping.Load() {
		wait = refreshPause
	}
	if wait > 0 {
		if !out.refresh {
			out.refresh = true
			time.AfterFunc(wait, out.drained)
		}
		return nil
	}
	out.refreshed = time.Now()
	for _, g := range out.groups {
		if slices.Contains(families, g.key.family) {
			out.send(s.contents(g))
		}
	}
	return nil
}

// leave ends the membership of a peer, whose session has ended.
func (s *BgpServer) leave(peer *peer) {
	if peer.out == nil {
		return
	}
	for _, g := range peer.out.groups {
		s.removeMember(g, peer)
	}
	peer.out = nil
}

func (s *BgpServer) removeMember(g *outGroup, p *peer) {
	g.members = slices.DeleteFunc(g.members, func(m *peer) bool { return m == p })
	if len(g.members) == 0 && s.adjOut.groups[g.key] == g {
		delete(s.adjOut.groups, g.key)
	}
}

func (s *BgpServer) groupKey(peer *peer, f bgp.RouteFamily) groupKey {
	peer.fsm.lock.RLock()
	k := groupKey{
		family:       f,
		twoByteAS:    peer.fsm.twoByteAsTrans,
		external:     peer.fsm.pConf.Config.LocalAs != peer.fsm.pConf.State.PeerAs,
		as:           peer.fsm.pConf.State.PeerAs,
		localAS:      peer.fsm.pConf.Config.LocalAs,
		localAddress: addrOf(peer.fsm.peerInfo.LocalAddress),
		clusterID:    string(peer.fsm.pConf.RouteReflector.State.RouteReflectorClusterId),
	}
	peer.fsm.lock.RUnlock()
	k.addPath = peer.isAddPathSendEnabled(f)
	k.Group = s.adjOut.policy.Group(peer.name())
	return k
}

// contents returns all routes of a group. A group that was just made gets them by this.
func (s *BgpServer) contents(g *outGroup) *updates {
	if g.dump == nil {
		b := newBuilder(s, g)
		b.again = true
		for _, d := range s.destinations(g) {
			b.addPrefix(d.GetAllKnownPathList(), nil)
		}
		g.dump = b.updates()
		g.dump.dump = true
	}
	return g.dump
}

func (s *BgpServer) destinations(g *outGroup) map[string]*table.Destination {
	t, ok := s.globalRib.Tables[g.key.family]
	if !ok {
		return nil
	}
	return t.GetDestinations()
}

// updateAll updates a group for all prefixes, for a reason that is not in their paths.
func (s *BgpServer) updateAll(g *outGroup) {
	b := newBuilder(s, g)
	for _, d := range s.destinations(g) {
		known := d.GetAllKnownPathList()
		b.addPrefix(known, known)
	}
	b.deliver()
}

// SendAllPaths says what neighbours with ADD-PATH are sent of each prefix: all paths that policy
// accepts, or only the best. Sessions that are up are sent the difference.
func (s *BgpServer) SendAllPaths(yes bool) {
	s.mgmtOperation(func() error {
		if s.several == yes {
			return nil
		}
		s.several = yes
		if s.adjOut != nil {
			for _, g := range s.adjOut.groups {
				if g.key.addPath {
					s.updateAll(g)
				}
			}
		}
		return nil
	}, false)
}

// regroup moves peers to other groups after a change of policy. A new group starts with what most
// of its members have; the other members are sent the difference.
func (s *BgpServer) regroup() {
	type move struct {
		from    *outGroup
		members []*peer
	}
	moves := map[groupKey][]move{}
	for _, g := range s.adjOut.groups {
		split := map[groupKey][]*peer{}
		for _, p := range g.members {
			if key := s.groupKey(p, g.key.family); key != g.key {
				split[key] = append(split[key], p)
			}
		}
		for key, members := range split {
			moves[key] = append(moves[key], move{g, members})
		}
	}
	for key, all := range moves {
		slices.SortFunc(all, func(a, b move) int { return len(b.members) - len(a.members) })
		g, ok := s.adjOut.groups[key]
		if !ok {
			g = &outGroup{key: key, rib: maps.Clone(all[0].from.rib)}
			s.adjOut.groups[key] = g
			for _, p := range all[0].members {
				s.moveMember(p, all[0].from, g)
			}
			s.updateAll(g)
			all = all[1:]
		} else {
			s.updateGroup(g) // before difference takes it for known
		}
		for _, m := range all {
			b := s.difference(m.from, g)
			for _, p := range m.members {
				s.moveMember(p, m.from, g)
			}
			b.deliverTo(m.members)
		}
	}
}

// moveMember gives a peer another group. The old one stays in the set of groups while others may
// still move out of it.
func (s *BgpServer) moveMember(p *peer, from, to *outGroup) {
	s.removeMember(from, p)
	to.members = append(to.members, p)
	p.out.groups[slices.Index(p.out.groups, from)] = to
	if p.out.lagging != nil { // it gets that as a member of the new group
		p.out.lagging[to] = p.out.lagging[from]
		delete(p.out.lagging, from)
	}
}

// difference returns the updates from the routes of one group to those of another.
func (s *BgpServer) difference(from, to *outGroup) *builder {
	b := newBuilder(s, to)
	b.again = true
	for _, d := range s.destinations(to) {
		b.addPrefix(d.GetAllKnownPathList(), nil)
	}
	ops := b.ops
	b.ops, b.at = nil, nil
	for _, o := range ops {
		had, ok := from.rib[o.name]
		if ok && had.digest == o.attrs.digest && had.source == o.now {
			continue
		}
		o.before = nil
		if ok {
			o.before = had.source
		}
		b.add(o)
	}
	for name, had := range from.rib {
		if _, ok := to.rib[name]; !ok {
			b.add(op{name: name, before: had.source})
		}
	}
	return b
}

// advertised returns the routes that a peer was sent, for listings.
func (s *BgpServer) advertised(peer *peer, families []bgp.RouteFamily) []*table.Path {
	if s.adjOut == nil {
		paths, _ := s.getBestFromLocal(peer, families)
		return paths
	}
	var out []*table.Path
	if peer.out == nil {
		return out
	}
	for _, g := range peer.out.groups {
		if !slices.Contains(families, g.key.family) {
			continue
		}
		for _, d := range s.destinations(g) {
			for _, p := range s.candidates(g, d.GetAllKnownPathList()) {
				if p.GetSource().Name() == peer.out.name {
					continue
				}
				if d := s.export(g, p); d.Accept {
					out = append(out, s.exported(g, p, d.Change))
				}
			}
		}
	}
	return out
}

// outPeer is the output queue of one session of a peer.
type outPeer struct {
	name    netip.AddrPort // table.PeerInfo.Name
	groups  []*outGroup
	send    func(*updates)
	drained func() // waits for the server goroutine

	waiting atomic.Int64 // bytes in the session's queue
	dumping atomic.Bool  // a dump is among them
	// lagging are the routes to send when the queue has drained; nil while the peer keeps up. So a
	// slow peer has no more queued than this and each route's name.
	lagging map[*outGroup]map[routeName]struct{}
	behind  atomic.Bool

	refreshed time.Time // when a dump was last asked for
	refresh   bool      // another one was, and waits
}

// outgoingLimit is how many bytes may be queued for a peer before it counts as lagging. Socket
// buffers hold more.
const outgoingLimit = 1 << 20

func (s *BgpServer) newOutPeer(peer *peer) *outPeer {
	o := &outPeer{name: peer.name()}
	queue := peer.fsm.outgoingCh
	o.send = func(u *updates) {
		if len(u.messages) == 0 {
			return
		}
		o.waiting.Add(u.size)
		if u.dump {
			o.dumping.Store(true)
		}
		queue.In() <- queued{u, o}
	}
	o.drained = func() {
		s.mgmtOperation(func() error {
			if peer.out == o {
				s.catchUp(peer)
			}
			return nil
		}, false)
	}
	return o
}

// postpone notes the builder's routes for a lagging peer.
func (o *outPeer) postpone(b *builder) {
	if o.lagging == nil {
		o.lagging = map[*outGroup]map[routeName]struct{}{}
	}
	names := o.lagging[b.g]
	if names == nil {
		names = map[routeName]struct{}{}
		o.lagging[b.g] = names
	}
	for _, op := range b.ops {
		names[op.name] = struct{}{}
	}
	o.behind.Store(true)
	if o.waiting.Load() == 0 { // it drained in this moment
		go o.drained()
	}
}

// catchUp sends a peer whose queue has drained what was postponed: a dump that it asked for, and
// the present state of its lagging routes.
func (s *BgpServer) catchUp(p *peer) {
	if p.out.refresh {
		p.out.refresh = false
		s.refresh(p, p.negotiatedRFList())
	}
	lagging := p.out.lagging
	p.out.lagging = nil
	p.out.behind.Store(false)
	for g, names := range lagging {
		b := newBuilder(s, g)
		b.again = true
		for name := range names {
			b.addPrefix(s.known(g, name.prefix()), nil)
			if _, ok := g.rib[name]; !ok {
				b.add(op{name: name})
			}
		}
		for i := range b.ops { // what it has may have come from any peer
			b.ops[i].before = anySource
		}
		b.deliverTo([]*peer{p})
	}
}

// anySource is the source of a route that may have come from any peer.
var anySource = &table.PeerInfo{}

func (s *BgpServer) known(g *outGroup, p netip.Prefix) []*table.Path {
	if d := s.globalRib.Tables[g.key.family].GetDestination(nlriOf(p)); d != nil {
		return d.GetAllKnownPathList()
	}
	return nil
}

func nlriOf(p netip.Prefix) bgp.AddrPrefixInterface {
	if p.Addr().Is4() {
		return bgp.NewIPAddrPrefix(uint8(p.Bits()), p.Addr().String())
	}
	return bgp.NewIPv6AddrPrefix(uint8(p.Bits()), p.Addr().String())
}

// candidates are the paths of a prefix that a group may get.
func (s *BgpServer) candidates(g *outGroup, known []*table.Path) []*table.Path {
	if !g.key.addPath || !s.several {
		known = known[:min(1, len(known))]
	}
	for i, p := range known { // those whose next hop cannot be used are last
		if p.IsNexthopInvalid {
			return known[:i]
		}
	}
	return known
}

// export asks the policy.
func (s *BgpServer) export(g *outGroup, p *table.Path) Decision {
	return s.adjOut.policy.Export(g.key.Export, p.GetSource().Name(), p)
}

// exported returns a path as it is sent to a group.
func (s *BgpServer) exported(g *outGroup, path *table.Path, c *table.Change) *table.Path {
	p, local := g.members[0].forSession(path)
	switch {
	case path.IsLocal():
		if g.key.SessionNextHop {
			p.SetNexthop(local)
		}
	case g.key.NextHop == NextHopSelf:
		p.SetNexthop(local)
	case g.key.NextHop == NextHopKeep:
		p.SetNexthop(path.GetNexthop())
	}
	p.Apply(c)
	if g.key.external {
		p.RemoveLocalPref() // RFC 4271 §5.1.5
	}
	return p
}

// forSession returns a path as GoBGP makes it for a session, and our end of that. A panic leaves no
// lock behind.
func (peer *peer) forSession(path *table.Path) (p *table.Path, local net.IP) {
	fsm := peer.fsm
	fsm.lock.RLock()
	defer fsm.lock.RUnlock()
	p = table.UpdatePathAttrs(fsm.logger, fsm.gConf, fsm.pConf, fsm.peerInfo, path)
	return p, fsm.peerInfo.LocalAddress
}

// cannotSend reports that a route does not fit in a message after export policy. It is not sent.
func (g *outGroup) cannotSend(p *table.Path, why any) {
	err := fmt.Errorf("%s from %s: %v", p.GetPrefix(), p.GetSource().Address, why)
	for _, m := range g.members {
		if m.out.name != p.GetSource().Name() {
			m.fsm.tell(RouteUnsendable, err)
		}
	}
}
