package external

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Adapter is where the configuration of one or more sources comes from and where the answers go.
type Adapter interface {
	// Name is that of its source. Where there are more, theirs begin with it and a slash.
	Name() string
	// Snapshots delivers all that the sources want, now and after each change. There is one
	// reader, who may skip all but the newest.
	Snapshots() <-chan Snapshot
	// Answer takes how the items of the sources stand, after each change. It stores and returns.
	Answer(Answer)
}

// IsOf reports whether a source is one of an adapter's.
func IsOf(source, adapter string) bool {
	return source == adapter || strings.HasPrefix(source, adapter+"/")
}

// Answer is how all items of an adapter's sources stand.
type Answer struct {
	// Away says why the data plane does not answer; "": it does.
	Away string
	// Revision, Edition and Resync are those of the Snapshot that this is about.
	Revision int64
	Edition  int
	Resync   string
	Verdicts []Verdict // by rank of the source, then by key
	// Interfaces are those of the data plane, by name; nil with Away.
	Interfaces []route.Interface
}

// equal reports whether both say the same.
func (a Answer) equal(b Answer) bool {
	return a.Away == b.Away && a.Revision == b.Revision && a.Edition == b.Edition &&
		a.Resync == b.Resync &&
		slices.EqualFunc(a.Verdicts, b.Verdicts, Verdict.Equal) &&
		slices.EqualFunc(a.Interfaces, b.Interfaces, sameState)
}

func sameState(a, b route.Interface) bool {
	return a.Name == b.Name && a.Index == b.Index && a.Up == b.Up
}

// Finished reports whether the data plane has answered for every item, or is away.
func (a Answer) Finished() bool {
	return !slices.ContainsFunc(a.Verdicts, func(v Verdict) bool { return v.Unfinished })
}

// FIB is what a Controller needs of the agent.
type FIB interface {
	// Want replaces what external configuration wants; 0: there is no data plane.
	Want(all fib.Source) (revision uint64)
	// Facts and Find are those of fib.Engine.
	Facts() route.Facts
	Find(keys []route.Key) (found []fib.Entry, taken uint64)
	// Objects and Progress are those of fib.Engine.
	Objects() []fib.Entry
	Progress(revision uint64) (settled, busy bool)
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
	// busyPause is the pause while clients wait and the FIB is at work: verdicts of before would
	// answer nobody.
	busyPause = 200 * time.Millisecond
	// takenPause is when to look again whether the FIB has taken a change in.
	takenPause = 50 * time.Millisecond
	// departedPause is when to look again at what is being deleted: no refusal of that is reported.
	departedPause = 200 * time.Millisecond
	// removedTime is how long an item is said to be removed, if there are at most mostDeparted: a
	// client may make and delete others without end.
	removedTime  = 10 * time.Second
	mostDeparted = 10_000
)

// Controller keeps its planes equal to what all sources want, and tells them how their items stand.
// Run's goroutine owns it; Verdicts may be called at any time.
type Controller struct {
	adapters []Adapter
	planes   []*plane

	newest   []*Snapshot // as adapters; nil: it has told nothing yet
	awaited  bool        // not judged yet since the data planes have all that is wanted
	changed  time.Time   // the first change that is not judged yet; zero: there is none
	answered []*Answer   // as adapters; nil: none

	mu       sync.Mutex // guards what follows
	sources  []Source   // by rank
	verdicts []Verdict
	replaced chan struct{} // closed when verdicts change; then there is a new one
	plan     Plan          // of the first plane
	history  []Event       // the oldest first
}

// Plane is a data plane, and what the operator allows there.
type Plane struct {
	FIB
	Policy
}

// plane is a data plane and what it is to have.
type plane struct {
	Plane
	plan     Plan
	wanted   fib.Source // as last set
	revision uint64     // of it
	departed map[itemID]departed
}

// departed is an item that its source does not want any more.
type departed struct {
	planned
	verdict Verdict
	removed time.Time // since when it is
}

// NewController returns a controller that does nothing until Run. The first adapter has the highest
// rank. Of the planes, of which there are one or two, the first has the FIB.
func NewController(adapters []Adapter, planes ...Plane) *Controller {
	c := &Controller{adapters: adapters, replaced: make(chan struct{}),
		newest: make([]*Snapshot, len(adapters)), answered: make([]*Answer, len(adapters))}
	for _, p := range planes {
		c.planes = append(c.planes, &plane{Plane: p, departed: make(map[itemID]departed)})
	}
	return c
}

