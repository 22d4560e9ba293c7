package external

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Adapter is where a source's configuration comes from and where the answers go.
type Adapter interface {
	Name() string
	// States delivers all that the source wants, now and after each change. There is one reader,
	// who may skip all but the newest.
	States() <-chan Source
	// Answer takes how the items of the source stand, after each change. It stores and returns.
	Answer(Answer)
}

// Answer is how all items of a source stand.
type Answer struct {
	// Revision and Resync are those of the Source that this is about.
	Revision int64
	Resync   string
	Verdicts []Verdict // by key
}

// Finished reports whether the data plane has answered for every item, or is away.
func (a Answer) Finished() bool {
	return !slices.ContainsFunc(a.Verdicts, func(v Verdict) bool { return v.Unfinished })
}

// FIB is what a Controller needs of the agent.
type FIB interface {
	// Want replaces what external configuration wants; 0: there is no FIB.
	Want(all fib.Source) (revision uint64)
	// Find is that of fib.Engine.
	Find(keys []route.Key) (found []fib.Entry, taken uint64)
	// Objects is that of fib.Engine.
	Objects() []fib.Entry
	// Changed says that Find, Objects or Away may say something else.
	Changed() <-chan struct{}
	// Away says why the data plane does not answer; "": it does.
	Away() string
}

const (
	// judgeCost bounds the processor time that judging takes, since there may be 10 000 items: the
	// pause is this multiple of the last duration.
	judgeCost = 50
	// judgePause is the shortest pause. A burst of changes in the FIB is judged once.
	judgePause = 20 * time.Millisecond
	// takenPause is when to look again whether the FIB has taken a change in.
	takenPause = 50 * time.Millisecond
	// departedPause is when to look again at what is being deleted, of which no change is reported.
	departedPause = 200 * time.Millisecond
	// removedTime is how long an item is said to be removed.
	removedTime = 10 * time.Second
)

// Controller keeps the FIB equal to what all sources want, and tells them how their items stand.
// Run's goroutine owns it; Verdicts may be called at any time.
type Controller struct {
	adapters []Adapter
	policy   Policy
	fib      FIB

	sources  []Source // as adapters; without a name: it has told nothing yet
	plan     Plan
	wanted   fib.Source // as last set
	revision uint64     // of it
	answered []Answer   // as adapters
	departed map[itemID]departed

	mu       sync.Mutex // guards what follows
	verdicts []Verdict
	owners   map[route.Key]string // as Plan.Owners, not changed
}

// departed is an item that its source does not want any more.
type departed struct {
	planned
	verdict Verdict
	removed time.Time // since when it is
}

// NewController returns a controller that does nothing until Run. The first adapter has the highest
// rank.
func NewController(adapters []Adapter, p Policy, f FIB) *Controller {
	return &Controller{adapters: adapters, policy: p, fib: f,
		sources: make([]Source, len(adapters)), answered: make([]Answer, len(adapters)),
		departed: make(map[itemID]departed)}
}

// Verdicts returns how all items stand. The slice is not changed.
func (c *Controller) Verdicts() []Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdicts
}

// Owner names the source that has a route; "": none has.
func (c *Controller) Owner(k route.Key) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[k]
}

// told is a new state of a source.
type told struct {
	adapter int
	state   Source
}

// Run works until ctx ends and returns nil.
func (c *Controller) Run(ctx context.Context) error {
	states := make(chan told)
	var wait sync.WaitGroup
	defer wait.Wait()
	for i, a := range c.adapters {
		wait.Go(func() { forward(ctx, i, a, states) })
	}
	timer := time.NewTimer(0)
	timer.Stop()
	var earliest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-states:
			c.take(s)
			timer.Reset(time.Until(earliest))
		case <-c.fib.Changed():
			timer.Reset(max(judgePause, time.Until(earliest)))
		case <-timer.C:
			began := time.Now()
			again := c.judge()
			earliest = time.Now().Add(judgeCost * time.Since(began))
			if again > 0 {
				timer.Reset(max(again, time.Until(earliest)))
			}
		}
	}
}

func forward(ctx context.Context, i int, a Adapter, to chan<- told) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-a.States():
			select {
			case <-ctx.Done():
				return
			case to <- told{i, s}:
			}
		}
	}
}

// take takes a new state in, and hands what follows to the FIB if it is something else than before.
func (c *Controller) take(s told) {
	c.sources[s.adapter] = s.state
	known := slices.DeleteFunc(slices.Clone(c.sources), func(s Source) bool { return s.Name == "" })
	plan := Merge(known, c.policy)
	all := plan.wanted()
	all.Complete = len(known) == len(c.adapters)
	for _, s := range known {
		all.List += s.List
		all.Complete = all.Complete && s.Complete
	}
	same := c.plan.Same(plan) && all.List == c.wanted.List &&
		all.Complete == c.wanted.Complete
	c.depart(plan)
	if c.plan = plan; same {
		return
	}
	c.wanted, c.revision = all, c.fib.Want(all)
}

// depart notes which items next lacks.
func (c *Controller) depart(next Plan) {
	for _, p := range c.plan.gone(next) {
		c.departed[p.id()] = departed{planned: p}
	}
	if len(c.departed) > 0 {
		for i := range next.items {
			delete(c.departed, next.items[i].id())
		}
	}
}

// judge tells every source how its items stand, and returns when to look again; 0: when something
// changes.
func (c *Controller) judge() (again time.Duration) {
	facts := Facts{Away: c.fib.Away()}
	if facts.Away == "" {
		keys := c.plan.Keys()
		for _, d := range c.departed {
			if d.isRoute {
				keys = append(keys, d.key)
			}
		}
		found, revision := c.fib.Find(keys)
		if revision < c.revision {
			again = takenPause
		} else {
			facts.Entries, facts.Objects = found, c.fib.Objects()
		}
	}
	verdicts := append(Judge(c.plan, facts), c.judgeDeparted(facts)...)
	if facts.Entries != nil && len(c.departed) > 0 {
		again = departedPause
	}
	c.mu.Lock()
	c.verdicts, c.owners = verdicts, c.plan.Owners
	c.mu.Unlock()
	for i, a := range c.adapters {
		answer := Answer{Revision: c.sources[i].Revision, Resync: c.sources[i].Resync}
		for _, v := range verdicts {
			if v.Source == a.Name() {
				answer.Verdicts = append(answer.Verdicts, v)
			}
		}
		last := c.answered[i]
		if c.sources[i].Name == "" || answer.Revision == last.Revision &&
			answer.Resync == last.Resync &&
			slices.EqualFunc(answer.Verdicts, last.Verdicts, Verdict.Equal) {
			continue
		}
		c.answered[i] = answer
		a.Answer(answer)
	}
	return again
}

// judgeDeparted says how what was deleted stands, and forgets what has been removed for a while.
func (c *Controller) judgeDeparted(f Facts) (out []Verdict) {
	j := newJudge(c.plan, f)
	for _, id := range slices.SortedFunc(maps.Keys(c.departed), compareItems) {
		d := c.departed[id]
		if d.removed.IsZero() {
			d.verdict = j.departed(&d.planned)
		} else if time.Since(d.removed) >= removedTime {
			delete(c.departed, id)
			continue
		}
		if d.verdict.State == Removed && d.removed.IsZero() {
			d.removed = time.Now()
		}
		c.departed[id] = d
		out = append(out, d.verdict)
	}
	return out
}
