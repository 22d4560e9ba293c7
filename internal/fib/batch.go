package fib

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// batchSize and maxFlying bound what is in flight, and with it how long a change waits behind full batches: 40 ms at VPP's pace. The
	// pipeline runs empty once per batch, so a long queue, behind which every change waits anyway, goes in batches of up to longBatch.
	batchSize = 4096
	longBatch = 4 * batchSize
	// A refused op is repeated after firstRetry, then twice as long each time up to lastRetry, a quarter more or less.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// queue is first in, first out.
type queue[T any] struct {
	items         []T
	head          int
	pushed, taken uint64
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(x T) {
	q.items = append(q.items, x)
	q.pushed++
}

func (q *queue[T]) pop() T {
	var zero T
	x := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	q.taken++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 4*batchSize {
			q.items = nil
		}
	}
	return x
}

// failure remembers that the data plane refused an op.
type failure struct {
	entry    *entry
	digest   uint64 // of the route refused; 0: a deletion
	err      error
	attempts int
	next     time.Time
}

// retries is a heap by time. A failure that is no longer its entry's is skipped when its time comes.
type retries []*failure

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].next.Before(r[j].next) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(*failure)) }
func (r *retries) Pop() any {
	last := (*r)[len(*r)-1]
	(*r)[len(*r)-1] = nil
	*r = (*r)[:len(*r)-1]
	return last
}

// batch is a set of ops on its way. Between cut and finish it belongs to who carries it out.
type batch struct {
	ops     []route.Op
	entries []*entry
	digests []uint64 // what will be there; 0: nothing
	// For the journal: in which life, and what the names of interfaces mean.
	identity   string
	interfaces map[string]uint32
	rewrite    bool // of the journal, before

	life, epoch int
	behind      *batch // was in flight when this one was cut; nil once it is this one's turn

	// Results: done[i] once op i is known to have succeeded, or to have failed with errs[i].
	done []bool
	errs map[int]error
	err  error // of the batch as a whole: the rest was not answered
	void bool  // nothing was done, because the one before broke off
}

// isVoid reports, when it is b's turn, that the batch before b broke off. What b deletes may have been waiting for what that one puts, and
// the data plane is to be given a pause.
func (b *batch) isVoid() bool {
	if b.behind != nil && b.behind.err != nil {
		b.void, b.err = true, b.behind.err
	}
	b.behind = nil
	return b.void
}

// nextSize is how many ops the next batch may have: a quarter of a long queue.
func (t *table) nextSize() int { return max(batchSize, min(longBatch, t.waiting()/4)) }

// cut takes the next batch off the queues, nil when there is nothing to do or no data plane to do it to. Behind one that is in flight only a
// full batch is cut, since a small one gains nothing and would grow meanwhile; and none that has the journal written anew (rewrite, or
// t.rewrite), since that needs the results of all before.
func (t *table) cut(rewrite bool) *batch {
	rewrite = rewrite || t.rewrite
	if !t.present || len(t.flying) == maxFlying || t.now.Before(t.pause) || t.waiting() == 0 ||
		len(t.flying) > 0 && (rewrite || t.waiting() < batchSize) {
		return nil
	}
	if len(t.dirty) == 0 {
		for _, e := range t.leaving {
			t.deletes.push(deletion{e, t.puts.pushed})
		}
		t.leaving = nil
	}
	b := &batch{identity: t.identity, interfaces: t.meanings(), rewrite: rewrite, life: t.life, epoch: t.epoch}
	size := t.nextSize()
	n := min(size, t.puts.len()+t.deletes.len())
	b.ops, b.entries, b.digests = make([]route.Op, 0, n), make([]*entry, 0, n), make([]uint64, 0, n)
	for len(b.ops) < size && t.puts.len() > 0 {
		e := t.puts.pop()
		e.clear(inPuts)
		t.take(b, e, needPut)
	}
	for len(b.ops) < size && t.deletes.len() > 0 && t.deletes.items[t.deletes.head].after <= t.puts.taken {
		e := t.deletes.pop().entry
		e.clear(inDeletes)
		t.take(b, e, needDelete)
	}
	if len(b.ops) == 0 {
		return nil
	}
	b.done = make([]bool, len(b.ops))
	if n := len(t.flying); n > 0 {
		b.behind = t.flying[n-1]
	}
	t.flying, t.rewrite = append(t.flying, b), false
	t.cuts++
	t.noteWritten(b)
	return b
}

