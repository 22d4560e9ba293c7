// Package settle waits for the end of a burst of changes, so that a burst is published once. It
// does not know what has changed.
package settle

import "time"

const (
	// A change is published when none has followed for quiet, or after longest.
	quiet   = 20 * time.Millisecond
	longest = 250 * time.Millisecond
	// After a loss the parts of a datastore catch up one after the other, so for catchUp the pause
	// is longer.
	quietAfterLoss = 200 * time.Millisecond
	catchUp        = time.Second
)

// Timer rings when a burst has ended. One goroutine owns it.
type Timer struct {
	*time.Timer
	pending      bool
	latest       time.Time // of the burst under way, if pending
	rang         time.Time
	lost         bool
	patientUntil time.Time
}

// New returns a timer that behaves as after a loss.
func New() *Timer {
	t := &Timer{Timer: time.NewTimer(time.Hour), patientUntil: time.Now().Add(catchUp)}
	t.Stop()
	return t
}

// Start is called for each change.
func (t *Timer) Start(now time.Time) {
	pause := quiet
	if t.lost || now.Before(t.patientUntil) {
		pause = quietAfterLoss
	}
	if !t.pending {
		t.pending, t.latest = true, now.Add(max(longest, pause))
	}
	t.Reset(min(pause, t.latest.Sub(now)))
}

// Prompt is Start for a change to which no other belongs: it is published at once, unless something
// was a moment ago.
func (t *Timer) Prompt(now time.Time) {
	if t.pending || t.lost || now.Before(t.patientUntil) || now.Sub(t.rang) < longest {
		t.Start(now)
		return
	}
	t.pending, t.latest = true, now
	t.Reset(0)
}

// Rang is called when the timer has rung.
func (t *Timer) Rang(now time.Time) { t.pending, t.rang = false, now }

// Lost says that the datastore does not answer.
func (t *Timer) Lost() { t.lost = true }

// Back says that it answers.
func (t *Timer) Back(now time.Time) {
	if t.lost {
		t.lost, t.patientUntil = false, now.Add(catchUp)
	}
}
