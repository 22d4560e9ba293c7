package kernel

import (
	"fmt"
	"reflect"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// settle is how long route changes are collected before they are reported.
	settle = 50 * time.Millisecond
	// retry is the pause after a failure. The event is consumed, and the next one may be hours
	// away.
	retry = 500 * time.Millisecond
)

// follower is Run's pending work, owned by its goroutine. A list that failed is repeated until it
// succeeds and reported as a problem meanwhile.
type follower struct {
	d             *Dataplane
	sent, current route.Facts      // what the reader has seen, and what there is
	relist        <-chan time.Time // armed while interfaces could not be listed
	changed       <-chan time.Time // armed while a change of routes is to be reported
	changes       uint32           // reported so far
	unlisted      error            // why listing failed last
}

// followLinks lists the interfaces.
func (f *follower) followLinks() {
	f.relist, f.unlisted = nil, f.d.refresh()
	if f.unlisted != nil {
		f.relist = time.After(retry)
	}
	f.publish()
	f.arm() // routes go with a link, some without an event
}

// arm schedules reporting a change of routes. It does not reset a running timer, which a stream of
// events would otherwise postpone for ever.
func (f *follower) arm() {
	if f.changed == nil {
		f.changed = time.After(settle)
	}
}

func (f *follower) countChange() {
	f.changed = nil
	f.changes++
	f.publish()
}

// news returns the facts to deliver and the channel to deliver them to, nil if there are none.
func (f *follower) news(out chan<- route.Facts) (chan<- route.Facts, route.Facts) {
	if reflect.DeepEqual(f.current, f.sent) {
		return nil, f.current
	}
	return out, f.current
}

func (f *follower) publish() {
	f.current = f.d.currentFacts()
	f.current.RouteChanges = f.changes
	if f.unlisted != nil {
		f.current.Problem = fmt.Sprintf("interfaces may have changed since they were listed: %v",
			f.unlisted)
	}
}
