package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// ErrDrained ends Run when a drain is over.
var ErrDrained = errors.New("agent: drained")

// DrainStatus is a drain, as `drain -o json` and `status -o json` print it.
type DrainStatus struct {
	Phase DrainPhase `json:"phase"`
	Since time.Time  `json:"since"`
	Until time.Time  `json:"until"` // when announcements are to be withdrawn
	Stay  bool       `json:"stay"`  // the agent goes on, withdrawn, until the drain is cancelled
	// NotWithdrawn is why something is still announced although the wait is over.
	NotWithdrawn string `json:"notWithdrawn,omitempty"`
	// NotKept is why a restart would forget the drain or, once it is cancelled, drain again.
	NotKept string `json:"notKept,omitempty"`
	// Ending is what is done last, before the agent ends.
	Ending string `json:"ending,omitempty"`
	// UntilIdle ends the wait earlier, when this node has forwarded at most so many packets a
	// second for 5 s; nil: it does not.
	UntilIdle *float64 `json:"untilIdle,omitempty"`
	// PacketsPerSecond is the last rate, and TrafficUnknown why it is unknown; only with UntilIdle.
	PacketsPerSecond *float64 `json:"packetsPerSecond,omitempty"`
	TrafficUnknown   string   `json:"trafficUnknown,omitempty"`
}

// AfterRestart says what a restart would do if the note on disk is not right; "" if it is.
func (d DrainStatus) AfterRestart() string {
	switch {
	case d.NotKept == "":
		return ""
	case d.Phase == NotDraining:
		return "a restart would drain again: " + d.NotKept
	}
	return "a restart would forget the drain: " + d.NotKept
}

// Drain begins a drain, or changes the one in progress. One with Stay ends only by CancelDrain,
// also across restarts.
func (a *Agent) Drain(o DrainOptions) (DrainStatus, error) {
	switch {
	case o.Wait < 0 || o.Wait > MaxDrain:
		return DrainStatus{}, fmt.Errorf("a drain lasts from 0s to %s", MaxDrain)
	case o.UntilIdle != nil && a.cfg.Forwarded == nil:
		return DrainStatus{}, errNoTraffic
	}
	now := time.Now()
	err := a.changeDrain(func() error {
		switch {
		case a.noBGP:
			return errors.New("there is no BGP (--learn ipam): " +
				"nothing is announced that could be withdrawn")
		case a.shown.locked != "":
			return errors.New(a.shown.locked + "; nothing is changed meanwhile")
		}
		a.traffic.reset()
		return a.drain.begin(now, o)
	})
	if err != nil {
		return DrainStatus{}, err
	}
	a.cfg.Log.Warn("draining: what this node announces becomes the worst choice, "+
		"and is withdrawn then", "until", now.Add(o.Wait), "stay", o.Stay)
	return a.noteDrain(), nil
}

// ParseRate reads DrainOptions.UntilIdle. JSON has neither NaN nor infinite numbers.
func ParseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 0 && rate <= math.MaxFloat64) {
		return 0, fmt.Errorf("%q is not a number of packets/s, 0 or more", text)
	}
	return rate, nil
}

// CancelDrain announces everything as before. It fails when there is no drain, or it is over. What
// it returns is empty but for NotKept.
func (a *Agent) CancelDrain() (DrainStatus, error) {
	if err := a.changeDrain(a.drain.cancel); err != nil {
		return DrainStatus{}, err
	}
	a.cfg.Log.Warn("the drain is cancelled")
	return a.noteDrain(), nil
}

const (
	// beingNoted is why a drain is not kept until it is on disk.
	beingNoted = "it is being noted on disk"
	// noteRetry is between two attempts to note a drain on a disk that refuses it.
	noteRetry = 10 * time.Second
)

// changeDrain has the loop look at what change did. The caller notes it.
func (a *Agent) changeDrain(change func() error) error {
	defer a.wakeUp()
	a.mu.Lock()
	defer a.mu.Unlock()
	err := change()
	if err == nil {
		a.drain.request.NotKept = beingNoted
	}
	return err
}

