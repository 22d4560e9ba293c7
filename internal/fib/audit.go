package fib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// maxFindings bounds the list of a Report; its counts are whole.
const maxFindings = 1000

// Report is how a data plane compares with what it acknowledged.
type Report struct {
	Listed   int // routes that carry our mark
	Compared int // routes that we know as ours, those aside that were being written meanwhile
	Missing, Different, Extra,
	Hidden int
	Repair   bool      // what was found is being put right
	Findings []Finding // by key; the first thousand
}

// Finding is one route of a Report.
type Finding struct {
	Key   route.Key
	Drift Drift
	Want  route.Route // what we put there; zero where that is not wanted any more
	Found route.Route // zero if Missing or Hidden
	By    string      // whose route hides it
}

var (
	errAbsent   = errors.New("fib: audit: the data plane is absent or not taken over yet")
	errAuditing = errors.New("fib: audit: one is running already")
	errChanged  = errors.New("fib: audit: the data plane restarted meanwhile")
)

// audit is one comparison of everything. It belongs to the goroutine that asked for it.
type audit struct {
	engine     *Engine
	generation int
	routes     []route.Route
	listed     map[route.Key]int32  // index of routes
	hidden     map[route.Key]string // of routes, where a listing alone does not show it: by whom
	missing    []*entry             // not listed; hidden perhaps
	report     Report
}

