package fib

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// selection decides what each prefix forwards by, and hands the decisions to sync; it does not know
// what was programmed. What a selection has read makes it dirty when it changes: docs/fib.md has
// the table of readers. Next hops and path sets are up to date when a method returns; dirty
// prefixes wait.
type selection struct {
	*table
	sync *syncer
	hops *nextHops
	sets pathSets

	distances  map[route.Origin]uint8
	own, peers []netip.Addr
	services   []netip.Prefix
	// how packets leave by the pools; nil: plain
	encapsulation *route.Encapsulation
	normal        [2]uint32 // LOCAL_PREF of what is not elevated, of IPv4 and IPv6; 0: not known
	view          *view     // of the last facts with an identity; nil before the first

	// ownLengths counts what this node itself wants, by length: it looks for nothing else.
	ownLengths [lengths]int
	// coverable are lists of the keys that an origin wants which may yield, each sorted: one for
	// each origin, but of a Replay.
	coverable [][]route.Key
	// what stays although BGP covers it, and until when at least
	covered    map[*entry]time.Time
	converging bool // not all BGP routes are known yet
	// holds says of a replay what stays; nil: coverHold does.
	holds func(route.Key) bool
	left  []route.Key // as noteLeft told last
	// settled is when all was decided that the recorder was told of.
	settled Moment

	staleHops []*nextHop
	staleSets []*pathSet
	options   []option   // scratch
	resolved  []resolved // scratch
}

func newSelection(t *table, s *syncer, h *nextHops, distances map[route.Origin]uint8) *selection {
	return &selection{
		table: t, sync: s, hops: h, distances: distances,
		sets:    pathSets{byID: make(map[string]*pathSet)},
		covered: make(map[*entry]time.Time), coverable: make([][]route.Key, numSources),
	}
}

// origin is whose candidate was selected or refused.
func (e *entry) origin() route.Origin { return route.Origin(e.source) }

func (e *entry) wantedBy(origin route.Origin) bool {
	for c := e.first; c != nil; c = c.next {
		if c.origin == origin {
			return true
		}
	}
	return false
}

// candidate is what one origin wants for one prefix.
type candidate struct {
	entry                *entry
	next                 *candidate // of the same entry
	set                  *pathSet   // nil for kinds without paths
	nextInSet, prevInSet *candidate
	origin               route.Origin
	kind                 route.Kind
	preference           uint32 // LOCAL_PREF of BGP's host routes; 0: not known
}

// learn takes what BGP wants for a prefix in the default table.
func (s *selection) learn(b BestPaths) {
	p, ok := route.Normalize(b.Prefix)
	if !ok {
		return
	}
	if !p.IsSingleIP() {
		b.Preference = 0
	}
	s.received = b.received
	s.setCandidate(route.Key{Prefix: p}, route.BGP, route.Via, b.Paths, b.Preference)
}

// setCandidate sets what one origin wants for k; kind Via without paths: nothing. It returns nil if
// that is as it was.
func (s *selection) setCandidate(k route.Key, origin route.Origin, kind route.Kind,
	paths []route.Path, preference uint32) (changed *entry) {
	nothing := kind == route.Via && len(paths) == 0
	e := s.get(k)
	if e == nil {
		if nothing {
			return nil
		}
		e = s.entry(k)
	}
	var set *pathSet // nil: nothing, or of a kind without paths
	if !nothing && kind == route.Via {
		set = s.pathSet(paths, origin.IsStatic(),
			Facts{Encapsulation: s.encapsulation}.poolOf(k, origin))
	}
	at := &e.first
	for *at != nil && (*at).origin != origin {
		at = &(*at).next
	}
	c := *at
	switch {
	case c == nil && nothing:
		return nil
	case nothing:
		*at = c.next
		s.leave(c)
		if origin == route.Own {
			s.ownLengths[lengthOf(k, k.Prefix.Bits())]--
		}
	case c == nil:
		c = &candidate{entry: e, origin: origin, kind: kind, preference: preference}
		*at = c
		s.join(c, set)
		if origin == route.Own {
			s.ownLengths[lengthOf(k, k.Prefix.Bits())]++
		}
	case c.set == set && c.kind == kind && c.preference == preference:
		return nil
	default:
		c.kind, c.preference = kind, preference
		if c.set != set {
			s.leave(c)
			s.join(c, set)
		}
	}
	s.noteCandidate(k, origin, kind, set, preference)
	e.mark(isWanted, e.first != nil)
	s.dirtyWithHops(e)
	s.refresh()
	return e
}

