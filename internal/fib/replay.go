package fib

import (
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// Replay selects as an Engine does, by what a Recorder was told, and compares with what the engine
// decided, where that had selected all (Settled). It has no data plane, no goroutine and no clock.
// Which covered routes stay for a while it takes from the decisions: that depends on the order in
// which the engine selected.
type Replay struct {
	e     *Engine
	began time.Time // moment 0
	// answers are what the data plane has said about next hops, as far as the engine knows it.
	answers map[NextHop]route.Resolution
	around  Surroundings
	decided map[route.Key]Decision // that program something, or wait
	held    map[route.Key]Moment   // those of decided that are Held, since when
	due     Moment                 // none of them is to be released before
	changed map[route.Key]struct{} // since Settled: decided, or selected again
	// coverable are new keys of which selection is to hear.
	coverable []route.Key
}

// Mismatch is a key for which the engine decided otherwise than the replay does.
type Mismatch struct {
	Was, Is Decision
	// TooLong: both hold the route, but not for so long.
	TooLong bool
}

// NewReplay returns a replay that knows nothing yet.
func NewReplay() *Replay {
	r := &Replay{e: New(Config{Log: slog.New(slog.DiscardHandler)}), began: time.Unix(0, 0),
		answers: map[NextHop]route.Resolution{}, decided: map[route.Key]Decision{},
		held: map[route.Key]Moment{}, changed: map[route.Key]struct{}{}}
	r.e.selection.holds = func(k route.Key) bool { _, is := r.held[k]; return is }
	return r
}

func (r *Replay) at(m Moment) { r.e.table.now = r.began.Add(time.Duration(m)) }

// Candidate replays what a source wants.
func (r *Replay) Candidate(c CandidateChange) {
	r.at(c.At)
	s := r.e.selection
	s.setCandidate(c.Key, c.Origin, c.Kind, c.Paths, c.Preference)
	if mayYield(c.Origin) && (c.Kind != route.Via || len(c.Paths) > 0) {
		r.coverable = append(r.coverable, c.Key)
	}
}

// addCoverable adds to the lists of selection, which grow by more than a factor of two towards the
// first: each key is merged a few times, however many come one by one.
func (r *Replay) addCoverable() {
	if len(r.coverable) == 0 {
		return
	}
	s := r.e.selection
	lists := append(s.coverable, r.coverable)
	r.coverable = nil
	slices.SortFunc(lists[len(lists)-1], route.CompareKeys)
	for n := len(lists); n > 1 && len(lists[n-2]) <= 2*len(lists[n-1]); n = len(lists) {
		merged := slices.Concat(lists[n-2:]...)
		slices.SortFunc(merged, route.CompareKeys)
		merged = slices.DeleteFunc(slices.Compact(merged), func(k route.Key) bool {
			e := s.get(k)
			return e == nil || !e.wantedBy(route.Etcd) && !e.wantedBy(route.External)
		})
		lists = append(lists[:n-2], merged)
	}
	s.coverable = lists
}

// Decided takes what the engine decided.
func (r *Replay) Decided(d Decision) {
	r.changed[d.Key] = struct{}{}
	before := r.decided[d.Key]
	if d.Programs || d.Waiting {
		r.decided[d.Key] = d
	} else {
		delete(r.decided, d.Key)
	}
	if d.Held == before.Held {
		return
	}
	if d.Held {
		r.held[d.Key] = d.At
		r.due = min(r.due, d.At+Moment(coverHold))
	} else {
		delete(r.held, d.Key)
	}
	if e := r.e.table.get(d.Key); e != nil {
		r.e.table.markDirty(e)
	}
}

// Facts replays what the data plane says about itself.
func (r *Replay) Facts(at Moment, f route.Facts) {
	r.at(at)
	generation := r.e.sync.generation
	r.e.setFacts(f)
	if r.e.sync.generation != generation {
		clear(r.answers)
	}
}

// Resolved replays an answer about a next hop.
func (r *Replay) Resolved(at Moment, n NextHop, is route.Resolution) {
	r.at(at)
	r.answers[n] = is
	r.e.selection.answer(n, is, nil)
}

// Forgotten replays that an answer does not count any more. Who named the next hop last goes with
// the next input.
func (r *Replay) Forgotten(_ Moment, n NextHop) { delete(r.answers, n) }

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
	for _, k := range r.around.Left {
		_, still := slices.BinarySearchFunc(to.Left, k, route.CompareKeys)
		r.left(k, still)
	}
	for _, k := range to.Left {
		r.left(k, true)
	}
	r.around = to
}

