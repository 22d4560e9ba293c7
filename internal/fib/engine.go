package fib

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// chunk bounds how long the table stays locked at a time: 1 ms or two.
	chunk = 2048
	// adoptRetry is the pause before a failed listing is asked for again.
	adoptRetry = time.Second
	// lookupTimeout bounds a look-up on a data plane that hangs.
	lookupTimeout = 5 * time.Second
	// maxFlying is how many batches are in flight: while one is with the data plane, the next is ready behind it, so that nothing
	// stands still while results are taken in.
	maxFlying = 2
)

// Config is what an Engine is made of.
type Config struct {
	Dataplane Dataplane
	// Journal is the path of the ownership journal; "" keeps none, and every start reads the data plane once.
	Journal string
	Log     *slog.Logger
	// Distances replace route.Origin.DefaultDistance for the origins they name.
	Distances map[route.Origin]uint8
	Tuning
}

// Tuning is the part of Config that may change while the engine runs; see Tune.
type Tuning struct {
	// SpotChecks is how many routes per second are compared with the data plane, in rotation, while
	// it has nothing to write and nothing is found; see DefaultSpotChecks. 0: none.
	SpotChecks int
	// RepairDrift puts or deletes again what was found to be missing, different or extra; otherwise
	// it is only shown and counted.
	RepairDrift bool
	// GuardShare, of 1, and GuardMinimum say when a list given to SetListed loses suspiciously much
	// at once: more than that share of what the origin wanted before, and more than that many
	// routes. See DefaultGuardShare and DefaultGuardMinimum; a share of 0 lets everything through.
	GuardShare   float64
	GuardMinimum int
}

// Engine keeps a data plane equal to what its sources want. All methods may be called from any goroutine, before and while Run runs.
//
// Four goroutines: Run's own changes the table; the applier writes journal and data plane, one job after the other, so that selection
// goes on while a batch is in flight; the resolver looks next hops up; the checker compares routes with the data plane. The latter
// three work on what they are handed.
type Engine struct {
	dataplane Dataplane
	log       *slog.Logger
	inbox     inbox
	changed   chan struct{}

	mu      sync.Mutex // guards what follows; never held across a call to the data plane or to the disk
	table   *table
	journal JournalState
	// journalLost: it is to be written anew as soon as journalRetry has come.
	journalLost  bool
	journalRetry time.Time
	// driftLog: no line about drift before.
	driftLog time.Time

	// Of Run's goroutine alone.
	orders    orders // being worked through
	pace      pace
	applying  int // jobs
	resolving bool
	checking  bool
	adoptAt   time.Time // not before, after a failure
}

// New returns an engine that does nothing until Run; inputs given before are kept.
func New(c Config) *Engine {
	t := newTable(c.Distances)
	_, t.recalls.due = c.Dataplane.(Recaller)
	t.tune(c.Tuning)
	return &Engine{
		dataplane: c.Dataplane,
		log:       c.Log,
		inbox:     inbox{wake: make(chan struct{}, 1)},
		changed:   make(chan struct{}, 1),
		table:     t,
		journal:   JournalState{Enabled: c.Journal != "", Path: c.Journal},
	}
}

// Tune takes other settings. Routes that were found to differ are repaired from now on, or not;
// what the guard holds stays held until its time is over.
func (e *Engine) Tune(to Tuning) {
	e.mu.Lock()
	e.table.tune(to)
	e.mu.Unlock()
	e.inbox.nudge()
}

// lookup is a question to the resolver, and with the rest filled in its answer.
type lookup struct {
	hop        NextHop
	life       int
	resolution route.Resolution
	err        error
}

