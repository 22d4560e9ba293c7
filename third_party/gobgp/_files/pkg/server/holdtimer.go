// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"sync"
	"time"
)

// lastChance is how long the reader may take for what waits in the socket when the timer expires:
// after a time in which this process did not run, the peer's KEEPALIVEs may be there.
const lastChance = time.Second

// holdTimer ends a session whose peer is silent. The goroutine that reads restarts it.
type holdTimer struct {
	time  time.Duration // 0: such a session does not end (RFC 4271 §4.2)
	timer *time.Timer

	mu      sync.Mutex // guards what follows
	due     time.Time
	stopped bool
	late    bool // due, and expires for the last time
}

func (t *holdTimer) start(seconds float64) {
	t.time = time.Duration(seconds * float64(time.Second))
	if t.time != 0 {
		t.due = time.Now().Add(t.time)
		t.timer = time.NewTimer(t.time)
	}
}

func (t *holdTimer) stop() {
	if t.time != 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopped = true
		t.timer.Stop()
	}
}

func (t *holdTimer) restart() {
	if t.time != 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.due, t.stopped, t.late = time.Now().Add(t.time), false, false
		t.timer.Reset(t.time)
	}
}

// expired never has anything where the hold time is 0.
func (t *holdTimer) expired() <-chan time.Time {
	if t.time == 0 {
		return nil
	}
	return t.timer.C
}

// isOver reports, when the timer has expired, whether the session is to end. If not, the timer
// expires again, unless it is stopped.
func (t *holdTimer) isOver() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.late {
		return true
	}
	if !t.stopped && !time.Now().Before(t.due) { // not restarted meanwhile
		t.late = true
		t.timer.Reset(lastChance)
	}
	return false
}
