package fib

import (
	"time"

	"vpp-route-agent/internal/route"
)

// Starter is what a Dataplane provides besides if ops can be written in one goroutine and their
// results come in another.
type Starter interface {
	// Start begins what Apply does, and does not wait for the data plane. If it reports false it
	// has called neither function, and Apply is to do it. Otherwise done is called as by Apply, and
	// then, from another goroutine and whatever happens, ended with what Apply would return. No
	// other call writes meanwhile.
	Start(ops []route.Op, done func(i int, err error), ended func(error)) bool
}

// few is how many prefixes a change that comes alone may have.
const few = 16

// startAlone does with what was just learned what Run and the applier would do, up to the write to
// the data plane: to wake their goroutines takes longer. It does so on an engine at rest, and waits
// for nobody but the disk. It reports whether Run need not look before the batch has ended.
func (e *Engine) startAlone() bool {
	starter, ok := e.dataplane.(Starter)
	if !ok || !e.mu.TryLock() {
		return false
	}
	jobs, b, more := e.cutAlone()
	e.mu.Unlock()
	if b == nil {
		return false
	}
	defer e.carrying.Done()
	e.keeps.before(b, time.Now(), nil)
	e.sent(b)
	ended := func(err error) {
		b.err = err
		jobs <- job{batch: b, started: true}
	}
	if !starter.Start(b.ops, b.result, ended) {
		jobs <- job{batch: b}
	}
	return !more
}

// cutAlone takes the inputs in and returns a batch that the caller is to start, or nil. Run waits
// for e.carrying then. Until the batch has ended no other is cut, so that the journal has one
// writer at a time.
func (e *Engine) cutAlone() (jobs chan<- job, b *batch, more bool) {
	if e.jobs == nil || e.applying > 0 || len(e.pending.learned) > 0 || e.sync.isChoosing() {
		return nil, nil, false
	}
	now := time.Now()
	if e.throttle.holds(now) || !e.inbox.hasFew() {
		return nil, nil, false
	}
	more = e.workAt(now)
	j, _ := e.nextJob()
	if j == (job{}) {
		return nil, nil, false
	}
	e.applying++
	b = j.batch
	if b == nil || b.rewrite || b.first > 0 || b.last < len(b.ops) || len(b.ops) == 0 ||
		len(b.ops) > few {
		e.jobs <- j // there is room
		return nil, nil, false
	}
	e.started = true
	e.carrying.Add(1)
	return e.jobs, b, more
}
