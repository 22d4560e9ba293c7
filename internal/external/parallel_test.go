package external

import (
	"sync/atomic"
	"testing"
)

func TestEachInParallel(t *testing.T) {
	for _, n := range []int{0, 1, 499, 500, 1000, 1001, 10_007} {
		calls := make([]atomic.Int32, n)
		EachInParallel(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("%d: %d calls for %d", n, got, i)
			}
		}
	}
}
