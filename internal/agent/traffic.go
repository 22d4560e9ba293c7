package agent

import (
	"errors"
	"time"
)

// idleFor is how long the traffic must have been as low as was asked for: gaps between a client's requests are no end of traffic.
const idleFor = 5 * time.Second

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
func (t *traffic) idle(now time.Time) bool {
	return t.problem == nil && !t.at.IsZero() && now.Sub(t.busy) >= idleFor
}

// errNoTraffic is said where nothing is forwarded that could be counted.
var errNoTraffic = errors.New("this data plane does not count packets (--dataplane none)")

// sampleTraffic looks at the data plane's counters, once a second while a drain goes by them. Only Run calls it.
func (a *Agent) sampleTraffic(now time.Time) {
	if !a.wantsSample(now) {
		return
	}
	packets, err := a.cfg.Forwarded() // not under the lock: it is another program's answer
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drain.UntilIdle == nil {
		return // cancelled meanwhile
	}
	if err != nil && a.traffic.problem == nil {
		a.cfg.Log.Warn("the drain goes by time: packets cannot be counted", "err", err)
	}
	a.traffic.note(now, packets, err, *a.drain.UntilIdle)
}

func (a *Agent) wantsSample(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drain.Phase == Draining && !a.waited && a.drain.UntilIdle != nil && now.Sub(a.traffic.at) >= time.Second
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
