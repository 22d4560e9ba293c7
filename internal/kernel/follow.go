package kernel

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// settle is how long changes of the kernel's other routes are collected before next hops are looked up anew.
	settle = 50 * time.Millisecond
	// retry is the pause after a failure. The event that asked for the work is spent, and the next one may be hours away.
	retry = 500 * time.Millisecond
)

// follower is what Run still has to do. It belongs to Run's goroutine. What failed is tried again until it succeeds, and is a problem
// in the facts meanwhile.
type follower struct {
	d                 *Dataplane
	told, current     route.Facts      // what the reader has seen, and what there is
	relist            <-chan time.Time // armed while interfaces could not be listed
	rebind            <-chan time.Time // armed while next hops are to be looked up anew
	unlisted, unbound error            // why the one and the other failed last
}

// followLinks takes the interfaces as they are now.
func (f *follower) followLinks() {
	f.relist, f.unlisted = nil, f.d.refresh()
	if f.unlisted != nil {
		f.relist = time.After(retry)
		f.publish()
		return
	}
	f.publish()
	f.arm()
}

// arm has next hops looked up soon. A running timer stays: a stream of events must not put it off for ever.
func (f *follower) arm() {
	if f.rebind == nil {
		f.rebind = time.After(settle)
	}
}

// followRoutes looks next hops up anew.
func (f *follower) followRoutes(ctx context.Context) {
	f.rebind, f.unbound = nil, f.d.rebind(ctx)
	if ctx.Err() != nil {
		return // an end is no problem
	}
	if f.unbound != nil {
		f.rebind = time.After(retry)
	}
	f.publish()
}

// news returns what to deliver, and out where there is something or else nil.
func (f *follower) news(out chan<- route.Facts) (chan<- route.Facts, route.Facts) {
	if reflect.DeepEqual(f.current, f.told) {
		return nil, f.current
	}
	return out, f.current
}

func (f *follower) publish() {
	var problem error
	switch {
	case f.unlisted != nil:
		problem = fmt.Errorf("interfaces may have changed since they were listed: %w", f.unlisted)
	case f.unbound != nil:
		problem = fmt.Errorf("next hops may have moved since they were looked up: %w", f.unbound)
	}
	f.current = f.d.currentFacts(problem)
}
