// Package recorder keeps on disk what the agent has heard, decided and written, and when, in a ring
// of segments of bounded size. What has been recorded can be read while the agent runs, and when it
// runs no more. It never holds the agent up: records wait in memory for one goroutine that writes
// them, and those for which there is no room are counted. docs/decisions/0028 says what is
// recorded, and what is not.
package recorder

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

const (
	// gather is how long records wait for others to be written with. As many are lost when the
	// process is killed.
	gather = 20 * time.Millisecond
	// enough is how many bytes wait for no others. More would not stay in a processor's cache.
	enough = 64 << 10
	// maxSpare bounds the memory that is kept for what comes next.
	maxSpare = 8 * enough
	// maxQueued bounds what waits while the disk stalls: the records of 50 000 new routes, and as
	// much again of what peers send.
	maxQueued = 4 << 20
	// retryAfter is the pause after the disk has refused something.
	retryAfter = 10 * time.Second
	// maxSnapshots bounds how many snapshots of the datastore wait. They share most of what they
	// have.
	maxSnapshots = 16
	// endWait bounds how long the end of the program waits for a disk that stalls.
	endWait = time.Second
)

// Config is what a Recorder is made of.
type Config struct {
	Dir  string // is made
	Size int64  // of all segments together at most, in bytes
	// Updates is how many bytes are kept besides of what peers send; 0: none, and Tap must not be
	// called.
	Updates int64
	// Node and Version are noted in each segment.
	Node, Version string
	Log           *slog.Logger
}

// Recorder is a fib.Recorder. Run writes; what comes before waits as for a disk that stalls.
type Recorder struct {
	cfg   Config
	began time.Time // what moments count from; it has a monotonic clock
	wake  chan struct{}
	full  chan struct{}
	// gather and endWait are the constants, and open makes a segment, but for tests.
	gather, endWait time.Duration
	open            func(path string) (*os.File, error)
	// checkpoint is Engine.Checkpoint; nil: there is nothing to tell.
	checkpoint func(pause func() bool)
	begun      chan struct{} // a segment has
	updates    *updates      // nil: nothing of what peers send is kept

	mu       sync.Mutex // guards what follows; never held across a call to the disk
	queue    queue
	taken    []taken
	inputs   inputs
	segment  uint64 // the number of that which was begun last
	stands   int    // keys of the checkpoint that is being taken for it
	complete uint64 // the segment whose checkpoint is in the queue as a whole; 0: none's is
	stats    Stats
	times    Times
	inFlight map[uint64]flying
}

// queue is the block that is being filled.
type queue struct {
	encoder
	records int
	dropped uint64 // records since the last one that had room
}

// inputs are what decides besides candidates. A segment begins with them.
type inputs struct {
	facts        route.Facts
	surroundings fib.Surroundings
	hasAround    bool                   // surroundings are known
	resolved     map[fib.NextHop]string // as JSON
	// isShared: the writer has resolved, too: it is copied before it is changed.
	isShared bool
}

// taken is a snapshot of the datastore that the agent has taken, or a plan that it has made.
type taken struct {
	at       fib.Moment
	snapshot *calico.Snapshot
	plan     *plan
}

type flying struct {
	at  fib.Moment
	ops int
}

// Stats are for metrics.
type Stats struct {
	Problem  string    // why nothing is written; "": it is
	Since    time.Time // of Problem
	Written  uint64    // records
	Dropped  uint64    // records
	Bytes    int64     // of all segments
	Segments int
}

// New returns a recorder that writes nothing until Run.
func New(c Config) *Recorder {
	r := &Recorder{cfg: c, began: time.Now(), wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1), begun: make(chan struct{}, 1), open: create, gather: gather,
		endWait: endWait, inFlight: map[uint64]flying{}}
	if c.Updates > 0 {
		r.updates = newUpdates(r, c.Updates)
	}
	return r
}

// Checkpoints sets what is called when a segment begins, before Run.
func (r *Recorder) Checkpoints(take func(pause func() bool)) { r.checkpoint = take }

// Stats says how the recorder does.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// UpdateStats says how the recording of what peers send does; false: there is none.
func (r *Recorder) UpdateStats() (s Stats, isOn bool) {
	if r.updates == nil {
		return s, false
	}
	r.updates.mu.Lock()
	defer r.updates.mu.Unlock()
	return r.updates.stats, true
}

// took notes how the disk has taken so many records.
func (s *Stats) took(records int, err error, now time.Time, w *files) {
	s.Bytes, s.Segments = w.bytes, len(w.segments)
	if err == nil {
		s.Problem, s.Since = "", time.Time{}
		s.Written += uint64(records)
		return
	}
	if s.Problem == "" {
		s.Since = now
	}
	s.Problem = err.Error()
	s.Dropped += uint64(records)
}

