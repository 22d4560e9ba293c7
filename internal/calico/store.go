package calico

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Store turns the items of a source into snapshots for one node; it is not safe for concurrent use.
// It keeps only the node's own endpoints and affinities. An item that cannot be decoded becomes a
// Problem and keeps its old value until it is deleted: a bad write to a Node must not end its
// session.
type Store struct {
	node   string
	needs  Needs
	ranges []Range // Needs.Ranges
	// overlay: there is or was a pool whose routes come from blocks, see AllBlocks
	overlay bool

	now   contents
	owned map[Kind]bool  // whose maps no snapshot shares
	at    map[Key]string // the place that each item came from
	// slicesOf are the names of EndpointSlices by "namespace/name" of their Service. No snapshot
	// shares now.Endpoints if ownsEndpoints.
	slicesOf      map[string]map[string]bool
	ownsEndpoints bool
	places        map[string]placed // by place; an item may have a second one, which is a problem

	waiting  int       // places that wait
	sorted   []Problem // of places, unless unsorted
	unsorted bool
	round    int // of listing
	changed  bool
}

// Item is an item of Calico's data as a source hands it over.
type Item struct {
	Key Key
	// Name is what the source's own tools call the item, "IPAMBlock(10-1-0-0-26)"; "": what
	// calicoctl does, Key.Resource.
	Name string
	// Value has the type that the Snapshot has for Key's kind. It is nil if the item stands for
	// nothing, or with Err if it could not be decoded.
	Value any
	// Err says what of the item cannot be used.
	Err error
}

// placed is what was last Set at a place.
type placed struct {
	key     Key
	name    string // Item.Name
	round   int    // of listing
	problem string
	// waiting has a value, which counts once the place that names the same is gone.
	waiting *Item
}

// NewStore returns an empty store for a node with BGP.
func NewStore(node string) *Store { return NewStoreFor(node, Needs{}) }

// NewStoreFor returns an empty store for the needs of a node.
func NewStoreFor(node string, needs Needs) *Store {
	s := &Store{node: node, needs: needs, ranges: slices.Clip(needs.Ranges(node)),
		owned: map[Kind]bool{}, at: map[Key]string{}, places: map[string]placed{},
		slicesOf: map[string]map[string]bool{}, unsorted: true, changed: true}
	for _, kind := range kinds {
		kind.empty(&s.now)
	}
	s.now.Services = nil
	return s
}

// NewStoreOver returns a store for a node with BGP that begins with the data of a snapshot, which
// came from a Store. Replace changes them.
func NewStoreOver(base *Snapshot, node string) *Store {
	s := NewStore(node)
	s.now.Snapshot = *base
	clear(s.owned)
	if base.ClusterInformation {
		s.now.cluster["default"] = ClusterInformation{base.DatastoreNotReady, base.CalicoVersion}
	}
	for _, p := range base.Problems {
		k, _ := s.needs.parse(p.Key)
		s.places[p.Key] = placed{key: k, name: p.Resource, problem: p.Err}
	}
	return s
}

// Node is the node that s is for.
func (s *Store) Node() string { return s.node }

// Put sets the value of a key of etcd. Where all workload endpoints are read nearly all belong to
// other nodes, so a value that does not contain our name is not decoded. (JSON escapes no character
// of a node name.)
func (s *Store) Put(key string, value []byte) {
	k, err := s.needs.parse(key)
	switch kind := kinds[k.Kind]; {
	case errors.Is(err, errOthers):
	case err != nil:
		s.Set(key, Item{Err: err})
	case k.Kind == KindWorkloadEndpoint && s.at[k] == "" &&
		!bytes.Contains(value, []byte(s.node)):
		s.Delete(key)
	case kind != nil && kind.isRead(k, s.node):
		s.Set(key, kind.item(k, value, s.Value(k)))
	}
}

// Replace is Put where it is not known what place an item came from.
func (s *Store) Replace(key string, value []byte) {
	if k, err := s.needs.parse(key); err == nil && kinds[k.Kind] != nil {
		kinds[k.Kind].remove(&s.now, !s.owned[k.Kind], k)
		s.owned[k.Kind] = true
	}
	s.Put(key, value)
}

