package grpc

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"vpp-route-agent/internal/external"
)

// store is what all clients want: the sum of all transactions. It is not safe for concurrent use.
type store struct {
	sources map[string]map[string]external.Item // by name, then key; inner maps are never changed
	txn     int64                               // the last one
	spoken  bool                                // what the clients want is known
	open    map[int64]undo                      // atomic ones, neither confirmed nor rolled back
}

// undo is what a transaction replaced. What was not there has no message.
type undo struct {
	source string
	before map[string]external.Item
	puts   map[string]external.Item
}

func newStore() *store {
	return &store{sources: map[string]map[string]external.Item{}, open: map[int64]undo{},
		spoken: true}
}

// replay takes the records of a journal. Atomic transactions that were never confirmed do not
// count.
func (s *store) replay(records []record) error {
	for _, r := range records {
		items := make(map[string]external.Item, len(r.Puts))
		for key, text := range r.Puts {
			item := external.DecodeJSON(key, []byte(text), external.Item{})
			if item.Message == nil {
				// of a later version of the agent
				return &unusable{key: key, why: item.Problem.Detail}
			}
			item.Labels = r.Labels[key]
			items[key] = item
		}
		s.apply(r, items)
	}
	for _, txn := range slices.Backward(slices.Sorted(maps.Keys(s.open))) {
		s.apply(record{RollsBack: txn}, nil)
	}
	return nil
}

type unusable struct{ key, why string }

func (u *unusable) Error() string { return u.key + ": " + u.why }

// apply adds a record, whose puts are items.
func (s *store) apply(r record, items map[string]external.Item) {
	s.txn = max(s.txn, r.Txn)
	s.spoken = s.spoken && !r.Incomplete || r.Replace && !r.Atomic
	switch {
	case r.Confirms != 0:
		delete(s.open, r.Confirms)
		return
	case r.RollsBack != 0:
		s.rollBack(r.RollsBack)
		return
	case r.Source == "":
		return
	}
	next := cloned(s.sources[r.Source])
	before := undo{source: r.Source, before: map[string]external.Item{}, puts: items}
	for key, item := range items {
		before.before[key] = next[key]
		item.Revision = r.Txn
		next[key] = item
	}
	for _, key := range r.Deletes {
		before.before[key] = next[key]
		delete(next, key)
	}
	s.set(r.Source, next)
	if r.Atomic {
		s.open[r.Txn] = before
	}
}

// rollBack restores what an atomic transaction has replaced, unless a later one replaced it again.
func (s *store) rollBack(txn int64) {
	u, ok := s.open[txn]
	if !ok {
		return
	}
	delete(s.open, txn)
	next := cloned(s.sources[u.source])
	for key, item := range u.before {
		now, there := next[key]
		_, put := u.puts[key]
		switch {
		case put != there || there && now.Revision != txn: // a later one has
		case item.Message != nil:
			next[key] = item
		default:
			delete(next, key)
		}
	}
	s.set(u.source, next)
}

// set sets what a source wants. One that wants nothing is forgotten.
func (s *store) set(source string, items map[string]external.Item) {
	if s.sources[source] = items; len(items) == 0 {
		delete(s.sources, source)
	}
}

// count returns how many items a client has in all its sources.
func (s *store) count(client string) (n int) {
	for name, items := range s.sources {
		if external.IsOf(name, client) {
			n += len(items)
		}
	}
	return n
}

// records is what a journal of the store begins with. No atomic transaction may be open.
func (s *store) records() (all []record, err error) {
	all = append(all, record{Format: journalFormat, Incomplete: !s.spoken, Txn: s.txn})
	for _, name := range slices.Sorted(maps.Keys(s.sources)) {
		r := newRecord(s.txn, name)
		for _, item := range s.sources[name] {
			if err := r.put(item); err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
	return all, nil
}

func newRecord(txn int64, source string) record {
	return record{Txn: txn, Source: source, Puts: map[string]string{},
		Labels: map[string]map[string]string{}}
}

// put adds an item, or an error.
func (r *record) put(item external.Item) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(item.Message)
	if err != nil {
		return err
	}
	r.Puts[item.Key] = string(text)
	if len(item.Labels) > 0 {
		r.Labels[item.Key] = item.Labels
	}
	return nil
}

func cloned(items map[string]external.Item) map[string]external.Item {
	if items == nil {
		return map[string]external.Item{}
	}
	return maps.Clone(items)
}

func sortedKeys(items map[string]external.Item) []string {
	return slices.Sorted(maps.Keys(items))
}

// snapshot is what all sources want.
func (s *store) snapshot() external.Snapshot {
	out := external.Snapshot{Revision: s.txn, Complete: s.spoken}
	for name, items := range s.sources {
		out.Sources = append(out.Sources, external.Source{Name: name, Items: items})
	}
	slices.SortFunc(out.Sources, func(a, b external.Source) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return out
}