// At implements fib.Recorder.
func (r *Recorder) At(t time.Time) fib.Moment { return fib.Moment(t.Sub(r.began)) }

// begin begins a record and returns where to append what it has, or nil if too many wait already.
// The caller holds mu, and ends the record.
func (r *Recorder) begin(kind recordKind, at fib.Moment) *encoder {
	q := &r.queue
	if len(q.b) >= maxQueued {
		q.dropped++
		r.stats.Dropped++
		return nil
	}
	if q.records == 0 {
		q.start()
		signal(r.wake)
	}
	r.noteDropped(at)
	q.kind(kind, at)
	return &q.encoder
}

// noteDropped records how many records are missing, if there are any. The caller holds mu, and has
// begun a block.
func (r *Recorder) noteDropped(at fib.Moment) {
	if q := &r.queue; q.dropped > 0 {
		q.kind(kindDropped, at)
		q.uint(q.dropped)
		q.dropped = 0
		q.records++
	}
}

func (r *Recorder) end() {
	if r.queue.records++; len(r.queue.b) >= enough {
		signal(r.full)
	}
}

// start begins a block, with room for the time that moments of it count from.
func (q *queue) start() {
	b := append(durable.StartBlock(q.b[:0], blockRecords), make([]byte, 8)...)
	q.encoder = encoder{b: b}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waiting is what the writer takes at once.
type waiting struct {
	taken    []taken
	block    []byte
	records  int
	complete uint64 // block ends the checkpoint of that segment; 0: of none
	keys     int    // of that checkpoint
	inputs   inputs // as they are after block
}

// take returns what waits, and leaves spare to be filled instead. If the disk takes records, what
// had no room behind them is recorded at once: nobody knows when the next record comes.
func (r *Recorder) take(spare []byte) (w waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w = waiting{taken: r.taken, complete: r.complete, keys: r.stands, inputs: r.inputs}
	r.inputs.isShared = true
	r.taken, r.complete = nil, 0
	if w.records = r.queue.records; w.records > 0 {
		w.block = r.queue.b
		r.queue.b, r.queue.records = spare[:0], 0
	}
	if r.queue.dropped > 0 && r.stats.Problem == "" {
		r.queue.start()
		signal(r.wake)
		r.noteDropped(r.At(time.Now()))
	}
	return w
}

// Run writes until ctx ends. It does not wait longer than a second for a disk that stalls: then the
// goroutine that writes ends with the process.
func (r *Recorder) Run(ctx context.Context) error {
	var writers sync.WaitGroup
	writers.Go(func() { r.write(ctx) })
	if r.updates != nil {
		writers.Go(func() { r.updates.run(ctx) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		writers.Wait()
	}()
	r.takeCheckpoints(ctx)
	select {
	case <-done:
	case <-time.After(r.endWait):
		r.cfg.Log.Warn("the disk of the recorder stalls; its last records are lost")
	}
	return nil
}

// takeCheckpoints has each segment begin with all that decides, until ctx ends.
func (r *Recorder) takeCheckpoints(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.begun:
		}
		r.mu.Lock()
		segment, dropped := r.segment, r.stats.Dropped
		r.stands = 0
		r.mu.Unlock()
		if r.checkpoint != nil {
			r.checkpoint(func() bool { return r.hasRoom(ctx, segment) })
		}
		r.mu.Lock()
		if ctx.Err() == nil && r.segment == segment && r.stats.Dropped == dropped {
			if e := r.begin(kindComplete, r.At(time.Now())); e != nil {
				e.uint(segment)
				e.uint(uint64(r.stands))
				r.complete = segment
				r.end()
			}
		}
		r.mu.Unlock()
	}
}

// hasRoom waits until there is room for a part of the checkpoint of a segment; false: there is no
// need any more.
func (r *Recorder) hasRoom(ctx context.Context, segment uint64) bool {
	for ctx.Err() == nil {
		r.mu.Lock()
		queued, current := len(r.queue.b), r.segment == segment
		r.mu.Unlock()
		if queued < maxQueued/4 || !current {
			return current
		}
		select {
		case <-ctx.Done():
		case <-time.After(gather):
		}
	}
	return false
}

// wait waits until something is to be written, and a while longer for what can be written with it,
// unless that is enough already.
func wait(ctx context.Context, wake, full <-chan struct{}, timer *time.Timer,
	gather time.Duration) {
	select {
	case <-ctx.Done():
	case <-wake:
		timer.Reset(gather)
		select {
		case <-ctx.Done():
		case <-full:
		case <-timer.C:
		}
	}
}

func (r *Recorder) write(ctx context.Context) {
	w := writer{Recorder: r, ring: newRing(r.cfg, r.began, r.open)}
	w.ring.preamble = w.preamble
	defer w.ring.close()
	var spare []byte
	timer := time.NewTimer(r.gather)
	defer timer.Stop()
	for ends := 0; ends < 2; { // the second time with what take has recorded
		if wait(ctx, r.wake, r.full, timer, r.gather); ctx.Err() != nil {
			ends++
		}
		all := r.take(spare)
		for _, t := range all.taken {
			w.differences(w.block, t)
		}
		w.block(all.block, all.records)
		w.inputs = all.inputs
		if all.complete != 0 {
			w.ring.complete(all.complete, all.keys, time.Now())
		}
		if spare = all.block; cap(spare) > maxSpare {
			spare = nil
		}
	}
}

// writer is what the goroutine that writes has.
type writer struct {
	*Recorder
	ring     *ring
	snapshot *calico.Snapshot // as last written
	plan     planWritten
	inputs   inputs // as of what was last written
	dropped  uint64 // records, when it wrote last
}

// preamble writes what a segment begins with, and has the rest of the checkpoint taken. It is half
// of a segment at most: of a larger one the rest is left out, and no other is tried for an hour.
func (w *writer) preamble(write func(block []byte) error) (err error) {
	now := w.At(time.Now())
	var size int64
	var leftOut int // records
	put := func(block []byte, records int) {
		if records == 0 || err != nil {
			return
		}
		size += int64(len(block))
		if isTooLong(block) || size > w.ring.most()/2 {
			leftOut += records
			return
		}
		block[durable.BlockHeader] = blockState
		err = write(w.dated(block))
	}
	b := w.blocks(put, now)
	if w.inputs.facts.Identity != "" {
		b.add(kindFacts, changeOf(route.Facts{}, w.inputs.facts))
	}
	if w.inputs.hasAround {
		b.add(kindSurroundings, w.surroundingsChange(fib.Surroundings{}, w.inputs.surroundings))
	}
	for _, text := range w.inputs.resolved {
		b.add(kindResolved, json.RawMessage(text))
	}
	b.end()
	switch {
	case w.snapshot == nil:
	case w.ring.hasRoom():
		w.datastore(put, now, nil, w.snapshot)
	default:
		leftOut++
	}
	if w.plan.inputs != nil {
		w.writePlan(put, now, nil, w.plan.inputs, w.plan.digests)
	}
	if leftOut > 0 && err == nil { // readers know that the checkpoint is not whole
		var q queue
		q.start()
		q.kind(kindDropped, now)
		q.uint(uint64(leftOut))
		q.b[durable.BlockHeader] = blockState
		err = write(w.dated(q.b))
	}
	if err != nil {
		return err
	}
	if size > w.ring.most()/2 {
		w.ring.tooLarge = time.Now()
	}
	w.mu.Lock()
	w.segment = w.ring.last().number
	w.mu.Unlock()
	if w.ring.hasRoom() {
		signal(w.begun)
	}
	return nil
}

// dated ends a block. The moment 0 has the time of day that the clock says now.
func (w *writer) dated(block []byte) []byte {
	now := time.Now()
	binary.BigEndian.PutUint64(block[durable.BlockHeader+1:],
		uint64(now.UnixNano()-int64(w.At(now))))
	return durable.EndBlock(block)
}

// block writes a block of so many records.
func (w *writer) block(block []byte, records int) {
	if records == 0 {
		return
	}
	w.note(records, w.ring.write(w.dated(block), time.Now()))
}

// differences has written what Datastore or Plan was told. A segment that begins in the middle has
// all of it.
func (w *writer) differences(write func(block []byte, records int), t taken) {
	if t.plan != nil {
		w.recordPlan(write, t.at, *t.plan)
		return
	}
	before := w.snapshot
	w.snapshot = t.snapshot
	w.datastore(write, t.at, before, t.snapshot)
}

// datastore has written what after has otherwise than before.
func (w *writer) datastore(write func(block []byte, records int), at fib.Moment,
	before, after *calico.Snapshot) {
	b := w.blocks(write, at)
	for c := range calico.ChangesOf(before, after) {
		b.add(kindDatastore, c)
	}
	b.end()
}

// note takes how the disk has taken so many records.
func (w *writer) note(records int, err error) {
	r := w.Recorder
	r.mu.Lock()
	before := r.stats.Problem
	w.ring.hasGap = w.ring.hasGap || r.stats.Dropped > w.dropped
	w.dropped = r.stats.Dropped
	r.stats.took(records, err, time.Now(), &w.ring.files)
	if err != nil {
		r.queue.dropped += uint64(records)
	}
	after := r.stats.Problem
	r.mu.Unlock()
	r.sayProblem(before, after, "what happens")
}

// sayProblem logs that something begins or ends not to be recorded.
func (r *Recorder) sayProblem(before, after, what string) {
	switch {
	case after != "" && before == "":
		r.cfg.Log.Warn("the recorder cannot write; "+what+" meanwhile is not recorded",
			"err", after)
	case after == "" && before != "":
		r.cfg.Log.Info("the recorder writes again " + what)
	}
}

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
