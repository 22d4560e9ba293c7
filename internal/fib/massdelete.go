package fib

import (
	"maps"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// DefaultGuardShare and DefaultGuardMinimum let the ordinary life of a cluster through: what is to go at once must be more
	// than half of an origin's routes, and more than a hundred.
	DefaultGuardShare   = 0.5
	DefaultGuardMinimum = 100
	// guardHold is how long a list must stay as it is until it is believed. A broken list is mostly followed by a whole one within
	// seconds; what was really deleted forwards for that long into nothing, as it does until somebody deletes it.
	guardHold = 60 * time.Second
)

// hold is what an origin's last list does not have any more, and what stays wanted all the same.
type hold struct {
	keys    map[route.Key]struct{}
	since   time.Time
	release time.Time // unless the list changes
}

// GuardHold tells about deletions that the guard holds.
type GuardHold struct {
	Origin   route.Origin
	Held     int
	Since    time.Time
	Releases time.Time // if the list stays as it is
}

// setWishes replaces all that origin wants. What is no longer wanted is kept for a while if listed, when it is suspiciously much.
func (t *table) setWishes(origin route.Origin, routes []route.Route, listed bool) {
	before, after := t.wishes[origin], make(map[route.Key]struct{}, len(routes))
	for _, r := range routes {
		after[r.Key] = struct{}{}
		t.wish(r.Key, origin, r.Kind, r.Paths)
	}
	keep := t.keep(origin, before, after, listed)
	for k := range before {
		if _, ok := after[k]; ok {
			continue
		}
		if _, ok := keep[k]; ok {
			after[k] = struct{}{}
		} else {
			t.wish(k, origin, route.Via, nil)
		}
	}
	t.hold(origin, keep)
	t.setKeys(origin, after)
}

// keep returns which keys of before, that after lacks, stay wanted. A list decides anew about all of them, unless it lacks just what
// is held already; events add none.
func (t *table) keep(origin route.Origin, before, after map[route.Key]struct{}, listed bool) map[route.Key]struct{} {
	var held map[route.Key]struct{}
	if h := t.holds[origin]; h != nil {
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
	if listed && !maps.Equal(keep, held) && !t.suspicious(len(keep), len(before)) {
		return nil
	}
	return keep
}

// suspicious reports whether losing gone of all routes at once is rather a broken list than the truth.
func (t *table) suspicious(gone, all int) bool {
	return t.tuning.GuardShare > 0 && gone > t.tuning.GuardMinimum && float64(gone) > t.tuning.GuardShare*float64(all)
}

// hold notes what is kept; only a change makes it last longer.
func (t *table) hold(origin route.Origin, keep map[route.Key]struct{}) {
	now, held := t.holds[origin], len(keep) > 0
	switch {
	case !held:
		delete(t.holds, origin)
	case now == nil:
		t.holds[origin] = &hold{keep, t.now, t.now.Add(guardHold)}
	case !maps.Equal(now.keys, keep):
		now.keys, now.release = keep, t.now.Add(guardHold)
	}
}

// release ends the holds whose time has come, or all.
func (t *table) release(all bool) {
	for origin, h := range t.holds {
		if !all && t.now.Before(h.release) {
			continue
		}
		delete(t.holds, origin)
		keys := maps.Clone(t.wishes[origin])
		for k := range h.keys {
			delete(keys, k)
			t.wish(k, origin, route.Via, nil)
		}
		t.setKeys(origin, keys)
	}
}

// nextRelease is when the next hold ends; zero: there is none.
func (t *table) nextRelease() (next time.Time) {
	for _, h := range t.holds {
		next = sooner(next, h.release)
	}
	return next
}

// kept reports whether the guard alone keeps origin's wish for k.
func (t *table) kept(k route.Key, origin route.Origin) bool {
	h := t.holds[origin]
	if h == nil {
		return false
	}
	_, ok := h.keys[k]
	return ok
}
