package recorder

import (
	"testing"
	"testing/synctest"
	"time"
)

// A writer at work looks for records by itself, so that of changes that follow one another only the
// first wakes it. An idle writer sleeps.
func TestWriterIsWokenWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake, full := make(chan struct{}, 1), make(chan struct{}, 1)
		w := newWaiter(wake, full, gather)
		waits := func(what string, want time.Duration, something bool) {
			t.Helper()
			began := time.Now()
			w.wait(t.Context())
			if got := time.Since(began); got != want {
				t.Errorf("%s: waited %s, want %s", what, got, want)
			}
			w.took(something)
		}
		after := func(d time.Duration, c chan struct{}) {
			go func() {
				time.Sleep(d)
				signal(c)
			}()
		}
		after(time.Hour, wake)
		waits("idle", time.Hour+gather, true)
		signal(wake) // nobody reads it yet
		waits("after records", gather, true)
		after(time.Millisecond, full)
		waits("with many records", time.Millisecond, true)
		for range idleAfter {
			waits("without records", gather, false)
		}
		waits("woken earlier", gather, false)
		after(time.Hour, wake)
		waits("idle again", time.Hour+gather, true)
	})
}
