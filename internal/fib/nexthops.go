package fib

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// rotation is the pause between two look-ups when nothing has happened: a look-up stops VPP's
	// workers for a moment.
	rotation = 50 * time.Millisecond
	// recheck is the pause after a change of the facts, until every next hop has been asked again.
	recheck = 5 * time.Millisecond
	// reportAfter is how long a next hop is unusable before BGP chooses without it: an
	// interface that blinks must not move every prefix behind it twice.
	reportAfter = time.Second
	// forgetAfter ends the report about a next hop that no path names any more. It must be kept for
	// a while: BGP rejects what is reported, so that its paths vanish from here while the peer
	// still announces them.
	forgetAfter = time.Hour
)

// nextHop is an address that paths resolve through, that the guard protects, or that is followed.
type nextHop struct {
	NextHop
	sets      map[*pathSet]struct{}
	protected bool
	followed  bool // see selection.follow

	answered bool
	answer   route.Resolution // the data plane's
	queued   bool             // in nextHops.urgent
	// the data plane must be asked: it is not connected, and might be reached
	asks   bool
	inRing bool

	// How a path by it resolves, as path sets of dynamic and of static routes read it.
	reached [2]resolved

	reason   Reason    // why it is unusable; zero: usable, or not known yet
	badSince time.Time // zero: not unusable
	reported bool
	idle     time.Time // since when no path names it although it is reported; else zero
}

// nextHops tracks all next hops: which questions the data plane is asked about them and when, what
// it answered, and which BGP rejects since they are unusable for long. Engine guards it.
type nextHops struct {
	*table
	byKey     map[NextHop]*nextHop
	sorted    []*nextHop // by table, then address: "which lie in this prefix" is a binary search
	following bool       // Engine.Outgoing is asked for
	// answers and covered are Facts.Resolutions and Facts.Covered.
	answers map[NextHop]route.Resolution
	covered map[NextHop]Cover

	urgent  []*nextHop // to be asked now
	ring    []*nextHop // the rotation: those that ask, and some that do no longer
	cursor  int        // into ring
	recheck int        // how many are still to be asked again after a change
	asked   time.Time  // when the last look-up began

	suspects []*nextHop // unusable, not reported yet
	idle     []*nextHop // reported, but named by no path any more
}

func newNextHops(t *table) *nextHops {
	return &nextHops{
		table: t, byKey: make(map[NextHop]*nextHop),
		answers: make(map[NextHop]route.Resolution), covered: make(map[NextHop]Cover),
	}
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
	if _, answered := h.answers[hop.NextHop]; answered && h.recorder != nil {
		h.recorder.Forgotten(h.moment(), hop.NextHop)
	}
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
	for last < len(h.sorted) && h.sorted[last].Table == k.Table &&
		k.Prefix.Contains(h.sorted[last].Address) {
		last++
	}
	return h.sorted[first:last]
}

// askInside has the next hops inside k asked about now: they are reached differently.
func (h *nextHops) askInside(k route.Key) {
	for _, hop := range h.inside(k) {
		h.askNow(hop)
	}
}

func (h *nextHops) askNow(hop *nextHop) {
	if !hop.queued {
		hop.queued = true
		h.urgent = append(h.urgent, hop)
	}
}

// askAll has all asked about again, in rotation.
func (h *nextHops) askAll() { h.recheck = len(h.ring) }

// askAllNow is askAll without a pause, for data planes that report changes of routes.
func (h *nextHops) askAllNow() {
	for _, hop := range h.ring {
		h.askNow(hop)
	}
}

// forgetAnswers: the data plane is another one.
func (h *nextHops) forgetAnswers() {
	clear(h.answers)
	for _, hop := range h.sorted {
		hop.answered = false // update asks
	}
}

// name: the paths of s name the next hop n.
func (h *nextHops) name(n NextHop, s *pathSet) {
	hop := h.get(n)
	hop.sets[s] = struct{}{}
	hop.idle = time.Time{}
	s.hops = append(s.hops, hop)
}

// unname: s is no more.
func (h *nextHops) unname(s *pathSet) {
	for _, hop := range s.hops {
		delete(hop.sets, s)
		if len(hop.sets) == 0 && hop.reported && hop.idle.IsZero() {
			hop.idle = h.now
			h.idle = append(h.idle, hop)
		}
		h.letGo(hop)
	}
}

// letGo drops a next hop that is not needed: no path names it, the guard does not ask, and BGP does
// not reject it.
func (h *nextHops) letGo(hop *nextHop) {
	if len(hop.sets) == 0 && !hop.protected && !hop.followed && !hop.reported {
		h.drop(hop)
	}
}

// withdrawReport: BGP may choose the next hop again.
func (h *nextHops) withdrawReport(hop *nextHop) {
	hop.reported, hop.idle, h.changed = false, time.Time{}, true
	h.letGo(hop)
}

