package fib

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// Objects are what a data plane is to have besides routes. They are entries of the same syncer:
// batches, acknowledgement, retry, journal, adoption and sweep are those of routes. Objects are
// few, so each is looked up before it is put, and in rotation: what is there already is another's,
// and is neither written nor deleted.

const (
	// objectInterval is how long a rotation over all objects takes, at least.
	objectInterval = time.Second
	// settleCost is the least time from one look at all waiting objects to the next, per object
	// beyond fewObjects: there may be 100 000, which are written one by one.
	settleCost = 10 * time.Microsecond
	fewObjects = 100
	// objectTimeout bounds an operation on a data plane that hangs.
	objectTimeout = 10 * time.Second
	// factsDelay bounds how much later than an acknowledgement facts may come that are from before
	// it.
	factsDelay = 10 * time.Second
)

// object is what an entry stands for that is not a route's.
type object struct {
	*entry
	key     route.ObjectKey
	number  uint64            // by which objects are in order: a later one has a higher
	needs   []route.ObjectKey // of what was wanted last
	writes  uint64            // ops cut: look-ups from before them are void
	put     time.Time         // acknowledged last, by this agent
	pass    uint64            // the last of beginObjects in which a source wanted it
	found   bool              // an interface of ours, and no journal tells what of ours is on it
	isSoon  bool              // it is in objects.soon
	isAgain bool              // it is in objects.again
	problem error             // why it could not be looked up
	other   route.ObjectKey   // what is there instead, of isForeign
	// waiting are routes that are not put before this table or endpoint is there.
	waiting map[*entry]struct{}
}

// objects is the part of syncer that knows keys of objects.
type objects struct {
	byKey   map[route.ObjectKey]*object
	byEntry map[*entry]*object
	numbers uint64               // the last of object.number
	leaving map[*object]struct{} // there, or perhaps, and not wanted
	needers map[route.ObjectKey]map[*object]struct{}

	// written: objects that waited for others may go on now; settled: when all were last looked at.
	written bool
	settled time.Time

	tables    map[route.TableID]*object // those that are wanted
	endpoints endpoints
	bulk      bulk
	awaited   map[*entry]*object // what a route waits for: it is in waiting there

	puts    queue[queued]
	deletes queue[deletion]
	lost    []record // that the journal is to know

	changed bool   // Engine.ObjectsChanged is to be signalled
	pass    uint64 // counts beginObjects

	soon    []*object // to be looked up at once: they may be put then
	looking *object   // one of them is being looked up
	again   []*object // to be looked up after those: interfaces have changed
	held    bool      // a deletion waits until all of them were
	turn    []*object // the rotation: those that are wanted, but for bulk.wanted
	cursor  int       // in turn
	next    time.Time // look-up of the rotation
}

func (x *objects) all() []*object { return inOrder(maps.Values(x.byKey)) }

func (x *objects) where(is func(*object) bool) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for _, o := range x.byKey {
			if is(o) && !yield(o) {
				return
			}
		}
	}
}

// inOrder has the same order in each run, and costs less than that of the keys.
func inOrder(all iter.Seq[*object]) []*object {
	return slices.SortedFunc(all, func(a, b *object) int { return cmp.Compare(a.number, b.number) })
}

func newObjects() objects {
	return objects{
		byKey: make(map[route.ObjectKey]*object), byEntry: make(map[*entry]*object),
		leaving: make(map[*object]struct{}), awaited: make(map[*entry]*object),
		needers:   make(map[route.ObjectKey]map[*object]struct{}),
		endpoints: newEndpoints(),
		bulk:      bulk{slice: shortBatch},
	}
}

func (e *entry) isObject() bool { return e.packed.flags&keyObject != 0 }

// objectOf returns nil for a route.
func (s *syncer) objectOf(e *entry) *object {
	if !e.isObject() {
		return nil
	}
	return s.objects.byEntry[e]
}

// object returns the object of that key, and makes one if there is none.
func (s *syncer) object(k route.ObjectKey) *object {
	o := s.objects.byKey[k]
	if o == nil {
		s.objects.numbers++
		o = &object{entry: &entry{packed: packedKey{flags: keyObject}}, key: k,
			number: s.objects.numbers}
		s.objects.byKey[k], s.objects.byEntry[o.entry] = o, o
		if id, ok := endpointOf(k); ok {
			s.objects.endpoints.on, s.objects.endpoints.byID[id] = true, o
		}
		if s.isListed(k) {
			s.objects.bulk.known++
		}
	}
	return o
}

