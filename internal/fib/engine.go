package fib

import (
	"context"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// chunk and wantedChunk bound how long the table stays locked at a time: 1 ms or two. So many
	// prefixes are learned or selected, and so many routes of other sources put or replaced. What a
	// source does not want any more is taken in at once.
	chunk       = 2048
	wantedChunk = 128
	// objectsHead bounds how long what is to be taken in waits for objects that it may need: for
	// some round trips.
	objectsHead = 20 * time.Millisecond
	// adoptRetry is the pause before a failed listing is asked for again.
	adoptRetry = time.Second
	// lookupTimeout bounds a look-up on a data plane that hangs.
	lookupTimeout = 5 * time.Second
	// maxFlying is how many batches are in flight: while one is with the data plane, the next is
	// ready behind it, so that nothing stands still while results are taken in.
	maxFlying = 2
)

// Config is what an Engine is made of.
type Config struct {
	Dataplane Dataplane
	// Journal is the path of the ownership journal; "" keeps none, and every start reads the data
	// plane once.
	Journal string
	// ListRoutes: every start lists the routes of ours, and the journal has only objects. Linux
	// lists cheaply, and drops routes while nobody watches.
	ListRoutes bool
	// Earlier returns objects of source Uplink that an agent from before journal version 3 has set,
	// in that generation of the data plane and on those interfaces, by index; nil: none.
	Earlier func(identity string, interfaces map[string]uint32) []route.Object
	Log     *slog.Logger
	// Recorder is told what happens; nil: nobody is.
	Recorder Recorder
	// Distances replace route.Origin.DefaultDistance for the origins they name.
	Distances map[route.Origin]uint8
	// Attempts are how often a put for an origin is refused before it is given up, until what is
	// wanted changes, or what that depends on; 0: never.
	Attempts map[route.Origin]int
	Tuning
}

// Tuning is the part of Config that may change while the engine runs; see Tune.
type Tuning struct {
	// SpotChecks is how many routes per second are compared with the data plane, in rotation, while
	// it has nothing to write and nothing is found; 0: none. VPP's workers stop for some
	// microseconds for each look-up.
	SpotChecks int
	// RepairDrift puts or deletes again what was found to be missing, different or extra; otherwise
	// it is only shown and counted.
	RepairDrift bool
	// GuardShare, of 1, and GuardMinimum say when a new list of a Source lacks suspiciously much
	// at once: more than that share of what the origin wanted before, and more than that many
	// routes. A share of 0 lets everything through.
	GuardShare   float64
	GuardMinimum int
}

// Engine keeps a data plane equal to what its sources want. Its methods are safe for concurrent
// use. Run's goroutine changes the table; the applier writes journal and data plane, the resolver
// looks next hops up, and the checker compares, so that selection goes on meanwhile. For a change
// that comes alone Learn does the work of the first two.
type Engine struct {
	dataplane Dataplane
	log       *slog.Logger
	earlier   func(identity string, interfaces map[string]uint32) []route.Object
	keeps     *journal
	journals  bool // routes are journalled
	inbox     inbox
	changed   chan struct{}
	external  chan struct{}
	// objectsChanged is the signal of ObjectsChanged.
	objectsChanged chan struct{}

	carrying sync.WaitGroup // the goroutines that Run waits for

	// guards what follows; never held across a call to the data plane or to the disk
	mu        sync.Mutex
	table     *table     // the keys
	sources   *sources   // what they want
	selection *selection // what is wanted of it
	hops      *nextHops
	sync      *syncer       // what is there of that
	journal   journalReport // the last
	// driftLog: no line about drift before.
	driftLog time.Time
	wanted   Wanted // as last taken in
	// objectsFirst: until then nothing else is taken in while objects wait for one another.
	objectsFirst time.Time

	pending   pendingInputs // being worked through
	throttle  throttle
	jobs      chan job // to the applier, with room for all there are; nil: Run does not run
	applying  int      // jobs
	started   bool     // the only one is a batch that Learn has started
	resolving bool
	checking  bool
	adoptAt   time.Time // not before, after a failure
}

