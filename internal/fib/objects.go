package fib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	soon    []*object // to be looked up at once
	looking *object   // one of them is being looked up
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
		s.objects.soon = append(s.objects.soon, o)
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
			if s.isLeaving(l) && x.Excludes(l.key) {
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

// voidLookUp: what a look-up or a listing that is under way finds of o does not count.
func (s *syncer) voidLookUp(o *object) {
	o.writes++
	if s.isListed(o.key) {
		s.objects.bulk.writes++
	}
}

// lose: o is not there any more, and if it comes back it is another's.
func (s *syncer) lose(o *object) {
	o.actual, o.problem = 0, nil
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
		if o.want != nil {
			if changed[o.key.Interface] {
				delete(s.failures, o.entry)
			}
			s.tryNow(o.entry)
			if !s.isListed(o.key) {
				s.objects.soon = append(s.objects.soon, o)
			}
		}
		s.settle(o.entry)
	}
	if len(changed) > 0 {
		s.listSoon()
	}
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

// nextObject returns the object to look up now, or nil and when to come again (zero: when something
// changes).
func (s *syncer) nextObject() (*object, time.Time) {
	x := &s.objects
	if !s.present {
		return nil, time.Time{}
	}
	for len(x.soon) > 0 {
		o := x.soon[0]
		if x.soon = x.soon[1:]; s.canLookUp(o) {
			x.looking = o
			return o, time.Time{}
		}
	}
	if x.held {
		x.held = false
		s.settleLeaving()
		return nil, s.now
	}
	if len(x.turn) == 0 {
		return nil, time.Time{}
	}
	if s.now.Before(x.next) {
		return nil, x.next
	}
	for range x.turn {
		x.cursor = (x.cursor + 1) % len(x.turn)
		if o := x.turn[x.cursor]; s.canLookUp(o) {
			return o, time.Time{}
		}
	}
	x.next = s.now.Add(objectInterval)
	return nil, x.next
}

// canLookUp: nothing about o, or what it needs, is open but whether it is there.
func (s *syncer) canLookUp(o *object) bool {
	f := s.failures[o.entry]
	for _, k := range o.needs {
		if n := s.objects.byKey[k]; n != nil && n.is(isFlying) {
			return false
		}
	}
	return o.want != nil && !f.holds(s.now) &&
		!o.is(isUnsure|isFlying|inPuts|inDeletes|isGone)
}

// lookedUp takes the answer of a look-up, if nothing was written meanwhile.
func (s *syncer) lookedUp(x spot) (lost bool) {
	o := x.object
	s.objects.looking = nil
	s.objects.next = s.now.Add(max(objectInterval/time.Duration(max(len(s.objects.turn), 1)),
		spotShare*x.took))
	if x.generation != s.generation || x.writes != o.writes || x.want != o.want ||
		!s.canLookUp(o) {
		s.reconsider(o)
		return false
	}
	if fmt.Sprint(o.problem) != fmt.Sprint(x.err) {
		s.objects.changed = true
		s.externalChanged = s.externalChanged || o.origin() == route.External
	}
	o.problem = x.err
	there := x.foundObject != nil && x.foundObject.Digest() == o.want.digest
	switch {
	case errors.As(x.err, &route.NotReadyError{}) && o.actual != 0:
		lost = true
		s.drop(o)
		o.problem = x.err
	case x.err != nil:
	case o.actual == 0:
		o.clear(isWaiting)
		foreign := x.foundObject != nil && !s.isOurs(x.foundObject.Key()) &&
			!(x.foundObject.Marked() && x.foundObject.Key() == o.key)
		if o.mark(isForeign, foreign); foreign {
			o.other = x.foundObject.Key()
			delete(s.failures, o.entry)
		}
	case !there:
		lost = true
		o.set(isUnsure)
		s.doubtRoutes(o)
	}
	s.settle(o.entry)
	if o.is(isForeign) {
		s.objects.written = true // others may need it
	}
	return lost
}

// isOurs reports whether we put what k names, so that it goes before what excludes it.
func (s *syncer) isOurs(k route.ObjectKey) bool {
	o := s.objects.byKey[k]
	return o != nil && o.actual != 0
}

// doubtRoutes: what was in a table went with it.
func (s *syncer) doubtRoutes(o *object) {
	t, err := route.TableOf(o.key)
	if err != nil || s.used[t.TableID] == 0 {
		return
	}
	for _, e := range slices.Clone(s.all) {
		if e.packed.tableID() == t.TableID && e.actual != 0 {
			e.set(isUnsure)
			s.settle(e)
		}
	}
}

// objectsWritten: b is done, and others may have waited for its objects.
func (s *syncer) objectsWritten(b *batch) {
	anew, lost := make(map[string]bool), make(map[endpointID]bool)
	for i, op := range b.objects {
		if o := s.objectOf(b.entries[i]); o != nil { // else it is gone
			s.reconsider(o)
			s.release(o)
			if s.isListed(op.key) {
				s.objects.bulk.writes++ // a listing from before this is void, too
			}
			if op.want != nil && b.isDone(i) {
				o.put = s.now
			}
		}
		if op.want != nil && op.before.unsure && b.isDone(i) && op.key.HasOwnPaths() {
			id, _ := endpointOf(op.key)
			lost[id] = true
		}
		if op.key.Kind == route.MadeLink && op.want != nil && op.before.digest != 0 &&
			b.isDone(i) {
			anew[op.key.Interface] = true
		}
		for _, o := range inOrder(s.needersOf(op.key)) {
			switch {
			case op.isNewLink() && b.isDone(i):
				o.clear(isWaiting) // nothing is on it yet
				s.voidLookUp(o)
			case op.want != nil:
				s.doubt(o)
			case b.isDone(i) && op.key.TakesAlong(o.key) && o.actual != 0:
				s.drop(o)
			}
			s.settle(o.entry) // it may have waited for this alone
		}
	}
	s.losePaths(lost)
	// The facts come later, and until then the routes would count as programmed.
	if len(anew) > 0 && s.mayLeadOver(anew) {
		s.doubtAll(anew, anew)
	}
	s.tryDependants(b)
	s.objects.written = s.objects.written || len(b.objects) > 0
}

// needersOf are the objects that need k, but for the many that are not there and wait for another
// one as well.
func (s *syncer) needersOf(k route.ObjectKey) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for o := range s.objects.needers[k] {
			waits := s.isListed(o.key) && o.want != nil && o.actual == 0 &&
				!o.is(isUnsure|isFlying) && s.obstacle(o) != route.ObjectKey{}
			if !waits && !yield(o) {
				return
			}
		}
	}
}