// mark marks the next hops with these addresses in the default table, and no other, as needed.
func (h *nextHops) mark(addresses []netip.Addr, field func(*nextHop) *bool) {
	kept := make(map[NextHop]bool)
	for _, a := range addresses {
		n := NextHop{Address: a}
		kept[n] = true
		*field(h.get(n)) = true
	}
	for _, hop := range slices.Clone(h.sorted) {
		if *field(hop) && !kept[hop.NextHop] {
			*field(hop) = false
			h.letGo(hop)
		}
	}
}

// next returns the next hop to ask about now, or nil and when to come again (zero: when something
// changes).
func (h *nextHops) next() (*nextHop, time.Time) {
	for len(h.urgent) > 0 {
		hop := h.urgent[0]
		h.urgent = h.urgent[1:]
		hop.queued = false
		if hop.asks {
			h.asked = h.now
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
		if due := h.asked.Add(pause); h.now.Before(due) {
			return nil, due
		}
		h.cursor++
		h.recheck = max(h.recheck-1, 0)
		h.asked = h.now
		return hop, time.Time{}
	}
	return nil, time.Time{}
}

// answer takes the data plane's answer about n, and returns the next hop if that is news. A failed
// look-up has no answer: what was known stays, and the rotation asks again.
func (h *nextHops) answer(n NextHop, r route.Resolution, err error) *nextHop {
	hop := h.byKey[n]
	if hop == nil || err != nil || hop.answered && hop.answer.Equal(r) {
		return nil
	}
	hop.answered, hop.answer = true, r
	h.answers[n] = r
	return hop
}

// update works out how a next hop is reached, and what follows for questions and reports; changed
// says that path sets read something else now.
func (h *nextHops) update(hop *nextHop, v *view) (changed bool) {
	path := route.Path{NextHop: hop.Address, Table: hop.Table}
	reached := [2]resolved{v.resolve(path, false), v.resolve(path, true)}
	changed = !reached[0].equal(hop.reached[0]) || !reached[1].equal(hop.reached[1])
	hop.reached = reached
	r := reached[0]
	if hop.asks = h.needsLookup(hop, r, v); hop.asks {
		if !hop.inRing {
			hop.inRing = true
			h.ring = append(h.ring, hop)
		}
		if !hop.answered {
			h.askNow(hop)
		}
	}
	if r.waiting {
		return changed
	}
	switch hop.reason = r.reason; {
	case r.reason != (Reason{}):
		if hop.badSince.IsZero() {
			hop.badSince = h.now
			h.suspects = append(h.suspects, hop)
		}
	case !hop.badSince.IsZero():
		hop.badSince = time.Time{}
		if hop.reported {
			h.withdrawReport(hop)
		}
	}
	return changed
}

// needsLookup: what is connected, or can never be a next hop, is known without asking.
func (h *nextHops) needsLookup(hop *nextHop, r resolved, v *view) bool {
	if _, _, ok := v.connectedTo(hop.NextHop); ok {
		return false
	}
	return hop.protected || hop.followed || r.waiting || r.match.IsValid() ||
		r.reason.what == noRoute
}

// report publishes suspects that have been unusable for long enough, drops what has been idle
// for long enough, and returns when to come again, zero when never.
func (h *nextHops) report() (next time.Time) {
	later := func(due time.Time) bool {
		if !h.now.Before(due) {
			return false
		}
		next = sooner(next, due)
		return true
	}
	h.suspects = slices.DeleteFunc(h.suspects, func(hop *nextHop) bool {
		if hop.badSince.IsZero() || hop.reported || h.byKey[hop.NextHop] != hop {
			return true
		}
		if len(hop.sets) == 0 {
			return false // protected only: nothing for BGP to choose, until a path names it
		}
		if later(hop.badSince.Add(reportAfter)) {
			return false
		}
		if !h.anyUsable() {
			next = sooner(next, h.now.Add(reportAfter))
			return false
		}
		hop.reported, h.changed = true, true
		return true
	})
	h.idle = slices.DeleteFunc(h.idle, func(hop *nextHop) bool {
		if hop.idle.IsZero() || h.byKey[hop.NextHop] != hop {
			return true
		}
		if later(hop.idle.Add(forgetAfter)) {
			return false
		}
		h.withdrawReport(hop)
		h.suspects = append(h.suspects, hop)
		return true
	})
	return next
}

// anyUsable: while no next hop is usable, as after a restart of VPP or the loss of the only
// up-link, BGP has nothing better to choose, and telling it would only make it withdraw and learn
// again every route.
func (h *nextHops) anyUsable() bool {
	return slices.ContainsFunc(h.sorted, func(hop *nextHop) bool {
		return len(hop.sets) > 0 && hop.badSince.IsZero() && (hop.answered || !hop.asks)
	})
}

// unusable lists the next hops in the default table that BGP rejects.
func (h *nextHops) unusable() (out []UnusableNextHop) {
	for _, hop := range h.sorted {
		if hop.reported && hop.Table == 0 {
			out = append(out, UnusableNextHop{hop.Address, hop.reason})
		}
	}
	return out
}

// sooner returns the earlier of two times, of which a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
