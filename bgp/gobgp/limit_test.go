package gobgp

import (
	"fmt"
	"testing"
	"time"
)

// A peer that floods is cut off with its routes; nobody else is concerned. It is tried again by
// itself, and stays if it behaves.
func TestPeerOverItsPrefixLimit(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512, func(c *Config) { c.LimitRetry = 2 * time.Second })
	n.farPeer("127.0.0.76", 64512)
	n.farPeer("127.0.0.77", 64512)
	n.plan.Peers[0].PrefixLimit = 10
	set(t, n)
	quiet := dialFar(t, n, "127.0.0.77", 64512, 90, true, gracefulCap(false))
	quiet.announce("10.77.0.0/26", "192.0.2.77")
	flood := dialFar(t, n, "127.0.0.76", 64512, 90, true, gracefulCap(false))
	for i := range 10 {
		flood.announce(fmt.Sprintf("10.76.%d.0/26", i), "192.0.2.76")
	}
	n.wantHops("10.76.9.0/26", "192.0.2.76")
	n.wantHops("10.77.0.0/26", "192.0.2.77")

	flood.announce("10.76.10.0/26", "192.0.2.76")
	eventually(t, "what is left of eleven prefixes of one peer and one of another", 1, n.size)
	n.wantDown("127.0.0.76", "it sent more prefixes than its limit")
	if s := n.farState("127.0.0.77"); !s.Established {
		t.Errorf("another peer suffered: %+v", s)
	}
	if c := n.Counters(); c.OverLimit != 1 {
		t.Errorf("counted %+v, not one peer over its limit", c)
	}
	flood.close()

	again := dialFar(t, n, "127.0.0.76", 64512, 90, true, gracefulCap(false))
	again.announce("10.76.1.0/26", "192.0.2.76")
	n.wantHops("10.76.1.0/26", "192.0.2.76")
	time.Sleep(3 * time.Second) // longer than the pause: it is not taken out once more
	if s := n.farState("127.0.0.76"); !s.Established {
		t.Errorf("state %+v", s)
	}
}

// A peer that does not read, so that it cannot be told, has us keep no more than its limit and one
// message.
func TestPeerOverItsPrefixLimitThatDoesNotRead(t *testing.T) {
	l := newLab(t)
	n, other := l.reflecting([]string{"127.0.0.76", "127.0.0.77"})
	n.plan.Peers[0].PrefixLimit = 10
	set(t, n)
	flood := dialFar(t, n, "127.0.0.76", 64512, 90, true)
	eventually(t, "sessions", true, func() bool {
		return n.farState("127.0.0.76").Established && n.farState("127.0.0.77").Established
	})
	flood.mu.Lock() // its receiver takes one UPDATE more
	defer flood.mu.Unlock()
	if rest := other.write(changes(t, 20_000, 100, ballast), patience); len(rest) > 0 {
		t.Fatalf("%d bytes were not taken", len(rest))
	}
	for i := range 100 {
		flood.announce(fmt.Sprintf("10.76.%d.0/26", i), "192.0.2.76")
	}
	eventually(t, "prefixes that are kept", 11, func() int {
		return n.farState("127.0.0.76").Received
	})
	time.Sleep(time.Second)
	if got := n.farState("127.0.0.76"); !got.Established || got.Received != 11 {
		t.Errorf("established %t, %d prefixes", got.Established, got.Received)
	}
}
