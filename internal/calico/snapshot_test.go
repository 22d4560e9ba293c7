package calico

import (
	"testing"
	"time"
)

// A snapshot that nobody has read leaves the time of its events to the one that takes its place.
func TestDeliverKeepsTheOldestEvent(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ unread, next, want time.Time }{
		{time.Time{}, time.Time{}, time.Time{}}, {early, late, early}, {late, early, early},
		{early, time.Time{}, early}, {time.Time{}, late, late},
	} {
		out := make(chan *Snapshot, 1)
		Deliver(out, &Snapshot{Received: c.unread})
		next := &Snapshot{Revision: 2, Received: c.next}
		Deliver(out, next)
		if got := <-out; got.Revision != 2 || got.Received != c.want || next.Received != c.next {
			t.Errorf("%v, then %v: %v", c.unread, c.next, got.Received)
		}
	}
}
