package fib

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"vpp-route-agent/internal/route"
)

// record is one route or object of ours that was found, by its digest. unsure: it may be there, or
// something else, or nothing.
type record struct {
	key    route.Key
	object *route.ObjectKey // instead of key
	digest uint64
	owner  sourceID
	unsure bool
}

// isListedLink: r is an interface of which no journal tells.
func (r record) isListedLink() bool {
	return r.object != nil && r.object.Kind == route.MadeLink && r.owner == unknownSource
}

// adoption is what was found of ours in a data plane that we have not written to before in this
// process.
type adoption struct {
	generation int
	how        string // "journal" or "listing"
	count      int
	records    iter.Seq[record]
	interfaces meanings // to whoever wrote the records, or when the listing began
}

// observe takes new facts; isNew: with an identity that is not the one that actual speaks of. Then
// all that was known is void and the data plane is to be adopted: the caller does that when
// wantsAdoption says so.
func (s *syncer) observe(f route.Facts) (isNew bool) {
	away := s.facts.Identity == ""
	s.facts, s.changed, s.objects.changed = f, true, true
	if f.Identity == "" {
		s.present = false // what is wanted stays wanted
		return false
	}
	if isNew = f.Identity != s.identity; isNew {
		s.begin(f.Identity)
	} else {
		s.interfacesChanged(s.interfaces, f.AllInterfaces())
	}
	s.interfaces = f.AllInterfaces()
	if s.present = s.adopted; s.present && away {
		s.verify()
	}
	return isNew
}

// begin starts a new generation: nothing is known about what is in the data plane.
func (s *syncer) begin(identity string) {
	s.identity = identity
	s.generation++
	s.adopted, s.present, s.adoptedLeft, s.leftChanged = false, false, 0, true
	s.suspect, s.anew, s.madeAnew, s.doubtAgain = nil, nil, nil, false
	s.went, s.dead = nil, nil
	s.puts, s.leaving, s.deletes, s.retries = queue[queued]{}, nil, queue[deletion]{}, nil
	s.takeovers, s.stale = nil, queue[queued]{}
	s.spots.soon, s.spots.chase = nil, 0
	clear(s.failures)
	clear(s.drifts)
	clear(s.shadows)
	clear(s.extras)
	s.forgetLeads()
	for _, e := range slices.Backward(slices.Clone(s.all)) {
		e.actual = 0
		e.clear(isUnsure | isAdopted | inPuts | inDeletes | isDrifted | isShadowed | isStale |
			isLate)
		s.settle(e)
	}
	s.resetObjects()
}

func (s *syncer) wantsAdoption() bool {
	return s.identity != "" && s.facts.Identity == s.identity && !s.adopted
}

// adopt takes over what was found.
func (s *syncer) adopt(a adoption) {
	if a.generation != s.generation || s.adopted {
		return
	}
	s.adopted = true
	s.present = s.facts.Identity == s.identity
	s.changed = true
	s.howAdopted, s.numAdopted = a.how, a.count
	now := indexes(s.interfaces)
	changed := changedInterfaces(a.interfaces.toRoutes(), now)
	replaced := changedInterfaces(a.interfaces.toObjects(), now)
	maps.Copy(changed, s.suspect)
	maps.Copy(replaced, s.suspect)
	anew := make(map[string]bool)
	for name, m := range a.interfaces {
		if m.doubt == anewIndex {
			anew[name] = true
		}
	}
	s.anew, s.madeAnew = union(s.anew, anew), union(s.madeAnew, anew)
	for r := range a.records {
		var e *entry
		switch {
		case r.object == nil:
			e = s.entry(r.key)
			if !e.is(isAdopted) {
				s.adoptedLeft++
			}
		case replaced[r.object.Interface] && !s.isListed(*r.object) && !r.object.IsInterface():
			s.rewrite = true // what has its key later is not ours
			continue         // it went with its interface
		default: // of those that are listed all on ours are ours, and interfaces have our mark
			o := s.object(*r.object)
			e, o.found = o.entry, r.isListedLink()
			r.unsure = r.unsure || replaced[r.object.Interface]
		}
		e.actual, e.owner = r.digest, r.owner
		e.set(isAdopted)
		if e.owner == s.watched && r.object == nil && s.recorder != nil {
			s.adoptedOwn, s.leftChanged = append(s.adoptedOwn, e), true
		}
		if r.unsure {
			e.set(isUnsure)
		}
	}
	if s.suspect = nil; len(changed) > 0 && s.adoptedLeft > 0 {
		s.suspect = changed
	} else {
		s.anew = nil
	}
	if a.how == "journal" {
		s.verify()
	}
	s.objects.bulk.next = s.now.Add(listFirst)
	s.objectsAdopted()
	s.settleAll()
}

