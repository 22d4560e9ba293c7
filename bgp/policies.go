package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"

	"vpp-route-agent/internal/route"
)

// Policies decide which routes are accepted, which are announced, and what is changed on the way:
// Calico's filters for BIRD (confd's bird.cfg, bird_ipam.cfg, bird_aggr.cfg). GoBGP asks them about
// every path, and plan about every prefix. Prefixes are masked, sorted and unique, of both
// families.
type Policies struct {
	// NoExport are the pools with disableBGPExport: nothing inside or equal to one leaves this
	// node.
	NoExport []netip.Prefix
	// OwnBlocks are aggregated: a route equal to one may leave, a more specific one does not,
	// unless its LOCAL_PREF is above the normal one (a live migration).
	OwnBlocks []netip.Prefix
	// ExportPools are all other pools, disabled ones too: what is inside or equal to one may leave.
	ExportPools []netip.Prefix
	// Services are the service addresses that this node announces, none of them inside another:
	// what is inside or equal to one may leave.
	Services []netip.Prefix
	// Tunnels are the devices, as shell patterns, from which no route goes to iBGP peers.
	Tunnels []string
	// Reflects: this node is a route reflector. ReflectedServices are then the ranges of external
	// and load balancer addresses of services: what is inside one may leave.
	Reflects          bool
	ClusterID         netip.Addr // in IPv4 form; the router ID where the Node has none
	ReflectedServices []netip.Prefix
	// Leaving: this node is being drained. Learned routes go to eBGP peers with
	// GRACEFUL_SHUTDOWN (RFC 8326 §4.2); iBGP peers get next hops that stay.
	Leaving bool
	// Advertisements are the communities for what leaves by these rules, by prefix.
	Advertisements []Advertisement
	// Filters are the BGPFilters that peers name and that exist, by name.
	Filters map[string]Filter
	// Behind are, for each interface that an import rule asks for, the next hops that lead out by
	// it: those in one of these prefixes, which are sorted and do not overlap. nil: not
	// known yet.
	Behind map[string][]netip.Prefix
	// Normal4 and Normal6 are LOCAL_PREF of a route of normal priority.
	Normal4, Normal6 uint32
}

// Advertisement are the communities of what is inside or equal to a prefix.
type Advertisement struct {
	Prefix      netip.Prefix
	Communities []Community
}

// Covers reports whether a prefix gets the communities.
func (a Advertisement) Covers(p netip.Prefix) bool { return route.Inside(p, a.Prefix) }

// Route is a route as far as policies ask about it.
type Route struct {
	Prefix      netip.Prefix
	From        *Peer      // nil: a route of our own
	Interface   string     // where it leads out, of a route of our own; "" for a block
	NextHop     netip.Addr // of a learned route; only import asks for it
	LocalPref   uint32     // of a route from an eBGP peer FromExternal, from import on
	ASPath      []uint32
	ASSet       int // so many ASes at the end of ASPath are an AS_SET (RFC 4271 §4.3)
	Communities []Community
	ClusterList []netip.Addr // of a route from an iBGP peer
}

// pathBegins reports whether AS_PATH begins with all. As in BIRD an AS_SET is one place in the
// path, where each of its ASes is.
func (r Route) pathBegins(all []uint32) bool {
	sequence := r.ASPath[:len(r.ASPath)-r.ASSet]
	n := min(len(all), len(sequence))
	set, rest := r.ASPath[len(sequence):], all[n:]
	return slices.Equal(all[:n], sequence[:n]) &&
		(len(rest) == 0 || len(rest) == 1 && slices.Contains(set, rest[0]))
}

// Apply returns the route after operations.
func (r Route) Apply(ops []Operation) Route {
	r.ASPath, r.Communities = slices.Clone(r.ASPath), slices.Clone(r.Communities)
	for _, op := range ops {
		switch {
		case op.Add != nil:
			if !slices.Contains(r.Communities, *op.Add) {
				r.Communities = append(r.Communities, *op.Add)
			}
		case op.LocalPref != 0:
			r.LocalPref = op.LocalPref
		default:
			r.ASPath = slices.Concat(op.Prepend, r.ASPath)
		}
	}
	return r
}

// Verdict is what a policy says about a route.
type Verdict struct {
	Accept     bool
	Reason     string      // why, for a person to read
	Rule       string      // of a BGPFilter that decided; "": the other rules did
	Operations []Operation // on what is accepted
}

func reject(format string, args ...any) Verdict {
	return Verdict{Reason: fmt.Sprintf(format, args...)}
}

// FromExternal is LOCAL_PREF of a route from an eBGP peer, which sends none. GoBGP and BIRD agree
// on it.
const FromExternal = 100

