package grpc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external"
)

// store is what all clients want: the sum of all transactions. It is not safe for concurrent use.
type store struct {
	sources map[string]map[string]external.Item // by name, then key; inner maps are never changed
	bytes   map[string]int                      // of the items, by name of the source
	txn     int64                               // the last one
	spoken  bool                                // what the clients want is known
	open    map[int64]undo                      // atomic ones, neither confirmed nor rolled back
	unread  map[itemID]kept                     // what items without a message have on disk
}

// undo is what a transaction replaced. What was not there has no key.
type undo struct {
	source string
	before map[string]external.Item
	puts   map[string]bool // what it wanted from then on
}

func newStore() *store {
	return &store{sources: map[string]map[string]external.Item{}, bytes: map[string]int{},
		open: map[int64]undo{}, unread: map[itemID]kept{}, spoken: true}
}

// replay takes the records of a journal. Atomic transactions that were never confirmed do not
// count. An item that cannot be read, of a later version of the agent, has a Problem and no
// message.
func (s *store) replay(records []record) {
	for _, r := range records {
		items := make([]external.Item, len(r.Puts))
		for i, p := range r.Puts {
			if p.Text != "" && p.Labels == nil {
				p.Labels = r.Labels[p.Key]
			}
			items[i] = p.item()
			if items[i].Message == nil {
				s.unread[itemID{r.Source, p.Key}] = p
			}
		}
		s.apply(r, items)
	}
	for _, txn := range slices.Backward(slices.Sorted(maps.Keys(s.open))) {
		s.apply(record{RollsBack: txn}, nil)
	}
}

// apply adds a record, whose puts are items.
func (s *store) apply(r record, items []external.Item) {
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
	have := s.sources[r.Source]
	if r.Atomic {
		s.open[r.Txn] = undoOf(r, items, have)
	}
	next := make(map[string]external.Item, max(len(have), len(items)))
	maps.Copy(next, have)
	for _, item := range items {
		item.Revision = r.Txn
		s.replace(r.Source, next, item.Key, item)
	}
	for _, key := range r.Deletes {
		s.replace(r.Source, next, key, external.Item{})
	}
	s.set(r.Source, next)
}

// undoOf is what a transaction is about to replace of what its source has.
func undoOf(r record, puts []external.Item, have map[string]external.Item) undo {
	u := undo{source: r.Source, before: map[string]external.Item{}, puts: map[string]bool{}}
	for _, item := range puts {
		u.before[item.Key], u.puts[item.Key] = have[item.Key], true
	}
	for _, key := range r.Deletes {
		u.before[key] = have[key]
	}
	return u
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
		put := u.puts[key]
		if put == there && (!there || now.Revision == txn) { // no later one has
			s.replace(u.source, next, key, item)
		}
		for later, v := range s.open {
			if b, has := v.before[key]; has && later > txn && v.source == u.source &&
				put == (b.Key != "") && (!put || b.Revision == txn) {
				v.before[key] = item
			}
		}
	}
	s.set(u.source, next)
}

// set sets what a source wants. One that wants nothing is forgotten.
func (s *store) set(source string, items map[string]external.Item) {
	if s.sources[source] = items; len(items) == 0 {
		delete(s.sources, source)
		delete(s.bytes, source)
	}
}

// replace sets the item of a key among those of a source; one without a key: it has none.
func (s *store) replace(source string, items map[string]external.Item, key string,
	to external.Item) {
	s.bytes[source] += sizeOf(to) - sizeOf(items[key])
	if items[key] = to; to.Key == "" {
		delete(items, key)
	}
}

// use is what a client makes the agent keep.
type use struct{ sources, items, bytes int }

var defaultLimits = use{sources: 1000, items: 100_000, bytes: 64 << 20}

// exceeds says what u has too much of; "": nothing.
func (u use) exceeds(limits use) string {
	for _, l := range []struct {
		name      string
		has, most int
	}{
		{"sources (datasrc)", u.sources, limits.sources}, {"items", u.items, limits.items},
		{"bytes of items", u.bytes, limits.bytes},
	} {
		if l.has > l.most {
			return fmt.Sprintf("the client may have %d %s, and this would be more", l.most, l.name)
		}
	}
	return ""
}

// use returns what a client has in all its sources.
func (s *store) use(client string) (u use) {
	for name, items := range s.sources {
		if external.IsOf(name, client) {
			u = use{u.sources + 1, u.items + len(items), u.bytes + s.bytes[name]}
		}
	}
	return u
}

// undecided returns how many atomic transactions of a client are open.
func (s *store) undecided(client string) (n int) {
	for _, u := range s.open {
		if external.IsOf(u.source, client) {
			n++
		}
	}
	return n
}

// sizeOf is about what an item takes.
func sizeOf(item external.Item) int {
	if item.Message == nil {
		return 0
	}
	n := len(item.Key) + proto.Size(item.Message)
	for key, value := range item.Labels {
		n += len(key) + len(value)
	}
	return n
}

// records is what a journal of the store begins with. No atomic transaction may be open.
func (s *store) records() (all []record, err error) {
	all = append(all, record{Format: journalFormat, Incomplete: !s.spoken, Txn: s.txn})
	for _, name := range slices.Sorted(maps.Keys(s.sources)) {
		r := record{Txn: s.txn, Source: name}
		for _, key := range sortedKeys(s.sources[name]) {
			item := s.sources[name][key]
			if item.Message == nil {
				r.Puts = append(r.Puts, s.unread[itemID{name, key}])
			} else if err := r.put(item); err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
	all[0].Rewritten = len(all)
	return all, nil
}

// put adds an item, or an error.
func (r *record) put(item external.Item) error {
	value, err := proto.Marshal(item.Message)
	if err != nil {
		return err
	}
	r.Puts = append(r.Puts, kept{Key: item.Key, Value: value, Labels: item.Labels})
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