// Run owns the FIB until ctx ends; it leaves the data plane as it is.
func (e *Engine) Run(ctx context.Context) error {
	jobs, finished := make(chan job, maxFlying), make(chan job, maxFlying)
	questions, answers := make(chan lookup, 1), make(chan lookup, 1)
	spots, looked := make(chan spot, 1), make(chan spot, 1)
	var wait sync.WaitGroup
	wait.Go(func() { e.apply(ctx, jobs, finished) })
	wait.Go(func() { e.resolve(ctx, questions, answers) })
	wait.Go(func() { e.check(ctx, spots, looked) })
	defer wait.Wait()

	facts := e.dataplane.Facts()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wake := e.inbox.wake
		if e.pace.holds(time.Now()) {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case f := <-facts:
			e.observe(f)
		case j := <-finished:
			e.finish(j)
		case l := <-answers:
			e.answer(l)
		case s := <-looked:
			e.checked(s)
		case <-timer.C:
		}
		for more := true; more; {
			more = e.work()
			next := e.dispatch(jobs, questions, spots)
			timer.Reset(next)
			if !more || ctx.Err() != nil {
				break
			}
			select { // a result, an answer or new facts need not wait until all inputs are worked through
			case f := <-facts:
				e.observe(f)
			case j := <-finished:
				e.finish(j)
			case l := <-answers:
				e.answer(l)
			case s := <-looked:
				e.checked(s)
			default:
			}
		}
	}
}

// work takes a part of what has come in, selects a part of what is dirty, and reports whether there is more of either.
func (e *Engine) work() (more bool) {
	now := time.Now()
	if len(e.orders.learned) == 0 && !e.pace.holds(now) {
		if e.orders = e.inbox.take(); len(e.orders.learned) > 0 {
			e.pace.took(now)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.table
	t.now = now
	if e.orders.protect != nil {
		t.protect(e.orders.protect.own, e.orders.protect.peers)
		e.orders.protect = nil
	}
	if e.orders.follow != nil {
		t.follow(*e.orders.follow)
		e.orders.follow = nil
	}
	if e.orders.apart != nil {
		t.keepOut(*e.orders.apart)
		e.orders.apart = nil
	}
	if e.orders.normal != nil {
		t.setNormal(*e.orders.normal)
		e.orders.normal = nil
	}
	for origin, set := range e.orders.routes {
		t.setWishes(origin, set.routes, set.listed)
	}
	e.orders.routes = nil
	t.release(e.orders.release)
	e.orders.release = false
	if len(e.orders.learned) > 0 {
		for _, l := range e.orders.learned[0] {
			t.learn(l)
		}
		e.orders.learned[0] = nil
		e.orders.learned = e.orders.learned[1:]
	}
	if e.orders.sweep && len(e.orders.learned) == 0 { // not before what was learned earlier
		t.allowSweep()
		e.orders.sweep = false
	}
	if u := e.orders.unsaid; u != nil && (*u || len(e.orders.learned) == 0) { // likewise: BGP has told all with the last of it
		t.unsaid = *u
		e.orders.unsaid = nil
	}
	t.releaseCovered()
	dirty := t.selectDirty(chunk)
	return dirty || len(e.orders.learned) > 0
}

// dispatch hands out what can be done now and returns after how long to look again.
func (e *Engine) dispatch(jobs chan<- job, questions chan<- lookup, spots chan<- spot) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.table
	t.now = time.Now()
	next := sooner(sooner(t.retry(), t.report()), sooner(t.nextRelease(), e.pace.until(t.now)))
	next = sooner(next, t.nextCovered())
	for e.applying < maxFlying {
		j, due := e.nextJob()
		next = sooner(next, due)
		if j == (job{}) {
			break
		}
		e.applying++
		jobs <- j // there is room
	}
	if !e.resolving {
		hop, due := t.nextLookup()
		if hop != nil {
			e.resolving = true
			questions <- lookup{hop: hop.NextHop, life: t.life}
		}
		next = sooner(next, due)
	}
	if !e.checking {
		entry, due := t.nextSpot()
		if entry != nil {
			e.checking = true
			spots <- spot{entry: entry, key: entry.key, digest: entry.actual, life: t.life, cuts: t.cuts}
		}
		next = sooner(next, due)
	}
	if t.quiet() {
		t.lastSync = t.now
	}
	if t.changed {
		t.changed = false
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}
	if next.IsZero() {
		return time.Hour
	}
	return next.Sub(t.now)
}

// nextJob returns what the applier is to do now, or nothing and when to come again (zero: when something changes). Only batches are
// prepared while it is still at something else.
func (e *Engine) nextJob() (job, time.Time) {
	t := e.table
	if e.applying > len(t.flying) || e.applying > 0 && t.wantsAdoption() {
		return job{}, time.Time{}
	}
	if t.wantsAdoption() {
		if t.now.Before(e.adoptAt) {
			return job{}, e.adoptAt
		}
		return job{adopt: &adoptJob{identity: t.identity, life: t.life, first: t.life == 1, interfaces: t.meanings()}}, time.Time{}
	}
	if b := t.cut(e.journalDue()); b != nil {
		return job{batch: b}, time.Time{}
	}
	if e.applying == 0 {
		if r := t.toRecall(); r != nil {
			return job{recall: r}, time.Time{}
		}
		if k := t.tablesToKeep(); k != nil {
			return job{tables: k}, time.Time{}
		}
	}
	var due time.Time
	for _, at := range []time.Time{t.pause, t.tablesAt, t.recalls.at} {
		if t.now.Before(at) {
			due = sooner(due, at)
		}
	}
	return job{}, due
}

// journalDue reports whether the journal is to be written anew: it is lost, or most of it is dead.
func (e *Engine) journalDue() bool {
	if e.journalLost {
		return !e.table.now.Before(e.journalRetry)
	}
	return e.journal.Records > 2*len(e.table.all)+compactSlack
}

func (e *Engine) observe(f route.Facts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.table.facts
	e.table.now = time.Now()
	e.table.observe(f)
	if f.Identity != before.Identity || f.Problem != before.Problem {
		e.log.Info("data plane", "identity", f.Identity, "version", f.Version, "problem", f.Problem)
	}
	if f.Identity != before.Identity {
		e.adoptAt = time.Time{}
	}
}

func (e *Engine) finish(j job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applying--
	e.table.now = time.Now()
	e.note(j.journal)
	switch {
	case j.batch != nil:
		e.table.finish(j.batch)
	case j.recall != nil:
		e.table.recalled(j.recall)
	case j.tables != nil:
		e.table.tablesKept(j.tables)
	case j.adopt.err != nil:
		e.adoptAt = time.Now().Add(jitter(adoptRetry))
	default:
		e.table.adopt(j.adopt.found)
	}
}

func (e *Engine) answer(l lookup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resolving = false
	e.table.now = time.Now()
	e.table.answer(l.hop, l.life, l.resolution, l.err)
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

// Changed is signalled (size one) when an own route was acknowledged or lost, when the facts changed, when adoption ended and when
// UnusableNextHops changed. There is one reader.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// Facts returns the newest facts of the data plane; the zero value before the first.
func (e *Engine) Facts() route.Facts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.table.facts
}

// Programmed reports whether the data plane has acknowledged exactly r, wanted by r's origin. Another origin's route for the same key, or
// what was wanted before, does not count; nor does what others' hands did to it afterwards (Shadowed, Drifted): nobody is to withdraw a
// block because of that.
func (e *Engine) Programmed(r route.Route) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.table.entries[r.Key]
	return entry != nil && isAcknowledged(e.table.stateOf(entry)) && entry.origin == r.Origin && entry.actual == r.Digest()
}