// pathSet returns the set of these paths, and follows the next hops of a new one.
func (s *selection) pathSet(paths []route.Path, static bool, pool route.Pool) *pathSet {
	set, isNew := s.sets.get(paths, static, pool)
	if !isNew {
		return set
	}
	for _, p := range set.paths {
		if p.Interface == "" && p.NextHop.IsValid() && !p.IsLookup() {
			s.hops.name(NextHop{p.Table, p.NextHop}, set)
		}
	}
	s.staleHops = append(s.staleHops, set.hops...)
	s.staleSets = append(s.staleSets, set)
	return set
}

func (s *selection) join(c *candidate, set *pathSet) {
	if c.set = set; set != nil {
		set.add(c)
	}
}

// leave takes c out of its path set and forgets the set with its last user.
func (s *selection) leave(c *candidate) {
	set := c.set
	if set == nil {
		return
	}
	set.remove(c)
	c.set = nil
	if set.first == nil {
		delete(s.sets.byID, set.id)
		s.hops.unname(set)
	}
}

// dirtyWithHops: the candidates of e, or what the guard says about them, have changed.
func (s *selection) dirtyWithHops(e *entry) {
	if e != nil {
		s.markDirty(e)
		s.staleInside(e.key())
	}
}

// staleInside: what covers the next hops inside k has changed.
func (s *selection) staleInside(k route.Key) {
	s.staleHops = append(s.staleHops, s.hops.inside(k)...)
}

// carriesOther: k, a route or a connected subnet, carries next hops otherwise than before, or no
// more. A route that k lies in, and that goes by one of these, may have lain behind itself, or does
// now.
func (s *selection) carriesOther(k route.Key) {
	s.staleInside(k)
	if len(s.hops.inside(k)) == 0 {
		return
	}
	for bits := k.Prefix.Bits() - 1; bits >= 0; bits-- {
		p, _ := k.Prefix.Addr().Prefix(bits)
		shorter := route.Key{Table: k.Table, Prefix: p}
		if s.lengths[lengthOf(shorter, bits)] > 0 && s.get(shorter).goesByOneInside(k) {
			s.staleInside(shorter)
		}
	}
}

// goesByOneInside reports whether a source of e, which may be nil, has a next hop inside k.
func (e *entry) goesByOneInside(k route.Key) bool {
	if e == nil {
		return false
	}
	for c := e.first; c != nil; c = c.next {
		if c.set != nil && slices.ContainsFunc(c.set.hops, func(hop *nextHop) bool {
			return hop.Table == k.Table && k.Prefix.Contains(hop.Address)
		}) {
			return true
		}
	}
	return false
}

// refresh brings next hops and path sets up to date and marks the prefixes that have read them.
func (s *selection) refresh() {
	if s.view == nil { // the first facts make everything stale
		s.staleHops, s.staleSets = s.staleHops[:0], s.staleSets[:0]
		return
	}
	for _, hop := range s.staleHops {
		if s.hops.byKey[hop.NextHop] != hop {
			continue
		}
		s.changed = s.changed || s.hops.following
		s.cover(hop)
		if s.hops.update(hop, s.view) {
			for set := range hop.sets {
				s.staleSets = append(s.staleSets, set)
			}
		}
	}
	s.staleHops = s.staleHops[:0]
	for _, set := range s.staleSets {
		s.resolved = s.view.resolveAll(s.resolved[:0], set.paths, set.static, &set.pool)
		if set.seen != nil && slices.EqualFunc(set.seen.paths, s.resolved, resolved.equal) {
			continue
		}
		set.seen = viableOf(slices.Clone(s.resolved))
		for c := set.first; c != nil; c = c.nextInSet {
			s.markDirty(c.entry)
		}
	}
	s.staleSets = s.staleSets[:0]
}

// rebuildView prepares facts anew. It marks what the guard says something else about, and next hops
// that other interfaces lead to, or that are this node's own address now, or no longer.
func (s *selection) rebuildView(f route.Facts) {
	before := s.view
	s.view = newView(Facts{
		Facts: f, Own: s.own, Peers: s.peers, Services: s.services, Resolutions: s.hops.answers,
		Covered: s.hops.covered, Distances: s.distances, BGPCover: s.bgpCover,
		OwnCover: s.ownCover, Encapsulation: s.encapsulation,
	})
	if before == nil {
		before = &view{}
	}
	for _, v := range [][2]*view{{before, s.view}, {s.view, before}} {
		for k, name := range v[0].connected {
			if v[1].connected[k] != name {
				s.dirtyWithHops(s.get(k))
				s.carriesOther(k)
			}
		}
		for n := range v[0].own {
			if hop := s.hops.byKey[n]; hop != nil && !v[1].own[n] {
				s.staleHops = append(s.staleHops, hop)
			}
		}
	}
	if !slices.Equal(before.guarded, s.view.guarded) {
		s.guardChanged(before.guarded, s.view.guarded)
	}
	if !slices.Equal(before.services, s.view.services) {
		s.servicesChanged(before.services, s.view.services)
	}
}