// take adds what e needs to b if it is still what it was queued for.
func (t *table) take(b *batch, e *entry, queuedFor need) {
	if t.need(e) != queuedFor || e.is(isFlying) {
		t.settle(e)
		return
	}
	op := route.Op{Delete: queuedFor == needDelete, Route: route.Route{Key: e.key}}
	if !op.Delete {
		op.Route.Kind, op.Route.Paths, op.Route.Origin = e.want.kind, e.want.paths, e.origin
	}
	e.set(isFlying)
	b.ops = append(b.ops, op)
	b.entries = append(b.entries, e)
	b.digests = append(b.digests, e.wanted())
}

// finish takes the results of the batch that was cut first. An op without result may or may not have happened: its entry is unsure and it is
// repeated.
func (t *table) finish(b *batch) {
	t.flying = slices.DeleteFunc(t.flying, func(x *batch) bool { return x == b })
	if !b.void {
		t.breathe(b.err != nil)
	}
	for i, e := range b.entries {
		e.clear(isFlying)
		if b.void || b.life != t.life { // what it did in another life, it did to a data plane that is no more
			t.settle(e)
			continue
		}
		switch err := b.errs[i]; {
		case !b.done[i]:
			e.set(isUnsure)
			if e.actual == 0 {
				e.actual = b.digests[i] // the better guess: if something is there, it is this
			}
		case err != nil:
			t.errors++
			t.refused(e, b.digests[i], err)
		default:
			t.acknowledged(e, b.digests[i], b.epoch)
		}
		t.settle(e)
	}
}

// breathe waits longer from one broken batch to the next, so that a data plane that accepts and then fails is not flooded.
func (t *table) breathe(broken bool) {
	if !broken {
		t.broken, t.pause = 0, time.Time{}
		return
	}
	t.pause = t.now.Add(jitter(min(firstRetry<<min(t.broken, 16), lastRetry/6)))
	t.broken++
}

func (t *table) acknowledged(e *entry, digest uint64, epoch int) {
	if e.is(isDrifted) {
		t.drift.Repaired++
		t.undrift(e)
	}
	if digest == 0 {
		t.del++
		t.known(e)
		t.unshadow(e)
	} else {
		t.put++
		if e.actual == 0 {
			t.soon(e)
		}
	}
	e.actual, e.fail = digest, nil
	e.clear(isUnsure | isForgotten)
	if epoch != t.epoch && digest != 0 {
		e.set(isUnsure) // an interface changed its meaning meanwhile
	}
	for _, hop := range t.hops.inside(e.key) {
		t.hops.hurry(hop) // it is reached differently now
	}
}

func (t *table) refused(e *entry, digest uint64, err error) {
	t.refusal = err
	f := &failure{entry: e, digest: digest, err: err, attempts: 1}
	if e.fail != nil && e.fail.digest == digest {
		f.attempts = e.fail.attempts + 1
	}
	f.next = t.now.Add(jitter(min(firstRetry<<min(f.attempts-1, 16), lastRetry)))
	e.fail = f
	heap.Push(&t.retries, f)
}

// jitter spreads d by a quarter to both sides.
func jitter(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2) }

// retry queues what was refused and may be tried again, and returns when the next may; zero: none waits.
func (t *table) retry() time.Time {
	for len(t.retries) > 0 {
		f := t.retries[0]
		if f.entry.fail == f && t.now.Before(f.next) {
			return f.next
		}
		heap.Pop(&t.retries)
		if f.entry.fail == f {
			t.settle(f.entry)
		}
	}
	return time.Time{}
}

// quiet reports that the data plane has all that is wanted.
func (t *table) quiet() bool {
	return t.present && len(t.dirty)+t.queued()+len(t.retries) == 0
}
