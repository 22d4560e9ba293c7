package gobgp

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// policy has GoBGP ask bgp.Policies about every path. GoBGP calls it from one goroutine.
type policy struct {
	pass      bgp.Policies
	peers     map[bgp.PeerID]*bgp.Peer
	announced []bgp.Announcement      // by prefix
	own       map[netip.Addr]struct{} // our next hops: a path with one leads back to us
	importing map[bgp.PeerID]digest   // by peer: what Import depends on
	groups    map[bgp.PeerID]server.Group
	members   map[digest]bgp.Peer // one peer of each group, with an address of the family only

	// Peers whose import rules ask for interfaces, and the next hops that they have sent.
	asking   map[bgp.PeerID]bool
	received *receivedHops

	all     digest                    // of everything but announced
	changes map[string]*server.Change // by operations; equal ones are one pointer
}

// digest says whether two policies treat a peer alike.
type digest [sha256.Size]byte

// policyOf keeps nothing that the owner of the plan may edit.
func policyOf(p bgp.Plan, received *receivedHops) *policy {
	pol := &policy{
		pass: p.Policies.Clone(), peers: make(map[bgp.PeerID]*bgp.Peer, len(p.Peers)),
		announced: byPrefix(p.Announcements),
		own:       map[netip.Addr]struct{}{},
		importing: make(map[bgp.PeerID]digest, len(p.Peers)),
		groups:    make(map[bgp.PeerID]server.Group, len(p.Peers)),
		members:   map[digest]bgp.Peer{}, changes: map[string]*server.Change{},
		asking: map[bgp.PeerID]bool{}, received: received,
	}
	for _, a := range p.Announcements {
		pol.own[a.NextHop] = struct{}{}
	}
	for _, a := range p.Speaker.ListenAddresses {
		pol.own[a] = struct{}{}
	}
	for _, peer := range p.Peers {
		peer.Filters = slices.Clone(peer.Filters)
		pol.peers[peer.ID()] = &peer
		if peer.LocalAddress.IsValid() {
			pol.own[peer.LocalAddress] = struct{}{}
		}
	}
	pol.digests()
	return pol
}

// digests finds out who is treated alike. What all have in common is digested once.
func (p *policy) digests() {
	own := slices.SortedFunc(maps.Keys(p.own), netip.Addr.Compare)
	p.all = digestOf(p.pass, own, p.peers)
	common := p.pass
	common.Filters, common.Behind = nil, nil
	global := digestOf(common, p.roles())
	rules := map[string]digest{}
	ofRules := func(peer bgp.Peer, in bool) digest {
		key := fmt.Sprint(in, peer.Address.Is4(), strings.Join(peer.Filters, ","))
		d, ok := rules[key]
		if !ok {
			d = digestOf(p.pass.Rules(peer, in), p.behind(peer, in))
			rules[key] = d
		}
		return d
	}
	for id, peer := range p.peers {
		to := *peer
		to.Address = netip.IPv6Unspecified()
		if id.Address.Is4() {
			to.Address = netip.IPv4Unspecified()
		}
		p.asking[id] = len(p.behind(*peer, true)) > 0
		var cluster netip.Addr
		if peer.Client {
			cluster = p.pass.ClusterID
		}
		p.importing[id] = digestOf(own, ofRules(*peer, true), peer.External(), cluster)
		d := digestOf(global, ofRules(*peer, false), to.Address, peer.External(), peer.LocalAS,
			peer.Served(), peer.Reflector)
		p.members[d] = to
		g := server.Group{Export: d, SessionNextHop: peer.SessionNextHop}
		switch {
		case peer.NextHop == bgp.NextHopSelf && !peer.External():
			g.NextHop = server.NextHopSelf
		case peer.NextHop == bgp.NextHopKeep && peer.External():
			g.NextHop = server.NextHopKeep
		}
		p.groups[id] = g
	}
}

// behind is what the interfaces of a peer's import rules come to; empty if none asks for one.
func (p *policy) behind(peer bgp.Peer, in bool) (out []any) {
	for _, r := range p.pass.Rules(peer, in) {
		if in && r.Match.Interface != "" {
			_, hops, applies := p.pass.OnImport(r)
			out = append(out, hops, applies)
		}
	}
	return out
}

// roles are those of the peers that routes come from: a reflector's export asks for them.
func (p *policy) roles() []string {
	var out []string
	for id, peer := range p.peers {
		if p.pass.Reflects && !peer.External() {
			out = append(out, fmt.Sprint(id, peer.Served()))
		}
	}
	slices.Sort(out)
	return out
}

func digestOf(parts ...any) digest {
	text, err := json.Marshal(parts)
	if err != nil {
		panic("gobgp: a policy that cannot be written down: " + err.Error())
	}
	return sha256.Sum256(text)
}

// sameImport reports whether two policies accept the same of a peer, and change it alike.
func (p *policy) sameImport(o *policy, peer bgp.PeerID) bool {
	return p != nil && p.importing[peer] == o.importing[peer]
}

func (p *policy) equal(o *policy) bool {
	return p != nil && p.all == o.all && slices.Equal(p.announced, o.announced)
}

