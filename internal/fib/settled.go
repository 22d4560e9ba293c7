package fib

import (
	"iter"
	"slices"

	"vpp-route-agent/internal/route"
)

// Settled says how far the data plane has got with what was set. Who waits for a change of its own
// waits for the revision that Set returned, or looks whether its keys are among Open.
type Settled struct {
	Taken    uint64 // the last revision that was taken in
	Revision uint64 // the last that the data plane has whole, and all before it
	// Open are the keys that keep what was taken in later from being settled: not acknowledged yet,
	// refused, not usable, or held by the guard. By key, the first of them; More counts the others.
	Open []Entry
	More int
}

// Settled returns at most limit keys that are not settled.
func (e *Engine) Settled(limit int) Settled {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := Settled{Taken: e.wanted.revision, Revision: e.wanted.revision}
	var open []*entry
	for x, revision := range e.sources.open() {
		out.Revision = min(out.Revision, revision-1)
		out.More++
		if open = append(open, x); len(open) > 2*limit {
			open = e.firstByKey(open, limit)
		}
	}
	for _, x := range e.firstByKey(open, limit) {
		out.Open = append(out.Open, e.show(x, true))
	}
	out.More -= len(out.Open)
	return out
}

// Progress reports whether the data plane has all that was set up to a revision, and whether
// something is still to be selected or written. It is made to be asked often.
func (e *Engine) Progress(revision uint64) (settled, busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	busy = e.sync.isChoosing() || e.sync.present && e.sync.queued() > 0
	if e.wanted.revision < revision {
		return false, busy
	}
	for _, open := range e.sources.open() {
		if open <= revision {
			return false, busy
		}
	}
	return true, busy
}

func (e *Engine) firstByKey(all []*entry, n int) []*entry {
	slices.SortFunc(all, func(a, b *entry) int {
		if a.isObject() && b.isObject() {
			return route.CompareObjectKeys(e.sync.objectOf(a).key, e.sync.objectOf(b).key)
		}
		return route.CompareKeys(a.key(), b.key())
	})
	return all[:min(len(all), n)]
}

// open yields the keys that are not settled and the first revision that changed them since.
func (s *sources) open() iter.Seq2[*entry, uint64] {
	return func(yield func(*entry, uint64) bool) {
		for e, revision := range s.selection.sync.open {
			if e.counted.state == Unusable && e.origin() == route.BGP {
				continue // what was set is gone, and BGP alone wants the prefix
			}
			if !yield(e, revision) {
				return
			}
		}
		for _, h := range s.holds {
			for k := range h.keys {
				if e := s.get(k); !e.is(isOpen) && !yield(e, h.revision) {
					return
				}
			}
		}
	}
}

// change sets what origin wants for k, and notes which revision it was.
func (s *sources) change(origin route.Origin, r route.Route, revision uint64) {
	if e := s.selection.setCandidate(r.Key, origin, r.Kind, r.Paths, 0); e != nil {
		s.selection.sync.reopen(e, revision)
	}
}

// reopen: a revision has changed what is wanted for e.
func (s *syncer) reopen(e *entry, revision uint64) {
	if !e.is(isOpen) {
		e.set(isOpen)
		s.open[e] = revision
		s.delays.opened(revision)
	}
}

// closeIfSettled: the data plane has what is wanted for e since it was changed, or nothing if
// nothing is.
func (s *syncer) closeIfSettled(e *entry) {
	if !e.is(isOpen) || e.is(isDirty|isFlying) {
		return
	}
	if state := e.counted.state; state.IsAcknowledged() || state == Any {
		s.close(e)
	}
}

func (s *syncer) close(e *entry) {
	if e.is(isOpen) {
		s.delays.closed(s.open[e], s.now)
		e.clear(isOpen)
		delete(s.open, e)
	}
}
