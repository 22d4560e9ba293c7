package settle

import (
	"testing"
	"testing/synctest"
	"time"
)

// A change that comes alone is published at once, what follows it waits for the end of the burst,
// and after a loss all do.
func TestPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := New()
		defer timer.Stop()
		rings := func(what string, after time.Duration) {
			t.Helper()
			began := time.Now()
			<-timer.C
			timer.Rang(time.Now())
			if d := time.Since(began); d != after {
				t.Errorf("%s: %s, want %s", what, d, after)
			}
		}
		timer.Prompt(time.Now())
		rings("after the start", quietAfterLoss)
		time.Sleep(catchUp)
		timer.Prompt(time.Now())
		rings("alone", 0)
		timer.Prompt(time.Now())
		timer.Prompt(time.Now())
		rings("soon after", quiet)
		time.Sleep(longest)
		timer.Prompt(time.Now())
		rings("alone again", 0)
		time.Sleep(longest)
		timer.Start(time.Now())
		timer.Prompt(time.Now())
		rings("with others", quiet)
		time.Sleep(longest)
		timer.Lost()
		timer.Prompt(time.Now())
		rings("the datastore does not answer", quietAfterLoss)
	})
}
