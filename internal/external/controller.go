package external

import (
	"context"
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
	// Revision is Source.Revision of the state that this is about.
	Revision int64
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
	// Changed says that Find or Away may say something else.
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

	mu       sync.Mutex // guards what follows
	verdicts []Verdict
	owners   map[route.Key]string // as Plan.Owners, not changed
}

// NewController returns a controller that does nothing until Run. The first adapter has the highest
// rank.
func NewController(adapters []Adapter, p Policy, f FIB) *Controller {
	return &Controller{adapters: adapters, policy: p, fib: f,
		sources: make([]Source, len(adapters)), answered: make([]Answer, len(adapters))}
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
			if !c.judge() {
				timer.Reset(takenPause)
			}
			earliest = time.Now().Add(judgeCost * time.Since(began))
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
	all := fib.Source{Routes: plan.Routes, Complete: len(known) == len(c.adapters)}
	for _, s := range known {
		all.List += s.List
		all.Complete = all.Complete && s.Complete
	}
	same := c.plan.SameRoutes(plan) && all.List == c.wanted.List &&
		all.Complete == c.wanted.Complete
	if c.plan = plan; same {
		return
	}
	c.wanted, c.revision = all, c.fib.Want(all)
}

// judge tells every source how its items stand, and reports whether the FIB has taken in what was
// set last.
func (c *Controller) judge() (taken bool) {
	facts := Facts{Away: c.fib.Away()}
	if facts.Away == "" {
		found, revision := c.fib.Find(c.plan.Keys())
		if taken = revision >= c.revision; taken {
			facts.Entries = found
		}
	}
	verdicts := Judge(c.plan, facts)
	c.mu.Lock()
	c.verdicts, c.owners = verdicts, c.plan.Owners
	c.mu.Unlock()
	for i, a := range c.adapters {
		answer := Answer{Revision: c.sources[i].Revision}
		for _, v := range verdicts {
			if v.Source == a.Name() {
				answer.Verdicts = append(answer.Verdicts, v)
			}
		}
		last := c.answered[i]
		if c.sources[i].Name == "" || answer.Revision == last.Revision &&
			slices.EqualFunc(answer.Verdicts, last.Verdicts, Verdict.Equal) {
			continue
		}
		c.answered[i] = answer
		a.Answer(answer)
	}
	return taken || facts.Away != ""
}
