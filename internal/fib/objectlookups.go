package fib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// nextObject returns the object to look up now, or nil and when to come again (zero: when something
// changes).
func (s *syncer) nextObject() (*object, time.Time) {
	x := &s.objects
	if !s.present {
		return nil, time.Time{}
	}
	for len(x.soon) > 0 {
		o := x.soon[0]
		o.isSoon = false
		if x.soon = x.soon[1:]; s.canLookUp(o) {
			x.looking = o
			return o, time.Time{}
		}
	}
	if x.held {
		x.held = false
		s.settleLeaving()
		return nil, s.now
	}
	for len(x.again) > 0 {
		o := x.again[0]
		o.isAgain = false
		if x.again = x.again[1:]; s.canLookUp(o) {
			return o, time.Time{}
		}
	}
	if len(x.turn) == 0 {
		return nil, time.Time{}
	}
	if s.now.Before(x.next) {
		return nil, x.next
	}
	for range x.turn {
		x.cursor = (x.cursor + 1) % len(x.turn)
		if o := x.turn[x.cursor]; s.canLookUp(o) {
			return o, time.Time{}
		}
	}
	x.next = s.now.Add(objectInterval)
	return nil, x.next
}

// canLookUp: nothing about o, or what it needs, is open but whether it is there.
func (s *syncer) canLookUp(o *object) bool {
	f := s.failures[o.entry]
	for _, k := range o.needs {
		if n := s.objects.byKey[k]; n != nil && n.is(isFlying) {
			return false
		}
	}
	return o.want != nil && !f.holds(s.now) &&
		!o.is(isUnsure|isFlying|inPuts|inDeletes|isGone)
}

func (e *Engine) lookUpObject(ctx context.Context, k route.ObjectKey) (route.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return e.dataplane.Object(ctx, k)
}

// lookedUp takes the answer of a look-up, if nothing was written meanwhile.
func (s *syncer) lookedUp(x spot) (lost bool) {
	o := x.object
	s.objects.looking = nil
	s.objects.next = s.now.Add(max(objectInterval/time.Duration(max(len(s.objects.turn), 1)),
		spotShare*x.took))
	if x.generation != s.generation || x.writes != o.writes || x.want != o.want ||
		!s.canLookUp(o) {
		s.reconsider(o)
		return false
	}
	if fmt.Sprint(o.problem) != fmt.Sprint(x.err) {
		s.objects.changed = true
		s.externalChanged = s.externalChanged || o.origin() == route.External
	}
	o.problem = x.err
	there := x.foundObject != nil && x.foundObject.Digest() == o.want.digest
	switch {
	case errors.As(x.err, &route.NotReadyError{}) && o.actual != 0:
		lost = true
		s.drop(o)
		o.problem = x.err
	case x.err != nil:
	case o.actual == 0:
		o.clear(isWaiting)
		foreign := x.foundObject != nil && !s.isOurs(x.foundObject.Key()) &&
			!(x.foundObject.Marked() && x.foundObject.Key() == o.key) && !s.isOnFound(o)
		if o.mark(isForeign, foreign); foreign {
			o.other = x.foundObject.Key()
			delete(s.failures, o.entry)
		}
	case !there:
		lost = true
		o.set(isUnsure)
		s.doubtRoutes(o)
	}
	s.settle(o.entry)
	if o.is(isForeign) {
		s.objects.written = true // others may need it
	}
	return lost
}

// voidLookUp: what a look-up or a listing that is under way finds of o does not count.
func (s *syncer) voidLookUp(o *object) {
	o.writes++
	if s.isListed(o.key) {
		s.objects.bulk.writes++
	}
}

// isOnFound reports whether o is on an interface of ours of which no journal tells: as on one that
// we have just made, nothing is another's there.
func (s *syncer) isOnFound(o *object) bool {
	return slices.ContainsFunc(o.needs, func(k route.ObjectKey) bool {
		n := s.objects.byKey[k]
		return n != nil && n.found
	})
}

// isOurs reports whether we put what k names, so that it goes before what excludes it.
func (s *syncer) isOurs(k route.ObjectKey) bool {
	o := s.objects.byKey[k]
	return o != nil && o.actual != 0
}

// doubtRoutes: what was in a table went with it.
func (s *syncer) doubtRoutes(o *object) {
	t, err := route.TableOf(o.key)
	if err != nil || s.used[t.TableID] == 0 {
		return
	}
	for _, e := range slices.Clone(s.all) {
		if e.packed.tableID() == t.TableID && e.actual != 0 {
			e.set(isUnsure)
			s.settle(e)
		}
	}
}