// guardChanged marks the prefixes that contain an address which is guarded differently.
func (s *selection) guardChanged(before, after []guarded) {
	changed := make(map[guarded]int)
	for _, g := range before {
		changed[g]--
	}
	for _, g := range after {
		changed[g]++
	}
	for g, n := range changed {
		// a default route is never refused
		for bits := 1; n != 0 && bits <= g.Address.BitLen(); bits++ {
			if p, err := g.Address.Prefix(bits); err == nil {
				s.dirtyWithHops(s.get(route.Key{Table: g.Table, Prefix: p}))
			}
		}
	}
}

// servicesChanged marks the prefixes in service addresses that came or went. Both are disjoint.
// Single addresses come and go with endpoints, so of these no other prefix is looked at.
func (s *selection) servicesChanged(before, after []netip.Prefix) {
	single, ranges := differing(before, after)
	for _, p := range single {
		k := route.Key{Prefix: p}
		s.dirtyWithHops(s.get(k))
		s.dirtyWithHops(s.get(k.Counterpart()))
	}
	if !ranges {
		return
	}
	for _, e := range s.all {
		_, was := route.Covering(before, e.key().Prefix)
		_, is := route.Covering(after, e.key().Prefix)
		if was != is {
			s.dirtyWithHops(e)
		}
	}
}

// refreshAll: everything that has read the view is stale.
func (s *selection) refreshAll() {
	s.staleHops = append(s.staleHops[:0], s.hops.sorted...)
	for _, set := range s.sets.byID {
		s.staleSets = append(s.staleSets, set)
	}
	s.refresh()
}

// leadsOver reports whether a path set leads over one of these interfaces.
func (s *selection) leadsOver(interfaces map[string]bool) bool {
	for _, set := range s.sets.byID {
		over := func(p resolved) bool { return p.leadsOver(interfaces) }
		if set.seen != nil && slices.ContainsFunc(set.seen.paths, over) {
			return true
		}
	}
	return false
}

// differing returns the single addresses that only one of two disjoint lists has, and whether one
// has other prefixes that the other lacks.
func differing(a, b []netip.Prefix) (single []netip.Prefix, ranges bool) {
	for _, lists := range [...][2][]netip.Prefix{{a, b}, {b, a}} {
		for _, p := range lists[0] {
			switch _, there := slices.BinarySearchFunc(lists[1], p, route.ComparePrefixes); {
			case there:
			case p.IsSingleIP():
				single = append(single, p)
			default:
				ranges = true
			}
		}
	}
	return single, ranges
}

// setFacts takes facts with an identity.
func (s *selection) setFacts(f route.Facts) {
	before := s.view
	if s.rebuildView(f); before == nil || !s.view.isComparable(before) {
		s.refreshAll()
		return
	}
	changed := changedStates(before.facts.Interfaces, f.Interfaces)
	for _, set := range s.sets.byID {
		if len(changed) > 0 && set.leavesBy(changed) {
			s.staleSets = append(s.staleSets, set)
		}
	}
	s.refresh()
}

// answer takes the data plane's answer about a next hop.
func (s *selection) answer(n NextHop, r route.Resolution, err error) {
	hop := s.hops.answer(n, r, err)
	if hop == nil {
		return
	}
	if s.recorder != nil {
		s.isTold = true
		s.recorder.Resolved(s.moment(), n, r)
	}
	if hop.protected {
		s.rebuildView(s.view.facts.Facts) // the guard measures by the answer
	}
	s.staleHops = append(s.staleHops, hop)
	s.refresh()
}

// protect sets the addresses that the guard asks about. Link-local ones need none: no route of ours
// lies there.
func (s *selection) protect(own, peers []netip.Addr) {
	own, peers = guardable(own), guardable(peers)
	if slices.Equal(own, s.own) && slices.Equal(peers, s.peers) {
		return
	}
	s.own, s.peers = own, peers
	s.noteSurroundings()
	s.hops.mark(slices.Concat(own, peers), func(hop *nextHop) *bool { return &hop.protected })
	if s.view != nil {
		s.rebuildView(s.view.facts.Facts)
		s.refreshAll()
	}
}

