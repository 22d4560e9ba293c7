package fib

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// Recorder is told what the engine decides by, what it decides and what it writes, in that order.
// Its methods return at once, since most are called while the table is locked, and change nothing
// that they are handed. A Batch is theirs for the call alone.
type Recorder interface {
	// At turns a time into what the others take, which no step of the clock moves.
	At(time.Time) Moment
	// Candidate: a source wants something else for a key, kind Via without paths: nothing.
	Candidate(CandidateChange)
	// Decided: a key is to forward otherwise than before.
	Decided(Decision)
	// Sent: a batch goes to the data plane now.
	Sent(Batch)
	// Answered says how that came out.
	Answered(BatchResult)
	// Facts are those by which selection decides from now on.
	Facts(Moment, route.Facts)
	// Resolved: the data plane says something else about a next hop.
	Resolved(Moment, NextHop, route.Resolution)
	// Surroundings are what else decides from now on.
	Surroundings(Moment, Surroundings)
	// Forgotten: what the data plane has said about a next hop does not count any more.
	Forgotten(Moment, NextHop)
	// Settled: all was decided at that moment, by what was told before.
	Settled(Moment)
	// Stands is what a key has at this moment: what sources want, and what was decided last. Only
	// Checkpoint calls it.
	Stands([]CandidateChange, Decision)
}

// Moment is a time as a Recorder counts, 0: not known.
type Moment time.Duration

// CandidateChange is what one source wants for a key from now on.
type CandidateChange struct {
	Key        route.Key
	Origin     route.Origin
	Kind       route.Kind
	Paths      []route.Path // canonical
	Preference uint32       // see BestPaths
	// Received is when the source said so, At when the engine took it in.
	Received, At Moment
}

// Decision is what a key is to forward by from now on.
type Decision struct {
	Key route.Key
	// Route: without one nothing is to be programmed. Its Digest is that of Batch.
	Programs bool
	Kind     route.Kind
	Paths    []route.Path
	Digest   uint64
	// Origin is whose candidate was selected, or refused for Reason.
	Origin route.Origin
	Reason Reason // also why a path is left out
	// Waiting: what is programmed stays until a next hop has been looked up.
	Waiting bool
	// Held: what is programmed stays for a while, though a route of BGP covers it.
	Held bool
	// Received is when that came which decided, as far as it is known.
	Received, At Moment
}

// Batch are operations that the data plane is asked for at once.
type Batch struct {
	Number uint64
	At     Moment
	Ops    iter.Seq[BatchOp]
}

// BatchOp is one of them.
type BatchOp struct {
	Key    route.Key
	Object *route.ObjectKey // instead of Key
	Digest uint64           // of what will be there; 0: nothing
	// Queued is when it was found to be needed: when that was decided, or tried again.
	Queued Moment
}

// queued is an entry that waits for its op.
type queued struct {
	*entry
	since Moment
}

// queuedNow is e that begins to wait.
func (t *table) queuedNow(e *entry) queued { return queued{e, t.moment()} }

// BatchResult is how a batch came out: all of it succeeded but Failed.
type BatchResult struct {
	Number uint64
	At     Moment
	Failed []FailedOp
}

// FailedOp is an operation that was refused, or not answered.
type FailedOp struct {
	Index int // in Batch.Ops
	Error string
}

// Surroundings are what selection decides by besides candidates, facts and next hops.
type Surroundings struct {
	Own, Peers    []netip.Addr         `json:",omitempty"`
	Services      []netip.Prefix       `json:",omitempty"`
	Encapsulation *route.Encapsulation `json:",omitempty"`
	Normal        [2]uint32
	Distances     map[route.Origin]uint8 `json:",omitempty"`
	Converging    bool
	// Left are keys of this node's own that an earlier run has left, and about which Calico's data
	// have said nothing yet. Sorted.
	Left []route.Key `json:",omitempty"`
}

// Checkpoint tells the recorder how every key stands. What changes meanwhile it is told as ever, so
// that afterwards the last that it was told about each key is true. Before each part, pause waits
// until the recorder has room for 2048 keys, and says whether to go on.
func (e *Engine) Checkpoint(pause func() bool) {
	var wanted []CandidateChange
	e.walkSlowly(func(x *entry) {
		if x.first == nil && x.want == nil {
			return
		}
		now := e.table.recorder.At(time.Now())
		wanted = wanted[:0]
		for c := x.first; c != nil; c = c.next {
			w := CandidateChange{Key: x.key(), Origin: c.origin, Kind: c.kind,
				Preference: c.preference, At: now}
			if c.set != nil {
				w.Paths = c.set.paths
			}
			wanted = append(wanted, w)
		}
		d := Decision{Key: x.key(), Origin: x.origin(), Waiting: x.is(isWaiting),
			Held: e.selection.isCovered(x), At: now}
		d.programs(x.want)
		e.table.recorder.Stands(wanted, d)
	}, pause)
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.selection; s.isTold || len(s.dirty) > 0 {
		s.isTold = true // Settled is still to come
	} else if s.view != nil {
		s.recorder.Settled(s.settled)
	}
}

