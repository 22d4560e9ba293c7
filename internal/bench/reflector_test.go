package main

import (
	"testing"

	"vpp-route-agent/internal/testcluster"
)

func TestTickCountsEachRouteOnce(t *testing.T) {
	blocks := blockPrefixes(10)
	has := make([]bool, len(blocks))
	has[0] = true
	update := announce(peerAddress(0), blocks[:6])[testcluster.HeaderLength:]
	for _, want := range []int{5, 0} {
		if got := tick(has, update); got != want {
			t.Errorf("%d routes are new instead of %d", got, want)
		}
	}
	if got := tick(has, withdraw(blocks)[testcluster.HeaderLength:]); got != 0 {
		t.Errorf("%d withdrawn routes are new", got)
	}
	for i, got := range has {
		if got != (i < 6) {
			t.Errorf("block %d: %t", i, got)
		}
	}
}
