package fib

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// job is one thing that the applier does: a batch, or finding out what of ours is there.
type job struct {
	batch   *batch
	started bool // the batch was, and has ended
	adopt   *adoptJob

	journal journalReport // when it is done
}

type adoptJob struct {
	identity   string
	generation int
	first      bool // only the first generation of this process can be one that the journal knows
	interfaces meanings

	found adoption
	err   error
}

// apply is the applier. While it has a job it owns the journal, and nobody else writes to the data
// plane.
func (e *Engine) apply(ctx context.Context, jobs <-chan job, finished chan<- job) {
	journal := e.keeps
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-jobs:
			switch {
			case j.adopt != nil:
				e.adopt(ctx, journal, j.adopt)
			case j.started:
				e.conclude(ctx, journal, j.batch)
			default:
				e.carryOut(ctx, journal, j.batch)
			}
			j.journal = journal.report()
			finished <- j // there is room for as many jobs as there are
		}
	}
}

func (e *Engine) carryOut(ctx context.Context, journal *journal, b *batch) {
	if b.isVoid() {
		return
	}
	journal.before(b, time.Now(), e.snapshot)
	if len(b.ops) == 0 {
		return
	}
	if b.void = !e.isOfNow(b); b.void { // the disk may have taken that long
		return
	}
	e.sent(b)
	e.applyObjects(ctx, b, 0, b.first)
	if b.first < b.last {
		b.err = e.dataplane.Apply(ctx, b.ops[b.first:b.last], func(i int, err error) {
			b.result(b.first+i, err)
		})
	}
	if b.err == nil {
		e.applyObjects(ctx, b, b.last, len(b.ops))
	}
	e.conclude(ctx, journal, b)
}

// isOfNow reports whether b was cut for the generation that the engine knows. An object that b made
// in a later one would be taken for another program's, since nothing has been looked up there. A
// generation whose facts have not been read yet is not noticed.
func (e *Engine) isOfNow(b *batch) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return b.generation == e.sync.generation
}

// conclude notes how b came out.
func (e *Engine) conclude(ctx context.Context, journal *journal, b *batch) {
	e.answered(b)
	journal.after(b)
	if refused, first := b.refused(); refused > 0 {
		e.log.Warn("routes refused", "count", refused, "prefix", b.ops[first].Route.Key,
			"err", b.errs[first])
	}
	if b.err != nil && ctx.Err() == nil {
		e.log.Warn("batch broken off, the rest will be repeated", "ops", len(b.ops), "err", b.err)
	}
}

// adopt finds out what of ours is in the data plane: from the journal if that was written for this
// very generation of it, else by a listing.
func (e *Engine) adopt(ctx context.Context, journal *journal, a *adoptJob) {
	a.found.generation = a.generation
	var kept journalled
	objectsKnown := false
	if a.first && journal.path != "" {
		var err error
		kept, err = journal.open(a.identity)
		if err == nil && kept.version < journalVersion || errors.Is(err, fs.ErrNotExist) {
			e.takeEarlier(&kept, a)
		}
		if err == nil && kept.version == journalVersion {
			if a.err = e.addLinks(ctx, &kept); a.err != nil {
				return
			}
		}
		if err == nil && !journal.objectsOnly {
			a.found.how, a.found.interfaces = "journal", kept.interfaces
			a.found.records, a.found.count = kept.all, len(kept.digests)
			if kept.version < journalVersion {
				journal.rewrite(a.identity, kept.interfaces, kept.all)
			}
			e.log.Info("adopted", "from", "journal", "routes", a.found.count)
			return
		}
		objectsKnown = err == nil && kept.version == journalVersion
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.log.Info("the journal is of no use, listing the data plane instead", "err", err)
		}
	}
	routes, err := e.dataplane.Routes(ctx)
	var objects []route.Object
	if _, isBulk := e.dataplane.(Bulk); isBulk && err == nil && !objectsKnown {
		objects, err = e.list(ctx, route.MadeLink, route.TunnelEndpoint)
	}
	if a.err = e.couldList(ctx, err); a.err != nil {
		return
	}
	a.found.how, a.found.count, a.found.interfaces = "listing", len(routes), a.interfaces
	kept.forget(a.interfaces.toObjects())
	a.found.records = func(yield func(record) bool) {
		for _, o := range objects {
			k := o.Key()
			if !yield(record{object: &k, digest: o.Digest()}) {
				return
			}
		}
		for _, r := range kept.objects { // they have owners
			if !yield(r) {
				return
			}
		}
		for _, r := range routes {
			if !yield(record{key: r.Key, digest: r.Digest()}) {
				return
			}
		}
	}
	journal.rewrite(a.identity, a.interfaces, a.found.records)
	e.log.Info("adopted", "from", "listing", "routes", a.found.count)
}

