// Package recorder keeps on disk what the agent has heard, decided and written, and when, in a ring
// of segments of bounded size. What has been recorded can be read while the agent runs, and when it
// runs no more. It never holds the agent up: records wait in memory for one goroutine that writes
// them, and those for which there is no room are counted. docs/decisions/0028 says what is
// recorded, and what is not.
package recorder

import (
	"log/slog"
	"os"
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
