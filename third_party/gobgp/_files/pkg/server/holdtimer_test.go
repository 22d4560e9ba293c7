// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
)

// What happens to a hold timer of 3 s at the moment at which it expires, and whether the session
// ends in the next 1.5 s.
func TestHoldTimerExpires(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*holdTimer)
		want bool
	}{
		{"silence", func(*holdTimer) {}, true},
		{"the reader finds a message", (*holdTimer).restart, false},
		{"the reader hands over", (*holdTimer).stop, false},
	} {
		for _, before := range []bool{true, false} { // the session's goroutine notices
			synctest.Test(t, func(t *testing.T) {
				var h holdTimer
				h.start(3)
				<-h.expired()
				if before {
					tc.then(&h)
				}
				if h.isOver() {
					t.Errorf("%s: over without a last chance", tc.name)
				}
				if !before {
					tc.then(&h)
				}
				over := false
				select {
				case <-h.expired():
					over = h.isOver()
				case <-time.After(1500 * time.Millisecond):
				}
				if over != tc.want {
					t.Errorf("%s, before: %t: over: %t", tc.name, before, over)
				}
				h.restart()
				began := time.Now()
				<-h.expired()
				h.isOver()
				<-h.expired()
				if took := time.Since(began); !h.isOver() || took != 4*time.Second {
					t.Errorf("%s: over after %s of silence", tc.name, took)
				}
			})
		}
	}
}

// A write that blocks when the peer's last message comes does not fail before its hold timer.
func TestAWriteOutlivesTheHoldTimer(t *testing.T) {
	conf := &oc.Neighbor{}
	conf.Timers.State.NegotiatedHoldTime = 9
	if got, want := writeTime(conf), 9*time.Second+lastChance; got < want {
		t.Errorf("a write fails after %s, the hold timer expires after %s", got, want)
	}
}
