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

// set replaces all that origin wants. What is no longer wanted is kept for a while if listed, when
// it is suspiciously much.
func (s *sources) set(origin route.Origin, routes []route.Route, listed bool, revision uint64) {
	if !slices.IsSortedFunc(routes, compareRoutes) {
		routes = slices.SortedFunc(slices.Values(routes), compareRoutes)
	}
	all := len(s.routes[origin])
	gone := s.replace(origin, routes, revision)
	var held map[route.Key]struct{}
	if h := s.holds[origin]; h != nil {
		held = h.keys
		all += len(held)
	}
	var left []route.Key // held, and lacking still
	for k := range held {
		if _, ok := slices.BinarySearchFunc(routes, route.Route{Key: k}, compareRoutes); !ok {
			left = append(left, k)
		}
	}
	lacking := slices.Concat(gone, left)
	keep := setOf(left) // events hold no more
	if listed {
		// A list decides anew about all of them, unless it lacks just what is held already.
		keep = setOf(lacking)
		if !maps.Equal(keep, held) && !s.suspicious(len(keep), all) {
			keep = nil
		}
	}
	for _, k := range lacking {
		if _, ok := keep[k]; !ok {
			s.change(origin, route.Route{Key: k}, revision)
		}
	}
	s.hold(origin, keep, revision)
	s.setCoverable(origin)
}

func compareRoutes(a, b route.Route) int { return route.CompareKeys(a.Key, b.Key) }

func setOf(keys []route.Key) map[route.Key]struct{} {
	set := make(map[route.Key]struct{}, len(keys))
	for _, k := range keys {
		set[k] = struct{}{}
	}
	return set
}

// replace changes what differs between two sorted lists, and returns the keys that the new one
// lacks.
func (s *sources) replace(origin route.Origin, after []route.Route,
	revision uint64) (gone []route.Key) {
	before := s.routes[origin]
	s.routes[origin] = after
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0, len(before) > 0 && compareRoutes(before[0], after[0]) < 0:
			gone = append(gone, before[0].Key)
			before = before[1:]
			continue
		case len(before) == 0 || compareRoutes(before[0], after[0]) > 0:
			s.change(origin, after[0], revision)
		default:
			if b, a := before[0], after[0]; b.Kind != a.Kind || !slices.Equal(b.Paths, a.Paths) {
				s.change(origin, a, revision)
			}
			before = before[1:]
		}
		after = after[1:]
	}
	return gone
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
	if origin != route.Etcd && origin != route.External {
		return
	}
	keys := make([]route.Key, 0, len(s.routes[origin]))
	for _, r := range s.routes[origin] {
		keys = append(keys, r.Key)
	}
	if h := s.holds[origin]; h != nil {
		keys = slices.AppendSeq(keys, maps.Keys(h.keys))
		slices.SortFunc(keys, route.CompareKeys)
	}
	s.selection.coverable[origin] = keys
}
