package etcd

import (
	"fmt"
	"maps"
	"slices"

	"vpp-route-agent/internal/external"
)

// A client that puts transactionKey in one transaction of etcd with items wants all of them or
// nothing. What the revision changes is applied, and counts when each item is CONFIGURED;
// otherwise what was in force before is so again. The keys are the client's and stay as they are.

// transactionKey is beside the items, so that one watch has all events of a revision.
const transactionKey = "config/transaction"

// transaction is a revision that is neither confirmed nor rolled back.
type transaction struct {
	Revision int64             `json:"revision"`
	Changes  map[string]change `json:"changes"` // by key, not changed
	// Passed are the revisions that have deleted keys of Changes since. Not changed.
	Passed map[string]int64 `json:"passed,omitempty"`
	since  int              // edition: answers about earlier snapshots do not count
}

// change is what a transaction did to a key.
type change struct {
	Before  *value `json:"before,omitempty"` // nil: there was none
	Deleted bool   `json:"deleted,omitempty"`
}

// outcome is how a transaction has ended.
type outcome struct {
	Revision   int64  `json:"revision,omitempty"`
	RolledBack string `json:"rolledBack,omitempty"` // why; "": it was confirmed
}

// At implements etcd.Dated.
func (s *store) At(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed == nil && revision != s.at {
		s.endRevision()
	}
	s.at = revision
}

// note keeps what a key had before the revision that is being taken.
func (s *store) note(key string) {
	if _, noted := s.undo[key]; noted {
		return
	}
	s.undo[key] = nil
	if v, there := s.values[key]; there {
		s.undo[key] = &v
	}
}

// endRevision opens a transaction if the revision that was taken is one.
func (s *store) endRevision() {
	undo := s.undo
	s.undo = map[string]*value{}
	if s.marker != s.at || s.marker == s.taken {
		return
	}
	if s.taken = s.marker; s.marker == 0 || !s.known {
		return // an agent without its copy cannot tell what was before
	}
	s.undo = undo
	for key, v := range s.values {
		if v.Gone { // etcd has no key that could be deleted once more
			s.forget(key)
		}
	}
	t := &transaction{Revision: s.at, Changes: map[string]change{}, since: s.edition + 1}
	missed := map[string]string{}
	for key, before := range s.undo {
		v, there := s.values[key]
		t.Changes[key] = change{before, !there}
		if !there {
			continue
		}
		v.Revision = s.at // also where it put what was there
		item := s.items[key]
		item.Revision = s.at
		s.values[key], s.items[key] = v, item
		if p := item.Problem; p != (external.Problem{}) {
			missed[key] = p.State.String() + ": " + p.Detail
		}
	}
	s.open, s.undo = append(s.open, t), map[string]*value{}
	if len(missed) > 0 {
		s.rollBack(t, missed)
	}
}

// endListed is endRevision after a list, which tells of each key only its last change.
func (s *store) endListed() {
	maps.DeleteFunc(s.undo, func(key string, _ *value) bool {
		v, there := s.values[key]
		return !there || v.Revision != s.marker
	})
	s.at = s.marker
	s.endRevision()
	s.undo, s.known = map[string]*value{}, true
}

// pass has open transactions know that a key is deleted now whatever becomes of them.
func (s *store) pass(key string) {
	for i, t := range s.open {
		if _, has := t.Changes[key]; !has {
			continue
		}
		u := *t
		if u.Passed = maps.Clone(t.Passed); u.Passed == nil {
			u.Passed = map[string]int64{}
		}
		u.Passed[key] = s.at
		s.open[i] = &u
	}
}

// isOf reports whether a key is as t has left it.
func (s *store) isOf(t *transaction, key string) bool {
	if t.Passed[key] != 0 {
		return false
	}
	v, there := s.values[key]
	if there = there && v.Group == ""; !there || t.Changes[key].Deleted {
		return there != t.Changes[key].Deleted
	}
	return v.Revision == t.Revision && v.Undone == ""
}

// isOpen reports whether an open transaction has set v.
func (s *store) isOpen(v value) bool {
	return slices.ContainsFunc(s.open, func(t *transaction) bool {
		return t.Revision == v.Revision
	})
}

// end removes a transaction; why it was rolled back, "": it counts.
func (s *store) end(t *transaction, why string) {
	s.open = slices.DeleteFunc(s.open, func(u *transaction) bool { return u == t })
	s.ended = outcome{t.Revision, why}
	s.changed = true
}

// rollBack has what was in force before t in force again, but for keys that have changed since.
// missed says of items that are not CONFIGURED how they stand.
func (s *store) rollBack(t *transaction, missed map[string]string) {
	first := slices.Min(slices.Collect(maps.Keys(missed)))
	s.end(t, fmt.Sprintf("revision %d is rolled back: %s is %s", t.Revision, first, missed[first]))
	for key := range t.Changes {
		why := fmt.Sprintf("transaction %d is rolled back because of %s", t.Revision, first)
		if of := missed[key]; of != "" {
			why = fmt.Sprintf("transaction %d is rolled back; this was %s", t.Revision, of)
		}
		if s.isOf(t, key) {
			v := s.values[key]
			if v := t.undone(key, &v, why); v != nil {
				s.values[key], s.items[key] = *v, itemOf(key, *v)
			}
		}
		s.undoBefore(t, key, why)
	}
	for _, u := range s.open {
		u.since = s.edition + 1 // they were judged beside t
	}
}