func (d *Decision) programs(f *forward) {
	if f != nil {
		d.Programs, d.Kind, d.Paths, d.Digest = true, f.kind, f.paths, f.digest
	}
}

// moment is the time of a decision.
func (t *table) moment() Moment {
	if t.recorder == nil {
		return 0
	}
	return t.recorder.At(t.now)
}

// noteCandidate tells the recorder what origin wants for k now.
func (s *selection) noteCandidate(k route.Key, origin route.Origin, kind route.Kind,
	set *pathSet, preference uint32) {
	if s.recorder == nil {
		return
	}
	s.isTold = true
	c := CandidateChange{Key: k, Origin: origin, Kind: kind, Preference: preference,
		Received: s.received, At: s.moment()}
	if set != nil {
		c.Paths = set.paths
	}
	s.recorder.Candidate(c)
}

// noteSurroundings tells the recorder what else decides now.
func (s *selection) noteSurroundings() {
	if s.recorder == nil {
		return
	}
	s.isTold = true
	s.recorder.Surroundings(s.moment(), Surroundings{
		Own: s.own, Peers: s.peers, Services: s.services, Encapsulation: s.encapsulation,
		Normal: s.normal, Distances: s.distances, Converging: s.converging, Left: s.left,
	})
}

// noteLeft tells the recorder which own routes of an earlier run count as this node's still.
func (s *selection) noteLeft() {
	if s.recorder == nil || !s.leftChanged {
		return
	}
	s.leftChanged = false
	s.adoptedOwn = slices.DeleteFunc(s.adoptedOwn, func(e *entry) bool { return !s.isLeft(e) })
	var left []route.Key
	for _, e := range s.adoptedOwn {
		left = append(left, e.key())
	}
	slices.SortFunc(left, route.CompareKeys)
	if left = slices.Compact(left); !slices.Equal(left, s.left) {
		s.left = left
		s.noteSurroundings()
	}
}

// noteSettled tells the recorder that all is decided.
func (s *selection) noteSettled() {
	if s.isTold && len(s.dirty) == 0 && s.view != nil {
		s.isTold, s.settled = false, s.moment()
		s.recorder.Settled(s.settled)
	}
}

// decide hands sync what was chosen for e; wasHeld: what is there was held.
func (s *selection) decide(e *entry, c choice, wasHeld bool) {
	if s.recorder != nil && (wasHeld != c.held || !e.goesOnAs(c)) {
		s.isTold = true
		d := Decision{Key: e.key(), Origin: c.origin, Reason: c.reason, Waiting: c.waiting,
			Held: c.held, Received: s.received, At: s.moment()}
		d.programs(c.forward)
		s.recorder.Decided(d)
	}
	s.sync.want(e, c.forward, sourceID(c.origin), c.waiting)
}

// goesOnAs reports whether c is what was decided for e before.
func (e *entry) goesOnAs(c choice) bool {
	if e.source != sourceID(c.origin) || e.is(isWaiting) != c.waiting {
		return false
	}
	if e.want == nil || c.forward == nil {
		return e.want == nil && c.forward == nil
	}
	return e.want.digest == c.forward.digest
}

// sent tells the recorder that b goes out, once: Start may leave b to Apply.
func (e *Engine) sent(b *batch) {
	r := e.table.recorder
	if r == nil || len(b.ops) == 0 || b.told {
		return
	}
	b.told = true
	r.Sent(Batch{Number: b.number, At: r.At(time.Now()), Ops: func(yield func(BatchOp) bool) {
		for i := range b.ops {
			op := BatchOp{Key: b.ops[i].Route.Key, Digest: b.digests[i], Queued: b.since[i]}
			if o, is := b.objects[i]; is {
				key := o.key // escapes, unlike o
				op.Object = &key
			}
			if !yield(op) {
				return
			}
		}
	}})
}

// answered tells the recorder how b came out.
func (e *Engine) answered(b *batch) {
	r := e.table.recorder
	if r == nil || len(b.ops) == 0 {
		return
	}
	out := BatchResult{Number: b.number, At: r.At(time.Now())}
	if b.err != nil || len(b.errs) > 0 {
		for i := range b.ops {
			switch {
			case !b.done[i] && b.err != nil:
				out.Failed = append(out.Failed, FailedOp{i, "not answered: " + b.err.Error()})
			case !b.done[i]:
				out.Failed = append(out.Failed, FailedOp{i, "not answered"})
			case b.errs[i] != nil:
				out.Failed = append(out.Failed, FailedOp{i, b.errs[i].Error()})
			}
		}
	}
	r.Answered(out)
}
