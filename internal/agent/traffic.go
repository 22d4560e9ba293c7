package agent

import (
	"errors"
	"fmt"
	"time"
)

const (
	// idleFor is how long the rate must be low: a gap between a client's requests is not the end.
	idleFor = 5 * time.Second
	// answerWithin bounds the wait for the counters. A frozen data plane returns no error either.
	answerWithin = 3 * time.Second
)

var (
	errNoTraffic = errors.New("this data plane does not count packets (--dataplane none)")
	errNoAnswer  = fmt.Errorf("the data plane has not answered within %s", answerWithin)
)

// traffic measures what this node forwards for a drain with UntilIdle. An error, a late answer or a
// counter that starts anew count as busy: then the drain ends by time alone.
type traffic struct {
	asking bool      // a sample was asked for
	asked  time.Time // when the last one was

	at      time.Time // of the last sample; zero: there is none to compare with
	packets uint64
	rate    float64   // packets per second between the last two samples
	busy    time.Time // when the rate was last too high, or unknown
	problem error     // why it is unknown
}

// sample is an answer of the data plane's counters.
type sample struct {
	packets uint64
	err     error
	at      time.Time // when the answer came; the loop may take it later
}

type trafficFacts struct {
	limit   *float64 // packets per second that count as idle; nil: not asked for
	counted bool     // the data plane counts packets
	sample  *sample  // that came since the last step
}

// step reports whether to read the counters, and why the traffic has become unknown, if it has.
// It asks once a second, and never again before the answer.
func (t *traffic) step(now time.Time, f trafficFacts) (ask bool, unknown error) {
	if f.sample != nil {
		t.asking = false
	}
	if f.limit == nil {
		return false, nil
	}
	before := t.problem
	switch {
	case f.sample != nil:
		t.note(*f.sample, *f.limit)
	case !f.counted: // there was another data plane when the drain began
		t.note(sample{err: errNoTraffic, at: now}, *f.limit)
	case t.asking && now.Sub(t.asked) >= answerWithin:
		t.note(sample{err: errNoAnswer, at: now}, *f.limit)
	}
	if f.counted && !t.asking && now.Sub(t.asked) >= time.Second {
		t.asking, t.asked, ask = true, now, true
	}
	if before == nil {
		unknown = t.problem
	}
	return ask, unknown
}

func (t *traffic) note(s sample, limit float64) {
	t.problem = s.err
	if s.err != nil {
		t.at, t.busy = time.Time{}, s.at
		return
	}
	if t.at.IsZero() || s.packets < t.packets {
		t.busy = s.at
	} else if t.rate = float64(s.packets-t.packets) / s.at.Sub(t.at).Seconds(); t.rate > limit {
		t.busy = s.at
	}
	t.at, t.packets = s.at, s.packets
}

// idle reports whether there was little enough traffic for long enough.
func (t *traffic) idle() bool {
	return t.problem == nil && t.at.Sub(t.busy) >= idleFor
}

// reset forgets all samples. An answer that is still to come counts as the first.
func (t *traffic) reset() { *t = traffic{asking: t.asking, asked: t.asked} }

// describe adds what is known of the traffic to the status of a drain that waits for its end.
func (t *traffic) describe(d *DrainStatus) {
	if t.problem != nil {
		d.TrafficUnknown = t.problem.Error()
	} else if !t.at.IsZero() {
		rate := t.rate
		d.PacketsPerSecond = &rate
	}
}
