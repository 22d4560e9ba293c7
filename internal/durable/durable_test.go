package durable

import (
	"testing"
	"testing/synctest"
	"time"
)

// The end of a program waits for what it writes, but not for a disk that stalls.
func TestAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, waits := range map[time.Duration]time.Duration{
			0: 0, endWait / 2: endWait / 2, time.Hour: endWait,
		} {
			began := time.Now()
			AtTheEnd(func() { time.Sleep(takes) })
			if took := time.Since(began); took != waits {
				t.Errorf("a write of %v was waited for %v, want %v", takes, took, waits)
			}
		}
		time.Sleep(time.Hour) // the bubble ends with all that is in it
	})
}
