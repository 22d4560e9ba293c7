package agent

import (
	"errors"
	"time"
)

// drain takes this node out of service; docs/design.md draws its states. While it waits,
// announcements are the worst choice (RFC 8326), so that others find another path.
type drain struct {
	state     drainState
	request   DrainStatus // Since, Until, Stay, UntilIdle, NotKept, Ending
	withdrawn time.Time   // when everything was
	noted     time.Time   // when it was last tried to note it on disk
}

type drainState int

const (
	drainNone        drainState = iota
	drainWaiting                // until its time has come, or there is no traffic
	drainWithdrawing            // until nothing is announced any more
	drainWithdrawn              // for stopAfter, or for ever if it stays
	drainOver
)

// DrainPhase is how far a drain is.
type DrainPhase string

const (
	NotDraining DrainPhase = ""
	Draining    DrainPhase = "draining"  // announced as the worst choice
	Withdrawn   DrainPhase = "withdrawn" // not announced; for a plan: not to be announced
)

const (
	// MaxDrain bounds the wait: longer is no drain but a mistake.
	MaxDrain = 24 * time.Hour
	// stopAfter is how long withdrawals may take to reach every node before the sessions end.
	stopAfter = 5 * time.Second
)

// DrainOptions are how a drain is asked for.
type DrainOptions struct {
	Wait      time.Duration // how long others may take to find other paths
	Stay      bool
	UntilIdle *float64
}

func (d *drain) begin(now time.Time, o DrainOptions) error {
	switch d.state {
	case drainOver:
		return errors.New("the drain is over, the agent stops")
	case drainNone:
		d.request.Since = now
	}
	d.state = drainWaiting
	d.request.Until, d.request.Stay, d.request.UntilIdle = now.Add(o.Wait), o.Stay, o.UntilIdle
	return nil
}

// cancel succeeds also without a drain if a restart would begin one: its note is removed then.
func (d *drain) cancel() error {
	switch {
	case d.state == drainOver:
		return errors.New("too late: the drain is over, the agent stops")
	case d.state == drainNone && d.request.NotKept == "":
		return errors.New("nothing is being drained")
	}
	*d = drain{}
	return nil
}

type drainFacts struct {
	idle bool // there is as little traffic as was asked for
	// withdrawn: the speaker announces nothing, and no peer keeps what an earlier run announced.
	withdrawn bool
}

// step makes at most one transition and returns the state that it led to. early says that the wait
// ended before its time: a restart must not wait, and announce, once more.
func (d *drain) step(now time.Time, f drainFacts) (entered drainState, early bool) {
	switch {
	case d.state == drainWaiting && (f.idle || !now.Before(d.request.Until)):
		if early = now.Before(d.request.Until); early {
			d.request.Until = now
		}
		d.state = drainWithdrawing
	case d.state == drainWithdrawing && f.withdrawn:
		d.state, d.withdrawn = drainWithdrawn, now
	case d.state == drainWithdrawn && !d.request.Stay && now.Sub(d.withdrawn) >= stopAfter:
		d.state = drainOver
	default:
		return drainNone, false
	}
	return d.state, early
}

// noteAgain reports whether to try once more to note it.
func (d *drain) noteAgain(now time.Time) bool {
	failed := d.request.NotKept != "" && d.request.NotKept != beingNoted
	if !failed || now.Sub(d.noted) < noteRetry {
		return false
	}
	d.noted = now
	return true
}

// planned is the phase that plans are made for.
func (s drainState) planned() DrainPhase {
	switch s {
	case drainNone:
		return NotDraining
	case drainWaiting:
		return Draining
	}
	return Withdrawn
}

// trafficLimit is the rate that the drain waits for; nil: it waits for none.
func (d *drain) trafficLimit() *float64 {
	if d.state != drainWaiting {
		return nil
	}
	return d.request.UntilIdle
}

// status is the drain for people.
func (d *drain) status() DrainStatus {
	s := d.request
	switch d.state {
	case drainNone:
	case drainWaiting, drainWithdrawing:
		s.Phase = Draining
	default:
		s.Phase = Withdrawn
	}
	return s
}

// note is the drain for the next process.
func (d *drain) note() DrainStatus {
	if d.state == drainOver {
		return DrainStatus{}
	}
	s := d.status()
	s.NotKept = ""
	return s
}
