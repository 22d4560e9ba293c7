package fib

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// spotShare bounds checks by their cost where look-ups are expensive: the next one comes no
	// sooner than after so many times what the last one took.
	spotShare = 10
	// chase is how many checks follow at once after one that found drift: whoever removed one route
	// often removed many. So an emptied table is found out at the pace of look-ups, and not of the
	// budget.
	chase = 64
	// handful is how many routes are checked first after a reconnect to the same generation of the
	// data plane, and after a restart of ours.
	handful = 16
	// maxSoon bounds the routes that were just put and are checked before the rotation, so that a
	// route that another's hides is seen soon.
	maxSoon = 64
	// driftLog is the pause between two lines of the log about drift.
	driftLog = time.Minute
)

// Drift is how the data plane differs from what it acknowledged.
type Drift uint8

const (
	NoDrift   Drift = iota
	Missing         // a route of ours is not there any more
	Different       // it forwards otherwise
	Extra           // it carries our mark and is not known as ours
	Hidden          // another's route goes before it: not drift, but it cannot be compared
)

func (d Drift) String() string {
	names := [...]string{"none", "missing", "different", "extra", "hidden"}
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("drift(%d)", uint8(d))
}

// drift is what is known about an entry that is isDrifted.
type drift struct {
	kind  Drift
	found route.Route // of Different and Extra
}

// DriftStats counts what was compared with the data plane and how it came out. A route that stays
// as it was found is counted once.
type DriftStats struct {
	Checked   uint64
	Missing   uint64
	Different uint64
	Extra     uint64 // only an audit finds these
	Repaired  uint64 // put or deleted again, and acknowledged
}

// spot is a question to the checker: is entry as we believe? With the rest filled in it is the
// answer.
type spot struct {
	entry      *entry
	key        route.Key
	digest     uint64
	generation int
	cuts       uint64
	// instead of entry, key, digest and cuts:
	object *object
	want   *forward
	writes uint64

	// instead of all that, with generation and writes: which of the listed objects are there
	listing bool
	list    []route.Object

	found       route.Route
	ok          bool
	foundObject route.Object
	err         error
	took        time.Duration
}

// spots is the rotation of spot checks. It is part of table and guarded with it.
type spots struct {
	pause time.Duration // the budget; 0: no checks
	next  time.Time
	soon  []*entry // before the rotation
	// into table.all, downwards: who takes the place of a forgotten entry has been checked
	cursor int
	chase  int // checks left that need not wait for the budget
}

// tune takes other settings. What was found while drift was only reported is repaired now.
func (s *syncer) tune(to Tuning) {
	s.repairDrift, s.spots.pause = to.RepairDrift, 0
	if to.SpotChecks > 0 {
		s.spots.pause = time.Second / time.Duration(to.SpotChecks)
	}
	if !to.RepairDrift {
		return
	}
	for e := range s.drifts {
		e.set(isUnsure)
		s.settle(e)
	}
}

// check is the checker: it looks routes up, one after the other.
func (e *Engine) check(ctx context.Context, questions <-chan spot, answers chan<- spot) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-questions:
			began := time.Now()
			if s.listing {
				s.list, s.err = e.list(ctx, route.TunnelEndpoint)
			} else if s.object != nil {
				s.foundObject, s.err = e.lookUpObject(ctx, s.object.key)
			} else {
				s.found, s.ok, s.err = e.lookUp(ctx, s.key)
			}
			s.took = time.Since(began)
			answers <- s // there is room: one question at a time
		}
	}
}

func (e *Engine) lookUp(ctx context.Context, k route.Key) (route.Route, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return e.dataplane.Lookup(ctx, k)
}

func (e *Engine) checked(s spot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checking = false
	e.table.now = time.Now()
	if s.listing {
		if lost := e.sync.listed(s); lost > 0 {
			e.log.Warn("objects of ours were changed by another program", "objects", lost)
		}
		return
	}
	if s.object != nil {
		if e.sync.lookedUp(s) {
			e.log.Warn("an object of ours was changed by another program", "object",
				s.object.key.String())
		}
		return
	}
	before := e.sync.drift
	if on := e.sync.checked(s); on != "" {
		e.log.Warn("an interface was deleted and made again unseen: routes over it are put again",
			"interface", on)
	} else if e.sync.staysDead(s) && e.table.now.After(e.driftLog) {
		e.driftLog = e.table.now.Add(driftLog)
		e.log.Warn("a route of another program keeps a path that leads nowhere", "err", s.err)
	}
	e.warnOfDrift(before)
}

// warnOfDrift logs what has been found since before.
func (e *Engine) warnOfDrift(before DriftStats) {
	now := e.sync.drift
	found := now.Missing + now.Different + now.Extra
	if found == before.Missing+before.Different+before.Extra || e.table.now.Before(e.driftLog) {
		return
	}
	e.driftLog = e.table.now.Add(driftLog)
	e.log.Warn("routes of ours were changed by another program", "missing", now.Missing,
		"different", now.Different, "extra", now.Extra, "repair", e.sync.repairDrift)
}

// checkable reports whether what is believed about e can be compared: nothing about it is open.
func (s *syncer) checkable(e *entry) bool {
	return e.actual != 0 && s.failures[e] == nil && !e.is(isUnsure|isFlying|inPuts|inDeletes|isGone)
}

