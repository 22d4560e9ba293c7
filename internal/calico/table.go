package calico

import (
	"maps"
	"reflect"
	"strings"
)

// table holds the items of one kind. Its map is handed out as part of snapshots and then copied
// before it changes again.
type table[K comparable, V any] struct {
	items  map[K]V
	origin map[K]origin // invariant: same keys as items
	shared bool
}

// origin is where an item came from: the key, and the list round that has seen it last.
type origin struct {
	key   string
	round int
}

func newTable[K comparable, V any]() table[K, V] {
	return table[K, V]{items: map[K]V{}, origin: map[K]origin{}}
}

// put reports whether anything changed.
func (t *table[K, V]) put(id K, from origin, v V) bool {
	old, known := t.items[id]
	t.origin[id] = from
	if known && reflect.DeepEqual(old, v) {
		return false
	}
	t.unshare()
	t.items[id] = v
	return true
}

// delete removes id if it came from key, and reports whether it did.
func (t *table[K, V]) delete(id K, key string) bool {
	if t.origin[id].key != key {
		return false
	}
	t.unshare()
	delete(t.items, id)
	delete(t.origin, id)
	return true
}

// deleteUnseen removes what came from keys under prefix and was not seen in this list round.
func (t *table[K, V]) deleteUnseen(prefix string, round int) bool {
	changed := false
	for id, from := range t.origin {
		if from.round != round && strings.HasPrefix(from.key, prefix) {
			changed = t.delete(id, from.key) || changed
		}
	}
	return changed
}

func (t *table[K, V]) unshare() {
	if t.shared {
		t.items, t.shared = maps.Clone(t.items), false
	}
}

// share returns the items as they are now, for ever.
func (t *table[K, V]) share() map[K]V {
	t.shared = true
	return t.items
}
