package fib

import (
	"maps"
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
	keys      map[route.Origin]map[route.Key]struct{} // with what is held
	holds     map[route.Origin]*hold
	share     float64 // Tuning.GuardShare
	minimum   int     // Tuning.GuardMinimum
}

func newSources(t *table, s *selection) *sources {
	return &sources{
		table: t, selection: s, keys: make(map[route.Origin]map[route.Key]struct{}),
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
	before, after := s.keys[origin], make(map[route.Key]struct{}, len(routes))
	for _, r := range routes {
		after[r.Key] = struct{}{}
		s.change(origin, r, revision)
	}
	keep := s.keep(origin, before, after, listed)
	for k := range before {
		if _, ok := after[k]; ok {
			continue
		}
		if _, ok := keep[k]; ok {
			after[k] = struct{}{}
		} else {
			s.change(origin, route.Route{Key: k}, revision)
		}
	}
	s.hold(origin, keep, revision)
	s.setKeys(origin, after)
}

// keep returns which keys of before, that after lacks, stay wanted. A list decides anew about all
// of them, unless it lacks just what is held already; events add none.
func (s *sources) keep(origin route.Origin, before, after map[route.Key]struct{},
	listed bool) map[route.Key]struct{} {
	var held map[route.Key]struct{}
	if h := s.holds[origin]; h != nil {
		held = h.keys
	}
	from := before
	if !listed {
		from = held
	}
	keep := make(map[route.Key]struct{})
	for k := range from {
		if _, ok := after[k]; !ok {
			keep[k] = struct{}{}
		}
	}
	if listed && !maps.Equal(keep, held) && !s.suspicious(len(keep), len(before)) {
		return nil
	}
	return keep
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
		keys := maps.Clone(s.keys[origin])
		for k := range h.keys {
			delete(keys, k)
			s.change(origin, route.Route{Key: k}, h.revision)
		}
		s.setKeys(origin, keys)
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

// setKeys notes which keys origin wants.
func (s *sources) setKeys(origin route.Origin, keys map[route.Key]struct{}) {
	s.keys[origin] = keys
	s.selection.setCoverable(origin, keys)
}