// Set takes an item and the place where the source has it, such as its key in etcd. An item without
// Key is a Problem of the place.
func (s *Store) Set(place string, item Item) {
	kind := kinds[item.Key.Kind]
	if kind != nil && (!kind.isRead(item.Key, s.node) ||
		item.Value != nil && !kind.isHere(item.Value, s.node)) {
		item = Item{}
	}
	if was, ok := s.places[place]; ok && was.key != item.Key {
		if item.Key == (Key{}) && item.Err != nil {
			item.Key = was.key // it cannot be told what it names
		} else {
			s.Delete(place)
		}
	}
	err := item.Err
	var waiting *Item
	at, known := s.at[item.Key]
	switch {
	case item.Value == nil && err == nil:
		s.Delete(place)
		return
	case known && at != place:
		if item.Value != nil {
			waiting = &item
		}
		err = fmt.Errorf("key: names the same as %s, which counts", at)
	case item.Value != nil:
		s.at[item.Key] = place
		before := s.slice(item.Key)
		if kind.put(&s.now, s.shared(item.Key.Kind), item.Key, item.Value) {
			s.note(item.Key, before)
		}
	case known:
		err = fmt.Errorf("%w (what it said before stays in use)", err)
	}
	p := placed{key: item.Key, name: item.Name, round: s.round, waiting: waiting}
	if err != nil {
		p.problem = shortened(err.Error())
	}
	was := s.places[place]
	if was.problem != p.problem {
		s.unsorted, s.changed = true, true
	}
	s.waiting += count(p.waiting) - count(was.waiting)
	s.places[place] = p
}

// shared reports whether snapshots have the map of a kind.
func (s *Store) shared(k Kind) bool { return !s.owned[k] && k != KindEndpointSlice }

// note says that an item is another than before.
func (s *Store) note(k Key, before EndpointSlice) {
	s.owned[k.Kind] = true
	if k.Kind == KindEndpointSlice {
		s.joinSlice(k.name(), before)
		return
	}
	s.changed = true
}

func count(waiting *Item) int {
	if waiting == nil {
		return 0
	}
	return 1
}

// Value returns what is known of an item; nil: nothing.
func (s *Store) Value(k Key) any {
	if kinds[k.Kind] == nil {
		return nil
	}
	return kinds[k.Kind].value(&s.now, k)
}

// Delete removes what is at place.
func (s *Store) Delete(place string) {
	p, there := s.places[place]
	if !there {
		return
	}
	delete(s.places, place)
	s.waiting -= count(p.waiting)
	if p.problem != "" {
		s.unsorted, s.changed = true, true
	}
	if at, known := s.at[p.key]; known && at == place {
		delete(s.at, p.key)
		kind := kinds[p.key.Kind]
		before := s.slice(p.key)
		kind.remove(&s.now, s.shared(p.key.Kind), p.key)
		s.note(p.key, before)
		s.succeed(p.key)
	}
}

// succeed has the first place that waits for k count.
func (s *Store) succeed(k Key) {
	if s.waiting == 0 {
		return
	}
	next := ""
	for place, p := range s.places {
		if p.waiting != nil && p.key == k && (next == "" || place < next) {
			next = place
		}
	}
	if next != "" {
		round := s.places[next].round // it has not been Set by a list
		s.Set(next, *s.places[next].waiting)
		p := s.places[next]
		p.round = round
		s.places[next] = p
	}
}

// BeginList begins a list, after which every existing item is Set. An aborted list needs no end and
// deletes nothing.
func (s *Store) BeginList() { s.round++ }

// EndList ends a complete list of the places under prefixes. It deletes what was not Set since
// BeginList.
func (s *Store) EndList(prefixes ...string) {
	for place, p := range s.places {
		if p.round != s.round && slices.ContainsFunc(prefixes, func(prefix string) bool {
			return strings.HasPrefix(place, prefix)
		}) {
			s.Delete(place)
		}
	}
}

// Changed reports whether the next Snapshot differs from the last in more than Revision, Lists and
// Endpoints that make no difference to what is announced.
func (s *Store) Changed() bool { return s.changed }

// Snapshot returns the current data, which are as of revision. It shares unchanged parts with
// earlier snapshots.
func (s *Store) Snapshot(revision int64) *Snapshot {
	s.changed, s.ownsEndpoints = false, false
	clear(s.owned)
	snap := s.now.Snapshot
	snap.Revision = revision
	cluster, readable := s.now.cluster["default"]
	snap.DatastoreNotReady, snap.CalicoVersion = cluster.NotReady, cluster.Version
	snap.Problems = s.sortedProblems()
	snap.ClusterInformation = readable || slices.ContainsFunc(snap.Problems, func(p Problem) bool {
		return s.places[p.Key].key == Key{Kind: KindClusterInformation, Name: "default"}
	})
	return &snap
}

func (s *Store) sortedProblems() []Problem {
	if !s.unsorted {
		return s.sorted
	}
	s.sorted, s.unsorted = nil, false
	for place, p := range s.places {
		if p.problem != "" {
			s.sorted = append(s.sorted, Problem{
				Resource: cmp.Or(p.name, p.key.Resource()), Key: place, Err: p.problem,
			})
		}
	}
	slices.SortFunc(s.sorted, func(a, b Problem) int { return cmp.Compare(a.Key, b.Key) })
	return s.sorted
}
