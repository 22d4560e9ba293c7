// This file is vpp-route-agent's, not GoBGP's.

//go:build go1.25

package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// A peer whose session has lasted is dialled at short intervals for as long as a restart takes.
func TestPauseAfterALastingSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b sessionBackoff
		b.sessionEnded(time.Now().Add(-time.Minute))
		for start := time.Now(); time.Since(start) < restartPatience; {
			pause := b.nextDial()
			if pause > restartPause {
				t.Fatalf("a pause of %s, %s after the session", pause, time.Since(start))
			}
			time.Sleep(pause)
		}
		var last time.Duration
		for range 10 {
			last = b.nextDial()
		}
		if last < longestPause*3/4 {
			t.Errorf("a pause of %s when the peer has been away for longer", last)
		}
	})
}

// One that ends its sessions at once gets no such favour.
func TestPauseAfterShortSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b sessionBackoff
		var last time.Duration
		for range 10 {
			b.sessionEnded(time.Now())
			last = b.nextDial()
		}
		if last < longestPause*3/4 {
			t.Errorf("a pause of %s after ten short sessions", last)
		}
	})
}