// Audit lists all routes of ours and compares them with what is believed to be there. Routes that
// are written meanwhile are left out. What differs is repaired if the configuration says so. A
// listing is expensive: VPP stands still while it writes it.
func (e *Engine) Audit(ctx context.Context) (Report, error) {
	a := &audit{engine: e}
	if err := a.begin(); err != nil {
		return Report{}, err
	}
	defer a.end()
	routes, err := e.dataplane.Routes(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("fib: audit: %w", err)
	}
	a.report.Listed, a.routes = len(routes), routes
	a.listed = make(map[route.Key]int32, len(routes))
	for i, r := range routes {
		a.listed[r.Key] = int32(i)
	}
	if o, ok := e.dataplane.(Overseer); ok {
		if a.hidden, err = o.Hidden(ctx, routes); err != nil {
			return Report{}, fmt.Errorf("fib: audit: %w", err)
		}
	}
	for _, step := range []func(context.Context) error{a.compare, a.lookUpMissing, a.findExtra} {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	return a.result(), nil
}

func (a *audit) begin() error {
	t := a.engine.sync
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	switch {
	case !t.present && t.facts.Problem != "":
		return fmt.Errorf("%w: %s", errAbsent, t.facts.Problem)
	case !t.present:
		return errAbsent
	case t.audited != nil:
		return errAuditing
	}
	t.audited = make(map[route.Key]struct{})
	for _, b := range t.flying {
		t.noteAudited(b)
	}
	a.generation, a.report.Repair = t.generation, t.repairDrift
	return nil
}

func (a *audit) end() {
	a.engine.mu.Lock()
	a.engine.sync.audited = nil
	a.engine.mu.Unlock()
	a.engine.inbox.nudge()
}

// noteAudited: an audit that is under way must not compare what b writes.
func (t *syncer) noteAudited(b *batch) {
	if t.audited == nil {
		return
	}
	for _, e := range b.entries[b.first:b.last] {
		t.audited[e.key()] = struct{}{}
	}
}

// locked calls f with the table locked, unless the generation that is audited has ended.
func (a *audit) locked(f func(t *syncer)) error {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sync.generation != a.generation {
		return errChanged
	}
	e.sync.now = time.Now()
	before := e.sync.drift
	f(e.sync)
	e.warnOfDrift(before)
	return nil
}

// comparable reports whether the listing can be held against e.
func (t *syncer) comparable(e *entry) bool {
	_, written := t.audited[e.key()]
	return !written && t.checkable(e)
}

func (a *audit) compare(context.Context) error {
	var all []*entry
	if err := a.locked(func(t *syncer) { all = slices.Clone(t.all) }); err != nil {
		return err
	}
	for part := range slices.Chunk(all, chunk) {
		err := a.locked(func(t *syncer) {
			for _, e := range part {
				if !t.comparable(e) {
					continue
				}
				a.report.Compared++
				if i, ok := a.listed[e.key()]; ok {
					a.note(t, e, t.compare(e, a.routes[i], true, a.answer(e.key())), a.routes[i])
				} else {
					a.missing = append(a.missing, e)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// answer is what a look-up of a listed route would say besides.
func (a *audit) answer(k route.Key) error {
	if by, ok := a.hidden[k]; ok {
		return route.HiddenError{By: by}
	}
	return nil
}

// lookUpMissing separates what is missing from what is hidden, which a listing leaves out, too.
func (a *audit) lookUpMissing(ctx context.Context) error {
	for _, e := range a.missing {
		found, ok, answer := a.engine.lookUp(ctx, e.key())
		if answer != nil && !errors.As(answer, new(route.HiddenError)) &&
			!errors.As(answer, new(route.DeadPathError)) {
			return fmt.Errorf("fib: audit: %w", answer)
		}
		err := a.locked(func(t *syncer) {
			if t.comparable(e) {
				a.note(t, e, t.compare(e, found, ok, answer), found)
			}
		})
		if err != nil {
			return err
		}
		a.engine.inbox.nudge()
	}
	return nil
}

// findExtra goes through what carries our mark and is not known as ours. Of what is left alone it
// forgets what has gone.
func (a *audit) findExtra(context.Context) error {
	for part := range slices.Chunk(a.routes, chunk) {
		err := a.locked(func(t *syncer) {
			for _, r := range part {
				e := t.get(r.Key)
				_, written := t.audited[r.Key]
				if written || e != nil && (e.actual != 0 || e.is(isUnsure)) {
					continue
				}
				a.add(Finding{Key: r.Key, Drift: Extra, Found: r})
				t.extra(r)
			}
		})
		if err != nil {
			return err
		}
	}
	return a.locked(func(t *syncer) {
		maps.DeleteFunc(t.extras, func(k route.Key, _ uint64) bool {
			_, there := a.listed[k]
			return !there
		})
	})
}

// extra takes over a route that carries our mark and was not known, to be replaced or deleted like
// one from before a restart.
func (t *syncer) extra(r route.Route) {
	digest := r.Digest()
	if !t.repairDrift {
		if t.extras[r.Key] != digest {
			t.drift.Extra++
		}
		t.extras[r.Key] = digest
		return
	}
	e := t.entry(r.Key)
	e.actual, e.owner = digest, unknownSource
	if e.want == nil && !e.is(isAdopted) {
		e.set(isAdopted)
		t.adoptedLeft++
	}
	t.drifted(e, drift{Extra, r})
	t.rewrite = true // the journal does not know it either
	t.settle(e)
}

func (a *audit) note(t *syncer, e *entry, is Drift, found route.Route) {
	if is == NoDrift {
		return
	}
	f := Finding{Key: e.key(), Drift: is, By: t.shadows[e]}
	if is == Different {
		f.Found = found
	}
	if e.wanted() == e.actual {
		f.Want = e.route()
		f.Want.Origin = e.origin()
	}
	a.add(f)
}

func (a *audit) add(f Finding) {
	r := &a.report
	switch f.Drift {
	case Missing:
		r.Missing++
	case Different:
		r.Different++
	case Extra:
		r.Extra++
	case Hidden:
		r.Hidden++
	}
	r.Findings = append(r.Findings, f)
	if len(r.Findings) >= 2*maxFindings {
		a.trim()
	}
}

// trim keeps the first findings by key.
func (a *audit) trim() {
	f := a.report.Findings
	slices.SortFunc(f, func(a, b Finding) int {
		return cmp.Or(route.CompareKeys(a.Key, b.Key), cmp.Compare(a.Drift, b.Drift))
	})
	a.report.Findings = slices.Clip(f[:min(len(f), maxFindings)])
}

func (a *audit) result() Report {
	a.trim()
	return a.report
}
