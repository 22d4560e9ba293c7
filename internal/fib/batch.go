package fib

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// batchSize and maxFlying bound what is in flight, and with it how long a change waits behind
	// full batches: 40 ms at VPP's pace. The pipeline runs empty once per batch, so a long queue,
	// behind which every change waits anyway, goes in batches of up to longBatch.
	batchSize = 4096
	longBatch = 4 * batchSize
	// shortBatch is how many objects a batch puts, so that routes through the first are under way
	// while the rest is, how many are taken in at a time, and how many ops are worth a batch behind
	// one that is in flight.
	shortBatch = 256
	// A refused op is repeated after firstRetry, then twice as long each time up to lastRetry, a
	// quarter more or less.
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
	at, next time.Time
	givenUp  bool // there is no next but that of tryLater
}

// holds reports whether the op is not to be repeated now.
func (f *failure) holds(now time.Time) bool {
	return f != nil && (f.givenUp && f.next.IsZero() || now.Before(f.next))
}

// retries is a heap by time. A failure that is no longer its entry's is skipped when its time
// comes.
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
	digests []uint64   // what will be there; 0: nothing
	sources []sourceID // who wants it
	since   []Moment   // see BatchOp.Queued
	// ops[first:last] are about routes; before them come puts of objects, after them deletions.
	first, last int
	objects     map[int]objectOp // ops before first and from last on
	// For the journal: in which generation, and what the names of interfaces mean.
	identity   string
	interfaces meanings
	rewrite    bool     // of the journal, before
	takeovers  []record // that the journal is to know, besides

	number            uint64 // counts batches with ops
	told              bool   // the recorder was, that it goes out
	generation, epoch int
	behind            *batch // was in flight when this one was cut; nil once it is this one's turn

	// Results: done[i] once op i is known to have succeeded, or to have failed with errs[i].
	done []bool
	errs map[int]error
	err  error // of the batch as a whole: the rest was not answered
	void bool  // nothing was done: the one before broke off, or the data plane is another one
}

// isVoid reports, when it is b's turn, that the batch before b broke off. What b deletes may have
// been waiting for what that one puts, and the data plane is to be given a pause.
func (b *batch) isVoid() bool {
	if b.behind != nil && b.behind.err != nil {
		b.void, b.err = true, b.behind.err
	}
	b.behind = nil
	return b.void
}

// nextSize is how many ops the next batch may have: a quarter of a long queue.
func (s *syncer) nextSize() int { return max(batchSize, min(longBatch, s.waiting()/4)) }

// cut takes the next batch off the queues, nil when there is nothing to do. Behind one that is in
// flight none shorter than shortBatch is cut, since it would grow meanwhile; and none that has the
// journal written anew (rewrite, or s.rewrite, which is reason enough for a batch without ops),
// since that needs all earlier results. What is stale waits until all is selected, and goes alone.
func (s *syncer) cut(rewrite bool) *batch {
	rewrite = rewrite || s.rewrite
	if !s.present || len(s.flying) == maxFlying || s.now.Before(s.pause) ||
		!s.rewrite && s.waiting()+len(s.takeovers)+len(s.objects.lost) == 0 ||
		len(s.flying) > 0 && (rewrite || s.waiting() < shortBatch) ||
		s.stale.len() > 0 && s.isChoosing() {
		return nil
	}
	if !s.isChoosing() {
		for _, q := range s.leaving {
			to := &s.deletes
			if q.isObject() {
				to = &s.objects.deletes
			}
			to.push(deletion{q, s.puts.pushed})
		}
		s.leaving = nil
	}
	b := &batch{
		identity: s.identity, interfaces: s.meanings(), rewrite: rewrite,
		generation: s.generation, epoch: s.epoch,
	}
	size := s.nextSize()
	n := min(size, s.waiting())
	b.ops, b.entries = make([]route.Op, 0, n), make([]*entry, 0, n)
	b.digests, b.sources = make([]uint64, 0, n), make([]sourceID, 0, n)
	b.since = make([]Moment, 0, n)
	s.takeStale(b, size)
	if b.last = len(b.ops); b.last == 0 {
		s.takePuts(b, &s.objects.puts, min(size, shortBatch))
		b.first = len(b.ops)
		s.takePuts(b, &s.puts, size)
		if !s.taking {
			s.takeDeletes(b, &s.deletes, size)
		}
		b.last = len(b.ops)
		if !s.taking && s.deletes.len() == 0 {
			s.takeDeletes(b, &s.objects.deletes, min(size, b.last+shortBatch))
		}
	}
	s.takeOver(b)
	if len(b.ops)+len(b.takeovers) == 0 && !s.rewrite {
		return nil
	}
	b.done = make([]bool, len(b.ops))
	if n := len(s.flying); n > 0 {
		b.behind = s.flying[n-1]
	}
	s.flying, s.rewrite = append(s.flying, b), false
	if len(b.ops) > 0 {
		s.cuts++
		b.number = s.cuts
	}
	s.noteAudited(b)
	return b
}