// undoBefore: what t did to a key is not what a later transaction goes back to.
func (s *store) undoBefore(t *transaction, key, why string) {
	for i, u := range s.open {
		c, has := u.Changes[key]
		passed := t.Passed[key] != 0 && t.Passed[key] < u.Revision
		if !has || u.Revision < t.Revision || passed ||
			(c.Before == nil) != t.Changes[key].Deleted ||
			c.Before != nil && c.Before.Revision != t.Revision {
			continue
		}
		c.Before = t.undone(key, c.Before, why)
		u = &transaction{Revision: u.Revision, Changes: maps.Clone(u.Changes), Passed: u.Passed}
		u.Changes[key] = c
		s.open[i] = u
	}
}

// undone is a key that t left as after when t is rolled back; nil: there is nothing to say.
func (t *transaction) undone(key string, after *value, why string) *value {
	c := t.Changes[key]
	v := &value{Revision: t.Revision, Undone: why, Gone: c.Deleted}
	if !c.Deleted {
		v.Text = after.Text
	}
	if c.Before != nil {
		v.Good = c.Before.inForce()
	}
	if v.Gone && v.Good == "" {
		return nil
	}
	return v
}

// decide ends the transactions for which the data plane has answered, in their order, and reports
// whether there was one.
func (s *store) decide(a external.Answer) (ended bool) {
	if len(s.open) == 0 || a.Away != "" {
		return false
	}
	verdicts := make(map[string]external.Verdict, len(a.Verdicts))
	for _, v := range a.Verdicts {
		verdicts[v.Key] = v
	}
	for len(s.open) > 0 && a.Edition >= s.open[0].since {
		t := s.open[0]
		missed, done := s.missed(t, verdicts)
		switch {
		case !done:
			return ended
		case len(missed) > 0:
			s.rollBack(t, missed)
		default:
			s.end(t, "")
		}
		ended = true
	}
	return ended
}

// missed says which items of t are not as it wants them; done: the data plane has answered for all.
func (s *store) missed(t *transaction, verdicts map[string]external.Verdict) (
	missed map[string]string, done bool) {
	missed = map[string]string{}
	for key, c := range t.Changes {
		if !s.isOf(t, key) || s.values[key].Group != "" {
			continue // a newer change has ended its part in t, or a group has the key now
		}
		v, known := verdicts[key]
		wanted := external.Configured
		if c.Deleted {
			wanted = external.Removed
		}
		switch {
		case !known && c.Deleted: // it was removed long ago
		case !known, v.Unfinished:
			return nil, false
		case v.State != wanted:
			missed[key] = describe(v)
		}
	}
	return missed, true
}

func describe(v external.Verdict) string {
	out := v.State.String()
	for _, d := range v.Details {
		out += ": " + d
	}
	return out
}

// acceptAll: a client wants what etcd has, also where a transaction was rolled back.
func (s *store) acceptAll() {
	for key, v := range s.values {
		switch {
		case v.Undone == "":
		case v.Gone:
			s.forget(key)
		default:
			s.accept(key, v.Text, "", v.Revision)
		}
	}
}

// ofTransaction adds an item that says how the last transaction stands.
func (s *store) ofTransaction(to map[string]external.Item) {
	if s.marker == 0 {
		return
	}
	p := external.Problem{State: external.Configured, Detail: "it counts"}
	switch {
	case s.isOpen(value{Revision: s.marker}):
		p = external.Problem{State: external.Pending, Detail: "the data plane has not answered " +
			"for all of its items yet"}
	case s.ended.Revision == s.marker && s.ended.RolledBack != "":
		p = external.Problem{State: external.Failed, Detail: s.ended.RolledBack}
	}
	to[transactionKey] = external.Item{Key: transactionKey, Revision: s.marker, Problem: p}
}

// unfinished says of an answer that a transaction is open.
func unfinished(a external.Answer) external.Answer {
	is := func(v external.Verdict) bool {
		return v.Key == transactionKey && v.State == external.Pending
	}
	if i := slices.IndexFunc(a.Verdicts, is); i >= 0 {
		a.Verdicts = slices.Clone(a.Verdicts)
		a.Verdicts[i].Unfinished = true
	}
	return a
}

// hasOpened reports whether the last state has a transaction that those before had not.
func (s *store) hasOpened() bool {
	return slices.ContainsFunc(s.open, func(t *transaction) bool { return t.since == s.edition })
}

// rollBackAll rolls back what hasOpened is about.
func (s *store) rollBackAll(why string) {
	for _, t := range slices.Backward(slices.Clone(s.open)) {
		if t.since >= s.edition {
			s.rollBack(t, map[string]string{transactionKey: why})
		}
	}
}
