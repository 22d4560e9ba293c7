package fib

import (
	"iter"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// record is one route of ours that was found, by its digest. unsure: it may be there, or something else, or nothing.
type record struct {
	key    route.Key
	digest uint64
	unsure bool
}

// adoption is what was found of ours in a data plane that we have not written to before in this process.
type adoption struct {
	life    int
	how     string // "journal" or "listing"
	count   int
	records iter.Seq[record]
	// interfaces are what names meant to whoever wrote the records, or when the listing began.
	interfaces map[string]uint32
}

// observe takes new facts. With an identity that is not the one that actual speaks of, all that was known is void and the
// data plane is to be adopted: the caller does that when wantsAdoption says so.
func (t *table) observe(f route.Facts) {
	away := t.facts.Identity == ""
	t.facts = f
	t.changed = true
	if f.Identity == "" {
		t.present = false // what is wanted stays wanted; the last view stays too, so that it stays selected
		return
	}
	if f.Identity != t.identity {
		t.begin(f.Identity)
	} else if t.view != nil {
		t.reindex(t.view.facts.Interfaces, f.Interfaces)
	}
	if t.present = t.adopted; t.present && away {
		t.verify()
	}
	t.regard(f)
	t.lookAtAll()
	t.hops.recheck = len(t.hops.ring)
}

// begin starts a new life: nothing is known about what is in the data plane.
func (t *table) begin(identity string) {
	t.identity = identity
	t.life++
	t.adopted, t.present, t.suspect, t.adoptedLeft = false, false, nil, 0
	t.puts, t.leaving, t.deletes, t.retries = queue[*entry]{}, nil, queue[deletion]{}, nil
	t.spots.soon, t.spots.chase = nil, 0
	clear(t.drifts)
	clear(t.shadows)
	clear(t.extras)
	for _, e := range slices.Backward(slices.Clone(t.all)) {
		e.actual, e.fail = 0, nil
		e.clear(isUnsure | isAdopted | inPuts | inDeletes | isDrifted | isShadowed)
		t.settle(e)
	}
	clear(t.hops.answers)
	for _, hop := range t.hops.sorted {
		hop.answered = false // lookAtAll asks
	}
}

func (t *table) wantsAdoption() bool {
	return t.identity != "" && t.facts.Identity == t.identity && !t.adopted
}

// adopt takes over what was found.
func (t *table) adopt(a adoption) {
	if a.life != t.life || t.adopted {
		return
	}
	t.adopted = true
	t.present = t.facts.Identity == t.identity
	t.changed = true
	t.howAdopted, t.numAdopted = a.how, a.count
	for r := range a.records {
		e := t.entry(r.key)
		e.actual = r.digest
		if !e.is(isAdopted) {
			e.set(isAdopted)
			t.adoptedLeft++
		}
		if r.unsure {
			e.set(isUnsure)
		}
	}
	changed := changedInterfaces(a.interfaces, indexes(t.view.facts.Interfaces))
	maps.Copy(changed, t.suspect)
	if t.suspect = nil; len(changed) > 0 && t.adoptedLeft > 0 {
		t.suspect = changed
	}
	if a.how == "journal" {
		t.verify()
	}
	t.tablesDue, t.tablesAt = true, time.Time{}
	t.settleAll()
}

// known: e is no longer something that was merely found. With the last of them the doubt about interfaces ends, and the journal gets to know
// what is still unsure because of it.
func (t *table) known(e *entry) {
	if !e.is(isAdopted) {
		return
	}
	e.clear(isAdopted)
	if t.adoptedLeft--; t.adoptedLeft == 0 && t.suspect != nil {
		t.suspect, t.rewrite = nil, true
	}
}

// unheardOf is an index that no interface has.
const unheardOf = ^uint32(0)

// meanings are what the journal is to say about interfaces. As long as there is an adopted entry that may go over an interface that has
// changed, the next process must doubt that interface too, whatever it finds under the name then.
func (t *table) meanings() map[string]uint32 {
	out := indexes(t.view.facts.Interfaces)
	for name := range t.suspect {
		out[name] = unheardOf
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

// settleAll looks at every entry again. What was wanted before adoption has been selected, but could not be compared.
func (t *table) settleAll() {
	for _, e := range slices.Clone(t.all) {
		t.touch(e)
	}
}

// allowSweep ends the time in which adopted routes that nobody wants are held.
func (t *table) allowSweep() {
	if !t.sweep {
		t.sweep = true
		t.settleAll()
	}
}

// regard makes a new view. Keys that the guard judges differently are to be selected again; what path sets mean is up to
// lookAtAll.
func (t *table) regard(f route.Facts) {
	before := t.view
	t.view = newView(Facts{
		Facts: f, Own: t.own, Peers: t.peers, Services: t.services, Resolutions: t.hops.answers, Covered: t.hops.covered, Distances: t.distances, BGPCover: t.bgpCover,
	})
	if before == nil {
		before = &view{}
	}
	for k, name := range t.view.connected {
		if before.connected[k] != name {
			t.touchKey(k)
		}
	}
	for k := range before.connected {
		if _, ok := t.view.connected[k]; !ok {
			t.touchKey(k)
		}
	}
	if !slices.Equal(before.guarded, t.view.guarded) {
		t.touchGuarded(before.guarded, t.view.guarded)
	}
}

func (t *table) touchKey(k route.Key) {
	for _, e := range t.both(k) {
		if e != nil {
			t.touch(e)
		}
	}
}

// guardAnew selects e again after the guard's ranges or addresses changed. What the guard refuses
// covers no next hops either.
func (t *table) guardAnew(e *entry) {
	t.touch(e)
	for _, hop := range slices.Clone(t.hops.inside(e.key)) {
		t.correct(hop)
	}
}

// touchGuarded makes the keys dirty that contain an address which is guarded differently.
func (t *table) touchGuarded(before, after []guarded) {
	changed := make(map[guarded]int)
	for _, g := range before {
		changed[g]--
	}
	for _, g := range after {
		changed[g]++
	}
	for g, n := range changed {
		for bits := 1; n != 0 && bits <= g.Address.BitLen(); bits++ { // a default route is never refused
			p, err := g.Address.Prefix(bits)
			for _, e := range t.both(route.Key{Table: g.Table, Prefix: p}) {
				if err == nil && e != nil {
					t.guardAnew(e)
				}
			}
		}
	}
}

// reindex: an interface that went, or came back under another index, took the paths over it along, though the routes look the same.
func (t *table) reindex(before, after []route.Interface) {
	changed := changedInterfaces(indexes(before), indexes(after))
	for _, i := range before {
		if j, ok := (route.Facts{Interfaces: after}).Interface(i.Name); ok && j.Life != i.Life {
			changed[i.Name] = true // deleted and made again under the same index
		}
	}
	if len(changed) == 0 || t.adopted && !t.mayUse(changed) { // what is about to be adopted may go over any
		return
	}
	t.epoch++
	t.rewrite = true
	for _, e := range slices.Clone(t.all) {
		if e.actual != 0 && (e.wanted() != e.actual || e.want.uses(changed)) && !e.is(isAdopted) {
			e.set(isUnsure)
			t.touch(e) // what to put depends on the interface's new state
		}
	}
	switch {
	case t.adopted && t.adoptedLeft == 0:
	case t.suspect == nil:
		t.suspect = changed
	default:
		maps.Copy(t.suspect, changed)
	}
}

// mayUse is the cheap question before the dear one: pods come and go with an interface each, and no route of ours is over those. While
// something is unsettled, what is programmed may differ from what path sets mean now.
func (t *table) mayUse(interfaces map[string]bool) bool {
	if !t.sweep || len(t.dirty)+t.queued()+len(t.retries)+t.pending() > 0 {
		return true
	}
	for _, s := range t.sets.byID {
		if s.seen != nil && slices.ContainsFunc(s.seen.paths, func(p resolved) bool { return interfaces[p.Interface] }) {
			return true
		}
	}
	return false
}

func (t *table) pending() int {
	n := 0
	for _, origins := range t.counts {
		for _, states := range origins {
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