// Verdicts returns how all items stand. The slice is not changed.
func (c *Controller) Verdicts() []Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdicts
}

// Changed returns a channel that is closed when an adapter gets another answer: Verdicts may differ
// then.
func (c *Controller) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaced
}

// Sources returns what all sources want, by rank. The slice is not changed.
func (c *Controller) Sources() []Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sources
}

// Owner names the source that has a route; "": none has.
func (c *Controller) Owner(k route.Key) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan.Owner(k)
}

// arrival is a new snapshot of an adapter.
type arrival struct {
	adapter  int
	snapshot Snapshot
}

// Run works until ctx ends and returns nil.
func (c *Controller) Run(ctx context.Context) error {
	arrivals := make(chan arrival)
	var wait sync.WaitGroup
	defer wait.Wait()
	for i, a := range c.adapters {
		wait.Go(func() { forward(ctx, i, a, arrivals) })
	}
	timer := time.NewTimer(0)
	timer.Stop()
	changed := c.planes[0].Changed()
	var changedToo <-chan struct{}
	if len(c.planes) > 1 {
		changedToo = c.planes[1].Changed()
	}
	var earliest time.Time
	judgeSoon := func() { timer.Reset(c.pause(earliest)) }
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-arrivals:
			c.take(s)
			judgeSoon()
		case <-changed:
			judgeSoon()
		case <-changedToo:
			judgeSoon()
		case <-timer.C:
			began := time.Now()
			settled, _ := c.progress()
			c.awaited = c.awaited && !settled
			next := c.judge()
			earliest = time.Now().Add(judgeCost * time.Since(began))
			if next > 0 {
				timer.Reset(max(next, time.Until(earliest)))
			}
		}
	}
}

// pause returns how long to wait before judging what has changed. There is no reason to if clients
// wait for nothing but verdicts, since the data planes have all of the last revision.
func (c *Controller) pause(earliest time.Time) time.Duration {
	settled, busy := c.progress()
	if c.awaited && settled {
		return 0
	}
	least := judgePause
	if c.awaited && busy {
		least = busyPause
	}
	if c.changed.IsZero() {
		c.changed = time.Now()
	}
	return max(time.Until(c.changed.Add(least)), time.Until(earliest))
}

// progress reports whether the data planes have all that is wanted, and whether one is at work.
func (c *Controller) progress() (settled, busy bool) {
	settled = true
	for _, p := range c.planes {
		has, works := p.Progress(p.revision)
		settled, busy = settled && has, busy || works
	}
	return settled, busy
}

func forward(ctx context.Context, i int, a Adapter, to chan<- arrival) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-a.Snapshots():
			select {
			case <-ctx.Done():
				return
			case to <- arrival{i, s}:
			}
		}
	}
}

// take takes a new snapshot in, and hands what follows to the planes.
func (c *Controller) take(s arrival) {
	before := c.newest[s.adapter]
	c.newest[s.adapter] = &s.snapshot
	var sources []Source
	list, complete := 0, true
	for _, s := range c.newest {
		if s == nil {
			complete = false
			continue
		}
		sources = append(sources, s.Sources...)
		list += s.List
		complete = complete && s.Complete
	}
	c.mu.Lock()
	c.sources = sources
	c.mu.Unlock()
	c.awaited = true
	for _, p := range c.planes {
		p.take(Merge(sources, p.Policy), list, complete)
	}
	c.mu.Lock() // while the data planes work
	c.remember(c.adapters[s.adapter].Name(), before, s.snapshot, time.Now())
	c.mu.Unlock()
}

// take hands a plan to the data plane if it is something else than before.
func (p *plane) take(plan Plan, list int, complete bool) {
	all := plan.wanted()
	all.List, all.Complete = list, complete
	same := p.plan.Same(plan) && all.List == p.wanted.List && all.Complete == p.wanted.Complete
	if !same {
		p.wanted, p.revision = all, p.Want(all)
	}
	p.depart(plan) // while the data plane works
	p.plan = plan
}

// depart notes which items next lacks.
func (p *plane) depart(next Plan) {
	for _, i := range p.plan.gone(next) {
		p.departed[i.id()] = departed{planned: i}
	}
	if len(p.departed) > 0 {
		for i := range next.items {
			delete(p.departed, next.items[i].id())
		}
	}
}

