package fib

import (
	"hash/maphash"
	"time"

	"vpp-route-agent/internal/route"
)

// table holds the keys that selection and sync share, one entry for each key that a source wants or
// that is, or may be, in the data plane by us. Engine guards it, selection and sync together.
type table struct {
	now time.Time // set by Engine before each call of an owner
	// recorder is Config.Recorder. received is when that came which is being worked through.
	recorder Recorder
	received Moment
	isTold   bool // recorder was, since all was decided
	changed  bool // Engine.Changed is to be signalled
	// externalChanged: Engine.ExternalChanged is.
	externalChanged bool

	keyIndex
	dirty       []dirtyEntry // to be selected
	numElevated int
	used        map[route.TableID]int // entries in each table (VRF) but 0
	lengths     [lengths]int          // entries of each, in all tables
	// adoptedOwn are entries of this node's own that were adopted, for the recorder; leftChanged:
	// which of them are left, see noteLeft.
	adoptedOwn  []*entry
	leftChanged bool
}

// entry is one key: what selection decided, and what sync knows of the data plane. There are a
// million of them, so every field is paid for a million times.
type entry struct {
	packed packedKey

	// Of selection. A prefix that BGP wants elevated is selected at its normal key; desired and
	// origin are then those of its elevated counterpart.
	first *candidate
	want  *forward // desired; nil: nothing

	// Of sync.
	actual uint64 // digest of what the data plane has; 0: nothing
	since  uint32 // of counted.state, unix time
	index  int32  // in table.all
	flags  flags
	source sourceID // of selection: of want, or of the candidate that was refused
	owner  sourceID // of sync: the source that actual is from
	counted
}

// dirtyEntry is to be selected, because of what came at that moment.
type dirtyEntry struct {
	*entry
	received Moment
}

// sourceID identifies who wants something. Sync compares sources and counts by them; what they are
// is the business of selection, which numbers them as route.Origin does. The journal keeps numbers.
type sourceID uint8

const unknownSource sourceID = 0

type flags uint16

const (
	// Set by selection:
	isDirty   flags = 1 << iota // in table.dirty
	isWaiting                   // for a look-up: stays as it is
	isWanted                    // by a source, even if nothing can be programmed
	isStatic                    // carries next hops, see Cover.Carries
	// Set by sync:
	inPuts     // in syncer.puts
	inDeletes  // in syncer.leaving, syncer.deletes or syncer.stale
	isFlying   // in syncer.flying
	isUnsure   // actual is a guess
	isAdopted  // from before this process, and not wanted yet
	isDrifted  // in syncer.drifts: acknowledged, then found otherwise
	isShadowed // in syncer.shadows: when it was looked up last, another's route went before it
	isForeign  // an object that is there by another's doing, and not in actual
	isOpen     // in syncer.open: a Set changed it, and that is not settled yet
	isGone     // no longer in table.all
	// what is there has to go before anything is put, see syncer.stale
	isStale
	isLate // of isStale: it waited for a look-up, and others were put meanwhile
)

func (e *entry) key() route.Key { return e.packed.unpack() }

func (e *entry) is(f flags) bool { return e.flags&f != 0 }
func (e *entry) set(f flags)     { e.flags |= f }
func (e *entry) clear(f flags)   { e.flags &^= f }

func (e *entry) mark(f flags, yes bool) {
	if yes {
		e.set(f)
	} else {
		e.clear(f)
	}
}

func newTable() *table {
	return &table{keyIndex: keyIndex{seed: maphash.MakeSeed()}, used: make(map[route.TableID]int)}
}

func (t *table) get(k route.Key) *entry { return t.find(packKey(k)) }

// entry returns the entry of k, and makes one if there is none.
func (t *table) entry(k route.Key) *entry {
	if e := t.get(k); e != nil {
		return e
	}
	e := &entry{packed: packKey(k)}
	t.add(e)
	t.lengths[lengthOf(k, k.Prefix.Bits())]++
	if k.Elevated {
		t.numElevated++
	}
	if k.Table != 0 {
		t.used[e.packed.tableID()]++
	}
	return e
}

// counterpart returns the entry of the same prefix that is elevated where e is not, or the other
// way round; nil: there is none.
func (t *table) counterpart(e *entry) *entry {
	if t.numElevated == 0 {
		return nil
	}
	other := e.packed
	other.flags ^= keyElevated
	return t.find(other)
}

// markDirty has a prefix selected again, and compared with the data plane. Both entries of it stay
// as they are until then.
func (t *table) markDirty(e *entry) {
	for _, x := range [...]*entry{e, t.counterpart(e)} {
		if x != nil && !x.is(isDirty) {
			x.set(isDirty)
			t.dirty = append(t.dirty, dirtyEntry{x, t.received})
		}
	}
}

// forget removes an entry that neither owner needs, and reports whether it was the last in its
// table, unless that is table 0.
func (t *table) forget(e *entry) (last bool) {
	t.remove(e)
	k := e.key()
	t.lengths[lengthOf(k, k.Prefix.Bits())]--
	if e.packed.flags&keyElevated != 0 {
		t.numElevated--
	}
	e.set(isGone)
	if e.packed.table == 0 {
		return false
	}
	id := e.packed.tableID()
	if t.used[id]--; t.used[id] == 0 {
		delete(t.used, id)
		return true
	}
	return false
}
