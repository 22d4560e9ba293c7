package external

import (
	"runtime"
	"sync"
)

// EachInParallel calls do for each of 0 to n-1, on all processors if there are many: a client waits
// for its 10 000 items. do must be safe for concurrent use.
func EachInParallel(n int, do func(i int)) {
	const fewest = 500 // calls that are worth a goroutine
	parts := max(1, min(runtime.GOMAXPROCS(0), n/fewest))
	var wait sync.WaitGroup
	for part := range parts {
		wait.Go(func() {
			for i := n * part / parts; i < n*(part+1)/parts; i++ {
				do(i)
			}
		})
	}
	wait.Wait()
}