// UnusableNextHop is a next hop that BGP should not choose now.
type UnusableNextHop struct {
	Address netip.Addr
	Reason  Reason
}

// UnusableNextHops lists the next hops in the default table that have not been usable for a second or more, by address. The list does not
// grow while the data plane is away.
func (e *Engine) UnusableNextHops() []UnusableNextHop {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []UnusableNextHop
	for _, hop := range e.table.hops.sorted {
		if hop.reported && hop.Table == 0 {
			out = append(out, UnusableNextHop{hop.Address, hop.reason})
		}
	}
	return out
}

// RefusedVia returns how many routes go by a next hop in the default table, and what the data
// plane said of one of them, if it refuses all of them; else 0 and nil.
func (e *Engine) RefusedVia(address netip.Addr) (routes int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	hop := e.table.hops.byKey[NextHop{Address: address}]
	if hop == nil {
		return 0, nil
	}
	for s := range hop.sets {
		for c := s.first; c != nil; c = c.nextInSet {
			switch {
			case c.entry.want == nil || c.entry.origin != c.origin: // it goes elsewhere, or nowhere
			case e.table.stateOf(c.entry) != Failed:
				return 0, nil
			default:
				routes, err = routes+1, c.entry.fail.err
			}
		}
	}
	return routes, err
}