// judge tells every source how its items stand, and returns when to look again; 0: when something
// changes.
func (c *Controller) judge() (again time.Duration) {
	c.changed = time.Time{}
	var verdicts, departed []Verdict
	away := ""
	for _, p := range c.planes {
		stand, gone, next := p.judge()
		if departed = append(departed, gone...); verdicts == nil {
			verdicts = stand
		} else {
			verdicts = append(verdicts, stand...)
		}
		away = cmp.Or(away, p.Away())
		if next > 0 && (again == 0 || next < again) {
			again = next
		}
	}
	if len(c.planes) > 1 {
		c.sort(verdicts)
	}
	verdicts = append(verdicts, departed...)
	var interfaces []route.Interface
	if away == "" {
		interfaces = c.planes[0].Facts().Interfaces
	}
	c.mu.Lock()
	c.verdicts, c.plan = verdicts, c.planes[0].plan
	c.mu.Unlock()
	answeredAnew := false
	for i, a := range c.adapters {
		if c.newest[i] == nil {
			continue
		}
		newest := c.newest[i]
		answer := Answer{Away: away, Revision: newest.Revision, Edition: newest.Edition,
			Resync: newest.Resync, Interfaces: interfaces}
		answer.Verdicts = verdictsOf(a.Name(), verdicts)
		if last := c.answered[i]; last == nil || !answer.equal(*last) {
			answeredAnew = true
			if c.answered[i] = &answer; answer.Finished() && answer.Away == "" {
				c.mu.Lock()
				c.answeredUpTo(a.Name(), answer.Revision, time.Now())
				c.mu.Unlock()
			}
			a.Answer(answer)
		}
	}
	if answeredAnew {
		c.mu.Lock()
		close(c.replaced)
		c.replaced = make(chan struct{})
		c.mu.Unlock()
	}
	return again
}

// verdictsOf returns those of an adapter's sources.
func verdictsOf(adapter string, all []Verdict) []Verdict {
	n := 0
	for i := range all {
		if IsOf(all[i].Source, adapter) {
			n++
		}
	}
	if n == len(all) {
		return all
	}
	out := make([]Verdict, 0, n)
	for i := range all {
		if IsOf(all[i].Source, adapter) {
			out = append(out, all[i])
		}
	}
	return out
}

// sort puts the verdicts of several planes into the order of those of one.
func (c *Controller) sort(all []Verdict) {
	rank := make(map[string]int, len(c.sources))
	for i, s := range c.sources {
		rank[s.Name] = i
	}
	slices.SortFunc(all, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(rank[a.Source], rank[b.Source]), strings.Compare(a.Key, b.Key))
	})
}

// judge says how the items of a plane stand, and those that were deleted, and when to look again;
// 0: when something changes.
func (p *plane) judge() (stand, gone []Verdict, again time.Duration) {
	facts := Facts{Away: p.Away()}
	if facts.Away == "" {
		keys := p.plan.Keys()
		for _, d := range p.departed {
			if d.isRoute {
				keys = append(keys, d.key)
			}
		}
		found, revision := p.Find(keys)
		if revision < p.revision {
			again = takenPause
		} else {
			facts.Entries, facts.Objects = found, p.Objects()
			facts.Interfaces = p.Facts().AllInterfaces()
		}
	}
	gone, next := p.judgeDeparted(facts)
	if facts.Entries != nil && next > 0 {
		again = next
	}
	return Judge(p.plan, facts), gone, again
}

// judgeDeparted says how what was deleted stands, and forgets what has been removed for a while.
// again is when to look again; 0: there is none.
func (p *plane) judgeDeparted(f Facts) (out []Verdict, again time.Duration) {
	if len(p.departed) == 0 {
		return nil, 0
	}
	j := newJudge(p.plan, f)
	again = removedTime
	for _, id := range slices.SortedFunc(maps.Keys(p.departed), compareItems) {
		d := p.departed[id]
		if d.removed.IsZero() {
			d.verdict = j.departed(&d.planned)
		} else if time.Since(d.removed) >= removedTime || len(p.departed) > mostDeparted {
			delete(p.departed, id)
			continue
		}
		if d.verdict.State == Removed && d.removed.IsZero() {
			d.removed = time.Now()
		}
		if p.departed[id] = d; d.removed.IsZero() {
			again = min(again, departedPause)
		} else {
			again = min(again, max(removedTime-time.Since(d.removed), departedPause))
		}
		out = append(out, d.verdict)
	}
	return out, again
}