// New returns an engine that does nothing until Run; inputs given before are kept.
func New(c Config) *Engine {
	t := newTable()
	t.recorder = c.Recorder
	e := &Engine{
		dataplane: c.Dataplane,
		log:       c.Log,
		earlier:   c.Earlier,
		keeps:     &journal{path: c.Journal, objectsOnly: c.ListRoutes},
		inbox:     inbox{wake: make(chan struct{}, 1)},
		changed:   make(chan struct{}, 1),
		external:  make(chan struct{}, 1),

		objectsChanged: make(chan struct{}, 1),
		table:          t,
		hops:           newNextHops(t),
		sync:           newSyncer(t),
		journals:       c.Journal != "" && !c.ListRoutes,
	}
	e.selection = newSelection(t, e.sync, e.hops, c.Distances)
	e.sources = newSources(t, e.selection)
	e.sync.leadsOver, e.sync.written = e.selection.leadsOver, e.hops.askInside
	_, e.sync.objects.bulk.provided = c.Dataplane.(Bulk)
	e.sync.watched, e.sync.limits = sourceID(route.Own), c.Attempts
	e.tune(c.Tuning)
	if t.recorder != nil {
		t.now = time.Now()
		e.selection.noteSurroundings() // distances
	}
	return e
}

// Tune takes other settings. Routes that were found to differ are repaired from now on, or not;
// what the guard holds stays held until its time is over.
func (e *Engine) Tune(to Tuning) {
	e.mu.Lock()
	e.tune(to)
	e.mu.Unlock()
	e.inbox.nudge()
}

// Suspicious reports whether a new list that lacks gone of all items is rather broken than true.
func (e *Engine) Suspicious(gone, all int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sources.suspicious(gone, all)
}

func (e *Engine) tune(to Tuning) {
	e.sync.tune(to)
	e.sources.share, e.sources.minimum = to.GuardShare, to.GuardMinimum
}

// lookup is a question to the resolver, and with the rest filled in its answer.
type lookup struct {
	hop        NextHop
	generation int
	resolution route.Resolution
	err        error
}

// Run owns the FIB until ctx ends; it leaves the data plane as it is.
func (e *Engine) Run(ctx context.Context) error {
	jobs, finished := make(chan job, maxFlying), make(chan job, maxFlying)
	questions, answers := make(chan lookup, 1), make(chan lookup, 1)
	spots, looked := make(chan spot, 1), make(chan spot, 1)
	e.carrying.Go(func() { e.apply(ctx, jobs, finished) })
	e.carrying.Go(func() { e.resolve(ctx, questions, answers) })
	e.carrying.Go(func() { e.check(ctx, spots, looked) })
	e.accept(jobs)
	defer func() {
		e.accept(nil)
		e.carrying.Wait()
		e.keeps.close()
	}()

	// What follows from a result goes to the data plane before more is selected.
	finish := func(j job) {
		e.finish(j)
		e.dispatch(questions, spots)
	}
	checked := func(x spot) {
		e.checked(x)
		e.dispatch(questions, spots)
	}
	facts := e.dataplane.Facts()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wake := e.inbox.wake
		if e.isThrottled() {
			wake = nil
		}
		select {
		case j := <-finished: // before all else: the data plane waits for what follows from it
			finish(j)
		default:
			select {
			case <-ctx.Done():
				return nil
			case <-wake:
			case <-timer.C:
			case f := <-facts:
				e.observe(f)
			case j := <-finished:
				finish(j)
			case l := <-answers:
				e.answer(l)
			case s := <-looked:
				checked(s)
			}
		}
		for more := true; more; {
			more = e.work()
			next := e.dispatch(questions, spots)
			timer.Reset(next)
			if !more || ctx.Err() != nil {
				break
			}
			// none of these need wait until all inputs are worked through
			select {
			case j := <-finished:
				finish(j)
			default:
				select {
				case f := <-facts:
					e.observe(f)
				case l := <-answers:
					e.answer(l)
				case s := <-looked:
					checked(s)
				default:
				}
			}
			if len(e.jobs) > 0 { // a batch goes out before the next slice of inputs
				runtime.Gosched()
			}
		}
	}
}

// accept sets where jobs go to.
func (e *Engine) accept(jobs chan job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = jobs
}

func (e *Engine) isThrottled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.throttle.holds(time.Now())
}

// work takes a part of what has come in, selects a part of what is dirty, and reports whether there
// is more of either.
func (e *Engine) work() (more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.workAt(time.Now())
}

