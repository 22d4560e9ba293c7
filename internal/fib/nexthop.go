package fib

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// rotation is the pause between two look-ups when nothing has happened: a look-up stops VPP's workers for a moment.
	rotation = 50 * time.Millisecond
	// recheck is the pause after a change of the facts, until every next hop has been asked again.
	recheck = 5 * time.Millisecond
	// reportAfter is how long a next hop is unusable before BGP is told to choose without it: an interface that blinks
	// must not move every prefix behind it twice.
	reportAfter = time.Second
	// forgetAfter ends the report about a next hop that no path names any more. It must be kept for a while: BGP rejects what is
	// reported, so that its paths vanish from here while the peer still announces them.
	forgetAfter = time.Hour
)

// nextHop is what is known about one address that paths resolve through, or that the guard protects.
type nextHop struct {
	NextHop
	sets      map[*pathSet]struct{}
	protected bool
	followed  bool // see table.follow

	answered bool
	answer   route.Resolution // the data plane's
	queued   bool             // in nextHops.urgent
	asks     bool             // the data plane must be asked: it is not connected, and might be reached
	inRing   bool

	reason   Reason    // why it is unusable; zero: usable, or not known yet
	badSince time.Time // zero: not unusable
	reported bool
	idle     time.Time // since when no path names it although it is reported; else zero
}

// nextHops are all that are tracked. It is part of table and guarded with it.
type nextHops struct {
	byKey  map[NextHop]*nextHop
	sorted []*nextHop // by table, then address: "which lie in this prefix" is a binary search
	// answers and covered are Facts.Resolutions and Facts.Covered.
	answers map[NextHop]route.Resolution
	covered map[NextHop]Cover

	urgent  []*nextHop // to be asked now
	ring    []*nextHop // the rotation: those that ask, and some that do no longer
	cursor  int        // into ring
	recheck int        // how many are still to be asked again after a change
	asked   time.Time  // when the last look-up began
}

func compareHop(h *nextHop, n NextHop) int { return compareNextHops(h.NextHop, n) }

func (h *nextHops) get(n NextHop) *nextHop {
	if hop, ok := h.byKey[n]; ok {
		return hop
	}
	hop := &nextHop{NextHop: n, sets: make(map[*pathSet]struct{})}
	h.byKey[n] = hop
	i, _ := slices.BinarySearchFunc(h.sorted, n, compareHop)
	h.sorted = slices.Insert(h.sorted, i, hop)
	return hop
}

func (h *nextHops) drop(hop *nextHop) {
	hop.asks = false
	delete(h.byKey, hop.NextHop)
	delete(h.answers, hop.NextHop)
	delete(h.covered, hop.NextHop)
	if i, ok := slices.BinarySearchFunc(h.sorted, hop.NextHop, compareHop); ok {
		h.sorted = slices.Delete(h.sorted, i, i+1)
	}
}

// inside returns the next hops that k covers.
func (h *nextHops) inside(k route.Key) []*nextHop {
	first, _ := slices.BinarySearchFunc(h.sorted, NextHop{k.Table, k.Prefix.Addr()}, compareHop)
	last := first
	for last < len(h.sorted) && h.sorted[last].Table == k.Table && k.Prefix.Contains(h.sorted[last].Address) {
		last++
	}
	return h.sorted[first:last]
}

func (h *nextHops) hurry(hop *nextHop) {
	if !hop.queued {
		hop.queued = true
		h.urgent = append(h.urgent, hop)
	}
}

// track starts following the next hops of a new set.
func (t *table) track(s *pathSet) {
	for _, p := range s.paths {
		if p.Interface != "" || !p.NextHop.IsValid() {
			continue
		}
		hop := t.hops.get(NextHop{p.Table, p.NextHop})
		hop.sets[s] = struct{}{}
		hop.idle = time.Time{}
		s.hops = append(s.hops, hop)
		if t.view != nil {
			t.cover(hop)
			t.judge(hop)
		}
	}
}

func (t *table) untrack(s *pathSet) {
	for _, hop := range s.hops {
		delete(hop.sets, s)
		if len(hop.sets) == 0 && hop.reported && hop.idle.IsZero() {
			hop.idle = t.now
			t.idle = append(t.idle, hop)
		}
		if len(hop.sets) == 0 && hop.Table != 0 {
			t.tablesDue = true // see tablesToKeep
		}
		t.letGo(hop)
	}
}

// letGo forgets a next hop that nobody needs: no path names it, the guard does not ask, and BGP has not been told about it.
func (t *table) letGo(hop *nextHop) {
	if len(hop.sets) == 0 && !hop.protected && !hop.followed && !hop.reported {
		t.hops.drop(hop)
	}
}

