package fib

import (
	"context"
	"time"

	"vpp-route-agent/internal/route"
)

// Objects of which there may be thousands (Bulk) are put without a look-up. Instead all of them are
// listed now and then: what another program took away is put again. Where no journal tells what an
// earlier run left, adoption lists them.

const (
	// Between listInterval and listMost, the pause after a listing is listShare times what that
	// took. Without listMost a data plane that once stood still would not be listed for long.
	listInterval = 10 * time.Second
	listShare    = 200
	listMost     = time.Minute
	// listFirst is the pause after adoption, in which there is enough else to do.
	listFirst = time.Second
)

// bulk is the part of objects that knows of those that are listed.
type bulk struct {
	provided bool      // the data plane is a Bulk
	next     time.Time // they are to be listed
	known    int       // how many of them are in objects.byKey
	writes   uint64    // ops cut about them, and losses: a listing from before them is void

	wanted []*object // in the order of the sources' lists, as far as they are taken in
	intake intake
	slice  int // how many are taken in at a time: shortBatch, or less in tests
}

// intake is how far takeMany has come.
type intake struct {
	isOpen   bool           // from begin until todo is taken in and the rest of before is dropped
	todo     []wantedObject // of all sources
	taken    int            // of todo
	before   []*object      // bulk.wanted until then
	next     int            // of before: what comes next, if it is as it was
	revision uint64
}

type wantedObject struct {
	route.Object
	by sourceID
}

// isListed reports whether k is of a kind that is not looked up.
func (s *syncer) isListed(k route.ObjectKey) bool {
	return s.objects.bulk.provided && k.Kind.IsMany()
}

// begin has takeMany take in what is put into todo.
func (b *bulk) begin(revision uint64) {
	b.intake = intake{isOpen: true, todo: b.intake.todo, before: b.wanted, revision: revision}
	b.wanted = make([]*object, 0, len(b.intake.before))
}

// takeMany takes in objects that may be many, until n of them are new or not programmed.
func (s *syncer) takeMany(n int) {
	b := &s.objects.bulk
	in := &b.intake
	for ; in.taken < len(in.todo); in.taken++ {
		if n == 0 {
			return
		}
		w := in.todo[in.taken]
		o := in.find(w)
		same := o != nil
		if !same {
			o = s.object(w.Key())
		}
		if o.pass == s.objects.pass {
			continue
		}
		o.pass = s.objects.pass
		b.wanted = append(b.wanted, o)
		isNew := !same && s.wantAnew(o, w.Object, w.by, in.revision)
		if isNew || s.stateOf(o.entry) != Programmed {
			s.settle(o.entry)
			n--
		}
	}
	s.dropObjects(in.before, in.revision)
	clear(in.todo)
	*in = intake{todo: in.todo[:0]} // its room is for the next
}

// lookAhead is how many nodes that have gone at once find gets over.
const lookAhead = 8

// find returns the object of what is wanted as it was, if that is one of the next of those before,
// and else nil: most lists differ by a node that has come or gone.
func (in *intake) find(w wantedObject) *object {
	for i := in.next; i < min(in.next+lookAhead, len(in.before)); i++ {
		o := in.before[i]
		if o.source == w.by && o.want.object == w.Object {
			in.next = i + 1
			return o
		}
	}
	return nil
}

// isUntaken reports whether takeMany has not come to o yet: it may not be wanted any more.
func (s *syncer) isUntaken(o *object) bool {
	return s.objects.bulk.intake.isOpen && s.isListed(o.key) && o.pass != s.objects.pass
}

// nextListing reports whether they are to be listed now, or when (zero: when something changes).
func (s *syncer) nextListing() (now bool, due time.Time) {
	x := &s.objects.bulk
	switch {
	case !x.provided || !s.present || x.known == 0:
		return false, time.Time{}
	case s.now.Before(x.next):
		return false, x.next
	}
	return true, time.Time{}
}

// listed takes what is there. It counts only for objects about which nothing was open meanwhile.
// It returns how many of ours were lost.
func (s *syncer) listed(x spot) (lost int) {
	b := &s.objects.bulk
	b.next = s.now.Add(min(max(listInterval, listShare*x.took), listMost))
	if x.generation != s.generation || x.err != nil {
		return 0
	}
	if x.writes != b.writes {
		b.next = s.now.Add(time.Second)
		return 0
	}
	there := make(map[route.ObjectKey]uint64, len(x.list)) // digests
	for _, found := range x.list {
		k := found.Key()
		if there[k] = found.Digest(); s.objects.byKey[k] == nil {
			o := s.object(k)
			o.actual, o.owner = found.Digest(), unknownSource
			o.set(isAdopted)
			s.reconsider(o)
			s.settle(o.entry)
		}
	}
	for _, o := range s.objects.all() {
		if s.isListed(o.key) && o.actual != 0 && there[o.key] != o.actual &&
			!o.is(isUnsure|isFlying) {
			lost++
			o.set(isUnsure)
			s.settle(o.entry)
		}
	}
	return lost
}

// listSoon: what is there may have changed.
func (s *syncer) listSoon() { s.objects.bulk.next = s.now }

func (e *Engine) list(ctx context.Context, kinds ...route.ObjectKind) (all []route.Object,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	for _, kind := range kinds {
		some, err := e.dataplane.(Bulk).Objects(ctx, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// applyMany carries out the ops from first on that are about objects which may be many, all at
// once, and returns how many those are.
func (e *Engine) applyMany(ctx context.Context, b *batch, first, last int) (n int) {
	bulk, ok := e.dataplane.(Bulk)
	var ops []route.ObjectOp
	for i := first; ok && i < last && b.objects[i].key.Kind.IsMany(); i++ {
		ops = append(ops, route.ObjectOp{Key: b.objects[i].key, Put: b.objects[i].want})
	}
	if len(ops) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	var refused int
	var why error
	bulk.ApplyObjects(ctx, ops, func(i int, err error) {
		b.result(first+i, err)
		if err != nil {
			refused, why = refused+1, err
		}
	})
	if refused > 0 {
		e.log.Warn("objects refused", "first", ops[0].Key.String(), "objects", len(ops),
			"refused", refused, "err", why)
	} else {
		e.log.Info("objects set or removed", "first", ops[0].Key.String(), "objects", len(ops))
	}
	return len(ops)
}
