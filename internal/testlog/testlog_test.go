package testlog

import (
	"sync"
	"testing"
)

// With the race detector this fails if a line that comes as a test ends reaches the test.
func TestLinesAtTheEndOfATest(t *testing.T) {
	for range 50 {
		var running sync.WaitGroup
		ended := make(chan struct{})
		t.Run("ends", func(t *testing.T) {
			log, first := New(t), make(chan struct{})
			running.Go(func() {
				log.Info("once")
				close(first)
				for {
					select {
					case <-ended:
						return
					default:
						log.Info("again")
					}
				}
			})
			<-first
		})
		close(ended)
		running.Wait()
	}
}