// recall takes a report back.
func (t *table) recall(hop *nextHop) {
	hop.reported, hop.idle, t.changed = false, time.Time{}, true
	t.letGo(hop)
}

// needsLookup: what is connected, or can never be a next hop, is known without asking.
func (t *table) needsLookup(hop *nextHop, r resolved) bool {
	if _, _, ok := t.view.facts.Connected(hop.Table, hop.Address); ok {
		return false
	}
	return hop.protected || hop.followed || r.waiting || r.match.IsValid() || r.reason.what == noRoute
}

// nextLookup returns the next hop to ask about now, or nil and when to come again (zero: when something changes).
func (t *table) nextLookup() (*nextHop, time.Time) {
	h := &t.hops
	if !t.present {
		return nil, time.Time{}
	}
	for len(h.urgent) > 0 {
		hop := h.urgent[0]
		h.urgent = h.urgent[1:]
		hop.queued = false
		if hop.asks {
			h.asked = t.now
			return hop, time.Time{}
		}
	}
	pause := rotation
	if h.recheck > 0 {
		pause = recheck
	}
	for len(h.ring) > 0 {
		if h.cursor >= len(h.ring) {
			h.cursor = 0
		}
		hop := h.ring[h.cursor]
		if !hop.asks {
			hop.inRing = false
			h.ring = slices.Delete(h.ring, h.cursor, h.cursor+1)
			continue
		}
		if due := h.asked.Add(pause); t.now.Before(due) {
			return nil, due
		}
		h.cursor++
		h.recheck = max(h.recheck-1, 0)
		h.asked = t.now
		return hop, time.Time{}
	}
	return nil, time.Time{}
}

// answer takes the data plane's answer about n. A failed look-up tells nothing: what was known stays, and the rotation asks again.
func (t *table) answer(n NextHop, life int, r route.Resolution, err error) {
	hop := t.hops.byKey[n]
	if hop == nil || life != t.life || err != nil || hop.answered && hop.answer == r {
		return
	}
	hop.answered, hop.answer = true, r
	t.hops.answers[n] = r
	if hop.protected {
		t.regard(t.view.facts.Facts) // the guard measures by the answer
	}
	t.correct(hop)
}

// correct brings up to date whether a next hop is covered by a route of ours, and what follows from that or from another answer.
func (t *table) correct(hop *nextHop) {
	t.changed = t.changed || t.following
	t.cover(hop)
	for s := range hop.sets {
		t.look(s)
	}
	t.judge(hop)
}

// cover finds the route of ours that covers a next hop. Whether a next hop resolves through a route of ours must not depend on whether that
// route is programmed at this moment, or two routes that resolve through each other would come and go for ever: as in BIRD the
// longest match among all that our sources want counts, programmed or not. In a connected
// subnet only static routes count: BGP does not change who is a neighbour.
func (t *table) cover(hop *nextHop) {
	delete(t.hops.covered, hop.NextHop)
	shortest := 0
	_, subnet, connected := t.view.facts.Connected(hop.Table, hop.Address)
	switch {
	case connected:
		shortest = subnet.Bits() + 1
	case !hop.answered:
		return
	case hop.answer.Prefix.IsValid():
		shortest = hop.answer.Prefix.Bits()
	}
	for bits := hop.Address.BitLen(); bits >= shortest; bits-- {
		p, err := hop.Address.Prefix(bits)
		for _, e := range t.both(route.Key{Table: hop.Table, Prefix: p}) {
			if err == nil && e != nil && t.covers(e) && (!connected || e.is(isStatic)) {
				t.hops.covered[hop.NextHop] = Cover{Prefix: p, Carries: e.is(isStatic)}
				return
			}
		}
	}
}

// covers reports whether e may become the longest match of next hops inside it: some source wants it, the guard does not refuse it, and
// not all of its paths lie behind itself.
func (t *table) covers(e *entry) bool {
	for c := e.first; c != nil; c = c.next {
		if t.view.guard(e.key, c.origin) == (Reason{}) && (c.set == nil || !t.behindItself(e.key, c.set)) {
			return true
		}
	}
	return false
}

func (t *table) behindItself(k route.Key, s *pathSet) bool {
	if len(s.hops) < len(s.paths) {
		return false // one has its interface from the source
	}
	for _, hop := range s.hops {
		if _, subnet, ok := t.view.facts.Connected(hop.Table, hop.Address); ok && subnet.Bits() > k.Prefix.Bits() {
			return false
		}
		if hop.Table != k.Table || !k.Prefix.Contains(hop.Address) {
			return false
		}
	}
	return true
}