// keepOut sets the ranges of service addresses.
func (s *selection) keepOut(services []netip.Prefix) {
	if slices.Equal(s.services, services) {
		return
	}
	s.services = slices.Clone(services)
	s.noteSurroundings()
	if s.view != nil {
		s.rebuildView(s.view.facts.Facts)
		s.refresh()
	}
}

// follow sets the addresses of Wanted.Follow.
func (s *selection) follow(addresses []netip.Addr) {
	s.hops.following = addresses != nil
	s.hops.mark(guardable(addresses), func(hop *nextHop) *bool { return &hop.followed })
	if s.view != nil {
		s.refreshAll()
	}
}

// setNormal sets above which LOCAL_PREF a route is elevated, for IPv4 and IPv6.
func (s *selection) setNormal(normal [2]uint32) {
	if s.normal == normal {
		return
	}
	s.normal = normal
	s.noteSurroundings()
	for _, e := range s.all {
		for c := e.first; c != nil; c = c.next {
			if c.preference != 0 {
				s.markDirty(e)
			}
		}
	}
}

func guardable(addresses []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addresses {
		if a = a.Unmap(); a.IsValid() && !a.IsLinkLocalUnicast() {
			out = append(out, a.WithZone(""))
		}
	}
	return out
}

// selectDirty selects up to n dirty prefixes and reports whether there are more.
func (s *selection) selectDirty(n int) bool {
	if s.view == nil {
		return false
	}
	done := 0
	for ; done < min(n, len(s.dirty)); done++ { // choosing one may make others dirty
		e := s.dirty[done].entry
		s.received = s.dirty[done].received
		e.clear(isDirty)
		if !e.is(isGone) {
			s.choose(e)
			s.refresh()
		}
	}
	s.received = 0
	if s.dirty = s.dirty[done:]; len(s.dirty) == 0 {
		s.dirty = nil
	}
	return len(s.dirty) > 0
}

// choose selects for one prefix. An elevated key is never selected for itself: it is dirty when it
// was adopted, and its prefix decides about both.
func (s *selection) choose(e *entry) {
	if e.packed.flags&keyElevated != 0 {
		base := s.counterpart(e)
		if base == nil || base.first == nil {
			s.decide(e, choice{}, false)
			s.sync.settle(e)
			return
		}
		e = base
	}
	covers, carried, wasHeld := s.covering(e), e.carries(), s.isCovered(e)
	c := s.holdCovered(e, s.selectEntry(e))
	target, other := e, s.counterpart(e)
	if c.elevated && (c.forward != nil || c.waiting) {
		target, other = s.entry(e.key().Counterpart()), e
	}
	if other != nil {
		other.clear(isWanted)
		s.decide(other, choice{}, false)
	}
	target.mark(isWanted, e.first != nil)
	s.decide(target, c, wasHeld && target == e)
	e.mark(isStatic, e.want != nil && e.attached())
	if e.carries() != carried {
		s.carriesOther(e.key())
	}
	if s.covering(e) != covers {
		s.dirtyInside(e.key())
	}
	s.sync.settle(target)
	s.externalChanged = s.externalChanged || e.wantedBy(route.External)
}

func (s *selection) selectEntry(e *entry) choice {
	s.options = s.options[:0]
	for c := e.first; c != nil; c = c.next {
		s.options = append(s.options, s.option(c))
	}
	if len(s.options) == 0 {
		return choice{}
	}
	return s.view.choose(e.key(), s.options)
}

func (s *selection) option(c *candidate) option {
	o := option{Candidate: Candidate{Origin: c.origin, Kind: c.kind, Elevated: s.isElevated(c)}}
	if c.set != nil {
		o.Paths, o.viable = c.set.paths, c.set.seen
	}
	return o
}

// isElevated reports whether c goes before other owners' routes for its prefix. During a live
// migration both nodes have the address. The new node announces the host route with a LOCAL_PREF
// above the normal one, which all others prefer, the old node with its own route to the machine
// included.
func (s *selection) isElevated(c *candidate) bool {
	normal := s.normal[0]
	if c.entry.key().Prefix.Addr().Is6() {
		normal = s.normal[1]
	}
	return normal > 0 && c.preference > normal
}

// goesBy returns the entry that holds what was selected for the prefix of e.
func (s *selection) goesBy(e *entry) *entry {
	if elevated := s.counterpart(e); elevated != nil && elevated.is(isWanted) {
		return elevated
	}
	return e
}