func (s *syncer) forgetObject(e *entry) {
	o := s.objectOf(e)
	s.setNeeds(o, nil)
	delete(s.objects.byEntry, e)
	delete(s.objects.byKey, o.key)
	if id, ok := endpointOf(o.key); ok {
		delete(s.objects.endpoints.byID, id)
	}
	if s.isListed(o.key) {
		s.objects.bulk.known--
	}
	delete(s.objects.leaving, o)
	e.set(isGone)
}

// beginObjects takes what all sources want, but for objects that may be many: takeMany goes on with
// those, part by part, while what they need is on its way. Of two sources that want one object the
// first has it.
func (s *syncer) beginObjects(sources *[numSources]Source, revision uint64) {
	x := &s.objects
	changed := false
	tables, before := x.tables, x.turn
	x.tables, x.turn = make(map[route.TableID]*object), nil
	x.pass++
	x.bulk.begin(revision)
	for i, source := range sources {
		for _, w := range source.Objects {
			if _, many := w.(route.Endpoint); many && x.bulk.provided {
				x.bulk.intake.todo = append(x.bulk.intake.todo, wantedObject{w, sourceID(i)})
				continue
			}
			o := s.object(w.Key())
			if o.pass == x.pass {
				continue
			}
			o.pass = x.pass
			x.turn = append(x.turn, o)
			if t, ok := w.(route.Table); ok {
				x.tables[t.TableID] = o
			}
			changed = s.wantAnew(o, w, sourceID(i), revision) || changed
		}
	}
	changed = s.dropObjects(before, revision) || changed
	if changed { // they wait for one another
		for _, o := range x.turn {
			s.settle(o.entry)
		}
		s.settleLeaving()
	}
	for t, o := range tables {
		if x.tables[t] != o {
			s.release(o)
		}
	}
}

// wantAnew takes what is wanted of o, and reports whether that has changed.
func (s *syncer) wantAnew(o *object, w route.Object, by sourceID, revision uint64) (isNew bool) {
	s.setNeeds(o, w.Needs())
	if o.want != nil && o.want.digest == w.Digest() && o.source == by {
		return false
	}
	s.wantObject(o, &forward{digest: w.Digest(), object: w}, by, revision)
	return true
}

// dropObjects: what no source wants any more of those that were wanted before may go.
func (s *syncer) dropObjects(before []*object, revision uint64) (dropped bool) {
	var gone []*object
	for _, o := range before {
		if o.pass != s.objects.pass && o.want != nil {
			s.wantObject(o, nil, unknownSource, revision)
			gone = append(gone, o)
		}
	}
	for _, o := range gone {
		s.settle(o.entry)
	}
	return len(gone) > 0
}

func (s *syncer) setNeeds(o *object, needs []route.ObjectKey) {
	if slices.Equal(o.needs, needs) {
		return
	}
	for _, k := range o.needs {
		if delete(s.objects.needers[k], o); len(s.objects.needers[k]) == 0 {
			delete(s.objects.needers, k)
		}
	}
	for _, k := range needs {
		if s.objects.needers[k] == nil {
			s.objects.needers[k] = make(map[*object]struct{})
		}
		s.objects.needers[k][o] = struct{}{}
	}
	o.needs = needs
}

// awaitsObject reports whether a table or an endpoint that e needs is not there yet, and has e
// settled when it is. Nothing is known of one that no source wants: the data plane may refuse the
// route.
func (s *syncer) awaitsObject(e *entry) bool {
	for _, o := range s.objectsFor(e) {
		if s.stateOf(o.entry) == Programmed {
			continue
		}
		s.stopWaiting(e)
		if o.waiting == nil {
			o.waiting = make(map[*entry]struct{})
		}
		o.waiting[e], s.objects.awaited[e] = struct{}{}, o
		return true
	}
	return false
}

