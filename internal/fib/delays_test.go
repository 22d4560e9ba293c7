package fib

import (
	"errors"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// delayed checks how many events were measured, and that the last of them took about that long.
func (r *running) delayed(t *testing.T, what string, events uint64, last time.Duration) {
	t.Helper()
	r.idle()
	was := r.delaysBefore
	h, n := r.Stats().Delays, uint64(0)
	for _, c := range h.Counts {
		n += c
	}
	if took := h.Sum - was; n != events || took < last || took > last+time.Second {
		t.Errorf("%s: %d events, the last took %v; want %d, %v", what, n, took, events, last)
	}
	r.delaysBefore = h.Sum
}

func TestDelaysFromEventToAcknowledgement(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		event := func(age time.Duration, routes ...route.Route) {
			r.set(func(w *Wanted) {
				w.Sources[route.Own].Routes = routes
				w.Received = time.Now().Add(-age)
			})
			r.set(func(w *Wanted) { w.Received = time.Time{} }) // before that was taken, perhaps
		}
		a, b := drop("10.1.0.0/26"), drop("10.1.0.64/26")
		event(40*time.Second, a, b)
		r.delayed(t, "two routes, one event", 1, 40*time.Second)
		if c := r.Stats().Delays.Counts; c[14] != 1 {
			t.Errorf("40 s are not in the bucket up to a minute: %v", c)
		}
		event(time.Second, a, b)
		r.delayed(t, "nothing changed", 1, 0)

		r.dp.state(func() { r.dp.refuse[b.Key] = errors.New("full") })
		event(20*time.Second, a)
		r.delayed(t, "a deletion is refused", 1, 0)
		event(30 * time.Second)
		r.delayed(t, "another event meanwhile", 2, 30*time.Second)
		time.Sleep(100 * time.Second)
		r.dp.heal()
		time.Sleep(2 * lastRetry)
		if r.idle(); r.Stats().Delays.Counts[len(HistogramBounds)-1] != 1 {
			t.Errorf("refused for two minutes or more: %v", r.Stats().Delays)
		}

		r.dp.tell(route.Facts{Problem: "away"})
		event(0, a)
		time.Sleep(10 * time.Minute)
		r.dp.tell(node("a"))
		if r.idle(); r.Stats().Delays.Counts[len(HistogramBounds)] != 1 {
			t.Errorf("away for ten minutes: %v", r.Stats().Delays)
		}
		if n := len(r.sync.delays.begun); n > 0 {
			t.Errorf("%d are being measured still", n)
		}
	})
}
