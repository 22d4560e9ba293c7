package fib

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// A route from IPAM, or a backup of external configuration, gives way to any BGP route that covers
// it: else a leaked allocation's /32 would beat the block that BGP announces. While BGP comes or
// goes the cover may be there before the longer BGP route. So what is programmed stays for
// coverHold, and until all peers have sent their routes. None that is covered is put.

// coverHold is longer than the agent takes to notice that a session is gone or new.
const coverHold = 3 * time.Second

// mayYield: an origin may be one whose routes give way, see Facts.yields.
func mayYield(o route.Origin) bool { return o == route.Etcd || o == route.External }

// dirtyInside: who forwards for k decides about the routes that k covers.
func (s *selection) dirtyInside(k route.Key) {
	for _, keys := range s.coverable {
		i, _ := slices.BinarySearchFunc(keys, k, route.CompareKeys)
		for _, inside := range keys[i:] {
			if inside.Table != k.Table || !k.Prefix.Contains(inside.Prefix.Addr()) {
				break
			}
			if e := s.get(inside); e != nil && inside.Prefix != k.Prefix {
				s.markDirty(e)
			}
		}
	}
}

// covering is what an entry is to the routes that it covers.
type covering uint8

const (
	coversNothing covering = iota
	coversByBGP
	// coversBetter: not BGP would have the last word about what lies inside, but external
	// configuration or, coversAsOwn, this node's own block. The /32 that another node has borrowed
	// from a block of ours must not give way to the aggregate around the block: it would end in the
	// block's drop.
	coversBetter
	coversAsOwn
)

func (s *selection) covering(e *entry) covering {
	switch {
	case e != nil && e.want == nil && s.isLeft(e):
		return coversAsOwn // of an earlier run: whether it is still one, Calico's data will say
	case e == nil || e.want == nil || (Facts{Distances: s.distances}).yields(e.origin()):
		return coversNothing
	case e.origin() == route.BGP:
		return coversByBGP
	case e.origin() == route.Own:
		return coversAsOwn
	}
	return coversBetter
}

// isLeft: an earlier run has left e, this node's own, and nobody knows yet whether it still is.
func (s *selection) isLeft(e *entry) bool {
	return e.owner == sourceID(route.Own) && s.sync.isHeld(e)
}

// bgpCover is Facts.BGPCover.
func (s *selection) bgpCover(k route.Key) (netip.Prefix, bool) {
	for bits := k.Prefix.Bits() - 1; bits > 0; bits-- {
		if s.lengths[lengthOf(k, bits)] == 0 {
			continue
		}
		p, _ := k.Prefix.Addr().Prefix(bits)
		switch s.covering(s.get(route.Key{Table: k.Table, Prefix: p})) {
		case coversByBGP:
			return p, true
		case coversBetter, coversAsOwn:
			return netip.Prefix{}, false
		}
	}
	return netip.Prefix{}, false
}

// length is a length of prefixes of one family, as an index.
type length int

const lengths = 129 + 33

func lengthOf(k route.Key, bits int) length {
	if k.Prefix.Addr().Is4() {
		return length(129 + bits)
	}
	return length(bits)
}