// attached reports that external configuration, or this node itself, won e and wants nothing but attached paths for it: unlike what BGP wants
// it resolves through nothing, whichever of the paths are usable now, and so may carry next hops.
func (e *entry) attached() bool {
	if !e.origin.IsStatic() {
		return false
	}
	for c := e.first; c != nil; c = c.next {
		if c.origin == e.origin {
			return c.set != nil && !slices.ContainsFunc(c.set.seen.paths, func(p resolved) bool { return p.Interface == "" })
		}
	}
	return false
}

// judge keeps up to date whether a next hop is to be looked up, and the reports about it.
func (t *table) judge(hop *nextHop) {
	r := t.view.resolve(route.Path{NextHop: hop.Address, Table: hop.Table}, false)
	if hop.asks = t.needsLookup(hop, r); hop.asks {
		if !hop.inRing {
			hop.inRing = true
			t.hops.ring = append(t.hops.ring, hop)
		}
		if !hop.answered {
			t.hops.hurry(hop)
		}
	}
	if r.waiting {
		return
	}
	switch hop.reason = r.reason; {
	case r.reason != (Reason{}):
		if hop.badSince.IsZero() {
			hop.badSince = t.now
			t.suspects = append(t.suspects, hop)
		}
	case !hop.badSince.IsZero():
		hop.badSince = time.Time{}
		if hop.reported {
			t.recall(hop)
		}
	}
}

// report tells about suspects that have been unusable for long enough, forgets what has been idle for long enough, and returns when
// to come again, zero when never.
func (t *table) report() (next time.Time) {
	if !t.present {
		return next
	}
	later := func(due time.Time) bool {
		if !t.now.Before(due) {
			return false
		}
		next = sooner(next, due)
		return true
	}
	t.suspects = slices.DeleteFunc(t.suspects, func(hop *nextHop) bool {
		if hop.badSince.IsZero() || hop.reported || t.hops.byKey[hop.NextHop] != hop {
			return true
		}
		if len(hop.sets) == 0 {
			return false // protected only: nothing for BGP to choose, until a path names it
		}
		if later(hop.badSince.Add(reportAfter)) {
			return false
		}
		if !t.anyUsable() {
			next = sooner(next, t.now.Add(reportAfter))
			return false
		}
		hop.reported, t.changed = true, true
		return true
	})
	t.idle = slices.DeleteFunc(t.idle, func(hop *nextHop) bool {
		if hop.idle.IsZero() || t.hops.byKey[hop.NextHop] != hop {
			return true
		}
		if later(hop.idle.Add(forgetAfter)) {
			return false
		}
		t.recall(hop)
		t.suspects = append(t.suspects, hop)
		return true
	})
	return next
}

// anyUsable: while no next hop is usable, as after a restart of VPP or the loss of the only up-link, BGP has nothing better to choose, and
// telling it would only make it withdraw and learn again every route.
func (t *table) anyUsable() bool {
	return slices.ContainsFunc(t.hops.sorted, func(hop *nextHop) bool {
		return len(hop.sets) > 0 && hop.badSince.IsZero() && (hop.answered || !hop.asks)
	})
}

// sooner returns the earlier of two times, of which a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// protect sets the addresses that the guard asks about. Link-local ones need none: no route of ours lies there.
func (t *table) protect(own, peers []netip.Addr) {
	own, peers = guardable(own), guardable(peers)
	if slices.Equal(own, t.own) && slices.Equal(peers, t.peers) {
		return
	}
	t.own, t.peers = own, peers
	t.markHops(slices.Concat(own, peers), func(hop *nextHop) *bool { return &hop.protected })
	if t.view != nil {
		t.regard(t.view.facts.Facts)
		t.lookAtAll()
	}
}

// markHops marks the next hops with these addresses in the default table, and no other, as needed.
func (t *table) markHops(addresses []netip.Addr, mark func(*nextHop) *bool) {
	kept := make(map[NextHop]bool)
	for _, a := range addresses {
		n := NextHop{Address: a}
		kept[n] = true
		*mark(t.hops.get(n)) = true
	}
	for _, hop := range slices.Clone(t.hops.sorted) {
		if *mark(hop) && !kept[hop.NextHop] {
			*mark(hop) = false
			t.letGo(hop)
		}
	}
}

// keepOut sets the ranges of service addresses and looks again at what lies in those that came or went.
func (t *table) keepOut(services []netip.Prefix) {
	old := t.services
	if slices.Equal(old, services) {
		return
	}
	t.services = slices.Clone(services)
	if t.view == nil {
		return
	}
	t.regard(t.view.facts.Facts)
	for k, e := range t.entries {
		lies := func(r netip.Prefix) bool { return r.Bits() <= k.Prefix.Bits() && r.Contains(k.Prefix.Addr()) }
		if slices.ContainsFunc(old, lies) != slices.ContainsFunc(services, lies) {
			t.guardAnew(e)
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