func (s *syncer) takeStale(b *batch, size int) {
	for len(b.ops) < size && s.stale.len() > 0 {
		q := s.stale.pop()
		q.clear(inDeletes)
		if q.is(isWaiting) {
			q.set(isLate)
		}
		s.take(b, q, needDelete)
	}
}

func (s *syncer) takePuts(b *batch, from *queue[queued], size int) {
	for len(b.ops) < size && from.len() > 0 {
		q := from.pop()
		q.clear(inPuts)
		s.take(b, q, needPut)
	}
}

func (s *syncer) takeDeletes(b *batch, from *queue[deletion], size int) {
	for len(b.ops) < size && from.len() > 0 && from.items[from.head].after <= s.puts.taken {
		q := from.pop().queued
		q.clear(inDeletes)
		s.take(b, q, needDelete)
	}
}

// takeOver adds to b whose routes others want now as they are.
func (s *syncer) takeOver(b *batch) {
	for _, e := range s.takeovers {
		// else an op records it
		if e.want != nil && e.actual == e.want.digest && !e.is(isGone|isUnsure|isFlying) {
			b.takeovers = append(b.takeovers, s.record(e))
		}
	}
	b.takeovers = append(b.takeovers, s.objects.lost...)
	s.takeovers, s.objects.lost = nil, nil
}

// take adds what an entry needs to b if it is still what it was queued for.
func (s *syncer) take(b *batch, q queued, queuedFor need) {
	e := q.entry
	if s.need(e) != queuedFor || e.is(isFlying) {
		s.settle(e)
		return
	}
	e.set(isFlying)
	if e.isObject() {
		s.takeObject(b, e, queuedFor)
	}
	op, digest := route.Op{Delete: true, Route: route.Route{Key: e.key()}}, uint64(0)
	if queuedFor == needPut {
		e.clear(isStale | isLate) // nothing was there
		op, digest = route.Op{Route: e.route()}, e.wanted()
	}
	b.ops = append(b.ops, op)
	b.entries = append(b.entries, e)
	b.digests = append(b.digests, digest)
	b.sources = append(b.sources, e.source)
	b.since = append(b.since, q.since)
}

// takeObject adds to b what its next op does.
func (s *syncer) takeObject(b *batch, e *entry, what need) {
	o := s.objectOf(e)
	s.voidLookUp(o)
	op := objectOp{key: o.key, before: s.record(e)}
	if what == needPut {
		op.want = e.want.object
	}
	if b.objects == nil {
		b.objects = make(map[int]objectOp)
	}
	b.objects[len(b.ops)] = op
}

// record is what the journal is to know of e.
func (s *syncer) record(e *entry) record {
	r := record{key: e.key(), digest: e.actual, owner: e.owner, unsure: e.is(isUnsure)}
	if o := s.objectOf(e); o != nil {
		r.object = &o.key
	}
	return r
}

// result takes how op i came out.
func (b *batch) result(i int, err error) {
	b.done[i] = true
	if err == nil {
		return
	}
	if b.errs == nil {
		b.errs = make(map[int]error)
	}
	b.errs[i] = err
}

// refused returns how many ops about routes failed, and the first of them.
func (b *batch) refused() (count, first int) {
	first = len(b.ops)
	for i := range b.errs {
		if i >= b.first && i < b.last {
			count, first = count+1, min(first, i)
		}
	}
	return count, first
}

// isDone reports whether op i was acknowledged.
func (b *batch) isDone(i int) bool { return !b.void && b.done[i] && b.errs[i] == nil }

// finish takes the results of the batch that was cut first. An op without result may or may not
// have happened: its entry is unsure and it is repeated.
func (s *syncer) finish(b *batch) {
	s.flying = slices.DeleteFunc(s.flying, func(x *batch) bool { return x == b })
	if !b.void {
		s.backOff(b.err != nil)
	}
	for i, e := range b.entries {
		e.clear(isFlying)
		// What it did in another generation, it did to a data plane that is no more.
		if b.void || b.generation != s.generation {
			s.settle(e)
			continue
		}
		switch err := b.errs[i]; {
		case !b.done[i]:
			s.leads(e, b.ops[i].Route.Paths, true)
			e.set(isUnsure)
			if e.actual == 0 {
				// the better guess: if something is there, it is this
				e.actual, e.owner = b.digests[i], b.sources[i]
			}
		case err != nil && e.is(isStale):
			s.refused(e, e.wanted(), err, b.epoch) // what waits for the deletion
		case err != nil:
			s.refused(e, b.digests[i], err, b.epoch)
		default:
			if e.owner == sourceID(route.External) { // what is deleted has no source any more
				s.externalChanged = true
			}
			e.owner = b.sources[i]
			s.leads(e, b.ops[i].Route.Paths, false)
			s.acknowledged(e, b.digests[i], b.epoch)
		}
		s.settle(e)
	}
	if s.doubtAgain { // what was put meanwhile may have the path of what went late
		s.doubtAgain = false
		s.doubtOver(s.madeAnew, s.madeAnew)
	}
	s.objectsWritten(b)
}