// objectsFor returns the tables that e is in or leads into, and the endpoints that it leads
// through, of those that are wanted.
func (s *syncer) objectsFor(e *entry) (all []*object) {
	if all = s.endpointsFor(e); len(s.objects.tables) == 0 {
		return all
	}
	id := e.packed.tableID()
	if o := s.objects.tables[id]; o != nil {
		all = append(all, o)
	}
	for _, p := range e.want.paths {
		id.ID = p.Table
		if o := s.objects.tables[id]; o != nil && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

func (s *syncer) stopWaiting(e *entry) {
	if o := s.objects.awaited[e]; o != nil {
		delete(o.waiting, e)
		delete(s.objects.awaited, e)
	}
}

// release has the routes that wait for o compared again.
func (s *syncer) release(o *object) {
	for _, e := range slices.Collect(maps.Keys(o.waiting)) {
		s.stopWaiting(e)
		s.settle(e)
	}
}

func (s *syncer) wantObject(o *object, f *forward, by sourceID, revision uint64) {
	s.reopen(o.entry, revision)
	o.clear(isForeign)
	s.want(o.entry, f, by, false)
	s.reconsider(o)
}

// reconsider: what is wanted of o, or known to be there, has changed.
func (s *syncer) reconsider(o *object) {
	delete(s.objects.leaving, o)
	there := o.actual != 0 || o.is(isUnsure)
	o.mark(isWaiting, o.want != nil && !there && !o.is(isForeign) && !s.isListed(o.key))
	if o.want == nil && there {
		s.objects.leaving[o] = struct{}{}
	}
	if o.is(isWaiting) {
		s.lookUpSoon(o)
	}
}

func (s *syncer) lookUpSoon(o *object) {
	if !o.isSoon {
		o.isSoon = true
		s.objects.soon = append(s.objects.soon, o)
	}
}

// lookUpAgain is for what is there, or is another's. Deletions do not wait for these look-ups:
// there may be thousands, and interfaces may change again before the last of them.
func (s *syncer) lookUpAgain(o *object) {
	if !o.isAgain {
		o.isAgain = true
		s.objects.again = append(s.objects.again, o)
	}
}

// settleWaiting has the objects settled that wait for what was written, or returns when to.
func (s *syncer) settleWaiting() time.Time {
	if !s.objects.written {
		return time.Time{}
	}
	beyond := max(len(s.objects.byKey)-fewObjects, 0)
	if due := s.objects.settled.Add(time.Duration(beyond) * settleCost); s.now.Before(due) {
		return due
	}
	s.settleObjects()
	return time.Time{}
}

// settleObjects: objects wait for one another.
func (s *syncer) settleObjects() {
	s.objects.written, s.objects.settled = false, s.now
	for _, all := range [...][]*object{s.objects.turn, s.objects.bulk.wanted} {
		for _, o := range all {
			if s.stateOf(o.entry) != Programmed {
				s.settle(o.entry)
			}
		}
	}
	s.settleLeaving()
}

func (s *syncer) settleLeaving() {
	for _, o := range inOrder(maps.Keys(s.objects.leaving)) {
		s.settle(o.entry)
	}
}

// isObjectBarred reports whether o must not be put now.
func (s *syncer) isObjectBarred(o *object) bool {
	return o.is(isForeign) || s.isUntaken(o) || s.obstacle(o) != route.ObjectKey{}
}

// obstacle returns an object that o waits for: one that it needs is not there yet, or is another
// program's interface which we want to make ourselves, or one that it excludes is there still.
func (s *syncer) obstacle(o *object) route.ObjectKey {
	for _, k := range o.needs {
		n := s.objects.byKey[k]
		if n != nil && n.want != nil && (!s.stateOf(n.entry).IsAcknowledged() ||
			n.is(isForeign) && k.TakesAlong(o.key)) {
			return k
		}
	}
	if x, ok := o.want.object.(route.Excluder); ok {
		for l := range s.objects.leaving {
			// An address would keep its interface in a table that it cannot leave yet.
			isLeaving := s.isLeaving(l) || l.key.Kind == route.InterfaceTable
			if isLeaving && x.Excludes(l.key) {
				return l.key
			}
		}
	}
	return route.ObjectKey{}
}

// isNeeded reports whether e must not be deleted now: an object or a route that needs it goes
// first, and what comes in its place comes first, so that a subnet that stays never lacks a route.
func (s *syncer) isNeeded(e *entry) bool {
	o := s.objectOf(e)
	if o == nil {
		return false
	}
	if o.key.Kind == route.VRFTable {
		if t, err := route.TableOf(o.key); err == nil && s.used[t.TableID] > 0 {
			return true
		}
	}
	if s.isLedThrough(o.key) {
		return true
	}
	if len(s.objects.soon) > 0 || s.objects.looking != nil {
		s.objects.held = true
		return true
	}
	for n := range s.objects.needers[o.key] {
		if s.isLeaving(n) {
			return true
		}
	}
	return false
}

// isLeaving reports whether o is about to go: it is not held until its source is complete, and the
// data plane does not refuse to delete it.
func (s *syncer) isLeaving(o *object) bool {
	_, leaving := s.objects.leaving[o]
	return leaving && s.failures[o.entry] == nil && !s.isHeld(o.entry)
}

// objectsAdopted: adoption has ended, so objects that were not found can be looked up.
func (s *syncer) objectsAdopted() {
	for _, o := range s.objects.all() {
		if o.want != nil && o.actual != 0 {
			s.want(o.entry, o.want, o.source, false)
		}
		s.reconsider(o)
	}
	for _, o := range s.objects.all() { // also those that are there as they are wanted
		s.settle(o.entry)
	}
}

// resetObjects: nothing is known about what is in the data plane.
func (s *syncer) resetObjects() {
	s.objects.puts, s.objects.deletes = queue[queued]{}, queue[deletion]{}
	s.objects.lost = nil
	for _, o := range s.objects.all() {
		o.clear(inPuts | inDeletes)
		s.lose(o)
	}
}

// lose: o is not there any more, and if it comes back it is another's.
func (s *syncer) lose(o *object) {
	o.actual, o.problem, o.found = 0, nil, false
	s.voidLookUp(o)
	o.clear(isUnsure | isAdopted | isForeign)
	s.reconsider(o)
	s.settle(o.entry)
}

// objectsOver takes new interfaces. An object went with its interface, unless we have made that
// anew, have put the object so lately that it may be on the new one, or it is an interface itself.
// All others are looked up, and what was refused is tried again: its reason may be gone.
func (s *syncer) objectsOver(changed map[string]bool) {
	for _, o := range inOrder(s.objects.where(func(o *object) bool {
		return !s.isListed(o.key) || s.failures[o.entry] != nil || changed[o.key.Interface] &&
			(o.actual != 0 || o.is(isUnsure|isFlying)) // else there is nothing to lose
	})) {
		switch {
		case !changed[o.key.Interface] || o.is(isFlying):
		case o.actual != 0 && (s.hasMade(o.key) || o.key.HasOwnPaths() ||
			o.want == nil && o.key.IsInterface() || s.now.Sub(o.put) < factsDelay):
			o.set(isUnsure)
		default:
			s.drop(o)
		}
		switch {
		case o.want == nil:
		case s.isTried(o):
			s.tryLater(o.entry)
		default:
			if changed[o.key.Interface] {
				delete(s.failures, o.entry)
			}
			s.tryNow(o.entry)
			switch {
			case s.isListed(o.key):
			case o.is(isWaiting):
				s.lookUpSoon(o)
			default:
				s.lookUpAgain(o)
			}
		}
		s.settle(o.entry)
	}
	if len(changed) > 0 {
		s.listSoon()
	}
}

// isTried reports whether o is an interface that is being made, or was refused so lately that
// interfaces may have changed because of it: one that is refused halfway comes and goes.
func (s *syncer) isTried(o *object) bool {
	f := s.failures[o.entry]
	return o.key.Kind == route.MadeLink && (o.is(isFlying) || f != nil &&
		s.now.Sub(f.at) < factsDelay && !errors.Is(f.err, route.ErrNoLink))
}

// hasMade reports whether k is on an interface that we have made.
func (s *syncer) hasMade(k route.ObjectKey) bool {
	link := s.objects.byKey[route.LinkKey(k.Interface)]
	return link != nil && link.key != k && s.stateOf(link.entry) == Programmed
}

// drop loses o, of which the journal knows.
func (s *syncer) drop(o *object) {
	s.objects.lost = append(s.objects.lost, record{object: &o.key})
	s.lose(o)
}