// tryDependants has what was refused tried again if it needs an object that b has put.
func (s *syncer) tryDependants(b *batch) {
	put := make(map[route.ObjectKey]bool)
	for i, op := range b.objects {
		if op.want != nil && b.isDone(i) {
			put[op.key] = true
		}
	}
	if len(put) == 0 {
		return
	}
	s.tryAgain(func(e *entry) bool {
		if o := s.objectOf(e); o != nil {
			return slices.ContainsFunc(o.needs, func(k route.ObjectKey) bool { return put[k] })
		}
		return slices.ContainsFunc(s.objectsFor(e), func(o *object) bool { return put[o.key] })
	})
}

// isPreparing reports whether objects that others may need are being written, or looked up before
// that.
func (s *syncer) isPreparing() bool {
	if !s.present {
		return false
	}
	next := s.objects.looking
	if next == nil && len(s.objects.soon) > 0 {
		next = s.objects.soon[0]
	}
	if next != nil && !s.stateOf(next.entry).IsAcknowledged() {
		return true
	}
	for _, b := range s.flying {
		for _, op := range b.objects {
			if len(s.objects.needers[op.key]) > 0 {
				return true
			}
		}
	}
	return false
}

// doubt: what is known of o is from before an object that it needs was written.
func (s *syncer) doubt(o *object) {
	switch {
	case o.is(isFlying):
	case o.actual != 0:
		o.set(isUnsure)
	default:
		o.problem = nil
		s.voidLookUp(o)
		if o.is(isWaiting) {
			s.objects.soon = append(s.objects.soon, o)
		}
	}
}

