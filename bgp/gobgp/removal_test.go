package gobgp

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// New peers wait for the removal of old ones, so its cost must grow with their number only. What
// else runs on the machine adds to it: one run in three must show that.
func TestRemovalOfManyPeers(t *testing.T) {
	for run := 1; ; run++ {
		few, many := removalCost(t, 300), removalCost(t, 1500)
		most := 15*few + 100*time.Millisecond
		t.Logf("300 peers removed in %s of processor time, 1500 in %s", few, many)
		if many <= most {
			return
		}
		if run == 3 {
			t.Fatalf("1500 peers cost %s, at most %s if it grows with the number", many, most)
		}
	}
}

// removalCost is the processor time that removing so many peers takes.
func removalCost(t *testing.T, count int) time.Duration {
	l := newLabAlone(t)
	n := l.node(64512)
	for i := range count {
		n.farPeer(fmt.Sprintf("127.1.%d.%d", i>>8, i&255), 64512)
	}
	set(t, n)
	n.plan.Peers = nil
	busy := processorTime(t)
	set(t, n)
	cost := processorTime(t) - busy
	n.wantNeighbors()
	if left := n.sessions.snapshot(); len(left) > 0 {
		t.Errorf("still known: %v", left)
	}
	return cost
}

func TestRemovalInProgress(t *testing.T) {
	var left atomic.Pointer[func() int]
	var seen []int // each time that GoBGP says that it deletes a peer
	l := newLab(t)
	n := l.node(64512, func(c *Config) {
		note := func(_ []string, a slog.Attr) slog.Attr {
			deletes := a.Value.String() == "gobgp: delete a peer configuration"
			if f := left.Load(); f != nil && a.Key == slog.MessageKey && deletes {
				seen = append(seen, (*f)())
			}
			return a
		}
		options := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: note}
		c.Log = slog.New(slog.NewTextHandler(io.Discard, options))
	})
	for i := range 5 {
		n.farPeer(fmt.Sprintf("127.2.0.%d", i), 64512)
	}
	set(t, n)
	removing := func() int { return n.Counters().Removing }
	if r := removing(); r != 0 {
		t.Errorf("removing %d peers while none is removed", r)
	}
	left.Store(&removing)
	n.plan.Peers = nil
	set(t, n)
	left.Store(nil)
	if want := []int{5, 4, 3, 2, 1}; !slices.Equal(seen, want) {
		t.Errorf("left while GoBGP deletes one after the other: %v, want %v", seen, want)
	}
	if r := removing(); r != 0 {
		t.Errorf("removing %d peers after all were removed", r)
	}
}
