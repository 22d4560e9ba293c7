package fib

import (
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// table is the FIB as wanted and as acknowledged. It has no goroutine and no lock, reads no clock and calls nobody: Engine guards it,
// feeds it and carries out its batches. What holds at any time:
//
//   - there is one entry for each key that a source wants or that is, or may be, in the data plane by us
//   - entry.actual changes only when the data plane has answered, or when its life ended
//   - an entry with actual 0 is neither isDrifted nor isShadowed
//   - entry.unsure: an op's outcome is not known, or what it named has changed its meaning: actual is a guess, the op is repeated
type table struct {
	now       time.Time // set by the caller before each call
	distances map[route.Origin]uint8

	facts      route.Facts // newest, for others to read
	own, peers []netip.Addr
	services   []netip.Prefix
	view       *view // of the last facts with an identity; nil before the first

	entries  map[route.Key]*entry
	all      []*entry // entry.index points here
	sets     pathSets
	hops     nextHops
	wishes   map[route.Origin]map[route.Key]struct{} // of SetRoutes, with what is held
	holds    map[route.Origin]*hold
	etcd     []route.Key               // the wishes of origin Etcd, sorted
	normal   [2]uint32                 // LOCAL_PREF of what is not elevated, of IPv4 and IPv6; 0: not known
	elevated map[netip.Prefix]struct{} // that BGP wants elevated
	covered  map[*entry]time.Time      // that stay although BGP covers them, and until when at least
	unsaid   bool                      // BGP has not told all that it knows

	following bool // somebody asks for outgoing

	suspects []*nextHop // unusable, not reported yet
	idle     []*nextHop // reported, but named by no path any more
	dirty    []*entry
	puts     queue[*entry]
	leaving  []*entry // to be deleted, once nothing is dirty: what is selected next may take their place
	deletes  queue[deletion]
	retries  retries
	flying   []*batch  // in the order of their cutting, maxFlying at most
	pause    time.Time // no batch before: the last one broke off
	broken   int       // batches in a row
	cuts     uint64    // counts batches
	options  []option  // scratch

	spots     spots
	recalls   recalls
	drifts    map[*entry]drift     // of entries that are isDrifted
	shadows   map[*entry]string    // of entries that are isShadowed: by whom
	extras    map[route.Key]uint64 // digests of what audits found to be extra, and left alone
	drift     DriftStats
	tuning    Tuning
	written   map[route.Key]struct{} // since the audit began that is under way; nil: none is
	tables    map[uint32]int         // entries in each table but 0
	tablesDue bool                   // the data plane is to be told which tables are in use
	tablesAt  time.Time              // but not before

	// identity is the life of the data plane that actual speaks of; adopted: actual has been read for it; present: it can be
	// written to now. present ⇒ adopted.
	identity         string
	life             int // counts identities: answers from an earlier one are void
	adopted, present bool
	sweep            bool
	numElevated      int             // entries that are elevated
	adoptedLeft      int             // entries that are isAdopted
	suspect          map[string]bool // interfaces that are not what they were for adopted entries, or for what is to be adopted; nil without any
	epoch            int             // counts changes of the meaning of interface names
	rewrite          bool            // the journal must be written anew before the next batch

	counts           [2][route.Etcd + 1][lastState + 1]int
	put, del, errors uint64
	refusal          error // of the op that was refused last
	lastSync         time.Time
	howAdopted       string
	numAdopted       int
	changed          bool // somebody wants to know
}

// entry is one key. There are a million of them: every field is paid for a million times.
type entry struct {
	key    route.Key
	first  *candidate
	want   *forward // nil: nothing to be there
	actual uint64   // digest of what the data plane has; 0: nothing
	fail   *failure
	since  int64 // of counted.state, unix nanoseconds
	index  int32
	origin route.Origin // of want, or of the candidate that was refused
	flags  flags
	counted
}

// counted is where an entry stands in table.counts.
type counted struct {
	state State
	by    route.Origin
}

type flags uint16

const (
	isDirty     flags = 1 << iota
	inPuts            // in table.puts
	inDeletes         // in table.deletes
	isFlying          // in table.flying
	isUnsure          // actual is a guess
	isAdopted         // from before this process, and nobody has wanted it yet
	isWaiting         // for a look-up: stays as it is
	isStatic          // carries next hops, see Cover.Carries
	isGone            // no longer in table.entries
	isDrifted         // in table.drifts: acknowledged, then found otherwise
	isShadowed        // in table.shadows: when it was looked up last, another's route went before it
	isForgotten       // in table.recalls, or being recalled
)

func (e *entry) is(f flags) bool { return e.flags&f != 0 }
func (e *entry) set(f flags)     { e.flags |= f }
func (e *entry) clear(f flags)   { e.flags &^= f }

func (e *entry) wanted() uint64 {
	if e.want == nil {
		return 0
	}
	return e.want.digest
}

// deletion waits until the puts that were queued before it are on their way: nobody is to be without a path meanwhile.
type deletion struct {
	entry *entry
	after uint64 // puts.taken must have reached this
}

func newTable(distances map[route.Origin]uint8) *table {
	return &table{
		distances: distances,
		entries:   make(map[route.Key]*entry),
		sets:      pathSets{byID: make(map[string]*pathSet)},
		hops:      nextHops{byKey: make(map[NextHop]*nextHop), answers: make(map[NextHop]route.Resolution), covered: make(map[NextHop]Cover)},
		wishes:    make(map[route.Origin]map[route.Key]struct{}),
		holds:     make(map[route.Origin]*hold),
		covered:   make(map[*entry]time.Time),
		elevated:  make(map[netip.Prefix]struct{}),
		drifts:    make(map[*entry]drift),
		shadows:   make(map[*entry]string),
		extras:    make(map[route.Key]uint64),
		tables:    make(map[uint32]int),
	}
}

func (t *table) entry(k route.Key) *entry {
	if e := t.entries[k]; e != nil {
		return e
	}
	return t.add(k)
}

func (t *table) add(k route.Key) *entry {
	e := &entry{key: k, index: int32(len(t.all))}
	t.entries[k] = e
	t.all = append(t.all, e)
	if k.Elevated {
		t.numElevated++
	}
	t.useTable(k, 1)
	return e
}

// wish sets what one origin wants for k, and returns it; paths nil and kind Via: nothing, and nil.
func (t *table) wish(k route.Key, origin route.Origin, kind route.Kind, paths []route.Path) *candidate {
	e := t.entries[k]
	nothing := kind == route.Via && len(paths) == 0
	if e == nil {
		if nothing {
			return nil
		}
		e = t.add(k)
	}
	var set *pathSet
	if !nothing && kind == route.Via {
		var isNew bool
		if set, isNew = t.sets.get(paths, origin.IsStatic()); isNew {
			t.track(set)
		}
	}
	at := &e.first
	for *at != nil && (*at).origin != origin {
		at = &(*at).next
	}
	c := *at
	switch {
	case c == nil && nothing, c != nil && !nothing && c.set == set && c.kind == kind:
		return c
	case nothing:
		*at = c.next
		t.leave(c)
		c = nil
	default:
		if c == nil {
			c = &candidate{entry: e, origin: origin}
			*at = c
		}
		t.leave(c)
		c.set, c.kind = set, kind
		if set != nil {
			set.add(c)
		}
	}
	t.touch(e)
	if t.view != nil {
		for _, hop := range slices.Clone(t.hops.inside(k)) {
			t.correct(hop)
		}
	}
	if origin != route.BGP && k.Table == 0 && k.Prefix.IsSingleIP() {
		t.placeAgain(k.Prefix)
	}
	return c
}

// leave takes c out of its path set and forgets the set with its last user.
func (t *table) leave(c *candidate) {
	s := c.set
	if s == nil {
		return
	}
	s.remove(c)
	c.set = nil
	if s.first == nil {
		delete(t.sets.byID, s.id)
		t.untrack(s)
	}
}

func (t *table) touch(e *entry) {
	if !e.is(isDirty) {
		e.set(isDirty)
		t.dirty = append(t.dirty, e)
	}
}

// learn is wish for what BGP says about a prefix in the default table.
func (t *table) learn(l learned) {
	if p, ok := route.Normalize(l.prefix); ok {
		t.place(p, l.paths, l.preference)
	}
}

// setKeys notes which keys origin wants.
func (t *table) setKeys(origin route.Origin, keys map[route.Key]struct{}) {
	t.wishes[origin] = keys
	if origin == route.Etcd {
		t.etcd = t.etcd[:0]
		for k := range keys {
			t.etcd = append(t.etcd, k)
		}
		slices.SortFunc(t.etcd, route.CompareKeys)
	}
}

// look computes what a path set means now; if that is not what it meant, its keys are to be selected again.
func (t *table) look(s *pathSet) {
	v := t.view.viable(s.paths, s.static)
	if s.seen != nil && slices.Equal(s.seen.paths, v.paths) {
		return
	}
	s.seen = v
	for c := s.first; c != nil; c = c.nextInSet {
		t.touch(c.entry)
	}
}

// lookAtAll is look for every set, after the view has changed.
func (t *table) lookAtAll() {
	for _, hop := range slices.Clone(t.hops.sorted) {
		t.cover(hop)
		t.judge(hop)
	}
	for _, s := range t.sets.byID {
		t.look(s)
	}
}

// selectDirty selects up to n dirty keys and reports whether there are more.
func (t *table) selectDirty(n int) bool {
	if t.view == nil {
		return false
	}
	done := 0
	for ; done < min(n, len(t.dirty)); done++ { // choosing one may make others dirty
		e := t.dirty[done]
		e.clear(isDirty)
		if !e.is(isGone) {
			t.choose(e)
		}
	}
	if t.dirty = t.dirty[done:]; len(t.dirty) == 0 {
		t.dirty = nil
	}
	return len(t.dirty) > 0
}

// waiting is how many entries wait for their op to be cut.
func (t *table) waiting() int { return t.puts.len() + len(t.leaving) + t.deletes.len() }

// queued is how many entries wait for their op, or are in flight.
func (t *table) queued() int {
	n := t.waiting()
	for _, b := range t.flying {
		n += len(b.ops)
	}
	return n
}

// choose selects for one key.
func (t *table) choose(e *entry) {
	covered, wasStatic := e.covers(), e.is(isStatic)
	c := t.holdCovered(e, t.selection(e))
	e.want, e.origin = c.forward, c.origin
	e.clear(isWaiting | isStatic)
	if c.waiting {
		e.set(isWaiting)
	}
	if e.want != nil && e.attached() {
		e.set(isStatic)
	}
	if e.want != nil && e.is(isAdopted) {
		if e.want.uses(t.suspect) {
			e.set(isUnsure)
		}
		t.known(e)
		t.forgotten(e)
	}
	if e.covers() != covered {
		t.touchEtcdInside(e.key)
	}
	if e.is(isStatic) != wasStatic {
		t.forgotten(e)
		for _, hop := range slices.Clone(t.hops.inside(e.key)) {
			t.correct(hop)
		}
	}
	t.settle(e)
}

func (t *table) selection(e *entry) choice {
	t.options = t.options[:0]
	for c := e.first; c != nil; c = c.next {
		o := option{Candidate: Candidate{Origin: c.origin, Kind: c.kind}}
		if c.set != nil {
			if c.set.seen == nil {
				c.set.seen = t.view.viable(c.set.paths, c.set.static)
			}
			o.Paths, o.viable = c.set.paths, c.set.seen
		}
		t.options = append(t.options, o)
	}
	if len(t.options) == 0 {
		return choice{}
	}
	return t.view.choose(e.key, t.options)
}

type need uint8

const (
	needNothing need = iota
	needPut
	needDelete
)

// need says what separates e from what is wanted, whether or not it may be done now.
func (t *table) need(e *entry) need {
	switch unsure := e.is(isUnsure); {
	case !t.adopted || e.is(isWaiting|isGone|isDirty): // dirty: nobody knows yet what is wanted
		return needNothing
	case e.want != nil:
		if (unsure || e.actual != e.want.digest) && !t.isBarred(e) {
			return needPut
		}
	case unsure || e.actual != 0:
		// BGP has told all about a prefix when it wants its twin: nothing is left to be ignorant of.
		replaced, now := t.twin(e).replaces()
		if replaced && now || !replaced && (!e.is(isAdopted) || t.sweep) {
			return needDelete
		}
	}
	return needNothing
}

// settle queues what e needs, and what its twin needs that may have waited for it.
func (t *table) settle(e *entry) {
	twin := t.twin(e)
	t.settleAlone(e)
	if twin != nil {
		t.settleAlone(twin)
	}
}

// settleAlone queues what e needs, keeps the counts, and forgets e when nothing is left of it.
func (t *table) settleAlone(e *entry) {
	if e.is(isGone) {
		return
	}
	if e.fail != nil && e.fail.digest != e.wanted() {
		e.fail = nil // a new wish is tried at once
	}
	if need := t.need(e); !e.is(isFlying) && (e.fail == nil || !t.now.Before(e.fail.next)) {
		switch {
		case need == needPut && !e.is(inPuts):
			e.set(inPuts)
			t.puts.push(e)
		case need == needDelete && !e.is(inDeletes):
			e.set(inDeletes)
			t.leaving = append(t.leaving, e)
		}
	}
	t.account(e)
	if e.first == nil && e.actual == 0 && !e.is(isUnsure|isFlying) {
		t.forget(e)
	}
}

func (t *table) forget(e *entry) {
	t.count(e, -1)
	last := t.all[len(t.all)-1]
	last.index = e.index
	t.all[e.index] = last
	t.all[len(t.all)-1] = nil
	t.all = t.all[:len(t.all)-1]
	delete(t.entries, e.key)
	delete(t.covered, e)
	if e.key.Elevated {
		t.numElevated--
	}
	t.useTable(e.key, -1)
	e.set(isGone)
}

func (t *table) stateOf(e *entry) State {
	switch {
	case e.want != nil && e.fail != nil:
		return Failed
	case e.want != nil && e.actual == e.want.digest && e.is(isDrifted):
		return Drifted
	case e.want != nil && e.actual == e.want.digest && !e.is(isUnsure):
		if e.is(isShadowed) {
			return Shadowed
		}
		return Programmed
	case e.want != nil, e.is(isWaiting), e.first != nil && t.view == nil:
		return Pending
	case e.first != nil:
		return Unusable
	case e.is(isAdopted) && !t.sweep:
		return Held
	}
	return Deleting
}

// account moves e to where it belongs in the counts.
func (t *table) account(e *entry) {
	after := counted{t.stateOf(e), e.origin}
	before := e.counted
	if after == before {
		return
	}
	if before.state != after.state {
		e.since = t.now.UnixNano()
	}
	t.count(e, -1)
	e.counted = after
	t.count(e, 1)
	if (isAcknowledged(before.state) || isAcknowledged(after.state)) && (before.by == route.Own || after.by == route.Own) {
		t.changed = true
	}
}

func (t *table) count(e *entry, n int) {
	family := 0
	if e.key.Prefix.Addr().Is6() {
		family = 1
	}
	t.counts[family][e.counted.by][e.counted.state] += n // state Any, not yet counted, is never read
}