// Import decides whether a route that r.From sent is accepted, and returns it as it is then.
// Without a filter that says otherwise every route is accepted, but for one that went through our
// cluster and comes from a client. As in BIRD, another reflector of our cluster may send it.
func (p Policies) Import(r Route) (Route, Verdict) {
	if r.From.Client && p.wentRound(r) {
		return r, p.rejectRound()
	}
	if r.From.External() {
		r.LocalPref = FromExternal
	}
	for _, rule := range p.Rules(*r.From, true) {
		m, hops, applies := p.OnImport(rule)
		contains := func(hop netip.Prefix) bool { return hop.Contains(r.NextHop) }
		leaves := len(hops) == 0 || slices.ContainsFunc(hops, contains)
		if applies && leaves && m.holds(r, *r.From) {
			v := rule.verdict()
			return r.Apply(v.Operations), v
		}
	}
	return r, Verdict{Accept: true, Reason: "no filter rule matches it"}
}

// Export decides whether a route, as import left it, is announced to a peer. The tests come in the
// order of Calico's filter.
func (p Policies) Export(r Route, to Peer) Verdict {
	v := p.export(r, to)
	if v.Accept && p.Leaving && r.From != nil && to.External() {
		v.Operations = slices.Concat([]Operation{{Add: &GracefulShutdown}}, v.Operations)
	}
	return v
}

func (p Policies) export(r Route, to Peer) Verdict {
	if v := p.byProtocol(r, to); v.Reason != "" {
		return v
	}
	shown := r
	if to.External() {
		// BIRD 1.6 prepends before it runs the export filter (bgp_import_control), so filters see
		// the path as it leaves.
		shown.ASPath = slices.Concat([]uint32{to.LocalAS}, r.ASPath)
	}
	for _, rule := range p.Rules(to, false) {
		m, applies := rule.Match, true
		if r.From != nil {
			m, applies = rule.OnLearned()
		}
		if applies && m.holds(shown, to) {
			return rule.verdict()
		}
	}
	if v := p.byTunnel(r); v.Reason != "" && !to.External() {
		return v
	}
	return p.Common(r)
}

// byTunnel has a reason when r leads to a tunnel, so that it is not for iBGP peers: they have
// addresses of tunnels from the datastore. Where a learned route leads depends on us, and not on
// what was announced.
func (p Policies) byTunnel(r Route) Verdict {
	if r.Interface == "" { // a block, service addresses, or learned
		return Verdict{}
	}
	for _, pattern := range p.Tunnels {
		if ok, _ := path.Match(pattern, r.Interface); ok {
			return reject("leads to the tunnel %s: not for iBGP peers", r.Interface)
		}
	}
	return Verdict{}
}

// byProtocol has a reason when BGP itself forbids that r goes to a peer.
func (p Policies) byProtocol(r Route, to Peer) Verdict {
	if r.From == nil {
		return Verdict{}
	}
	switch {
	case r.From.ID() == to.ID():
		return reject("learned from this peer")
	case p.Forbids(r.From, &to):
		return reject("learned over iBGP, and the peer is an iBGP peer (RFC 4271 §9.2.1)")
	case !to.External() && p.wentRound(r):
		return p.rejectRound()
	case slices.Contains(r.Communities, NoAdvertise):
		return reject("it has the community NO_ADVERTISE (RFC 1997)")
	case to.External() &&
		(slices.Contains(r.Communities, NoExport) ||
			slices.Contains(r.Communities, NoExportSubconfed)):
		return reject("it has the community NO_EXPORT (RFC 1997), and the peer is an eBGP peer")
	}
	return Verdict{}
}

// wentRound reports whether r went through this node's cluster. eBGP peers send no CLUSTER_LIST.
func (p Policies) wentRound(r Route) bool { return slices.Contains(r.ClusterList, p.ClusterID) }

func (p Policies) rejectRound() Verdict {
	return reject("its CLUSTER_LIST has %s, this node's cluster: it went round (RFC 4456 §8)",
		p.ClusterID)
}

// Well-known communities; GoBGP does not act on them by itself.
var (
	NoExport         = Community{Global: 65535, Data1: 65281}
	GracefulShutdown = Community{Global: 65535, Data1: 0} // RFC 8326
	NoAdvertise      = Community{Global: 65535, Data1: 65282}
	// the same as NO_EXPORT where there are no confederations
	NoExportSubconfed = Community{Global: 65535, Data1: 65283}
)

// reflects reports whether a route goes from one iBGP peer to another (RFC 4456 §6): from a client
// to all, from any peer to a client. Another reflector counts as no client here: two that pass on
// each other's routes to reflectors would keep a withdrawn route alive between them.
func (p Policies) reflects(from, to Peer) bool {
	return p.Reflects && (from.Served() || to.Served())
}

