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
)

// Config is what an Engine is made of.
type Config struct {
	Dataplane Dataplane
	// Journal is the path of the ownership journal; "" keeps none, and every start reads the data plane once.
	Journal string
	Log     *slog.Logger
	// Distances replace route.Origin.DefaultDistance for the origins they name.
	Distances map[route.Origin]uint8
}

// Engine keeps a data plane equal to what its sources want. All methods may be called from any goroutine, before and while Run runs.
//
// Three goroutines: Run's own changes the table; the applier writes journal and data plane, one job at a time, so that selection
// goes on while a batch is in flight; the resolver looks next hops up. The latter two work on what they are handed.
type Engine struct {
	dataplane Dataplane
	log       *slog.Logger
	inbox     inbox
	changed   chan struct{}

	mu      sync.Mutex // guards what follows; never held across a call to the data plane or to the disk
	table   *table
	journal JournalState

	// Of Run's goroutine alone.
	orders    orders // being worked through
	applying  bool
	resolving bool
	adoptAt   time.Time // not before, after a failure
}

// New returns an engine that does nothing until Run; inputs given before are kept.
func New(c Config) *Engine {
	return &Engine{
		dataplane: c.Dataplane,
		log:       c.Log,
		inbox:     inbox{wake: make(chan struct{}, 1)},
		changed:   make(chan struct{}, 1),
		table:     newTable(c.Distances),
		journal:   JournalState{Enabled: c.Journal != "", Path: c.Journal},
	}
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
	jobs, finished := make(chan job, 1), make(chan job, 1)
	questions, answers := make(chan lookup, 1), make(chan lookup, 1)
	var wait sync.WaitGroup
	wait.Go(func() { e.apply(ctx, jobs, finished) })
	wait.Go(func() { e.resolve(ctx, questions, answers) })
	defer wait.Wait()

	facts := e.dataplane.Facts()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.inbox.wake:
		case f := <-facts:
			e.observe(f)
		case j := <-finished:
			e.finish(j)
		case l := <-answers:
			e.answer(l)
		case <-timer.C:
		}
		for more := true; more; {
			more = e.work()
			next := e.dispatch(jobs, questions)
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
			default:
			}
		}
	}
}

// work takes a part of what has come in, selects a part of what is dirty, and reports whether there is more of either.
func (e *Engine) work() (more bool) {
	if len(e.orders.learned) == 0 {
		e.orders = e.inbox.take()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.table
	t.now = time.Now()
	if e.orders.protect != nil {
		t.protect(e.orders.protect.own, e.orders.protect.peers)
		e.orders.protect = nil
	}
	for origin, routes := range e.orders.routes {
		t.setWishes(origin, routes)
	}
	e.orders.routes = nil
	n := min(chunk, len(e.orders.learned))
	for _, l := range e.orders.learned[:n] {
		t.learn(l)
	}
	e.orders.learned = e.orders.learned[n:]
	if e.orders.sweep && len(e.orders.learned) == 0 { // not before what was learned earlier
		t.allowSweep()
		e.orders.sweep = false
	}
	dirty := t.selectDirty(chunk)
	return dirty || len(e.orders.learned) > 0
}

// dispatch hands out what can be done now and returns after how long to look again.
func (e *Engine) dispatch(jobs chan<- job, questions chan<- lookup) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.table
	t.now = time.Now()
	next := sooner(t.retry(), t.report())
	if !e.applying {
		j := job{}
		switch {
		case !t.wantsAdoption():
			j.batch = t.cut()
		case t.now.Before(e.adoptAt):
			next = sooner(next, e.adoptAt)
		default:
			j.adopt = &adoptJob{identity: t.identity, life: t.life, first: t.life == 1, interfaces: t.meanings()}
		}
		if j.batch != nil || j.adopt != nil {
			e.applying = true
			jobs <- j
		} else if t.now.Before(t.pause) {
			next = sooner(next, t.pause)
		}
	}
	if !e.resolving {
		hop, due := t.nextLookup()
		if hop != nil {
			e.resolving = true
			questions <- lookup{hop: hop.NextHop, life: t.life}
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
	e.applying = false
	e.table.now = time.Now()
	switch {
	case j.batch != nil:
		e.table.finish(j.batch)
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
// what was wanted before, does not count.
func (e *Engine) Programmed(r route.Route) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.table.entries[r.Key]
	return entry != nil && e.table.stateOf(entry) == Programmed && entry.origin == r.Origin && entry.actual == r.Digest()
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
