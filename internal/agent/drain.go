package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A drain takes this node out of service: first everything it announces is made the worst choice (GRACEFUL_SHUTDOWN and LOCAL_PREF 0, RFC 8326),
// so that what can go another way does; then, when the wait is over, it is withdrawn; then BGP stops with CEASE and the process
// ends, or stays as it is. Until the end it can be taken back. What must survive a restart stands in a file.

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
	// stopAfter is how long withdrawals may take to be carried out everywhere before the sessions end.
	stopAfter = 5 * time.Second
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
	// UntilIdle ends the wait earlier, when this node has forwarded at most so many packets a second for 5 s; nil: it does not.
	UntilIdle *float64 `json:"untilIdle,omitempty"`
	// PacketsPerSecond is what it forwarded last, and TrafficUnknown why that is not known; absent without UntilIdle.
	PacketsPerSecond *float64 `json:"packetsPerSecond,omitempty"`
	TrafficUnknown   string   `json:"trafficUnknown,omitempty"`
}

// AfterRestart says what a restart would make of a drain that could not be noted, or of one whose note could not be removed; "" where it could.
func (d DrainStatus) AfterRestart() string {
	switch {
	case d.NotKept == "":
		return ""
	case d.Phase == NotDraining:
		return "a restart would drain again: " + d.NotKept
	}
	return "a restart would forget the drain: " + d.NotKept
}

// DrainOptions are how a drain is asked for.
type DrainOptions struct {
	Wait      time.Duration // how long others may take to find other paths
	Stay      bool
	UntilIdle *float64
}

// Drain begins a drain, or changes the one under way. A drain with Stay ends only by CancelDrain, also across restarts.
func (a *Agent) Drain(o DrainOptions) (DrainStatus, error) {
	if o.Wait < 0 || o.Wait > MaxDrain {
		return DrainStatus{}, fmt.Errorf("a drain lasts from 0s to %s", MaxDrain)
	}
	if o.UntilIdle != nil && !(*o.UntilIdle >= 0) { // nor NaN
		return DrainStatus{}, errors.New("packets per second cannot be fewer than 0")
	}
	if o.UntilIdle != nil && a.cfg.Forwarded == nil {
		return DrainStatus{}, errNoTraffic
	}
	if err := a.beginDrain(o, time.Now()); err != nil {
		return DrainStatus{}, err
	}
	return a.keepDrain(), nil
}

func (a *Agent) beginDrain(o DrainOptions, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noBGP {
		return errors.New("there is no BGP (--learn ipam): nothing is announced that could be withdrawn")
	}
	if a.handsOff {
		return errors.New("ClusterInformation says datastoreReady: false; nothing is changed until it says true")
	}
	if a.stopping {
		return errors.New("the drain is over, the agent stops")
	}
	if a.drain.Phase == NotDraining {
		a.drain.Since = now
	}
	a.drain.Phase, a.drain.Until, a.drain.Stay, a.drain.UntilIdle = Draining, now.Add(o.Wait), o.Stay, o.UntilIdle
	a.traffic, a.waited = traffic{}, false
	a.cfg.Log.Warn("draining: what this node announces becomes the worst choice, and is withdrawn then", "until", a.drain.Until, "stay", o.Stay)
	return nil
}

// CancelDrain takes a drain back: everything is announced as before. It fails when there is none, or it is over. What it returns is empty but for
// NotKept.
func (a *Agent) CancelDrain() (DrainStatus, error) {
	if err := a.dropDrain(); err != nil {
		return DrainStatus{}, err
	}
	return a.keepDrain(), nil
}

func (a *Agent) dropDrain() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stopping:
		return errors.New("too late: the drain is over, the agent stops")
	case a.drain.Phase == NotDraining && a.drain.NotKept == "":
		return errors.New("nothing is being drained")
	}
	a.drain, a.waited = DrainStatus{}, false
	a.cfg.Log.Warn("the drain is cancelled")
	return nil
}

// keepDrain wakes Run, and notes the drain for the next process. It waits for the disk without
// a.mu: one that stalls holds up nobody else. Of several calls the last notes what all of them
// changed.
func (a *Agent) keepDrain() DrainStatus {
	select {
	case a.wake <- struct{}{}:
	default:
	}
	a.keeping.Lock()
	defer a.keeping.Unlock()
	a.mu.Lock()
	drain := a.drain
	a.mu.Unlock()
	drain.NotKept = ""
	err := writeDrain(a.cfg.DrainFile, drain)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain.NotKept = ""
	if err != nil {
		a.drain.NotKept = err.Error()
		a.cfg.Log.Warn(a.drain.AfterRestart())
	}
	return a.drain
}

