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
	// DefaultSpotChecks is a budget that a data plane does not feel: VPP's workers stop for some microseconds for each look-up.
	DefaultSpotChecks = 5
	// spotShare bounds checks by what they cost, where a look-up is dear: the next one comes no sooner than after so many times what the last
	// one took.
	spotShare = 10
	// chase is how many checks follow at once after one that found drift: whoever removed one route often removed many. So an
	// emptied table is found out at the pace of look-ups, and not of the budget.
	chase = 64
	// handful is how many routes are checked first after a reconnect to the same life of the data plane, and after a restart of ours.
	handful = 16
	// maxSoon bounds the routes that were just put and are checked before the rotation, so that a route that another's hides is seen soon.
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
	switch d {
	case NoDrift:
		return "none"
	case Missing:
		return "missing"
	case Different:
		return "different"
	case Extra:
		return "extra"
	case Hidden:
		return "hidden"
	}
	return fmt.Sprintf("drift(%d)", uint8(d))
}

// drift is what is known about an entry that is isDrifted.
type drift struct {
	kind  Drift
	found route.Route // of Different and Extra
}

// DriftStats counts what was compared with the data plane and how it came out. A route that stays as it was found is counted once.
type DriftStats struct {
	Checked   uint64
	Missing   uint64
	Different uint64
	Extra     uint64 // only an audit finds these
	Repaired  uint64 // put or deleted again, and acknowledged
}

// spot is a question to the checker: is entry as we believe? With the rest filled in it is the answer.
type spot struct {
	entry  *entry
	key    route.Key
	digest uint64
	life   int
	cuts   uint64

	found route.Route
	ok    bool
	err   error
	took  time.Duration
}

// spots is the rotation of spot checks. It is part of table and guarded with it.
type spots struct {
	pause  time.Duration // the budget; 0: no checks
	next   time.Time
	soon   []*entry // before the rotation
	cursor int      // into table.all, downwards: who takes the place of a forgotten entry has been checked
	chase  int      // checks left that need not wait for the budget
}

// tune takes other settings. What was found while drift was only reported is repaired now.
func (t *table) tune(to Tuning) {
	t.tuning, t.spots.pause = to, 0
	if to.SpotChecks > 0 {
		t.spots.pause = time.Second / time.Duration(to.SpotChecks)
	}
	if !to.RepairDrift {
		return
	}
	for e := range t.drifts {
		e.set(isUnsure)
		t.settle(e)
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
			s.found, s.ok, s.err = e.lookUp(ctx, s.key)
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
	before := e.table.drift
	e.table.checked(s)
	e.warnOfDrift(before)
}

// warnOfDrift logs what has been found since before.
func (e *Engine) warnOfDrift(before DriftStats) {
	now := e.table.drift
	found := now.Missing + now.Different + now.Extra
	if found == before.Missing+before.Different+before.Extra || e.table.now.Before(e.driftLog) {
		return
	}
	e.driftLog = e.table.now.Add(driftLog)
	e.log.Warn("somebody changed routes of ours", "missing", now.Missing, "different", now.Different, "extra", now.Extra, "repair", e.table.tuning.RepairDrift)
}

// checkable reports whether what is believed about e can be compared: nothing about it is open.
func (t *table) checkable(e *entry) bool {
	if e.is(isForgotten) || t.recalls.due && e.is(isAdopted) && t.howAdopted == "journal" {
		return false // how it looks depends on what was put
	}
	return e.actual != 0 && e.fail == nil && !e.is(isUnsure|isFlying|inPuts|inDeletes|isGone)
}

// nextSpot returns the entry to check now, or nil and when to come again (zero: when something changes).
func (t *table) nextSpot() (*entry, time.Time) {
	s := &t.spots
	if s.pause == 0 || !t.present || t.queued() > 0 {
		return nil, time.Time{}
	}
	if t.now.Before(s.next) {
		return nil, s.next
	}
	for len(s.soon) > 0 {
		e := s.soon[0]
		if s.soon = s.soon[1:]; t.checkable(e) {
			return e, time.Time{}
		}
	}
	for range min(chunk, len(t.all)) {
		if s.cursor--; s.cursor < 0 || s.cursor >= len(t.all) {
			s.cursor = len(t.all) - 1
		}
		if e := t.all[s.cursor]; t.checkable(e) {
			return e, time.Time{}
		}
	}
	s.next = t.now.Add(s.pause)
	return nil, s.next
}

// soon has e checked before the rotation.
func (t *table) soon(e *entry) {
	if s := &t.spots; s.pause > 0 && len(s.soon) < maxSoon {
		s.soon = append(s.soon, e)
	}
}

// verify has a handful of routes checked at once: the data plane says that it is the one we wrote to.
func (t *table) verify() {
	t.spots.chase, t.spots.next = max(t.spots.chase, handful), t.now
	for range min(handful, len(t.all)) {
		t.soon(t.all[rand.IntN(len(t.all))])
	}
}

// checked takes the result of a spot check. It counts only if nothing was written and nothing became open meanwhile.
func (t *table) checked(s spot) {
	t.spots.chase = max(t.spots.chase-1, 0)
	if s.life == t.life && s.cuts == t.cuts && t.checkable(s.entry) && s.entry.actual == s.digest {
		t.compare(s.entry, s.found, s.ok, s.err)
	}
	pause := max(t.spots.pause, spotShare*s.took)
	if t.spots.chase > 0 {
		pause = s.took
	}
	t.spots.next = t.now.Add(pause)
}

// compare takes what an exact look-up of e says and returns what it means. A look-up that failed tells nothing.
func (t *table) compare(e *entry, found route.Route, ok bool, err error) Drift {
	var hidden route.HiddenError
	isHidden := errors.As(err, &hidden)
	is := NoDrift
	switch {
	case err != nil && !isHidden:
		return NoDrift
	case ok && found.Digest() != e.actual:
		is = Different
	case isHidden:
		is = Hidden
	case !ok:
		is = Missing
	}
	t.drift.Checked++
	if isHidden {
		t.shadow(e, hidden.By)
	} else {
		t.unshadow(e)
	}
	if is == Missing || is == Different {
		t.drifted(e, drift{is, found})
	} else {
		t.undrift(e)
	}
	t.settle(e)
	return is
}

// drifted: e is not as it was acknowledged. To repair it, it is done again, and the journal learns of it by that. What is found on a route that is
// held the next process finds as this one did.
func (t *table) drifted(e *entry, d drift) {
	if before, known := t.drifts[e]; !known || before.kind != d.kind || !before.found.SameForwarding(d.found) {
		switch d.kind {
		case Missing:
			t.drift.Missing++
		case Different:
			t.drift.Different++
		case Extra:
			t.drift.Extra++
		}
		t.spots.chase = chase
	}
	t.drifts[e] = d
	e.set(isDrifted)
	if t.tuning.RepairDrift {
		e.set(isUnsure)
	}
}

func (t *table) undrift(e *entry) {
	if e.is(isDrifted) {
		e.clear(isDrifted)
		delete(t.drifts, e)
	}
}

// shadow: a route of by, for the same prefix, goes before e.
func (t *table) shadow(e *entry, by string) {
	e.set(isShadowed)
	t.shadows[e] = by
}

func (t *table) unshadow(e *entry) {
	if e.is(isShadowed) {
		e.clear(isShadowed)
		delete(t.shadows, e)
	}
}