func (e *Engine) workAt(now time.Time) (more bool) {
	if e.pending.wanted == nil && len(e.pending.learned) == 0 && !e.throttle.holds(now) {
		if e.pending = e.inbox.take(); len(e.pending.learned) > 0 {
			e.throttle.took(now)
		}
	}
	e.table.now = now
	if w := e.pending.wanted; w != nil {
		if e.yields() {
			return false
		}
		if e.table.recorder != nil {
			e.table.received = e.table.recorder.At(sooner(w.Received, w.set))
		}
		done := e.setWanted(*w)
		if e.table.received = 0; !done {
			return true
		}
		e.inbox.nudge() // what came while the engine yielded has woken nobody
	}
	e.pending.wanted = nil
	e.sources.release(e.pending.release)
	e.pending.release = false
	if len(e.pending.learned) > 0 {
		for _, b := range e.pending.learned[0] {
			e.selection.learn(b)
		}
		e.table.received = 0
		e.pending.learned[0] = nil
		e.pending.learned = e.pending.learned[1:]
	}
	allLearned := len(e.pending.learned) == 0
	e.selection.setConverging(e.wanted.Converging || e.selection.converging && !allLearned)
	if allLearned {
		e.allowSweep()
	}
	e.selection.releaseCovered()
	e.selection.noteLeft()
	dirty := e.selection.selectDirty(chunk)
	e.selection.noteSettled()
	return dirty || len(e.pending.learned) > 0
}

// setWanted hands what is wanted to the owners, a part at each call, and reports whether that was
// all. Objects that others need are on their way before those others are taken in, and all objects,
// which routes wait for, before the routes. What may delete waits in e.wanted for what was learned
// earlier.
func (e *Engine) setWanted(to Wanted) (done bool) {
	revision := e.wanted.revision + 1 // the first, if several were set since
	if !e.sync.taking {
		e.sync.taking = true
		e.sync.delays.begin(revision, to.Received)
		if e.beginWanted(to, revision) {
			e.objectsFirst = e.table.now.Add(objectsHead)
			return false
		}
	}
	if e.sync.objects.bulk.intake.isOpen {
		e.sync.takeMany(e.sync.objects.bulk.slice)
		return false
	}
	if !e.sources.take(wantedChunk, revision) {
		return false
	}
	e.sync.taking = false
	e.sync.delays.taken(revision, e.table.now)
	e.wanted = to
	return true
}

// yields reports whether objects go first: those that others wait for are on their way, and what
// waits, which takes longer to be taken in than to be written, would hold them up.
func (e *Engine) yields() bool {
	return e.sync.taking && e.table.now.Before(e.objectsFirst) && e.sync.isPreparing()
}

// beginWanted hands over all but the routes and the objects that may be many, and reports whether
// objects have changed.
func (e *Engine) beginWanted(to Wanted, revision uint64) (objects bool) {
	e.selection.protect(to.Own, to.Peers)
	e.selection.keepOut(to.Services)
	e.selection.setEncapsulation(to.Encapsulation)
	e.selection.setNormal([2]uint32{to.Normal4, to.Normal6})
	if !slices.Equal(to.Follow, e.wanted.Follow) || (to.Follow == nil) != (e.wanted.Follow == nil) {
		e.selection.follow(to.Follow)
	}
	for i := range to.Sources {
		now, before := &to.Sources[i], e.wanted.Sources[i]
		objects = objects || !sameSlice(now.Objects, before.Objects)
		if !sameSlice(now.Routes, before.Routes) || now.List != before.List {
			e.sources.begin(route.Origin(i), now.Routes, now.List != before.List)
		}
	}
	if objects {
		e.sync.beginObjects(&to.Sources, revision)
	}
	return objects
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// allowSweep allows the sweep of what complete sources left.
func (e *Engine) allowSweep() {
	for i, source := range e.wanted.Sources {
		if source.Complete {
			e.sync.allowSweep(sourceID(i))
		}
	}
	if e.wanted.Complete {
		e.sync.allowSweep(unknownSource)
	}
}

// dispatch hands out what can be done now and returns after how long to look again.
func (e *Engine) dispatch(questions chan<- lookup, spots chan<- spot) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.table.now = now
	next := sooner(sooner(e.sync.retry(), e.sources.nextRelease()),
		sooner(e.selection.nextCovered(), e.throttle.until(now)))
	next = sooner(next, e.sync.settleWaiting())
	if e.pending.wanted != nil && e.sync.taking { // it yields
		next = sooner(next, e.objectsFirst)
	}
	for e.applying < maxFlying {
		j, due := e.nextJob()
		next = sooner(next, due)
		if j == (job{}) {
			break
		}
		e.applying++
		e.jobs <- j // there is room
	}
	if e.sync.present {
		next = sooner(next, e.hops.report())
		if !e.resolving {
			hop, due := e.hops.next()
			if hop != nil {
				e.resolving = true
				questions <- lookup{hop: hop.NextHop, generation: e.sync.generation}
			}
			next = sooner(next, due)
		}
	}
	if !e.checking {
		s, due := e.nextCheck()
		if s != nil {
			e.checking = true
			spots <- *s
		}
		next = sooner(next, due)
	}
	signal(&e.table.changed, e.changed)
	signal(&e.table.externalChanged, e.external)
	signal(&e.sync.objects.changed, e.objectsChanged)
	if next.IsZero() {
		return time.Hour
	}
	return next.Sub(now)
}