// endWait ends the wait of a drain: from then on plans announce nothing.
func (a *Agent) endWait(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drain.Phase != Draining || a.waited {
		return
	}
	idle := a.drain.UntilIdle != nil && a.traffic.idle()
	if idle && now.Before(a.drain.Until) {
		a.drain.Until = now
		go a.keepDrain() // or a restart would wait, and announce, once more
	}
	if !now.Before(a.drain.Until) {
		a.waited = true
		a.cfg.Log.Warn("the drain's wait is over: everything is to be withdrawn", "idle", idle)
	}
}

// advanceDrain notes that the speaker, which may refuse or not have started, has withdrawn everything, also from peers that keep what an earlier
// run announced. It reports whether the drain is over: that is so for long enough, and the process is to end.
func (a *Agent) advanceDrain(now time.Time) (over bool) {
	withdrawing := a.plannedWith.Drain == Withdrawn
	back := !withdrawing || a.peersAreBack(now) // peers are not listed without need
	silent := withdrawing && back && len(a.cfg.Speaker.Announced()) == 0
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peersBack = back
	if a.drain.Phase == Draining && a.waited && silent {
		a.drain.Phase = Withdrawn
		a.withdrawn = now
		a.cfg.Log.Warn("drained: everything is withdrawn")
	}
	a.stopping = a.drain.Phase == Withdrawn && !a.drain.Stay && now.Sub(a.withdrawn) >= stopAfter
	return a.stopping
}

// peersAreBack reports whether all peers have had their sessions with this process, or their time for that: none keeps anything of the one before for
// longer than the restart time that we tell it.
func (a *Agent) peersAreBack(now time.Time) bool {
	var keep time.Duration
	for _, p := range a.plan.BGP.Peers {
		keep = max(keep, p.RestartTime)
	}
	ok, _ := sweepVerdict(now, a.configured, min(a.cfg.Deferral, keep), a.plan.BGP.Peers, a.cfg.Speaker.Peers(), 0)
	return ok
}

// endDrain says goodbye to the peers. The next start is an ordinary one.
func (a *Agent) endDrain(ctx context.Context) error {
	a.cfg.Log.Warn("drained: BGP ends with CEASE")
	if err := a.cfg.Speaker.Stop(ctx); err != nil {
		return err
	}
	if err := writeDrain(a.cfg.DrainFile, DrainStatus{}); err != nil {
		a.cfg.Log.Warn("the next start would drain again", "err", err)
	}
	return ErrDrained
}

// drainPhase is a fact that the plan is made of: how far the drain is to be.
func (a *Agent) drainPhase() DrainPhase {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drain.Phase == Draining && a.waited {
		return Withdrawn
	}
	return a.drain.Phase
}

// drainStatus is the drain with what is known about it. It needs a.mu.
func (a *Agent) drainStatus() DrainStatus {
	if a.drain.Phase == Draining && a.waited {
		d := a.drain
		d.NotWithdrawn = a.notWithdrawn()
		return d
	}
	return a.traffic.told(a.drain)
}

// notWithdrawn says what keeps the speaker from withdrawing everything. It needs a.mu.
func (a *Agent) notWithdrawn() string {
	switch {
	case a.setError != nil:
		return a.setError.Error()
	case a.configured.IsZero():
		return cmp.Or(a.nodeCondition().Message, a.speakerCondition().Message)
	case !a.peersBack:
		return "peers that are not back yet may keep what an earlier run announced"
	}
	return "the speaker is at it"
}

// writeDrain keeps d in the file at path, or removes it where there is no drain.
func writeDrain(path string, d DrainStatus) error {
	if path == "" {
		return nil
	}
	if d.Phase == NotDraining {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readDrain returns the drain that an earlier process left, if any. A file that cannot be read counts as a drain that stays: to come back into
// service by mistake costs more than to be told.
func readDrain(path string) (d DrainStatus, err error) {
	if path == "" {
		return d, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // where no file can be, none was left
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err == nil && d.Phase != Draining && d.Phase != Withdrawn {
		err = fmt.Errorf("unknown phase %q", d.Phase)
	}
	if err != nil {
		now := time.Now()
		return DrainStatus{Phase: Draining, Since: now, Until: now, Stay: true}, fmt.Errorf("%s: %w", path, err)
	}
	d.Phase = Draining // this process has not withdrawn anything yet
	return d, nil
}