// couldList returns err, and logs it unless the agent ends.
func (e *Engine) couldList(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil {
		e.log.Warn("listing the data plane", "err", err)
	}
	return err
}

// addLinks adds the interfaces of tunnels that have our mark, and of which the journal does not
// tell: it may be an older copy.
func (e *Engine) addLinks(ctx context.Context, kept *journalled) error {
	if _, isBulk := e.dataplane.(Bulk); !isBulk {
		return nil
	}
	links, err := e.list(ctx, route.MadeLink)
	for _, o := range links {
		k := o.Key()
		if _, known := kept.objects[k]; !known {
			kept.settle(record{object: &k, digest: o.Digest()})
		}
	}
	return e.couldList(ctx, err)
}

// takeEarlier takes over what another file than the journal says.
func (e *Engine) takeEarlier(kept *journalled, a *adoptJob) {
	if e.earlier == nil {
		return
	}
	kept.objects = make(map[route.ObjectKey]record)
	for _, o := range e.earlier(a.identity, a.interfaces.toObjects()) {
		k := o.Key()
		kept.settle(record{object: &k, digest: o.Digest(), owner: sourceID(route.Uplink)})
	}
}

// snapshot lists what is, or may be, there: for a new journal. The applier calls it for a batch
// that was cut when all earlier ones had been taken in (see syncer.cut), and before it carries that
// one out: nothing changes what is there meanwhile.
func (e *Engine) snapshot() iter.Seq[record] {
	var records []record
	take := func(x *entry) {
		if x.actual != 0 || x.is(isUnsure) {
			records = append(records, e.sync.record(x))
		}
	}
	if !e.keeps.objectsOnly {
		e.walk(take)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := range e.sync.objects.byEntry {
		take(x)
	}
	return slices.Values(records)
}

// walk calls f for every entry, from the last to the first, unlocking now and then. The last entry
// takes the place of one that is removed, so an entry may come twice but none that stays is missed;
// one that is made meanwhile may be.
func (e *Engine) walk(f func(*entry)) { e.walkSlowly(f, func() bool { return true }) }

// walkSlowly is walk that calls pause while it has unlocked, until that returns false.
func (e *Engine) walkSlowly(f func(*entry), pause func() bool) {
	if !pause() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, n := len(e.table.all)-1, 1; i >= 0; i, n = i-1, n+1 {
		if i = min(i, len(e.table.all)-1); i < 0 {
			return
		}
		f(e.table.all[i])
		if n%chunk == 0 {
			e.mu.Unlock()
			more := pause()
			if e.mu.Lock(); !more {
				return
			}
		}
	}
}

// journalReport is how the journal does after a job.
type journalReport struct {
	problem string
	records int
	lost    bool // and may be written anew from retry on
	retry   time.Time
}

func (j *journal) report() journalReport {
	return journalReport{j.problem, j.records, j.path != "" && j.file == nil, j.retry}
}

// note takes what the applier reports with a job. It does not say so itself: it would wait for the
// table between two batches, and the data plane with it.
func (e *Engine) note(r journalReport) {
	if r.problem != e.journal.problem {
		if r.problem != "" {
			e.log.Warn("journal not written: the next start will read the data plane", "err",
				r.problem)
		} else {
			e.log.Info("journal written again")
		}
	}
	e.journal = r
}
