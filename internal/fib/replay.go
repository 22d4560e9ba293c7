package fib

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// Replay selects as an Engine does, by what a Recorder was told. It has no data plane, no goroutine
// and no clock.
type Replay struct {
	e     *Engine
	began time.Time // moment 0
	// answers are all that the data plane has said about next hops: those that no path named any
	// more were forgotten and asked for again.
	answers map[NextHop]route.Resolution
	around  Surroundings
}

// NewReplay returns a replay that knows nothing yet.
func NewReplay() *Replay {
	return &Replay{e: New(Config{Log: slog.New(slog.DiscardHandler)}), began: time.Unix(0, 0),
		answers: map[NextHop]route.Resolution{}}
}

// at goes on to a moment: what was held until then is released.
func (r *Replay) at(m Moment) {
	r.e.table.now = r.began.Add(time.Duration(m))
	r.settle()
}

// settle selects all that is dirty, with all answers that are known.
func (r *Replay) settle() {
	s := r.e.selection
	s.releaseCovered()
	for more := true; more; {
		for _, hop := range r.e.hops.urgent {
			hop.queued = false
			if a, known := r.answers[hop.NextHop]; known {
				s.answer(hop.NextHop, a, nil)
			}
		}
		r.e.hops.urgent = nil
		more = s.selectDirty(chunk) || len(r.e.hops.urgent) > 0
	}
}

// Candidate replays what a source wants.
func (r *Replay) Candidate(c CandidateChange) {
	r.at(c.At)
	s := r.e.selection
	s.setCandidate(c.Key, c.Origin, c.Kind, c.Paths, c.Preference)
	if c.Origin == route.Etcd || c.Origin == route.External {
		keys := s.coverable[c.Origin]
		i, there := slices.BinarySearchFunc(keys, c.Key, route.CompareKeys)
		e := s.get(c.Key)
		switch wanted := e != nil && e.wantedBy(c.Origin); {
		case wanted && !there:
			s.coverable[c.Origin] = slices.Insert(keys, i, c.Key)
		case !wanted && there:
			s.coverable[c.Origin] = slices.Delete(keys, i, i+1)
		}
	}
	r.settle()
}

// Facts replays what the data plane says about itself.
func (r *Replay) Facts(at Moment, f route.Facts) {
	r.at(at)
	generation := r.e.sync.generation
	r.e.setFacts(f)
	if r.e.sync.generation != generation {
		clear(r.answers)
	}
	r.settle()
}

// Resolved replays an answer about a next hop.
func (r *Replay) Resolved(at Moment, n NextHop, is route.Resolution) {
	r.at(at)
	r.answers[n] = is
	r.e.selection.answer(n, is, nil)
	r.settle()
}

// Surroundings replays what else decides.
func (r *Replay) Surroundings(at Moment, to Surroundings) {
	r.at(at)
	s := r.e.selection
	if !maps.Equal(to.Distances, r.around.Distances) {
		if s.distances = to.Distances; s.view != nil {
			s.rebuildView(s.view.facts.Facts)
		}
		s.sync.settleAll()
	}
	s.protect(to.Own, to.Peers)
	s.keepOut(to.Services)
	if !reflect.DeepEqual(to.Encapsulation, r.around.Encapsulation) {
		s.setEncapsulation(to.Encapsulation)
	}
	s.setNormal(to.Normal)
	s.setConverging(to.Converging)
	r.around = to
	r.settle()
}

// HeldAs has a route stay that was there at a checkpoint, if nothing but a cover speaks against it:
// the checkpoint does not say since when.
func (r *Replay) HeldAs(d Decision) {
	s := r.e.selection
	e := s.get(d.Key)
	if e == nil || !d.Programs || e.want != nil && e.want.digest == d.Digest {
		return
	}
	c := s.selectEntry(e)
	if c.forward == nil && c.covered != nil && c.covered.digest == d.Digest {
		s.covered[e] = s.now.Add(coverHold)
		s.sync.want(e, c.covered, sourceID(c.coveredBy), false)
		s.dirtyInside(d.Key)
		r.settle()
	}
}

// Desired returns what the key shall forward by at a moment that is not before the last.
func (r *Replay) Desired(at Moment, k route.Key) Decision {
	r.at(at)
	d := Decision{Key: k, At: at}
	if e := r.e.table.get(k); e != nil {
		d.Origin, d.Waiting = e.origin(), e.is(isWaiting)
		d.programs(e.want)
	}
	return d
}

// Keys returns those that shall forward somewhere.
func (r *Replay) Keys() (keys []route.Key) {
	for _, e := range r.e.table.all {
		if e.want != nil {
			keys = append(keys, e.key())
		}
	}
	slices.SortFunc(keys, route.CompareKeys)
	return keys
}
