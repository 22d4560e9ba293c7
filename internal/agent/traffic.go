package agent

import (
	"errors"
	"fmt"
	"time"
)

// idleFor is how long the traffic must have been as low as was asked for: gaps between a client's requests are no end of traffic.
const idleFor = 5 * time.Second

// answerWithin is how long the counters may take. A data plane that is frozen does not even fail to answer.
const answerWithin = 3 * time.Second

// traffic is what a drain with UntilIdle knows of the packets that this node forwards. A data plane that does not tell, or that has started
// anew, counts as busy: then the drain goes by time.
type traffic struct {
	at      time.Time // of the last sample; zero: there is none to compare with
	packets uint64
	rate    float64   // packets per second between the last two
	busy    time.Time // when it was last more than was asked for, or not known
	problem error     // why it is not known
}

// note takes a sample.
func (t *traffic) note(now time.Time, packets uint64, err error, limit float64) {
	defer func() { t.problem = err }()
	if err != nil {
		t.at, t.busy = time.Time{}, now
		return
	}
	if t.at.IsZero() || packets < t.packets {
		t.busy = now
	} else if t.rate = float64(packets-t.packets) / now.Sub(t.at).Seconds(); t.rate > limit {
		t.busy = now
	}
	t.at, t.packets = now, packets
}

// idle reports whether there was so little traffic for long enough.
func (t *traffic) idle() bool {
	return t.problem == nil && t.at.Sub(t.busy) >= idleFor
}

// errNoTraffic is said where nothing is forwarded that could be counted.
var errNoTraffic = errors.New("this data plane does not count packets (--dataplane none)")

var errNoAnswer = fmt.Errorf("the data plane has not answered within %s", answerWithin)

// sampleTraffic has the data plane's counters read, once a second while a drain goes by them. Only Run calls it.
func (a *Agent) sampleTraffic(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.goesByTraffic():
	case a.cfg.Forwarded == nil: // there was a data plane when the drain was asked for
		a.noteTraffic(now, 0, errNoTraffic)
	case a.asking && now.Sub(a.asked) >= answerWithin:
		a.noteTraffic(now, 0, errNoAnswer)
	case !a.asking && now.Sub(a.asked) >= time.Second:
		a.asking, a.asked = true, now
		go a.countPackets()
	}
}

// countPackets takes one sample. It may last for as long as another program is frozen, so not even Run's end waits for it; and there is never
// a second one.
func (a *Agent) countPackets() {
	packets, err := a.cfg.Forwarded()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = false
	if a.goesByTraffic() { // still
		a.noteTraffic(time.Now(), packets, err)
	}
}

// noteTraffic needs a.mu.
func (a *Agent) noteTraffic(now time.Time, packets uint64, err error) {
	if err != nil && a.traffic.problem == nil {
		a.cfg.Log.Warn("the drain goes by time: packets cannot be counted", "err", err)
	}
	a.traffic.note(now, packets, err, *a.drain.UntilIdle)
}

// goesByTraffic needs a.mu.
func (a *Agent) goesByTraffic() bool {
	return a.drain.Phase == Draining && !a.waited && a.drain.UntilIdle != nil
}

// told adds to a drain's status what is known of the traffic.
func (t *traffic) told(d DrainStatus) DrainStatus {
	if d.Phase != Draining || d.UntilIdle == nil {
		return d
	}
	if t.problem != nil {
		d.TrafficUnknown = t.problem.Error()
	} else if !t.at.IsZero() {
		rate := t.rate
		d.PacketsPerSecond = &rate
	}
	return d
}
