package fib

import (
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// guardHold is how long a list must stay as it is until it is believed. A broken list is mostly
// followed by a whole one within seconds; what was really deleted forwards for that long into
// nothing, as it does until it is deleted.
const guardHold = 60 * time.Second

// sources holds what the origins other than BGP want, and guards against lists that lose too much
// at once. Engine guards it.
type sources struct {
	*table
	selection *selection
	routes    map[route.Origin][]route.Route // by key, without what is held
	changes   []listChange                   // that are not carried out yet
	holds     map[route.Origin]*hold
	share     float64 // Tuning.GuardShare
	minimum   int     // Tuning.GuardMinimum
}

func newSources(t *table, s *selection) *sources {
	return &sources{
		table: t, selection: s, routes: make(map[route.Origin][]route.Route),
		holds: make(map[route.Origin]*hold),
	}
}

// hold is what an origin's last list does not have any more, and what stays wanted all the same.
type hold struct {
	keys    map[route.Key]struct{}
	since   time.Time
	release time.Time // unless the list changes
	// revision is the first that left keys out.
	revision uint64
}

// GuardHold describes deletions that the guard holds.
type GuardHold struct {
	Origin   route.Origin
	Held     int
	Since    time.Time
	Releases time.Time // if the list stays as it is
}

// listChange is a list that takes the place of another one.
type listChange struct {
	origin        route.Origin
	before, after []route.Route // that were not compared yet, sorted
	gone          []route.Key   // that after lacks
	all           int           // routes before
	listed        bool
}

// begin has take replace all that origin wants. What is no longer wanted is kept for a while if
// listed, when it is suspiciously much.
func (s *sources) begin(origin route.Origin, routes []route.Route, listed bool) {
	if !slices.IsSortedFunc(routes, compareRoutes) {
		routes = slices.SortedFunc(slices.Values(routes), compareRoutes)
	}
	before := s.routes[origin]
	s.routes[origin] = routes
	s.changes = append(s.changes, listChange{origin: origin, before: before, after: routes,
		all: len(before), listed: listed})
}

// take carries out up to n changes of what has begun, and reports whether that was all.
func (s *sources) take(n int, revision uint64) (done bool) {
	for len(s.changes) > 0 {
		c := &s.changes[0]
		if n = s.replace(c, n, revision); n == 0 {
			return false
		}
		s.end(c, revision)
		s.changes = s.changes[1:]
	}
	return true
}

// end decides about what a new list lacks.
func (s *sources) end(c *listChange, revision uint64) {
	var held map[route.Key]struct{}
	if h := s.holds[c.origin]; h != nil {
		held = h.keys
	}
	var left []route.Key // held, and lacking still
	for k := range held {
		_, there := slices.BinarySearchFunc(s.routes[c.origin], route.Route{Key: k}, compareRoutes)
		if !there {
			left = append(left, k)
		}
	}
	lacking := slices.Concat(c.gone, left)
	keep := setOf(left) // events hold no more
	if c.listed {
		// A list decides anew about all of them, unless it lacks just what is held already.
		keep = setOf(lacking)
		if !maps.Equal(keep, held) && !s.suspicious(len(keep), c.all+len(held)) {
			keep = nil
		}
	}
	for _, k := range lacking {
		if _, ok := keep[k]; !ok {
			s.change(c.origin, route.Route{Key: k}, revision)
		}
	}
	s.hold(c.origin, keep, revision)
	s.setCoverable(c.origin)
}

func compareRoutes(a, b route.Route) int { return route.CompareKeys(a.Key, b.Key) }

func setOf(keys []route.Key) map[route.Key]struct{} {
	set := make(map[route.Key]struct{}, len(keys))
	for _, k := range keys {
		set[k] = struct{}{}
	}
	return set
}

// replace changes up to n routes that differ between the two lists of c, and returns how many are
// left of n: 0 means that there may be more.
func (s *sources) replace(c *listChange, n int, revision uint64) (left int) {
	for n > 0 && (len(c.before) > 0 || len(c.after) > 0) {
		order := len(c.before) - len(c.after) // of which one is 0
		if len(c.before) > 0 && len(c.after) > 0 {
			order = -route.CompareKeys(c.before[0].Key, c.after[0].Key)
		}
		switch {
		case order > 0:
			c.gone = append(c.gone, c.before[0].Key)
			c.before = c.before[1:]
			continue
		case order < 0:
			s.change(c.origin, c.after[0], revision)
			n--
		default:
			b, a := &c.before[0], &c.after[0]
			if b.Kind != a.Kind || !slices.Equal(b.Paths, a.Paths) {
				s.change(c.origin, *a, revision)
				n--
			}
			c.before = c.before[1:]
		}
		c.after = c.after[1:]
	}
	return n
}

// suspicious reports whether losing gone of all routes at once is rather a broken list than the
// truth.
func (s *sources) suspicious(gone, all int) bool {
	return s.share > 0 && gone > s.minimum && float64(gone) > s.share*float64(all)
}

// hold notes what is kept; only a change makes it last longer.
func (s *sources) hold(origin route.Origin, keep map[route.Key]struct{}, revision uint64) {
	now, held := s.holds[origin], len(keep) > 0
	switch {
	case !held:
		delete(s.holds, origin)
	case now == nil:
		s.holds[origin] = &hold{keep, s.now, s.now.Add(guardHold), revision}
	case !maps.Equal(now.keys, keep):
		now.keys, now.release = keep, s.now.Add(guardHold)
	}
}

// release ends the holds whose time has come, or all.
func (s *sources) release(all bool) {
	for origin, h := range s.holds {
		if !all && s.now.Before(h.release) {
			continue
		}
		delete(s.holds, origin)
		for k := range h.keys {
			s.change(origin, route.Route{Key: k}, h.revision)
		}
		s.setCoverable(origin)
	}
}

// nextRelease is when the next hold ends; zero: there is none.
func (s *sources) nextRelease() (next time.Time) {
	for _, h := range s.holds {
		next = sooner(next, h.release)
	}
	return next
}

// kept reports whether the guard alone keeps what origin wanted for k.
func (s *sources) kept(k route.Key, origin route.Origin) bool {
	h := s.holds[origin]
	if h == nil {
		return false
	}
	_, ok := h.keys[k]
	return ok
}

// setCoverable tells which keys origin wants, with what is held.
func (s *sources) setCoverable(origin route.Origin) {
	if !mayYield(origin) {
		return
	}
	keys := slices.Grow(s.selection.coverable[origin][:0], len(s.routes[origin]))
	for _, r := range s.routes[origin] {
		keys = append(keys, r.Key)
	}
	if h := s.holds[origin]; h != nil {
		keys = slices.AppendSeq(keys, maps.Keys(h.keys))
		slices.SortFunc(keys, route.CompareKeys)
	}
	s.selection.coverable[origin] = keys
}
