package fib

import (
	"cmp"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// Candidate is what one source wants for a key.
type Candidate struct {
	Origin route.Origin
	Kind   route.Kind
	// Elevated: BGP's, of a LOCAL_PREF above the normal one; see route.Key.
	Elevated bool
	// Paths as the source knows them: canonical, next hops without interface where the source does
	// not know it.
	Paths []route.Path
}

// NextHop is an address and the table where it is looked up.
type NextHop struct {
	Table   uint32
	Address netip.Addr
}

// Facts is everything besides the candidates that choose decides by. Zero is legal everywhere and
// means that nothing is known.
type Facts struct {
	route.Facts
	// Own and Peers are what the guard protects besides the addresses of the interfaces, in the
	// default table.
	Own, Peers []netip.Addr
	// Services are the ranges where no BGP route is programmed, though it may be passed on.
	Services []netip.Prefix
	// Resolutions are the data plane's answers for next hops and protected addresses outside the
	// connected subnets. One that is missing has not been asked for yet.
	Resolutions map[NextHop]route.Resolution
	// Covered names the next hops whose longest match is, or would be, a route that our own sources
	// want.
	Covered map[NextHop]Cover
	// Distances replace route.Origin.DefaultDistance for the origins they name.
	Distances map[route.Origin]uint8
	// Encapsulation says how packets leave by the pools; nil: plain.
	Encapsulation *route.Encapsulation
	// BGPCover returns the longest forwarding route that covers k and is shorter, if it is BGP's:
	// then no route of an origin that yields is programmed. The default route and those of such
	// origins do not count. nil: there is none.
	BGPCover func(k route.Key) (netip.Prefix, bool)
	// OwnCover returns an own block that k lies in: external configuration has no say inside. nil:
	// there is none.
	OwnCover func(k route.Key) (netip.Prefix, bool)
}

// Cover is a route of ours that covers a next hop.
type Cover struct {
	Prefix netip.Prefix
	// Carries: next hops may resolve through it, since it resolves through nothing itself: external
	// configuration or this node's own, attached.
	Carries bool
	// Paths are those of a route that carries.
	Paths []route.Path
}

func (f Facts) distance(o route.Origin) uint8 {
	if d, ok := f.Distances[o]; ok {
		return d
	}
	return o.DefaultDistance()
}

// yields reports whether routes of o give way to any BGP route that covers them.
func (f Facts) yields(o route.Origin) bool { return f.distance(o) > f.distance(route.BGP) }

// Select is choose from scratch, for tests of this and other packages.
func Select(k route.Key, candidates []Candidate, f Facts) (route.Route, Reason) {
	v := newView(f)
	options := make([]option, len(candidates))
	for i, c := range candidates {
		options[i] = option{Candidate: c}
		if c.Kind == route.Via {
			pool := f.poolOf(k, c.Origin)
			options[i].viable = v.viable(c.Paths, c.Origin.IsStatic(), &pool)
		}
	}
	c := v.choose(k, options)
	if c.forward == nil {
		return route.Route{}, c.reason
	}
	k.Elevated = c.elevated
	return route.Route{Key: k, Kind: c.forward.kind, Paths: c.forward.paths,
		Origin: c.origin}, c.reason
}

// forward is what is done with packets: a route without its key. It is shared by many routes and
// never changed. Of an object it is the value.
type forward struct {
	kind   route.Kind
	paths  []route.Path
	digest uint64
	object route.Object // instead of all else but digest
}

func newForward(kind route.Kind, paths []route.Path) *forward {
	return &forward{
		kind: kind, paths: paths, digest: route.Route{Kind: kind, Paths: paths}.Digest(),
	}
}

func (f *forward) uses(interfaces map[string]bool) bool {
	return f != nil &&
		slices.ContainsFunc(f.paths, func(p route.Path) bool { return interfaces[p.Interface] })
}

// option is a candidate with its paths resolved; viable is nil for kinds without paths.
type option struct {
	Candidate
	viable *viable
}

// choice is what choose decides, in the form in which the engine keeps it.
type choice struct {
	forward *forward // nil: nothing to program
	// covered is what the best candidate that yields, coveredBy's, would have programmed if BGP did
	// not cover it.
	covered   *forward
	coveredBy route.Origin
	origin    route.Origin
	reason    Reason
	// elevated: it goes before what other owners have for the prefix.
	elevated bool
	// waiting: a next hop that matters has not been looked up yet, so what is programmed now stays
	// as it is.
	waiting bool
	// held: forward is covered, see holdCovered.
	held bool
}

// choose picks what one prefix should forward by, and says why. Options, which it may reorder, are
// tried by administrative distance, origin, kind and paths, a total order. The first that the guard
// accepts and that has a usable path wins. Without one the reason is that of the first; else that
// of the first path left out.
func (v *view) choose(k route.Key, options []option) choice {
	if len(options) > 1 {
		slices.SortFunc(options, v.compare)
	}
	var first choice
	for i, o := range options {
		c := v.try(k, o)
		if c.forward != nil || c.waiting {
			return c
		}
		if i == 0 {
			first = c
		}
		if first.covered == nil {
			first.covered, first.coveredBy = c.covered, c.coveredBy
		}
	}
	return first
}

func (v *view) compare(a, b option) int {
	return cmp.Or(
		cmp.Compare(v.facts.distance(a.Origin), v.facts.distance(b.Origin)),
		cmp.Compare(a.Origin, b.Origin),
		cmp.Compare(a.Kind, b.Kind),
		slices.CompareFunc(a.Paths, b.Paths, func(p, q route.Path) int {
			return cmp.Compare(p.String(), q.String())
		}),
	)
}

// try decides about one candidate alone.
func (v *view) try(k route.Key, o option) choice {
	if why := v.guard(k, o.Origin); why != (Reason{}) {
		return choice{origin: o.Origin, reason: why, waiting: why.what == guardWaits}
	}
	if o.Origin == route.External && v.facts.OwnCover != nil {
		if p, ok := v.facts.OwnCover(k); ok {
			return choice{origin: o.Origin, reason: Reason{what: insideOwnBlock, prefix: p}}
		}
	}
	c := v.uncovered(k, o)
	if v.facts.yields(o.Origin) && v.facts.BGPCover != nil {
		if p, ok := v.facts.BGPCover(k); ok {
			return choice{
				origin: o.Origin, covered: c.forward, coveredBy: o.Origin,
				reason: Reason{what: coveredByBGP, prefix: p},
			}
		}
	}
	return c
}

// uncovered is try without the guard and the covers.
func (v *view) uncovered(k route.Key, o option) choice {
	if o.Kind != route.Via {
		return choice{forward: v.discards[o.Kind], origin: o.Origin}
	}
	s := o.viable.all
	if o.Origin == route.BGP {
		s = o.viable.nearest
	}
	c := choice{origin: o.Origin, reason: s.reason, waiting: o.viable.waiting, elevated: o.Elevated}
	if i := o.viable.loop(k); i >= 0 {
		s = o.viable.without(k, o.Origin)
		c.forward, c.reason = s.forward, s.reason
	} else if !c.waiting {
		c.forward = s.forward
	}
	return c
}

// viable is a set of paths seen in the light of a view: which of them can be used, and how. It is
// the same for every key but for the keys that contain one of the next hops.
type viable struct {
	all     usablePaths // what external configuration says is done
	nearest usablePaths // of BGP's paths only the nearest share traffic
	waiting bool        // the answer for one of the next hops is outstanding
	paths   []resolved
}

// usablePaths is what is left of a set of paths.
type usablePaths struct {
	forward *forward // of the usable paths; nil when there are none
	reason  Reason   // of the first path that is left out
}

// resolved is one path of a viable.
type resolved struct {
	route.Path
	reason  Reason // not usable; zero: usable
	waiting bool
	// match is the prefix in table by which the next hop is reached: a route for a prefix that
	// contains the next hop and is not shorter would take match's place. Invalid where the next hop
	// is not looked up.
	match netip.Prefix
	table uint32
	// attached are the neighbours that stand for the next hop with Facts.AttachedOnly.
	attached []route.Path
	// outer is the node's address, if Path leads into a tunnel; near: it is in a connected subnet.
	outer netip.Addr
	near  bool
}

// target is the next hop before a tunnel took its place.
func (p resolved) target() netip.Addr {
	if p.outer.IsValid() {
		return p.outer
	}
	return p.NextHop
}

// isNear reports whether the next hop is in a connected subnet.
func (p resolved) isNear() bool { return p.near || p.Interface != "" && !p.outer.IsValid() }

func (p resolved) equal(q resolved) bool {
	return p.Path == q.Path && p.reason == q.reason && p.waiting == q.waiting &&
		p.match == q.match && p.outer == q.outer && p.near == q.near &&
		p.table == q.table && slices.Equal(p.attached, q.attached)
}

// leadsOver reports whether it is programmed over one of these interfaces.
func (p resolved) leadsOver(interfaces map[string]bool) bool {
	return interfaces[p.Interface] ||
		slices.ContainsFunc(p.attached, func(q route.Path) bool { return interfaces[q.Interface] })
}

func (v *view) viable(paths []route.Path, static bool, pool *route.Pool) *viable {
	return viableOf(v.resolveAll(make([]resolved, 0, len(paths)), paths, static, pool))
}

// resolveAll appends how paths resolve.
func (v *view) resolveAll(to []resolved, paths []route.Path, static bool,
	pool *route.Pool) []resolved {
	for _, p := range paths {
		to = append(to, v.leave(v.resolve(p, static), pool))
	}
	return to
}

func viableOf(paths []resolved) *viable {
	out := &viable{paths: paths, all: usable(paths)}
	out.waiting = slices.ContainsFunc(paths, func(p resolved) bool { return p.waiting })
	out.nearest = out.all
	if near, fewer := nearest(paths); fewer {
		out.nearest = usable(near)
	}
	return out
}

// nearest marks what is reached through a gateway as unusable if a next hop on a connected network
// is usable; fewer says whether it marked any. BIRD compares IGP metrics before it merges paths: 0
// for a connected network, unknown for all others (rt-table.c, rt_get_igp_metric;
// bgp_rte_mergable).
func nearest(paths []resolved) (near []resolved, fewer bool) {
	connected := func(p resolved) bool { return p.reason == (Reason{}) && p.isNear() }
	if len(paths) < 2 || !slices.ContainsFunc(paths, connected) {
		return paths, false
	}
	near = slices.Clone(paths)
	for i, p := range near {
		if p.reason == (Reason{}) && !p.isNear() {
			near[i].reason, fewer = Reason{what: farther, address: p.target()}, true
		}
	}
	return near, fewer
}

func usable(paths []resolved) (s usablePaths) {
	if len(paths) == 0 {
		s.reason = Reason{what: noPaths}
	}
	var left []route.Path
	for _, p := range paths {
		switch {
		case p.reason == (Reason{}) && p.attached != nil:
			left = addShares(left, p.attached)
		case p.reason == (Reason{}):
			left = append(left, p.Path)
		case s.reason == (Reason{}):
			s.reason = p.reason
		}
	}
	if len(left) > 0 {
		s.forward = newForward(route.Via, route.CanonicalPaths(left))
	}
	return s
}

// addShares adds paths; of those that next hops have in common the weights add up.
func addShares(to, paths []route.Path) []route.Path {
	for _, p := range paths {
		i := slices.IndexFunc(to, func(q route.Path) bool { q.Weight = p.Weight; return q == p })
		if i < 0 {
			to = append(to, p)
		} else {
			to[i].Weight = uint8(min(int(to[i].Weight)+int(p.Weight), 255))
		}
	}
	return to
}

// loop returns the index of a path whose next hop would be reached by the route for k itself, -1 if
// there is none.
func (s *viable) loop(k route.Key) int {
	return slices.IndexFunc(s.paths, func(p resolved) bool { return p.loops(k) })
}

// loops reports whether a route for k would be the longest match for the next hop of p.
func (p resolved) loops(k route.Key) bool {
	return p.match.IsValid() && p.table == k.Table &&
		k.Prefix.Bits() >= p.match.Bits() && k.Prefix.Contains(p.target())
}

func (p resolved) loopReason() Reason {
	return Reason{what: ownNextHop, address: p.target(), prefix: p.match}
}

// without returns what remains of s for k when the paths that would loop are left out.
func (s *viable) without(k route.Key, origin route.Origin) usablePaths {
	paths := slices.Clone(s.paths)
	for i := range paths {
		if paths[i].loops(k) {
			paths[i].reason = paths[i].loopReason()
		}
	}
	if origin == route.BGP {
		paths, _ = nearest(paths)
	}
	return usable(paths)
}

// resolve decides about one path: in a connected subnet it becomes attached, unless it is not
// static and a longer route of ours carries it. Elsewhere it stays recursive, or neighbours stand
// for it, if the data plane says that it can be reached, but not through a route of ours (BIRD:
// rt-table.c, "recursive route depending on another").
func (v *view) resolve(p route.Path, static bool) resolved {
	no := func(w what) resolved {
		return resolved{Path: p, reason: Reason{what: w, address: p.NextHop, name: p.Interface}}
	}
	if p.Interface != "" {
		i, ok := v.facts.Interface(p.Interface)
		switch {
		case !ok:
			return no(interfaceMissing)
		case !i.Up:
			return no(interfaceDown)
		}
		p.Table = 0
		return resolved{Path: p}
	}
	if static && p.IsLookup() {
		return resolved{Path: p}
	}
	switch a := p.NextHop; {
	case !a.IsValid(), a.IsUnspecified(), a.IsMulticast(), a.IsLoopback():
		return no(notUnicast)
	case a.Is6() && a.IsLinkLocalUnicast():
		return no(linkLocalOnly)
	case v.own[NextHop{p.Table, a}]:
		return no(ownAddress)
	}
	n := NextHop{p.Table, p.NextHop}
	cover, covered := v.facts.Covered[n]
	name, subnet, connected := v.connectedTo(n)
	carried := !static && cover.Carries && cover.Prefix.Bits() > subnet.Bits()
	if connected && !carried {
		table := p.Table
		p.Interface, p.Table = name, 0
		return resolved{Path: p, match: subnet, table: table}
	}
	r, asked := v.facts.Resolutions[n]
	out := resolved{Path: p, match: r.Prefix, table: p.Table}
	switch {
	case covered:
		if out.match = cover.Prefix; !cover.Carries {
			out.reason = Reason{what: throughOurs, address: p.NextHop, prefix: cover.Prefix}
		}
	case !asked:
		out = no(notAsked)
		out.waiting = true
	case r.Ours:
		out.reason = Reason{what: throughOurs, address: p.NextHop, prefix: r.Prefix}
	case !r.Prefix.IsValid():
		out = no(noRoute)
	case !r.Usable:
		out.reason = Reason{what: matchDrops, address: p.NextHop, prefix: r.Prefix}
	}
	if v.facts.AttachedOnly && out.reason == (Reason{}) && !out.waiting {
		neighbours := r.Paths
		if covered {
			neighbours = cover.Paths
		}
		if out.attached = v.attach(p, neighbours); out.attached == nil {
			out.reason = Reason{what: matchDrops, address: p.NextHop, prefix: out.match}
		}
	}
	return out
}

// attach returns which of these neighbours can stand for the next hop of p now.
func (v *view) attach(p route.Path, neighbours []route.Path) (out []route.Path) {
	for _, n := range neighbours {
		if i, ok := v.facts.Interface(n.Interface); !ok || !i.Up {
			continue
		}
		if !n.NextHop.IsValid() {
			n.NextHop = p.NextHop
		}
		n.Preference, n.Weight = p.Preference, p.Weight
		out = append(out, n)
	}
	return out
}
