package fib

import "time"

const (
	// throttleInterval is the time between two looks at the inbox under load. Small batches are
	// expensive: each costs system calls, wake-ups of five threads, and a turn of VPP's main loop.
	// At 70 000 routes a second 70 of them come in that time.
	throttleInterval = time.Millisecond
	// throttleAfter is how many looks in a row find something before that is called load; a pause
	// of throttleQuiet ends it. So a change that comes alone, and the first ones of many, wait for
	// nothing.
	throttleAfter = 16
	throttleQuiet = 4 * throttleInterval
)

// throttle has a stream of changes taken in by the millisecond instead of one by one. It delays no
// change on an idle engine, and none that comes later than throttleInterval after the one before.
type throttle struct {
	last   time.Time
	streak int // looks that found something, none later than throttleQuiet after the one before
}

// took notes a look that found something.
func (t *throttle) took(now time.Time) {
	if now.Sub(t.last) > throttleQuiet {
		t.streak = 0
	}
	t.last = now
	t.streak++
}

// holds reports that the inbox is not to be looked at yet.
func (t *throttle) holds(now time.Time) bool {
	return t.streak > throttleAfter && now.Sub(t.last) < throttleInterval
}

// until returns when holds ends; zero: it does not hold.
func (t *throttle) until(now time.Time) time.Time {
	if !t.holds(now) {
		return time.Time{}
	}
	return t.last.Add(throttleInterval)
}
