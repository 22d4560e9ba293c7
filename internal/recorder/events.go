package recorder

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// What is recorded: each function puts one record, or few, into the queue for Recorder.Run.

// Candidate implements fib.Recorder.
func (r *Recorder) Candidate(c fib.CandidateChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.candidate(kindCandidate, c)
}

func (r *Recorder) candidate(kind recordKind, c fib.CandidateChange) {
	e := r.begin(kind, c.At)
	if e == nil {
		return
	}
	e.moment(c.Received)
	e.key(c.Key)
	e.b = append(e.b, byte(c.Origin), byte(c.Kind))
	e.uint(uint64(c.Preference))
	e.paths(c.Paths, &e.wanted)
	r.end()
}

// Decided implements fib.Recorder.
func (r *Recorder) Decided(d fib.Decision) {
	reason := d.Reason.String()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times.Decide.add(d.Received, d.At)
	r.decision(kindDecided, d, reason)
}

// Stands implements fib.Recorder.
func (r *Recorder) Stands(wanted []fib.CandidateChange, d fib.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stands++
	for _, c := range wanted {
		r.candidate(kindWantedStands, c)
	}
	r.decision(kindDecidedStands, d, "")
}

func (r *Recorder) decision(kind recordKind, d fib.Decision, reason string) {
	e := r.begin(kind, d.At)
	if e == nil {
		return
	}
	e.moment(d.Received)
	e.key(d.Key)
	e.b = append(e.b, flagIf(d.Programs, isProgrammed)|flagIf(d.Waiting, isWaiting)|
		flagIf(d.Held, isHeld), byte(d.Origin))
	e.text(reason)
	if d.Programs {
		e.b = append(e.b, byte(d.Kind))
		e.paths(d.Paths, &e.decided)
	}
	r.end()
}

// Sent implements fib.Recorder.
func (r *Recorder) Sent(b fib.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.begin(kindSent, b.At)
	if e != nil {
		e.uint(b.Number)
	}
	n, alike, digest := 0, 0, uint64(0)
	queued := fib.Moment(0)
	for op := range b.Ops {
		if op.Queued != queued {
			r.times.Send.addMany(queued, b.At, alike)
			queued, alike = op.Queued, 0
		}
		n, alike = n+1, alike+1
		if e != nil {
			e.op(op, digest)
			digest = op.Digest
		}
	}
	r.times.Send.addMany(queued, b.At, alike)
	r.inFlight[b.Number] = flying{b.At, n}
	if e != nil {
		e.b = append(e.b, 0)
		r.end()
	}
}

// Answered implements fib.Recorder.
func (r *Recorder) Answered(b fib.BatchResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, ok := r.inFlight[b.Number]; ok {
		delete(r.inFlight, b.Number)
		r.times.Answer.addMany(f.at, b.At, f.ops-len(b.Failed))
	}
	e := r.begin(kindAnswered, b.At)
	if e == nil {
		return
	}
	e.uint(b.Number)
	e.uint(uint64(len(b.Failed)))
	for _, f := range b.Failed {
		e.uint(uint64(f.Index))
		e.text(f.Error)
	}
	r.end()
}

// Facts implements fib.Recorder.
func (r *Recorder) Facts(at fib.Moment, f route.Facts) {
	r.mu.Lock()
	before := r.inputs.facts // nobody else changes them
	r.mu.Unlock()
	r.addJSON(at, kindFacts, changeOf(before, f), func(string) {
		if r.inputs.facts = f; f.Identity != before.Identity {
			r.inputs.resolved, r.inputs.isShared = nil, false
		}
	})
}

// Resolved implements fib.Recorder.
func (r *Recorder) Resolved(at fib.Moment, n fib.NextHop, is route.Resolution) {
	r.addJSON(at, kindResolved, Resolved{n, is}, func(text string) {
		r.inputs.ownResolved()
		r.inputs.resolved[n] = text
	})
}

// Forgotten implements fib.Recorder.
func (r *Recorder) Forgotten(at fib.Moment, n fib.NextHop) {
	r.addJSON(at, kindForgotten, Forgotten{n}, func(string) {
		r.inputs.ownResolved()
		delete(r.inputs.resolved, n)
	})
}

// ownResolved has resolved belong to in alone, to be changed.
func (in *inputs) ownResolved() {
	switch {
	case in.resolved == nil:
		in.resolved = map[fib.NextHop]string{}
	case in.isShared:
		in.resolved = maps.Clone(in.resolved)
	}
	in.isShared = false
}

// Settled implements fib.Recorder.
func (r *Recorder) Settled(at fib.Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begin(kindSettled, at) != nil {
		r.end()
	}
}

// Surroundings implements fib.Recorder.
func (r *Recorder) Surroundings(at fib.Moment, s fib.Surroundings) {
	r.mu.Lock()
	before := r.inputs.surroundings // nobody else changes them
	r.mu.Unlock()
	r.addJSON(at, kindSurroundings, r.surroundingsChange(before, s),
		func(string) { r.inputs.surroundings, r.inputs.hasAround = s, true })
}

func (r *Recorder) surroundingsChange(before, after fib.Surroundings) SurroundingsChange {
	c, err := surroundingsChange(before, after)
	if err != nil {
		r.noJSON(err)
	}
	return c
}

// Datastore records what the agent has from Calico's datastore. What of it is new is found, and
// encoded, by the goroutine that writes.
func (r *Recorder) Datastore(at time.Time, s *calico.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isSnapshot := func(t taken) bool { return t.snapshot != nil }
	if first := slices.IndexFunc(r.taken, isSnapshot); len(r.taken) >= maxSnapshots && first >= 0 {
		// the next one has what this would have said; nothing is known of it for a plan
		next := slices.IndexFunc(r.taken[first+1:], isSnapshot)
		r.taken = slices.Delete(r.taken, first, first+1+max(next, 0))
		r.queue.dropped++
		r.stats.Dropped++
	}
	r.add(taken{at: r.At(at), snapshot: s})
}

// add adds what the writer is to encode. The caller holds mu.
func (r *Recorder) add(t taken) {
	r.taken = append(r.taken, t)
	if r.queue.records == 0 {
		signal(r.wake)
	}
}

// addJSON adds what changes rarely, and keeps it for the next segment.
func (r *Recorder) addJSON(at fib.Moment, kind recordKind, v any, keep func(text string)) {
	text, err := json.Marshal(v)
	if err != nil {
		r.noJSON(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	keep(string(text)) // what is not known is left out
	if err != nil {
		r.queue.dropped++
	} else if e := r.begin(kind, at); e != nil {
		e.text(string(text))
		r.end()
	}
}

// noJSON counts a record that cannot be written, for whatever reason: the agent goes on.
func (r *Recorder) noJSON(err error) {
	r.cfg.Log.Error("a record is left out", "err", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Dropped++
}
