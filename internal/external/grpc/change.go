package grpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external"
)

// A Change is a transaction of a client.
type Change struct {
	Client  string // whose sources together are limited
	Source  string // one of them
	Puts    []external.Item
	Deletes []string // keys
	// Replace: the client wants nothing but Puts.
	Replace bool
	// Atomic: all items are to be CONFIGURED, or nothing is changed.
	Atomic bool
	// WaitDone: the call also waits until no item is PENDING.
	WaitDone bool
	// Refuses says why the client may not change an item that is there; "": it may. nil: it may
	// change all.
	Refuses func(external.Item) string
}

func (c *Change) refuses(item external.Item) string {
	if c.Refuses == nil {
		return ""
	}
	return c.Refuses(item)
}

// Result is how an item of a change came out.
type Result struct {
	Key     string
	Deleted bool              // it was to be
	Verdict *external.Verdict // not to be changed
	refused bool              // the verdict is final
}

// none is the verdict while there is none yet.
var none external.Verdict

// Failed reports whether the item is not, and will not be by itself, as the client wants it.
func (r Result) Failed() bool {
	switch r.Verdict.State {
	case external.Configured, external.Pending, external.Removed:
		return false
	}
	return true
}

var (
	// ErrRolledBack: an item of an atomic change failed, so nothing has changed.
	ErrRolledBack = errors.New("an item failed, and the transaction asked for all or nothing")
	// ErrRefused: the change could not be kept on disk, so nothing has changed.
	ErrRefused = errors.New("it cannot be kept on disk")
	// ErrUndecided: the client has as many atomic changes as it may, so nothing has changed.
	ErrUndecided = errors.New("the client may have no more undecided all-or-nothing transactions")
	// ErrUnanswered: the change is accepted, and the data plane has not answered for all of it.
	ErrUnanswered = errors.New("it is accepted and goes on")

	errStops = errors.New("the agent stops, and its next run rolls it back")
)

// Do carries a change out. results are those of its puts, then those of its deletions, and txn is
// the number of the transaction. The error wraps one of those above.
func (s *Source) Do(ctx context.Context, c Change) (txn int64, results []Result, err error) {
	defer func() { go s.shorten() }()
	txn, results, changed, err := s.begin(c)
	if err != nil {
		return txn, results, err
	}
	if !c.Atomic {
		return txn, results, s.await(ctx, c, txn, results)
	}
	if !changed {
		if err = s.await(ctx, c, txn, results); err == nil && slices.ContainsFunc(results, missed) {
			err = ErrRolledBack
		}
		return txn, results, err
	}
	done := make(chan error, 1)
	theirs := results // until done
	go func() {
		done <- s.finish(c, txn, theirs)
		s.shorten() // Do may have returned, while it could not be
	}()
	select {
	case err = <-done:
		return txn, theirs, err
	case <-ctx.Done():
		return txn, nil, unanswered(txn, s.overdue(ctx))
	}
}

// overdue says why a call has not been answered when ctx has ended.
func (s *Source) overdue(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer == nil || s.answer.Away == "" {
		return ctx.Err()
	}
	return fmt.Errorf("%s: %w", s.answer.Away, ctx.Err())
}

func unanswered(txn int64, why error) error {
	return fmt.Errorf("transaction %d: %w: %w", txn, ErrUnanswered, why)
}

