package fib

import (
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// syncer keeps the data plane equal to what selection wants: it writes the difference in batches,
// retries, adopts what an earlier process left, and finds drift. It has no goroutine, lock or
// clock: Engine guards it and carries out its batches. docs/fib.md has the states of an entry.
type syncer struct {
	*table
	facts route.Facts // newest, for others to read
	// interfaces are all of the last facts with an identity.
	interfaces []route.Interface
	// leadsOver reports whether a path set leads over one of these interfaces.
	leadsOver func(interfaces map[string]bool) bool
	// written is called with each key that was acknowledged.
	written func(route.Key)
	// watched is the source whose gains and losses are signalled (see Engine.Changed).
	watched sourceID

	// identity is the generation of the data plane that actual speaks of; adopted: actual has been
	// read for it; present: it can be written to now. present ⇒ adopted.
	identity         string
	generation       int // counts identities: answers from an earlier one are void
	adopted, present bool
	// complete: the source has set all that it wants, so what it left in an earlier run may go.
	// sweep: every source has.
	complete [numSources]bool
	sweep    bool

	puts      queue[queued]
	takeovers []*entry // whose owner changed without a write: the journal is to know
	// taking: what was set last is taken in part by part, and nothing is deleted meanwhile.
	taking bool
	// to be deleted, once all is selected: what is selected next may take their place
	leaving []queued
	deletes queue[deletion]
	objects objects
	// stale are routes over interfaces that were deleted and made again: they are deleted before
	// anything is put. VPP keeps a path whose interface was deleted as long as a route has it, and
	// uses it for each put of the same (src/vnet/fib/fib_path.c, "permanent drop state").
	stale queue[queued]
	// madeAnew are these interfaces. doubtAgain: one of the deletions came late, since it was
	// refused at first or waited for a look-up, and the same path may have been put meanwhile.
	madeAnew   map[string]bool
	doubtAgain bool

	retries  retries
	failures map[*entry]*failure
	// limits is Config.Attempts.
	limits map[route.Origin]int
	open   map[*entry]uint64 // of entries that are isOpen: the first revision that changed them
	delays delays
	flying []*batch  // in the order of their cutting, maxFlying at most
	pause  time.Time // no batch before: the last one broke off
	broken int       // batches in a row
	cuts   uint64    // counts batches

	adoptedLeft int // entries that are isAdopted
	// suspect are interfaces that are not what they were for adopted entries, or for what is to be
	// adopted; nil without any.
	suspect map[string]bool
	anew    map[string]bool // those of suspect that were made anew under their index
	// went are interfaces that have gone while routes over them may have been there.
	went    map[string]bool
	epoch   int  // counts changes of the meaning of interface names
	rewrite bool // the journal is to be written anew, if only for itself

	repairDrift bool
	spots       spots
	drifts      map[*entry]drift     // of entries that are isDrifted
	dead        map[string]uint32    // interfaces, and their generations, with dead paths on them
	shadows     map[*entry]string    // of entries that are isShadowed: by whom
	extras      map[route.Key]uint64 // digests of what audits found to be extra, and left alone
	// written since the audit began that is under way; nil: none is
	audited map[route.Key]struct{}

	counts           [numClasses][numSources][lastState + 1]int
	put, del, errors uint64
	refusal          error // of the op that was refused last
	howAdopted       string
	numAdopted       int
	drift            DriftStats
}

func newSyncer(t *table) *syncer {
	return &syncer{
		table:    t,
		failures: make(map[*entry]*failure),
		open:     make(map[*entry]uint64),
		delays:   delays{begun: make(map[uint64]*begun)},
		drifts:   make(map[*entry]drift),
		shadows:  make(map[*entry]string),
		extras:   make(map[route.Key]uint64),
		objects:  newObjects(),
	}
}

// counted is where an entry stands in syncer.counts.
type counted struct {
	state State
	by    sourceID
}

// route is what is wanted of the data plane; without want the key alone.
func (e *entry) route() route.Route {
	r := route.Route{Key: e.key()}
	if e.want != nil {
		r.Kind, r.Paths = e.want.kind, e.want.paths
	}
	return r
}

func (e *entry) wanted() uint64 {
	if e.want == nil {
		return 0
	}
	return e.want.digest
}

// deletion waits until the puts that were queued before it are on their way: nobody is to be
// without a path meanwhile.
type deletion struct {
	queued
	after uint64 // puts.taken must have reached this
}

// want takes what is wanted for e, nil: nothing, and by whom; waiting: what is there stays until
// that is known. The caller settles e afterwards.
func (s *syncer) want(e *entry, f *forward, by sourceID, waiting bool) {
	e.want, e.source = f, by
	e.mark(isWaiting, waiting)
	if e.want != nil && e.actual == e.want.digest && e.owner != e.source {
		s.leftChanged = s.leftChanged || e.owner == s.watched
		e.owner = e.source
		s.takeovers = append(s.takeovers, e)
	}
	if e.want != nil {
		s.adoptedLeads(e)
	}
	if e.want != nil && e.is(isAdopted) {
		if e.want.uses(s.suspect) {
			e.set(isUnsure)
		}
		if e.mayUse(s.anew) {
			e.set(isStale)
		}
		s.known(e)
	}
}

type need uint8

const (
	needNothing need = iota
	needPut
	needDelete
)

// need says what separates e from what is wanted, whether or not it may be done now.
func (s *syncer) need(e *entry) need {
	switch unsure := e.is(isUnsure); {
	case !s.adopted || e.is(isWaiting|isGone|isDirty): // dirty: what is wanted is not known yet
		return needNothing
	case e.want != nil && e.is(isStale) && (unsure || e.actual != 0):
		return needDelete
	case e.want != nil:
		if (unsure || e.actual != e.want.digest) && !s.isBarred(e) {
			return needPut
		}
	case unsure || e.actual != 0:
		// All is known about a prefix that is wanted under its other source: nothing is left to be
		// ignorant of.
		replaced, now := s.replaces(s.counterpart(e))
		if replaced && now || !replaced && !s.isHeld(e) && !s.isNeeded(e) {
			return needDelete
		}
	}
	return needNothing
}

// Of the two entries of a prefix, elevated and not, selection wants one, and the other is on its
// way out. It goes when the data plane has taken the wanted one, or has refused it. Where the
// wanted one recurses it is the other way round, with no route of ours in between: VPP 25.10
// crashes when two of its sources have a recursive route for one prefix.

// replaces reports whether e is to be there instead of its counterpart, and whether that can go
// now: e is there, was refused, or needs the place.
func (s *syncer) replaces(e *entry) (yes, now bool) {
	switch {
	case e == nil, e.want == nil && !e.is(isWaiting):
		return false, false
	case e.is(isWaiting):
		return true, false
	}
	return true, s.failures[e] != nil || e.recurses() ||
		e.actual == e.want.digest && !e.is(isUnsure)
}

func (e *entry) recurses() bool {
	return e.want != nil &&
		slices.ContainsFunc(e.want.paths, func(p route.Path) bool { return p.Interface == "" })
}

// isBarred reports whether e must not be put yet because of its counterpart, or of objects.
func (s *syncer) isBarred(e *entry) bool {
	if o := s.objectOf(e); o != nil {
		return s.isObjectBarred(o)
	}
	if s.awaitsObject(e) {
		return true
	}
	other := s.counterpart(e)
	return other != nil && (other.actual != 0 || other.is(isUnsure|isFlying)) && e.recurses()
}

// settle queues what e needs, and what its counterpart needs that may have waited for it.
func (s *syncer) settle(e *entry) {
	other := s.counterpart(e)
	s.settleAlone(e)
	if other != nil {
		s.settleAlone(other)
	}
}

// settleAlone queues what e needs, keeps the counts, and forgets e when nothing is left of it.
func (s *syncer) settleAlone(e *entry) {
	if e.is(isGone) {
		return
	}
	failure := s.failures[e]
	if failure != nil && failure.digest != e.wanted() {
		delete(s.failures, e) // what is wanted now is tried at once
		failure = nil
	}
	if need := s.need(e); !e.is(isFlying) && !failure.holds(s.now) {
		switch {
		case need == needPut && !e.is(inPuts):
			e.set(inPuts)
			if e.isObject() {
				s.objects.puts.push(s.queuedNow(e))
			} else {
				s.puts.push(s.queuedNow(e))
			}
		case need == needDelete && !e.is(inDeletes):
			e.set(inDeletes)
			if e.is(isStale) {
				s.stale.push(s.queuedNow(e))
			} else {
				s.leaving = append(s.leaving, s.queuedNow(e))
			}
		}
	}
	s.account(e)
	s.closeIfSettled(e)
	if e.first == nil && e.want == nil && e.actual == 0 && !e.is(isUnsure|isFlying|isWaiting) {
		s.count(e, -1)
		delete(s.failures, e)
		s.close(e)
		if e.isObject() {
			s.forgetObject(e)
			return
		}
		s.stopWaiting(e)
		if s.forget(e) {
			s.settleLeaving() // the table may go
		}
	}
}

// settleAll has every route decided and compared again.
func (s *syncer) settleAll() {
	for _, e := range slices.Clone(s.all) {
		s.markDirty(e)
	}
}

// allowSweep ends the time in which what was adopted of one source and is not wanted is held; of
// unknownSource: all routes.
func (s *syncer) allowSweep(source sourceID) {
	if s.complete[source] {
		return
	}
	s.complete[source], s.leftChanged = true, true
	s.settleObjects()
	if !s.sweep {
		s.sweep = source == unknownSource
		if s.adoptedLeft > 0 { // else nothing is held
			s.settleAll()
		}
	}
}

// isHeld reports whether e is kept although it was not wanted in this process yet. The source of an
// object is waited for, be it for ever; where no journal names it, for all of them.
func (s *syncer) isHeld(e *entry) bool {
	return e.is(isAdopted) && !s.complete[e.owner] && (!s.sweep || e.isObject())
}

// isChoosing reports whether more may be wanted soon than is now.
func (s *syncer) isChoosing() bool { return s.taking || len(s.dirty) > 0 }

// waiting is how many entries wait for their op to be cut, and may have it now.
func (s *syncer) waiting() int {
	n := s.stale.len() + s.objects.puts.len() + s.puts.len()
	if !s.taking {
		n += len(s.leaving) + s.deletes.len() + s.objects.deletes.len()
	}
	return n
}

// queued is how many entries wait for their op, or are in flight.
func (s *syncer) queued() int {
	n := s.waiting()
	for _, b := range s.flying {
		n += len(b.ops)
	}
	return n
}

func (s *syncer) stateOf(e *entry) State {
	switch {
	case e.want != nil && s.failures[e] != nil:
		return Failed
	case e.want != nil && e.actual == e.want.digest && e.is(isDrifted):
		return Drifted
	case e.want != nil && e.actual == e.want.digest && !e.is(isUnsure):
		if e.is(isShadowed) {
			return Shadowed
		}
		return Programmed
	case e.want != nil && e.is(isForeign):
		return Shadowed
	case e.want != nil, e.is(isWaiting):
		return Pending
	case e.is(isWanted):
		return Unusable
	case s.isHeld(e):
		return Held
	case e.actual == 0 && !e.is(isUnsure|isFlying):
		return Any
	}
	return Deleting
}

// account moves e to where it belongs in the counts.
func (s *syncer) account(e *entry) {
	after := counted{s.stateOf(e), e.source}
	before := e.counted
	if after == before {
		return
	}
	if before.state != after.state {
		e.since = uint32(s.now.Unix())
	}
	s.count(e, -1)
	e.counted = after
	s.count(e, 1)
	const external = sourceID(route.External)
	s.externalChanged = s.externalChanged || before.by == external || after.by == external
	s.objects.changed = s.objects.changed || e.isObject()
	if (before.state.IsAcknowledged() || after.state.IsAcknowledged()) &&
		(before.by == s.watched || after.by == s.watched) {
		s.changed = true
	}
}

// Classes of entries that are counted apart.
const (
	classIPv4 = iota
	classIPv6
	classObject
	numClasses
)

func (s *syncer) count(e *entry, n int) {
	class := classIPv6
	switch {
	case e.isObject():
		class = classObject
	case e.packed.flags&keyIPv4 != 0:
		class = classIPv4
	}
	// state Any, not yet counted, is never read
	s.counts[class][e.counted.by][e.counted.state] += n
}
