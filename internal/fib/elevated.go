package fib

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// While a machine moves, its old and its new node have its address. Calico's new node announces the host route with a LOCAL_PREF above the
// normal one, and everybody who hears that is to prefer it, the old node with its own route to the machine included. So such a route
// is an entry of its own, elevated, and while BGP wants a prefix elevated it does not want it otherwise.
//
// Of two entries of one prefix one is on its way out: it goes when the data plane has taken the other, or has refused it. Where the other
// recurses it is the other way round, with no route of ours in between: VPP 25.10 crashes when two of its sources have a recursive route
// for one prefix.

// isElevated reports whether a path with that LOCAL_PREF is to go before what the node itself has for p.
func (t *table) isElevated(p netip.Prefix, preference uint32) bool {
	normal := t.normal[0]
	if p.Addr().Is6() {
		normal = t.normal[1]
	}
	return normal > 0 && preference > normal && p.IsSingleIP() && !t.outranked(p)
}

// outranked reports whether somebody wants p whose routes go before BGP's: external configuration, or the node itself. An elevated entry would go before
// theirs, which is not elevated, so BGP gets no other place then, and Select decides.
func (t *table) outranked(p netip.Prefix) bool {
	f := Facts{Distances: t.distances}
	for c := t.entries[route.Key{Prefix: p}].firstCandidate(); c != nil; c = c.next {
		if f.distance(c.origin) < f.distance(route.BGP) {
			return true
		}
	}
	return false
}

// placeAgain places BGP's paths of a prefix anew, of which another origin wants something else now.
func (t *table) placeAgain(p netip.Prefix) {
	k := route.Key{Prefix: p}
	for _, e := range []*entry{t.entries[k], t.entries[k.Twin()]} {
		if c := e.candidate(route.BGP); c != nil && c.preference != 0 && t.isElevated(p, c.preference) != e.key.Elevated {
			t.place(p, c.set.paths, c.preference)
			return
		}
	}
}

// place wishes for what BGP says about p where its LOCAL_PREF puts it.
func (t *table) place(p netip.Prefix, paths []route.Path, preference uint32) {
	k := route.Key{Prefix: p}
	_, was := t.elevated[p]
	is := len(paths) > 0 && t.isElevated(p, preference)
	k.Elevated = is
	if c := t.wish(k, route.BGP, route.Via, paths); c != nil && preference != 0 && p.IsSingleIP() {
		c.preference = preference
	}
	if is == was {
		return
	}
	t.wish(k.Twin(), route.BGP, route.Via, nil)
	if is {
		t.elevated[p] = struct{}{}
	} else {
		delete(t.elevated, p)
	}
}

// candidate returns what origin wants for e, nil for nothing.
func (e *entry) candidate(origin route.Origin) *candidate {
	for c := e.firstCandidate(); c != nil; c = c.next {
		if c.origin == origin {
			return c
		}
	}
	return nil
}

func (e *entry) firstCandidate() *candidate {
	if e == nil {
		return nil
	}
	return e.first
}

// setNormal sets above which LOCAL_PREF a host route is elevated, for IPv4 and IPv6.
func (t *table) setNormal(normal [2]uint32) {
	if t.normal != normal {
		t.normal = normal
		t.placeAll()
	}
}

// placeAll places BGP's host routes anew.
func (t *table) placeAll() {
	var all []*candidate
	for _, e := range t.all {
		if c := e.candidate(route.BGP); c != nil && c.preference != 0 {
			all = append(all, c)
		}
	}
	for _, c := range all {
		if k := c.entry.key; t.isElevated(k.Prefix, c.preference) != k.Elevated {
			t.place(k.Prefix, c.set.paths, c.preference)
		}
	}
}

// twin returns the entry of the same prefix that is elevated where e is not, or the other way round; nil: there is none.
func (t *table) twin(e *entry) *entry {
	if t.numElevated == 0 || !e.key.Prefix.IsSingleIP() {
		return nil
	}
	return t.entries[e.key.Twin()]
}

// both returns the entries of a prefix, nil for those that are not there.
func (t *table) both(k route.Key) [2]*entry {
	k.Elevated = false
	if t.numElevated == 0 {
		return [2]*entry{t.entries[k]}
	}
	return [2]*entry{t.entries[k], t.entries[k.Twin()]}
}

// replaces reports whether e is to be there instead of its twin, and whether the twin can go now: e is there, was refused, or needs the place.
func (e *entry) replaces() (yes, now bool) {
	switch {
	case e == nil, e.want == nil && !e.is(isWaiting):
		return false, false
	case e.is(isWaiting):
		return true, false
	}
	return true, e.fail != nil || e.recurses() || e.actual == e.want.digest && !e.is(isUnsure)
}

func (e *entry) recurses() bool {
	return e.want != nil && slices.ContainsFunc(e.want.paths, func(p route.Path) bool { return p.Interface == "" })
}

// isBarred reports whether e must not be put yet because of its twin.
func (t *table) isBarred(e *entry) bool {
	twin := t.twin(e)
	return twin != nil && (twin.actual != 0 || twin.is(isUnsure|isFlying)) && e.recurses()
}