// begin keeps a change on disk and has it carried out, unless it changes nothing.
func (s *Source) begin(c Change) (txn int64, results []Result, changed bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	r, items, results := s.compare(c)
	if c.Atomic && slices.ContainsFunc(results, func(r Result) bool { return r.refused }) {
		return 0, results, false, ErrRolledBack
	}
	if len(items)+len(r.Deletes) == 0 && (s.store.spoken || !c.Replace || c.Atomic) {
		return r.Txn - 1, results, false, nil
	}
	if c.Atomic && s.store.undecided(c.Client) >= maxCalls {
		return 0, nil, false, fmt.Errorf("%w than %d", ErrUndecided, maxCalls)
	}
	if err := s.write(r, items); err != nil {
		return 0, nil, false, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	s.publish()
	return r.Txn, results, true, nil
}

// compare returns what of a change is none yet. What is wrong in it has its verdict.
func (s *Source) compare(c Change) (r record, items []external.Item, results []Result) {
	r = record{Txn: s.store.txn + 1, Source: c.Source, Atomic: c.Atomic, Replace: c.Replace,
		Puts: make([]kept, 0, len(c.Puts))}
	items = make([]external.Item, 0, len(c.Puts))
	results = make([]Result, 0, len(c.Puts)+len(c.Deletes))
	have := s.store.sources[c.Source]
	use := s.store.use(c.Client)
	stays := map[string]bool{} // although it is not among Puts
	if c.Replace {
		use.items, use.bytes = use.items-len(have), use.bytes-s.store.bytes[c.Source]
		for key, item := range have {
			if c.refuses(item) != "" {
				stays[key] = true
				use.items, use.bytes = use.items+1, use.bytes+sizeOf(item)
			}
		}
	}
	if have == nil {
		use.sources++
	}
	named := make(map[string]bool, len(c.Puts))
	for _, item := range c.Puts {
		result := Result{Key: item.Key, Verdict: &none}
		if named[item.Key] {
			result.refuse(external.Invalid, twice)
			results = append(results, result)
			continue
		}
		named[item.Key] = true
		before, there := have[item.Key]
		if there && c.refuses(before) != "" {
			result.refuse(external.Failed, c.refuses(before))
			results = append(results, result)
			continue
		}
		use.bytes += sizeOf(item)
		if c.Replace || !there {
			use.items++
		} else {
			use.bytes -= sizeOf(before)
		}
		switch {
		case item.Problem != (external.Problem{}):
			result.refuse(item.Problem.State, item.Problem.Detail)
		case use.exceeds(s.limits) != "":
			result.refuse(external.Failed, use.exceeds(s.limits))
		case !there || !proto.Equal(item.Message, before.Message) ||
			!maps.Equal(item.Labels, before.Labels):
			if err := r.put(item); err != nil {
				result.refuse(external.Invalid, err.Error())
			} else {
				items = append(items, item)
			}
		}
		results = append(results, result)
	}
	deletes := c.Deletes
	if c.Replace {
		deletes = nil
		for key := range have {
			if !named[key] && !stays[key] {
				deletes = append(deletes, key)
			}
		}
		slices.Sort(deletes)
	}
	for _, key := range deletes {
		result := Result{Key: key, Deleted: true, Verdict: &none}
		item, there := have[key]
		switch {
		case named[key]:
			result.refuse(external.Invalid, twice)
		case !there:
			result.refuse(external.Nonexistent, "the client has no such item")
		case c.refuses(item) != "":
			result.refuse(external.Failed, c.refuses(item))
		default:
			r.Deletes = append(r.Deletes, key)
		}
		named[key] = true
		results = append(results, result)
	}
	return r, items, results
}

const twice = "the transaction names this key twice"

func (r *Result) refuse(state external.State, why string) {
	r.refused = true
	r.Verdict = &external.Verdict{Key: r.Key, State: state, Details: []string{why}}
}

// await waits until the data plane has answered for a transaction, and fills in how its items
// stand.
func (s *Source) await(ctx context.Context, c Change, txn int64, results []Result) error {
	for {
		s.mu.Lock()
		now, next := s.answer, s.answered
		s.mu.Unlock()
		if now != nil && now.Revision >= txn {
			done := now.fill(c, results)
			if now.Away != "" {
				return unanswered(txn, errors.New(now.Away))
			}
			if done {
				return nil
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return unanswered(txn, ctx.Err())
		}
	}
}

// fill sets the verdicts, and reports whether none of them is awaited any more.
func (a *answer) fill(c Change, results []Result) (done bool) {
	done = true
	for i := range results {
		r := &results[i]
		if r.refused {
			continue
		}
		if v := a.byItem()[itemID{c.Source, r.Key}]; v != nil {
			r.Verdict = v
		} else { // it is gone, or a later transaction has deleted it
			r.Verdict = &external.Verdict{Source: c.Source, Key: r.Key, State: external.Removed}
		}
		done = done && !r.Verdict.Unfinished &&
			(!c.WaitDone || r.Verdict.State != external.Pending)
	}
	return done
}

// finish confirms an atomic change or rolls it back, however long that takes.
func (s *Source) finish(c Change, txn int64, results []Result) error {
	for {
		s.mu.Lock()
		next := s.answered // before the look, so that no answer is missed
		s.mu.Unlock()
		if s.await(s.running, c, txn, results) == nil {
			break
		}
		if s.running.Err() != nil {
			return unanswered(txn, errStops)
		}
		select {
		case <-next:
		case <-s.running.Done():
		}
	}
	if !slices.ContainsFunc(results, missed) && s.confirm(txn) == nil {
		return nil
	}
	undone := slices.Clone(results)
	if err := s.await(s.running, c, s.rollBack(txn), undone); err != nil {
		s.log.Warn("a transaction is rolled back, and the data plane has not answered", "err", err)
	}
	return fmt.Errorf("transaction %d: %w", txn, ErrRolledBack)
}

// missed reports whether an item is not as an atomic change asks for.
func missed(r Result) bool { return r.Failed() || r.Verdict.State == external.Pending }

// confirm keeps on disk that an atomic transaction counts.
func (s *Source) confirm(txn int64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.write(record{Confirms: txn}, nil)
}

// rollBack has what an atomic transaction changed restored, and returns the number of that.
func (s *Source) rollBack(txn int64) int64 {
	s.writing.Lock()
	defer s.writing.Unlock()
	r := record{Txn: s.store.txn + 1, RollsBack: txn}
	if err := s.write(r, nil); err != nil {
		// without its confirmation the transaction does not count on disk
		s.mu.Lock()
		s.store.apply(r, nil)
		s.mu.Unlock()
	}
	s.publish()
	return r.Txn
}