// known: e is no longer something that was merely found. With the last of them the doubt about
// interfaces ends, and the journal gets to know what is still unsure because of it.
func (s *syncer) known(e *entry) {
	if !e.is(isAdopted) {
		return
	}
	e.clear(isAdopted)
	if e.isObject() {
		return
	}
	s.leftChanged = s.leftChanged || e.owner == s.watched
	if s.adoptedLeft--; s.adoptedLeft == 0 && s.objects.endpoints.on {
		defer s.settleLeaving()
	}
	if s.adoptedLeft > 0 || s.suspect == nil {
		return
	}
	anew := s.anew
	s.suspect, s.anew, s.rewrite = nil, nil, true
	if len(anew) > 0 { // what was put meanwhile may have the path of one that led nowhere
		s.doubtOver(anew, anew)
	}
}

// Indexes that no interface has.
const (
	noIndex   = ^uint32(0)
	anewIndex = noIndex - 1 // of syncer.anew
)

// meanings are what the names of interfaces meant when records were written.
type meanings map[string]meaning

type meaning struct {
	index uint32 // noIndex: there was none
	// doubt, if not 0, is noIndex or anewIndex: adopted routes may lead over an earlier interface
	// of that name. Objects do not: those that were on it are not among the records.
	doubt uint32
}

func (m meanings) toRoutes() map[string]uint32 {
	return m.indexes(func(x meaning) uint32 { return cmp.Or(x.doubt, x.index) })
}

func (m meanings) toObjects() map[string]uint32 {
	return m.indexes(func(x meaning) uint32 { return x.index })
}

func (m meanings) indexes(of func(meaning) uint32) map[string]uint32 {
	out := make(map[string]uint32, len(m))
	for name, x := range m {
		out[name] = of(x)
	}
	return out
}

// meanings are what the journal is to say about interfaces. As long as there is an adopted entry
// that may go over an interface that has changed, the next process must doubt that interface too,
// whatever it finds under the name then.
func (s *syncer) meanings() meanings {
	out := make(meanings, len(s.interfaces))
	for _, i := range s.interfaces {
		out[i.Name] = meaning{index: i.Index}
	}
	for name := range s.suspect {
		m, ok := out[name]
		if !ok {
			m.index = noIndex
		}
		if m.doubt = noIndex; s.anew[name] {
			m.doubt = anewIndex
		}
		out[name] = m
	}
	return out
}

func indexes(interfaces []route.Interface) map[string]uint32 {
	out := make(map[string]uint32, len(interfaces))
	for _, i := range interfaces {
		out[i.Name] = i.Index
	}
	return out
}

