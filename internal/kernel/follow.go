package kernel

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// settle is how long route changes are collected before next hops are resolved again.
	settle = 50 * time.Millisecond
	// retry is the pause after a failure. The event is consumed, and the next one may be hours
	// away.
	retry = 500 * time.Millisecond
)

// follower is Run's pending work, owned by its goroutine. Failed work is retried until it succeeds
// and reported as a problem meanwhile.
type follower struct {
	d                 *Dataplane
	told, current     route.Facts      // what the reader has seen, and what there is
	relist            <-chan time.Time // armed while interfaces could not be listed
	rebind            <-chan time.Time // armed while next hops are to be looked up anew
	unlisted, unbound error            // why the one and the other failed last
}

// followLinks lists the interfaces.
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

// arm schedules resolving next hops. It does not reset a running timer, which a stream of events
// would otherwise postpone for ever.
func (f *follower) arm() {
	if f.rebind == nil {
		f.rebind = time.After(settle)
	}
}

// followRoutes resolves next hops again.
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

// news returns the facts to deliver and the channel to deliver them to, nil if there are none.
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