// Forbids reports whether BGP itself keeps all routes of one peer from another.
func (p Policies) Forbids(from, to *Peer) bool {
	return !from.External() && !to.External() && !p.reflects(*from, *to)
}

// Clone returns a copy that shares nothing with p that can be edited, but for the rules of filters.
func (p Policies) Clone() Policies {
	p.NoExport, p.OwnBlocks = slices.Clone(p.NoExport), slices.Clone(p.OwnBlocks)
	p.ExportPools = slices.Clone(p.ExportPools)
	p.Services, p.ReflectedServices = slices.Clone(p.Services), slices.Clone(p.ReflectedServices)
	p.Tunnels = slices.Clone(p.Tunnels)
	p.Advertisements, p.Filters = slices.Clone(p.Advertisements), maps.Clone(p.Filters)
	p.Behind = maps.Clone(p.Behind)
	return p
}

// Served reports a client proper of this reflector: one that is no reflector itself.
func (p Peer) Served() bool { return p.Client && !p.Reflector }

// Rules are the rules of a peer's filters for import or export in its family, in the order of
// evaluation. A filter that does not exist has none, as in Calico.
func (p Policies) Rules(peer Peer, in bool) []Rule {
	var rules []Rule
	for _, name := range peer.Filters {
		f := p.Filters[name]
		switch v4 := peer.Address.Is4(); {
		case in && v4:
			rules = append(rules, f.Import4...)
		case in:
			rules = append(rules, f.Import6...)
		case v4:
			rules = append(rules, f.Export4...)
		default:
			rules = append(rules, f.Export6...)
		}
	}
	return rules
}

func (r Rule) verdict() Verdict {
	if !r.Accept {
		return Verdict{Reason: "rejected by " + r.Name, Rule: r.Name}
	}
	return Verdict{
		Accept: true, Reason: "accepted by " + r.Name, Rule: r.Name, Operations: r.Operations,
	}
}

// Common is the part of the export filter that is the same for all peers, after the peer's own
// filters. An elevated route (a live migration) is announced from inside an own block.
func (p Policies) Common(r Route) Verdict {
	accept, reason, of := p.common(r)
	v := Verdict{Accept: accept, Reason: reason}
	if of.IsValid() {
		v.Reason = fmt.Sprintf(reason, of)
	}
	if accept {
		v.Operations = p.advertised(r.Prefix)
	}
	return v
}

// common is Common without words, as thousands of addresses of services are asked for at once:
// reason is a format for of, if that is valid.
func (p Policies) common(r Route) (accept bool, reason string, of netip.Prefix) {
	if pool, found := covering(p.NoExport, r.Prefix); found {
		return false, "inside pool %s, which has disableBGPExport", pool
	}
	if slices.Contains(p.OwnBlocks, r.Prefix) {
		return true, "own block", netip.Prefix{}
	}
	if block, found := covering(p.OwnBlocks, r.Prefix); found {
		if p.Elevates(r) {
			return true, "elevated (a live migration) inside own block %s", block
		}
		return false, "inside own block %s, which is announced as a whole", block
	}
	if services, found := route.Covering(p.Services, r.Prefix); found {
		return true, "inside service addresses %s", services
	}
	if services, found := covering(p.ReflectedServices, r.Prefix); found && p.Reflects {
		return true, "inside service addresses %s, which a reflector passes on", services
	}
	if pool, found := covering(p.ExportPools, r.Prefix); found {
		return true, "inside pool %s", pool
	}
	return false, "outside all pools", netip.Prefix{}
}

// Elevates reports whether the LOCAL_PREF of r is above the normal one.
func (p Policies) Elevates(r Route) bool { return r.LocalPref > p.Normal(r.Prefix) }

// Normal is LOCAL_PREF of a route of normal priority.
func (p Policies) Normal(prefix netip.Prefix) uint32 {
	if prefix.Addr().Is4() {
		return p.Normal4
	}
	return p.Normal6
}

// advertised are the communities that a prefix gets, as operations, once each.
func (p Policies) advertised(prefix netip.Prefix) []Operation {
	var ops []Operation
	var seen []Community
	for _, a := range p.Advertisements {
		if !a.Covers(prefix) {
			continue
		}
		for _, c := range a.Communities {
			if !slices.Contains(seen, c) {
				seen = append(seen, c)
				ops = append(ops, Operation{Add: &c})
			}
		}
	}
	return ops
}

// covering returns the first of prefixes that equals p or contains all of it.
func covering(prefixes []netip.Prefix, p netip.Prefix) (netip.Prefix, bool) {
	for _, c := range prefixes {
		if route.Inside(p, c) {
			return c, true
		}
	}
	return netip.Prefix{}, false
}