// noteDrain notes the drain on disk for the next process. It does not hold a.mu meanwhile: a disk
// that stalls delays nothing else. Of several calls the last notes the result of all.
func (a *Agent) noteDrain() DrainStatus {
	a.noting.Lock()
	defer a.noting.Unlock()
	a.mu.Lock()
	note, before := a.drain.note(), a.drain.request.NotKept
	a.mu.Unlock()
	problem := ""
	if err := writeDrainNote(a.cfg.DrainFile, note); err != nil {
		problem = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain.noted = time.Now()
	if a.drain.note() == note { // else what changed meanwhile is still to be noted
		a.drain.request.NotKept = problem
	}
	if problem != "" && problem != before {
		note.NotKept = problem
		a.cfg.Log.Warn(note.AfterRestart())
	}
	return a.drain.status()
}

// stepTraffic reads the data plane's counters for a drain that waits for the end of traffic.
func (a *Agent) stepTraffic(now time.Time, s *sample) {
	if s == nil {
		select {
		case came := <-a.samples: // during a turn that took long
			s = &came
		default:
		}
	}
	a.mu.Lock()
	ask, unknown := a.traffic.step(now, trafficFacts{
		limit: a.drain.trafficLimit(), counted: a.cfg.Forwarded != nil, sample: s,
	})
	a.mu.Unlock()
	if unknown != nil {
		a.cfg.Log.Warn("the drain goes by time: packets cannot be counted", "err", unknown)
	}
	if ask {
		// It may take as long as another program is frozen, so not even the end of Run waits for
		// it.
		go func() {
			packets, err := a.cfg.Forwarded()
			a.samples <- sample{packets, err, time.Now()}
		}()
	}
}

// stepDrain reports whether the drain is over and Run is to end.
func (a *Agent) stepDrain(now time.Time) (end bool) {
	withdrawn := a.isWithdrawn(now)
	a.mu.Lock()
	idle := a.drain.request.UntilIdle != nil && a.traffic.idle()
	entered, early := a.drain.step(now, drainFacts{idle: idle, withdrawn: withdrawn})
	// One that begins during this turn has not been stepped, and may wait for nothing.
	a.draining = a.drain.state.planned()
	if early {
		a.drain.request.NotKept = beingNoted
	}
	if early || a.drain.noteAgain(now) {
		go a.noteDrain()
	}
	a.mu.Unlock()
	switch entered {
	case drainWithdrawing:
		a.cfg.Log.Warn("the drain's wait is over: everything is to be withdrawn", "idle", idle)
	case drainWithdrawn:
		a.cfg.Log.Warn("drained: everything is withdrawn")
	}
	return entered == drainOver
}

// isWithdrawn reports whether the speaker, which may have refused the plan or not have started,
// announces nothing, and no peer keeps what an earlier run announced: each has had a session with
// this process, or its restart time as peers know it (RFC 4724 §4.2).
func (a *Agent) isWithdrawn(now time.Time) bool {
	if a.plannedWith.Drain != Withdrawn || a.drainState() != drainWithdrawing {
		return false
	}
	d := a.deferral()
	var keep time.Duration
	for _, p := range d.peers {
		keep = max(keep, p.RestartTime)
	}
	d.limit = min(d.limit, keep)
	a.peersAwaited = ""
	if d.waiting(now) != "" {
		a.peersAwaited = fmt.Sprintf("waiting until %s at most for %s, which may keep what an "+
			"earlier run announced", d.configured.Add(d.limit).Local().Format(time.TimeOnly),
			cmp.Or(d.missing(now), "peers that stand in resources which cannot be used"))
	}
	return a.peersAwaited == "" && len(a.cfg.Speaker.Announced()) == 0
}

// endDrain ends all sessions with CEASE. The next start is an ordinary one.
func (a *Agent) endDrain(ctx context.Context) error {
	a.cfg.Log.Warn("drained: BGP ends with CEASE")
	a.drainEnds("BGP ends with CEASE")
	err := a.cfg.Speaker.Stop(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the drain goes on after the next start
	case err != nil:
		return err
	}
	a.drainEnds("the end of the drain is being noted on disk")
	a.noteDrain()
	return ErrDrained
}

// drainEnds has status say what the end waits for.
func (a *Agent) drainEnds(step string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain.request.Ending = step
}

func (a *Agent) drainState() drainState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drain.state
}

// drainStatus is the drain with what is known about it. It needs a.mu.
func (a *Agent) drainStatus() DrainStatus {
	s := a.drain.status()
	switch {
	case a.drain.state == drainWithdrawing:
		s.NotWithdrawn = a.shown.notWithdrawn()
	case a.drain.trafficLimit() != nil:
		a.traffic.describe(&s)
	}
	return s
}

// notWithdrawn says why something is still announced although the wait is over.
func (s *state) notWithdrawn() string {
	switch {
	case s.setError != nil:
		return s.setError.Error()
	case s.sessions.configured.IsZero():
		return cmp.Or(s.nodeCondition().Message, s.speakerCondition().Message)
	case s.peersAwaited != "":
		return s.peersAwaited
	}
	return "the speaker is at it"
}