// nextSpot returns the entry to check now, or nil and when to come again (zero: when something
// changes).
func (s *syncer) nextSpot() (*entry, time.Time) {
	x := &s.spots
	if x.pause == 0 || !s.present || s.queued() > 0 {
		return nil, time.Time{}
	}
	if s.now.Before(x.next) {
		return nil, x.next
	}
	for len(x.soon) > 0 {
		e := x.soon[0]
		if x.soon = x.soon[1:]; s.checkable(e) {
			return e, time.Time{}
		}
	}
	for range min(chunk, len(s.all)) {
		if x.cursor--; x.cursor < 0 || x.cursor >= len(s.all) {
			x.cursor = len(s.all) - 1
		}
		if e := s.all[x.cursor]; s.checkable(e) {
			return e, time.Time{}
		}
	}
	x.next = s.now.Add(x.pause)
	return nil, x.next
}

// checkSoon has e checked before the rotation.
func (s *syncer) checkSoon(e *entry) {
	if s.spots.pause > 0 && len(s.spots.soon) < maxSoon {
		s.spots.soon = append(s.spots.soon, e)
	}
}

// verify has a handful of routes checked at once: the data plane says that it is the one we wrote
// to.
func (s *syncer) verify() {
	s.dead = nil
	s.spots.chase, s.spots.next = max(s.spots.chase, handful), s.now
	for range min(handful, len(s.all)) {
		s.checkSoon(s.all[rand.IntN(len(s.all))])
	}
}

// checked takes the result of a spot check. It counts only if nothing was written and nothing
// became open meanwhile. anew is an interface that was made anew unseen.
func (s *syncer) checked(x spot) (anew string) {
	s.spots.chase = max(s.spots.chase-1, 0)
	if x.generation == s.generation && x.cuts == s.cuts && s.checkable(x.entry) &&
		x.entry.actual == x.digest {
		if anew = s.findDeadPath(x.err); anew == "" {
			s.compare(x.entry, x.found, x.ok, x.err)
		}
	}
	pause := max(s.spots.pause, spotShare*x.took)
	if s.spots.chase > 0 {
		pause = x.took
	}
	s.spots.next = s.now.Add(pause)
	return anew
}

// findDeadPath takes an interface that was made anew while nobody looked for one that is made anew
// now, and returns its name. It does so once: a path that another program's route keeps stays dead,
// and healthy routes over the interface would be written without end.
func (s *syncer) findDeadPath(err error) string {
	var dead route.DeadPathError
	if !errors.As(err, &dead) {
		return ""
	}
	on, exists := s.facts.Interface(dead.Interface)
	if was, known := s.dead[on.Name]; !exists || known && was == on.Generation {
		return ""
	}
	if s.dead == nil {
		s.dead = make(map[string]uint32)
	}
	s.dead[on.Name] = on.Generation
	anew := map[string]bool{on.Name: true}
	s.doubtAll(anew, anew)
	return on.Name
}

// staysDead reports whether x found a dead path although all that leads over its interface has been
// put again.
func (s *syncer) staysDead(x spot) bool {
	return errors.As(x.err, new(route.DeadPathError)) && x.cuts == s.cuts && s.suspect == nil &&
		s.isSettled()
}

// compare takes what an exact look-up of e says and returns what it means. A look-up that failed
// tells nothing.
func (s *syncer) compare(e *entry, found route.Route, ok bool, err error) Drift {
	var hidden route.HiddenError
	isHidden, isDead := errors.As(err, &hidden), errors.As(err, new(route.DeadPathError))
	is := NoDrift
	switch {
	case err != nil && !isHidden && !isDead:
		return NoDrift
	case ok && found.Digest() != e.actual:
		is = Different
	case isHidden:
		is = Hidden
	case !ok:
		is = Missing
	}
	s.drift.Checked++
	if isHidden {
		s.shadow(e, hidden.By)
	} else {
		s.unshadow(e)
	}
	if is == Missing || is == Different {
		s.drifted(e, drift{is, found})
	} else {
		s.undrift(e)
	}
	s.settle(e)
	return is
}

// drifted: e is not as it was acknowledged. To repair it, it is done again, and the journal learns
// of it by that. What is found on a route that is held the next process finds as this one did.
func (s *syncer) drifted(e *entry, d drift) {
	before, known := s.drifts[e]
	if !known || before.kind != d.kind || !before.found.SameForwarding(d.found) {
		switch d.kind {
		case Missing:
			s.drift.Missing++
		case Different:
			s.drift.Different++
		case Extra:
			s.drift.Extra++
		}
		s.spots.chase = chase
	}
	s.drifts[e] = d
	e.set(isDrifted)
	if s.repairDrift {
		e.set(isUnsure)
	}
}

func (s *syncer) undrift(e *entry) {
	if e.is(isDrifted) {
		e.clear(isDrifted)
		delete(s.drifts, e)
	}
}

// shadow: a route of by, for the same prefix, goes before e.
func (s *syncer) shadow(e *entry, by string) {
	e.set(isShadowed)
	s.shadows[e] = by
}

func (s *syncer) unshadow(e *entry) {
	if e.is(isShadowed) {
		e.clear(isShadowed)
		delete(s.shadows, e)
	}
}
