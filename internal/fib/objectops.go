package fib

import (
	"context"
	"iter"
	"slices"

	"vpp-route-agent/internal/route"
)

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

// objectsWritten: b is done, and others may have waited for its objects.
func (s *syncer) objectsWritten(b *batch) {
	anew, moved := make(map[string]bool), make(map[string]bool)
	lost := make(map[endpointID]bool)
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
		if op.key.Kind == route.InterfaceTable && b.isDone(i) {
			moved[op.key.Interface] = true
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
	// VPP goes on with what it found in the table of before (src/vnet/fib/fib_attached_export.c).
	if len(moved) > 0 && s.mayLeadOver(moved) {
		s.doubtAll(moved, nil)
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

// tryDependants has what was refused tried again if it needs an object that b has put, or perhaps
// the address of one that b has deleted.
func (s *syncer) tryDependants(b *batch) {
	put, freed := make(map[route.ObjectKey]bool), false
	for i, op := range b.objects {
		switch {
		case !b.isDone(i):
		case op.want != nil:
			put[op.key] = true
		default:
			freed = freed || mayHaveAddress(op.key)
		}
	}
	if len(put) == 0 && !freed {
		return
	}
	s.tryAgain(func(e *entry) bool {
		if o := s.objectOf(e); o != nil {
			return freed && mayHaveAddress(o.key) ||
				slices.ContainsFunc(o.needs, func(k route.ObjectKey) bool { return put[k] })
		}
		return slices.ContainsFunc(s.objectsFor(e), func(o *object) bool { return put[o.key] })
	})
}

// mayHaveAddress: an interface of VXLAN has its own with it.
func mayHaveAddress(k route.ObjectKey) bool {
	return k.Kind == route.InterfaceAddress || k.Kind == route.MadeLink
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
			s.lookUpSoon(o)
		}
	}
}
