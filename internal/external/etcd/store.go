package etcd

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/external"
)

// store is what was read, as a Follower fills it.
type store struct {
	base string

	mu      sync.Mutex               // guards what follows
	values  map[string]value         // by key without base
	items   map[string]external.Item // the same
	changed bool
	listed  map[string]bool // since BeginList; nil: no list is under way
	known   bool            // what was in force before the list

	restored external.Snapshot // from disk, not changed
	revision int64             // of the last state, as what follows
	lists    int
	edition  int

	at     int64             // revision of what is being taken in
	undo   map[string]*value // what the keys had that it has changed
	marker int64             // revision of transactionKey; 0: there is none
	taken  int64             // the last marker that was looked at
	open   []*transaction    // by revision
	ended  outcome           // the last

	groups map[string]*group
	staged bool // groups are to be looked at

	resync   string // the newest request
	resynced string // the newest that is done
	accepts  bool   // the list that was asked for sets what is in force
	relist   func()
}

// value is the text of a key, and the last that was accepted, if that is another one.
type value struct {
	Text string `json:"text"`
	Good string `json:"good,omitempty"`
	// Revision is etcd's when the key was changed.
	Revision int64 `json:"revision,omitempty"`
	// Undone says which transaction was rolled back that has changed the key; Gone: deleted it.
	Undone string `json:"undone,omitempty"`
	Gone   bool   `json:"gone,omitempty"`
	// Group is where the item comes from; "": it has a key of its own.
	Group string `json:"group,omitempty"`
}

func newStore(base string) *store {
	return &store{base: base, values: map[string]value{}, items: map[string]external.Item{},
		undo: map[string]*value{}, groups: map[string]*group{}}
}

// inForce is the text that counts.
func (v value) inForce() string {
	if v.Good != "" || v.Undone != "" {
		return v.Good
	}
	return v.Text
}

// itemOf is what a value means.
func itemOf(key string, v value) (item external.Item) {
	if v.Good != "" {
		item = external.DecodeJSON(key, []byte(v.Good), item)
	}
	if v.Undone != "" {
		item.Key = key
		item.Problem = external.Problem{State: external.Failed, Detail: v.Undone}
	} else {
		item = external.DecodeJSON(key, []byte(v.Text), item)
	}
	item.Revision = v.Revision
	return item
}

// restore takes what was kept on disk, which the first list replaces.
func (s *store) restore(k *kept) {
	for key, v := range k.Items {
		s.values[key], s.items[key] = v, itemOf(key, v)
		if v.Group != "" {
			g := s.group(v.Group)
			if g.active == nil {
				g.active = map[string]string{}
			}
			g.active[key] = v.Text
		}
	}
	s.known, s.marker, s.taken, s.open, s.ended = true, k.Taken, k.Taken, k.Open, k.Ended
	for _, t := range s.open {
		t.since = 1
	}
	items := maps.Clone(s.items)
	s.ofTransaction(items)
	s.restored = external.Snapshot{Sources: sources(items), Revision: k.Revision}
}

// kept is what the copy on disk is to have.
func (s *store) kept() kept {
	return kept{Base: s.base, Revision: s.revision, Items: s.values, Taken: s.taken,
		Open: slices.Clone(s.open), Ended: s.ended}
}

// Ranges implements etcd.Data.
func (s *store) Ranges() (all []etcd.Range) {
	for _, p := range append(external.KeyPrefixes(), stagingDir) {
		all = append(all, etcd.Range{Prefix: s.base + p})
	}
	return append(all, etcd.Range{Prefix: s.base + resyncName, Exact: true})
}

// Put implements etcd.Data.
func (s *store) Put(key string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key = strings.TrimPrefix(key, s.base)
	if key == resyncName {
		if s.listed == nil && s.resync != string(text) {
			s.accepts = true
			s.relist()
		}
		s.resync = string(text)
		return
	}
	s.changed = true
	if s.listed != nil {
		s.listed[key] = true
	}
	if key == transactionKey {
		s.marker = s.at
		return
	}
	if name, item, ok := stagingKey(key); ok {
		s.stage(name, item, string(text))
		return
	}
	s.set(key, string(text), "", s.at)
}

// set takes the text of an item, as of revision.
func (s *store) set(key, text, group string, revision int64) {
	before, known := s.values[key]
	again := before.Gone || revision > before.Revision && (before.Undone != "" || s.isOpen(before))
	s.note(key)
	if known && before.Text == text && before.Group == group && !again {
		return
	}
	s.accept(key, text, group, revision)
}

// accept has a text in force, or if it is wrong what was in force before.
func (s *store) accept(key, text, group string, revision int64) {
	item := external.DecodeJSON(key, []byte(text), s.items[key])
	item.Revision = revision
	now := value{Text: text, Group: group, Revision: revision}
	if item.Problem != (external.Problem{}) && item.Message != nil {
		now.Good = s.values[key].inForce()
	}
	s.values[key], s.items[key] = now, item
}

// Delete implements etcd.Data.
func (s *store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delete(strings.TrimPrefix(key, s.base))
}

func (s *store) delete(key string) {
	if key == resyncName {
		s.resync = ""
		return
	}
	s.changed = true
	if key == transactionKey {
		s.marker = 0
		return
	}
	if name, item, ok := stagingKey(key); ok {
		s.stage(name, item, "")
		return
	}
	s.forget(key)
	s.staged = s.staged || len(s.groups) > 0 // which may have it, too
}

func (s *store) forget(key string) {
	s.note(key)
	s.pass(key)
	delete(s.values, key)
	delete(s.items, key)
}

// BeginList implements etcd.Data.
func (s *store) BeginList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endRevision()
	s.listed = map[string]bool{}
}

// EndList implements etcd.Data.
func (s *store) EndList(prefixes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listed[transactionKey] {
		s.marker = 0
	}
	for key, v := range s.values {
		for _, p := range prefixes {
			if strings.HasPrefix(s.base+key, p) && !s.listed[key] && v.Group == "" && !v.Gone {
				s.delete(key)
			}
		}
	}
	s.endListed()
	if s.accepts {
		s.accepts = false
		s.acceptAll()
	}
	if slices.Contains(prefixes, s.base+stagingDir) {
		s.dropUnlisted()
	}
	s.listed, s.resynced = nil, s.resync
}

// Changed implements etcd.Data. A change that sets what was there counts too: its client waits for
// an answer with its revision.
func (s *store) Changed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// state is all that the node's clients want.
func (s *store) state(revision int64, lists int) external.Snapshot {
	s.endRevision()
	if s.staged {
		s.applyGroups()
	}
	clear(s.undo) // no transaction has changed groups
	s.changed = false
	s.revision, s.lists, s.edition = revision, lists, s.edition+1
	items := maps.Clone(s.items)
	s.badCommits(items, revision)
	s.ofTransaction(items)
	return external.Snapshot{
		Sources: sources(items), List: lists, Complete: true, Revision: revision,
		Edition: s.edition, Resync: s.resynced,
	}
}

func sources(items map[string]external.Item) []external.Source {
	return []external.Source{{Name: Name, Items: items}}
}