// Import implements server.Policy.
func (p *policy) Import(from netip.AddrPort, path server.Path) server.Decision {
	peer, ok := p.peers[peerID(from)]
	if !ok {
		return server.Decision{}
	}
	if _, ours := p.own[nextHop(path)]; ours {
		return server.Decision{}
	}
	if len(peer.Filters) == 0 && !peer.Client {
		return server.Decision{Accept: true}
	}
	r, ok := routeOf(path, peer)
	if !ok {
		return server.Decision{Accept: true} // other families are not announced
	}
	if p.asking[peerID(from)] {
		p.received.add(peerID(from), r.NextHop)
	}
	_, v := p.pass.Import(r)
	return p.decision(v)
}

// Group implements server.Policy.
func (p *policy) Group(to netip.AddrPort) server.Group { return p.groups[peerID(to)] }

// Export implements server.Policy.
func (p *policy) Export(group any, from netip.AddrPort, path server.Path) server.Decision {
	key, _ := group.(digest)
	to, ok := p.members[key]
	if !ok {
		return server.Decision{}
	}
	if !from.IsValid() {
		prefix, err := prefixOf(path.GetNlri())
		if err != nil {
			return server.Decision{}
		}
		a, _ := announcementOf(prefix, p.announced)
		r := a.Route()
		r.Prefix = prefix
		return p.decision(p.pass.Export(r, to))
	}
	source, ok := p.peers[peerID(from)]
	if !ok || p.pass.Forbids(source, &to) {
		return server.Decision{} // the most frequent answer of a mesh, without a look at the path
	}
	r, ok := routeOf(path, source)
	if !ok {
		return server.Decision{}
	}
	return p.decision(p.pass.Export(r, to))
}

func (p *policy) decision(v bgp.Verdict) server.Decision {
	if !v.Accept || len(v.Operations) == 0 {
		return server.Decision{Accept: v.Accept}
	}
	key := fmt.Sprint(v.Operations)
	c, ok := p.changes[key]
	if !ok {
		c = changeOf(v.Operations)
		p.changes[key] = c
	}
	return server.Decision{Accept: true, Change: c}
}

// changeOf is what operations come to when they are carried out in order.
func changeOf(ops []bgp.Operation) *server.Change {
	c := &server.Change{}
	for _, op := range ops {
		switch {
		case op.Add != nil && op.Add.Large:
			c.LargeCommunities = append(c.LargeCommunities,
				packet.NewLargeCommunity(op.Add.Global, op.Add.Data1, op.Add.Data2))
		case op.Add != nil:
			c.Communities = append(c.Communities, op.Add.Global<<16|op.Add.Data1)
		case op.LocalPref != 0:
			c.LocalPref = op.LocalPref
		default:
			c.Prepend = slices.Concat(op.Prepend, c.Prepend)
		}
	}
	return c
}

// nextHop is invalid if a path has none.
func nextHop(path server.Path) netip.Addr {
	hop, _ := netip.AddrFromSlice(path.GetNexthop())
	return hop.Unmap()
}

// routeOf is a learned path as policies see it.
func routeOf(path server.Path, from *bgp.Peer) (bgp.Route, bool) {
	prefix, err := prefixOf(path.GetNlri())
	if err != nil {
		return bgp.Route{}, false
	}
	r := bgp.Route{Prefix: prefix, From: from, NextHop: nextHop(path), ASPath: path.GetAsList(),
		ASSet: asSet(path)}
	r.LocalPref, _ = path.GetLocalPref()
	for _, c := range path.GetCommunities() {
		r.Communities = append(r.Communities, bgp.Community{Global: c >> 16, Data1: c & 0xffff})
	}
	for _, c := range path.GetLargeCommunities() {
		r.Communities = append(r.Communities, bgp.Community{
			Large: true, Global: c.ASN, Data1: c.LocalData1, Data2: c.LocalData2,
		})
	}
	for _, id := range path.GetClusterList() {
		if addr, ok := netip.AddrFromSlice(id.To4()); ok {
			r.ClusterList = append(r.ClusterList, addr)
		}
	}
	return r, true
}

// asSet returns how many ASes the AS_SET at the end of AS_PATH has; 0: there is none. Who
// aggregates puts it there (RFC 4271 §9.2.2.2), and what is prepended later goes in front.
func asSet(path server.Path) int {
	attr := path.GetAsPath()
	if attr == nil || len(attr.Value) == 0 {
		return 0
	}
	if last := attr.Value[len(attr.Value)-1]; last.GetType() == packet.BGP_ASPATH_ATTR_TYPE_SET {
		return len(last.GetAS())
	}
	return 0
}

// setPolicy makes p the policy. Paths of peers whose import policy changed are evaluated again, and
// peers are sent what changes for them.
func (s *Speaker) setPolicy(p *policy) {
	a := &s.applied
	if a.policy.equal(p) {
		return
	}
	old := a.policy
	a.policy = p
	a.server.SetPolicy(p, func(peer netip.AddrPort) bool {
		return !old.sameImport(p, peerID(peer))
	})
	s.received.keep(p.asking) // the old policy is not called any more
}

var _ server.Policy = (*policy)(nil)
