package recorder

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"sync"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

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