// backOff waits longer from one broken batch to the next, so that a data plane that accepts and
// then fails is not flooded.
func (s *syncer) backOff(broken bool) {
	if !broken {
		s.broken, s.pause = 0, time.Time{}
		return
	}
	s.pause = s.now.Add(jitter(min(firstRetry<<min(s.broken, 16), lastRetry/6)))
	s.broken++
}

func (s *syncer) acknowledged(e *entry, digest uint64, epoch int) {
	before := e.actual
	e.actual = digest
	s.doubtAgain = s.doubtAgain || e.is(isStale) && (s.failures[e] != nil || e.is(isLate))
	delete(s.failures, e)
	e.clear(isUnsure)
	if digest == 0 {
		e.clear(isStale | isLate)
		s.known(e)
	}
	if e.isObject() {
		return
	}
	if e.is(isDrifted) {
		s.drift.Repaired++
		s.undrift(e)
	}
	if digest == 0 {
		s.del++
		s.unshadow(e)
	} else {
		s.put++
		if before == 0 {
			s.checkSoon(e)
		}
	}
	if epoch != s.epoch && digest != 0 {
		e.set(isUnsure) // an interface changed its meaning meanwhile
	}
	s.written(e.key())
}

func (s *syncer) refused(e *entry, digest uint64, err error, epoch int) {
	if e.isObject() {
		e.mark(isUnsure, e.is(isUnsure) || errors.Is(err, route.ErrUnanswered))
		s.objects.changed = true
	} else {
		s.refusal = err
		s.errors++
	}
	f := &failure{entry: e, digest: digest, err: err, attempts: 1, at: s.now}
	if before := s.failures[e]; before != nil && before.digest == digest {
		f.attempts = before.attempts + 1
	}
	s.failures[e] = f
	// Each refusal would cost too much to tell: there may be 10 000 such routes.
	doubled := f.attempts&(f.attempts-1) == 0
	s.externalChanged = s.externalChanged || doubled && e.origin() == route.External
	// A link that is missing is awaited, whatever the limit. So is what was refused before an
	// interface changed its meaning, of which tryAgain did not know yet.
	if limit := s.limits[e.origin()]; limit > 0 && f.attempts >= limit && digest != 0 &&
		epoch == s.epoch && !errors.Is(err, route.ErrNoLink) {
		f.givenUp = true
		s.externalChanged = s.externalChanged || e.origin() == route.External
		return
	}
	f.next = s.now.Add(jitter(min(firstRetry<<min(f.attempts-1, 16), lastRetry)))
	heap.Push(&s.retries, f)
}

// tryNow has what was refused of e tried again at once, and as often as if it had never been. It
// stays Failed until that succeeds: nobody is told that it can be used meanwhile.
func (s *syncer) tryNow(e *entry) {
	if f := s.failures[e]; f != nil {
		again := &failure{entry: e, digest: f.digest, err: f.err, at: f.at, next: s.now}
		s.failures[e] = again
		heap.Push(&s.retries, again)
	}
}

// tryLater has what was given up of e tried once more, in the time that others wait at most, and
// stay given up until that succeeds.
func (s *syncer) tryLater(e *entry) {
	if f := s.failures[e]; f != nil && f.givenUp && f.next.IsZero() {
		f.next = s.now.Add(jitter(lastRetry))
		heap.Push(&s.retries, f)
	}
}

// tryAgain has what was refused tried at once if it depends on something that has changed.
func (s *syncer) tryAgain(depends func(*entry) bool) {
	for e := range s.failures {
		if e.want != nil && depends(e) {
			delete(s.failures, e)
			if o := s.objectOf(e); o != nil {
				s.reconsider(o)
			}
			s.settle(e)
		}
	}
}

// jitter spreads d by a quarter to both sides.
func jitter(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2) }

// retry queues what was refused and may be tried again, and returns when the next may; zero: none
// waits.
func (s *syncer) retry() time.Time {
	for len(s.retries) > 0 {
		f := s.retries[0]
		if s.failures[f.entry] == f && s.now.Before(f.next) {
			return f.next
		}
		heap.Pop(&s.retries)
		if s.failures[f.entry] == f {
			if o := s.objectOf(f.entry); o != nil {
				s.reconsider(o) // it may be there by now
			}
			s.settle(f.entry)
		}
	}
	return time.Time{}
}
