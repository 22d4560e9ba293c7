// This file is vpp-route-agent's, not GoBGP's.

package server

import "time"

// holdTimer ends a session whose peer is silent. The goroutine that reads restarts it.
type holdTimer struct {
	time  time.Duration // 0: such a session does not end (RFC 4271 §4.2)
	timer *time.Timer
}

func (t *holdTimer) start(seconds float64) {
	t.time = time.Duration(seconds * float64(time.Second))
	if t.time != 0 {
		t.timer = time.NewTimer(t.time)
	}
}

func (t *holdTimer) stop() {
	if t.time != 0 {
		t.timer.Stop()
	}
}

func (t *holdTimer) restart() {
	if t.time != 0 {
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
