package fib

import "time"

const (
	// paceInterval is the time between two looks at the inbox under load. Small batches are dear: each costs system calls, wake-ups of five
	// threads, and a turn of VPP's main loop. At 70 000 routes a second 70 of them come in that time.
	paceInterval = time.Millisecond
	// paceAfter is how many looks in a row find something before that is called load; a pause of paceQuiet ends it. So a change that comes
	// alone, and the first ones of many, wait for nothing.
	paceAfter = 16
	paceQuiet = 4 * paceInterval
)

// pace has a stream of changes taken in by the millisecond instead of one by one. It delays no change on an idle engine, and none
// that comes later than paceInterval after the one before.
type pace struct {
	last   time.Time
	streak int // looks that found something, none later than paceQuiet after the one before
}

// took notes a look that found something.
func (p *pace) took(now time.Time) {
	if now.Sub(p.last) > paceQuiet {
		p.streak = 0
	}
	p.last = now
	p.streak++
}

// holds reports that the inbox is not to be looked at yet.
func (p *pace) holds(now time.Time) bool {
	return p.streak > paceAfter && now.Sub(p.last) < paceInterval
}

// until returns when holds ends; zero: it does not hold.
func (p *pace) until(now time.Time) time.Time {
	if !p.holds(now) {
		return time.Time{}
	}
	return p.last.Add(paceInterval)
}