// left notes whether an earlier run has left k, and nobody knows yet whether it still is this
// node's own.
func (r *Replay) left(k route.Key, is bool) {
	s := r.e.selection
	e := s.entry(k)
	if s.isLeft(e) == is {
		return
	}
	if e.mark(isAdopted, is); is {
		e.owner, e.actual = sourceID(route.Own), 1
		s.sync.adoptedLeft++
	} else {
		e.owner, e.actual = unknownSource, 0
		s.sync.adoptedLeft--
	}
	s.markDirty(e)
	s.dirtyInside(k)
}

// Settled selects all that is dirty, and returns how many keys it has compared, and where the
// engine, which had selected all then, decided otherwise.
func (r *Replay) Settled(at Moment) (compared int, differ []Mismatch) {
	r.at(at)
	r.addCoverable()
	r.settle()
	for k := range r.changed {
		m := Mismatch{Was: r.decided[k], Is: r.desired(at, k)}
		if m.Was.Key = k; !m.Was.decidesAs(m.Is) {
			differ = append(differ, m)
		}
	}
	compared = len(r.changed)
	r.changed = map[route.Key]struct{}{} // one that was large costs at each walk what it had
	differ = append(differ, r.heldTooLong(at)...)
	slices.SortFunc(differ, func(a, b Mismatch) int {
		return route.CompareKeys(a.Was.Key, b.Was.Key)
	})
	return compared, differ
}

// heldTooLong returns what should have been released, once.
func (r *Replay) heldTooLong(at Moment) (all []Mismatch) {
	if at < r.due || r.around.Converging || len(r.held) == 0 {
		return nil
	}
	r.due = math.MaxInt64
	for k, since := range r.held {
		if at-since >= Moment(coverHold) {
			d := r.decided[k]
			all = append(all, Mismatch{Was: d, Is: d, TooLong: true})
			r.held[k] = at
		}
		r.due = min(r.due, r.held[k]+Moment(coverHold))
	}
	return all
}

// settle selects all that is dirty, with all answers that are known.
func (r *Replay) settle() {
	s := r.e.selection
	for more := true; more; {
		for _, hop := range r.e.hops.urgent {
			hop.queued = false
			if a, known := r.answers[hop.NextHop]; known {
				s.answer(hop.NextHop, a, nil)
			}
		}
		r.e.hops.urgent = nil
		next := s.dirty[:min(chunk, len(s.dirty))]
		r.change(next) // a counterpart may go
		more = s.selectDirty(chunk) || len(r.e.hops.urgent) > 0
		r.change(next) // or come
	}
}

// change notes that these entries, and their counterparts, may be decided otherwise.
func (r *Replay) change(all []dirtyEntry) {
	for _, e := range all {
		r.changed[e.key()] = struct{}{}
		if other := r.e.table.counterpart(e.entry); other != nil {
			r.changed[other.key()] = struct{}{}
		}
	}
}

func (d Decision) decidesAs(o Decision) bool {
	return d.Digest == o.Digest && d.Programs == o.Programs && d.Waiting == o.Waiting &&
		d.Held == o.Held
}

// desired is what the key shall forward by.
func (r *Replay) desired(at Moment, k route.Key) Decision {
	d := Decision{Key: k, At: at}
	if e := r.e.table.get(k); e != nil {
		d.Origin, d.Waiting = e.origin(), e.is(isWaiting)
		d.Held = r.e.selection.isCovered(e)
		d.programs(e.want)
	}
	return d
}

// Keys counts those that forward somewhere.
func (r *Replay) Keys() (n int) {
	for _, e := range r.e.table.all {
		if e.want != nil {
			n++
		}
	}
	return n
}