// interfacesChanged: an interface that went, or came back under another index, took the paths over
// it along, though the routes look the same.
func (s *syncer) interfacesChanged(before, after []route.Interface) {
	was := indexes(before)
	changed := changedInterfaces(was, indexes(after))
	s.objectsOver(changed)
	anew := make(map[string]bool)
	for _, i := range before {
		j, ok := (route.Facts{Interfaces: after}).Interface(i.Name)
		if ok && j.Generation != i.Generation { // deleted and made again
			if !changed[i.Name] && !s.hasMade(route.ObjectKey{Interface: i.Name}) {
				anew[i.Name] = true
			}
			changed[i.Name] = true
		}
	}
	for _, i := range after {
		_, known := was[i.Name]
		if !known && (!s.adopted || s.suspect[i.Name] || s.went[i.Name]) {
			changed[i.Name], anew[i.Name] = true, true // what is there may go over an earlier one
		}
	}
	// What is about to be adopted may go over any.
	if len(changed) == 0 || s.adopted && !s.mayLeadOver(changed) {
		return
	}
	if s.isSettled() || len(s.went) >= maxWent {
		s.went = nil
	}
	now := indexes(after)
	for name := range changed {
		if _, there := now[name]; !there {
			s.went = union(s.went, map[string]bool{name: true})
		}
	}
	s.tryAgain(func(e *entry) bool { return e.want.uses(changed) })
	s.doubtAll(changed, anew)
}

// maxWent bounds what is remembered of interfaces that have gone, since a route may be refused for
// ever and pods come and go: with more it begins anew. Spot checks find what is missed.
const maxWent = 1000

// isSettled reports whether nothing is to be written, nor under way.
func (s *syncer) isSettled() bool {
	return s.queued()+len(s.failures)+len(s.flying)+s.pending() == 0
}

// doubtAll is doubtOver for what was adopted, too.
func (s *syncer) doubtAll(changed, anew map[string]bool) {
	s.doubtOver(changed, anew)
	if !s.adopted || s.adoptedLeft > 0 {
		s.suspect, s.anew = union(s.suspect, changed), union(s.anew, anew)
	}
}

// union adds b to a, which may be nil.
func union(a, b map[string]bool) map[string]bool {
	if a == nil {
		return maps.Clone(b)
	}
	maps.Copy(a, b)
	return a
}

// doubtOver: routes over these interfaces may not forward any more; those over the ones made anew
// under their index do not.
func (s *syncer) doubtOver(changed, anew map[string]bool) {
	s.epoch++
	s.rewrite = true
	isLate := func(e *entry) bool { return e.is(isLate) }
	if len(s.failures)+s.stale.len()+len(s.flying) == 0 && !slices.ContainsFunc(s.all, isLate) {
		s.madeAnew = nil // all that is over one of them was deleted
	}
	s.madeAnew = union(s.madeAnew, anew)
	for _, e := range slices.Clone(s.all) {
		if e.is(isAdopted) {
			continue
		}
		if e.actual != 0 && (e.wanted() != e.actual || e.want.uses(changed)) {
			e.set(isUnsure)
			s.markDirty(e) // what to put depends on the interface's new state
		}
		if (e.actual != 0 || e.is(isFlying)) && !e.is(isStale) && e.mayUse(anew) {
			e.set(isStale | inDeletes)
			s.stale.push(s.queuedNow(e))
		}
	}
}

// mayUse reports whether what is there may lead over one of these interfaces: over which the route
// leads that is on its way out, or to be replaced, is unknown.
func (e *entry) mayUse(anew map[string]bool) bool {
	return len(anew) > 0 && (e.want == nil || e.want.uses(anew) ||
		e.actual != 0 && e.actual != e.want.digest)
}

// mayLeadOver is the cheap question before the expensive one: pods come and go with an interface
// each, and no route of ours is over those. While something is unsettled, what is programmed may
// differ from what path sets mean now.
func (s *syncer) mayLeadOver(interfaces map[string]bool) bool {
	return !s.sweep || s.isChoosing() || s.queued()+len(s.failures)+s.pending() > 0 ||
		s.leadsOver(interfaces)
}

func (s *syncer) pending() int {
	n := 0
	for _, sources := range s.counts {
		for _, states := range sources {
			n += states[Pending]
		}
	}
	return n
}

// changedInterfaces returns the names that meant something else before.
func changedInterfaces(before, after map[string]uint32) map[string]bool {
	changed := make(map[string]bool)
	for name, index := range before {
		if now, ok := after[name]; !ok || now != index {
			changed[name] = true
		}
	}
	return changed
}