// ownCover is Facts.OwnCover.
func (s *selection) ownCover(k route.Key) (netip.Prefix, bool) {
	for bits := k.Prefix.Bits() - 1; bits > 0; bits-- {
		if s.ownLengths[lengthOf(k, bits)] == 0 {
			continue
		}
		p, _ := k.Prefix.Addr().Prefix(bits)
		if s.covering(s.get(route.Key{Table: k.Table, Prefix: p})) == coversAsOwn {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// holdCovered changes c, which was selected for e, where only a cover speaks against what is there.
func (s *selection) holdCovered(e *entry, c choice) choice {
	if s.holds != nil {
		delete(s.covered, e)
		if c.forward == nil && c.covered != nil && s.holds(e.key()) {
			s.covered[e] = s.now
			c.hold()
		}
		return c
	}
	if c.forward != nil || c.covered == nil || e.want == nil || e.want.digest != c.covered.digest {
		delete(s.covered, e)
		return c
	}
	until, held := s.covered[e]
	if !held {
		until = s.now.Add(coverHold)
		s.covered[e] = until
	}
	if !s.converging && !s.now.Before(until) {
		delete(s.covered, e)
		return c
	}
	c.hold()
	return c
}

func (c *choice) hold() {
	c.forward, c.origin, c.waiting, c.held = c.covered, c.coveredBy, false, true
	c.elevated = false // BGP's candidate was: this is another's
}

// isCovered: what is there for e stays, though BGP covers it.
func (s *selection) isCovered(e *entry) bool {
	_, is := s.covered[e]
	return is
}

// setConverging: not all BGP routes are known yet.
func (s *selection) setConverging(is bool) {
	if is != s.converging {
		s.converging = is
		s.noteSurroundings()
	}
}

// releaseCovered has those selected again whose time is over.
func (s *selection) releaseCovered() {
	if s.converging {
		return
	}
	for e, until := range s.covered {
		if !s.now.Before(until) {
			s.markDirty(e)
		}
	}
}

// nextCovered is when the next one's time is over; zero: none's is.
func (s *selection) nextCovered() (next time.Time) {
	if s.converging {
		return time.Time{}
	}
	for _, until := range s.covered {
		next = sooner(next, until)
	}
	return next
}

// cover finds the route of ours that covers a next hop: as in BIRD the longest match of all that
// our sources want, programmed or not. Otherwise two routes that resolve through each other would
// flap. In a connected subnet only static routes count: BGP does not change who is a neighbour.
func (s *selection) cover(hop *nextHop) {
	delete(s.hops.covered, hop.NextHop)
	shortest := 0
	_, subnet, connected := s.view.connectedTo(hop.NextHop)
	switch {
	case connected:
		shortest = subnet.Bits() + 1
	case !hop.answered:
		return
	case hop.answer.Prefix.IsValid():
		shortest = hop.answer.Prefix.Bits()
	}
	for bits := hop.Address.BitLen(); bits >= shortest; bits-- {
		p, _ := hop.Address.Prefix(bits)
		k := route.Key{Table: hop.Table, Prefix: p}
		if s.lengths[lengthOf(k, bits)] == 0 {
			continue
		}
		if e := s.get(k); e != nil && s.covers(e) && (!connected || e.is(isStatic)) {
			c := Cover{Prefix: p, Carries: e.is(isStatic)}
			if c.Carries {
				c.Paths = e.want.paths
			}
			s.hops.covered[hop.NextHop] = c
			return
		}
	}
}

// covers reports whether e may become the longest match of next hops inside it: some source wants
// it, the guard does not refuse it, and not all of its paths lie behind itself.
func (s *selection) covers(e *entry) bool {
	for c := e.first; c != nil; c = c.next {
		if s.view.guard(e.key(), c.origin) == (Reason{}) &&
			(c.set == nil || !s.behindItself(e.key(), c.set)) {
			return true
		}
	}
	return false
}

func (s *selection) behindItself(k route.Key, set *pathSet) bool {
	if len(set.hops) < len(set.paths) {
		return false // one has its interface from the source
	}
	for _, hop := range set.hops {
		_, subnet, ok := s.view.connectedTo(hop.NextHop)
		if ok && subnet.Bits() > k.Prefix.Bits() {
			return false
		}
		if hop.Table != k.Table || !k.Prefix.Contains(hop.Address) || s.carriedInside(hop, k) {
			return false
		}
	}
	return true
}

// carriedInside reports whether a route inside k, and longer, carries a next hop.
func (s *selection) carriedInside(hop *nextHop, k route.Key) bool {
	for bits := hop.Address.BitLen(); bits > k.Prefix.Bits(); bits-- {
		p, _ := hop.Address.Prefix(bits)
		longer := route.Key{Table: k.Table, Prefix: p}
		if s.lengths[lengthOf(longer, bits)] == 0 {
			continue
		}
		if e := s.get(longer); e != nil && e.is(isStatic) {
			return true
		}
	}
	return false
}

// carries returns what next hops resolve through e by; nil: none do.
func (e *entry) carries() *forward {
	if e.is(isStatic) {
		return e.want
	}
	return nil
}

// attached reports that external configuration, or this node itself, won e and wants nothing but
// attached paths for it: unlike what BGP wants it resolves through nothing, whichever of the paths
// are usable now, and so may carry next hops.
func (e *entry) attached() bool {
	if !e.origin().IsStatic() {
		return false
	}
	for c := e.first; c != nil; c = c.next {
		if c.origin == e.origin() {
			return c.set != nil && !slices.ContainsFunc(c.set.seen.paths,
				func(p resolved) bool { return p.Interface == "" })
		}
	}
	return false
}