// signal passes on that something has changed.
func signal(has *bool, to chan<- struct{}) {
	if *has {
		*has = false
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// nextCheck returns what the checker is to look up now, or nothing and when to come again.
func (e *Engine) nextCheck() (*spot, time.Time) {
	s := e.sync
	o, dueObject := s.nextObject()
	if o != nil {
		return &spot{
			object: o, want: o.want, writes: o.writes, generation: s.generation,
		}, time.Time{}
	}
	list, due := s.nextListing()
	dueObject = sooner(dueObject, due)
	if list {
		return &spot{
			listing: true, writes: s.objects.bulk.writes, generation: s.generation,
		}, time.Time{}
	}
	entry, due := s.nextSpot()
	if entry == nil {
		return nil, sooner(dueObject, due)
	}
	return &spot{
		entry: entry, key: entry.key(), digest: entry.actual,
		generation: s.generation, cuts: s.cuts,
	}, time.Time{}
}

// nextJob returns what the applier is to do now, or nothing and when to come again (zero: when
// something changes). Only batches are prepared while it is still at something else.
func (e *Engine) nextJob() (job, time.Time) {
	s := e.sync
	if e.started || e.applying > len(s.flying) || e.applying > 0 && s.wantsAdoption() {
		return job{}, time.Time{}
	}
	if s.wantsAdoption() {
		if s.now.Before(e.adoptAt) {
			return job{}, e.adoptAt
		}
		return job{adopt: &adoptJob{
			identity: s.identity, generation: s.generation, first: s.generation == 1,
			interfaces: s.meanings(),
		}}, time.Time{}
	}
	if b := s.cut(e.journalDue()); b != nil {
		return job{batch: b}, time.Time{}
	}
	if s.now.Before(s.pause) {
		return job{}, s.pause
	}
	return job{}, time.Time{}
}

// journalDue reports whether the journal is to be written anew: it is lost, or most of it is dead.
func (e *Engine) journalDue() bool {
	if e.journal.lost {
		return !e.table.now.Before(e.journal.retry)
	}
	return e.journal.records > 2*(len(e.table.all)+len(e.sync.objects.byKey))+compactSlack
}

func (e *Engine) observe(f route.Facts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.now = time.Now()
	before := e.sync.facts
	if f.RouteChanges != before.RouteChanges {
		e.hops.askAllNow()
		if before.RouteChanges = f.RouteChanges; e.sync.present && reflect.DeepEqual(before, f) {
			e.sync.facts = f
			return
		}
	}
	e.setFacts(f)
	if f.Identity != before.Identity || f.Problem != before.Problem {
		e.log.Info("data plane", "identity", f.Identity, "version", f.Version, "problem", f.Problem)
	}
	e.table.externalChanged = true
	if f.Identity != before.Identity {
		e.adoptAt = time.Time{}
	}
}

// setFacts hands facts to all who decide by them. While the data plane is away everything stays
// selected as it was.
func (e *Engine) setFacts(f route.Facts) {
	isNew := e.sync.observe(f)
	if f.Identity == "" {
		return
	}
	if isNew {
		e.hops.forgetAnswers()
	}
	if r := e.table.recorder; r != nil {
		e.table.received = e.table.moment()
		e.table.isTold = true
		r.Facts(e.table.received, f)
	}
	e.selection.setFacts(f)
	e.table.received = 0
	e.hops.askAll()
}

func (e *Engine) finish(j job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applying--
	e.started = false
	e.table.now = time.Now()
	e.note(j.journal)
	switch {
	case j.batch != nil:
		e.sync.finish(j.batch)
	case j.adopt.err != nil:
		e.adoptAt = time.Now().Add(jitter(adoptRetry))
	default:
		e.sync.adopt(j.adopt.found)
	}
}

func (e *Engine) answer(l lookup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resolving = false
	e.table.now = time.Now()
	if l.generation == e.sync.generation {
		e.table.received = e.table.moment()
		e.selection.answer(l.hop, l.resolution, l.err)
		e.table.received = 0
	}
}

// resolve looks next hops up, one after the other.
func (e *Engine) resolve(ctx context.Context, questions <-chan lookup, answers chan<- lookup) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-questions:
			c, cancel := context.WithTimeout(ctx, lookupTimeout)
			l.resolution, l.err = e.dataplane.Resolve(c, l.hop.Table, l.hop.Address)
			cancel()
			answers <- l // there is room: one question at a time
		}
	}
}