func (e *Engine) lookUpObject(ctx context.Context, k route.ObjectKey) (route.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return e.dataplane.Object(ctx, k)
}

// objectOp is the op of a batch that is about an object.
type objectOp struct {
	key    route.ObjectKey
	want   route.Object // nil: to be deleted
	before record       // what is there
}

// isNewLink reports whether o makes an interface where there was none of ours.
func (o objectOp) isNewLink() bool {
	return o.key.Kind == route.MadeLink && o.want != nil && o.before.digest == 0 && !o.before.unsure
}

func (o objectOp) carryOut(ctx context.Context, d Dataplane) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	if o.want == nil {
		return d.DeleteObject(ctx, o.key)
	}
	return d.PutObject(ctx, o.want)
}

// applyObjects carries out the ops from first to last, which are about objects.
func (e *Engine) applyObjects(ctx context.Context, b *batch, first, last int) {
	for i := first; i < last && ctx.Err() == nil; i++ {
		if n := e.applyMany(ctx, b, i, last); n > 0 {
			i += n - 1
			continue
		}
		op := b.objects[i]
		err := op.carryOut(ctx, e.dataplane)
		b.result(i, err)
		switch {
		case err != nil:
			e.log.Warn("object refused", "object", op.key.String(), "err", err)
		case op.want != nil:
			e.log.Info("object set", "object", op.key.String())
		default:
			e.log.Info("object removed", "object", op.key.String())
		}
	}
}

// ObjectsChanged is signalled (size one) when the facts changed, or how an object stands. There is
// one reader.
func (e *Engine) ObjectsChanged() <-chan struct{} { return e.objectsChanged }

// Objects lists the objects that are wanted, held or being deleted, by key.
func (e *Engine) Objects() []Entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.showObjects(maps.Values(e.sync.objects.byKey))
}

// Endpoints lists those of Objects that are endpoints of tunnels.
func (e *Engine) Endpoints() []Entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.showObjects(maps.Values(e.sync.objects.endpoints.byID))
}

func (e *Engine) showObjects(all iter.Seq[*object]) (out []Entry) {
	for o := range all {
		out = append(out, e.showObject(o))
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return route.CompareObjectKeys(a.Object, b.Object)
	})
	return out
}

// FindObject returns how an object stands; State Any: nothing is known of it.
func (e *Engine) FindObject(k route.ObjectKey) Entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.sync.objects.byKey[k]; o != nil {
		return e.showObject(o)
	}
	return Entry{Object: k}
}

func (e *Engine) showObject(o *object) Entry {
	out := Entry{
		Object: o.key, State: e.sync.stateOf(o.entry), Origin: o.origin(),
		Since: time.Unix(int64(o.since), 0),
	}
	if o.is(isForeign) {
		out.By = o.other.String()
	}
	if out.State == Pending && !o.is(isWaiting) { // else it may be another program's
		if k := e.sync.obstacle(o); k != (route.ObjectKey{}) {
			out.Error = "waits for " + k.String()
		}
	}
	if o.problem != nil {
		out.Error, out.Unread = o.problem.Error(), !errors.Is(o.problem, route.ErrNoLink)
	}
	if f := e.sync.failures[o.entry]; f != nil {
		out.Error, out.Attempts, out.GivenUp = f.err.Error(), f.attempts, f.givenUp
		if errors.Is(f.err, route.ErrNoLink) || errors.As(f.err, &route.NotReadyError{}) {
			out.State = Pending // it waits for something that its key does not name
		}
	}
	return out
}
