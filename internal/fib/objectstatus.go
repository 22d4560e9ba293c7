package fib

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

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
