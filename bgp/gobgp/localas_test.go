package gobgp

import (
	"fmt"
	"testing"
)

// The AS that counts as our own in a peer's AS_PATH is the one that the peer knows us by: with
// localASNumber not that of the node (RFC 4271 §9.1.2).
func TestLoopsAreOfTheLocalAS(t *testing.T) {
	for allowed, want := range map[int]string{
		0: "[10.1.0.0/26]",
		1: "[10.1.0.0/26 10.1.1.0/26]",
		2: "[10.1.0.0/26 10.1.1.0/26 10.1.2.0/26]",
	} {
		t.Run(fmt.Sprintf("%d allowed", allowed), func(t *testing.T) {
			n := newLab(t).unset(64512)
			n.farPeer("127.0.0.148", 65003)
			n.plan.Peers[0].LocalAS, n.plan.Peers[0].AllowLocalAS = 64999, allowed
			set(t, n)
			f := dialFar(t, n, "127.0.0.148", 65003, 90, true, gracefulCap(false))
			f.announce("10.1.1.0/26", "127.0.0.148", 65003, 64999)
			f.announce("10.1.2.0/26", "127.0.0.148", 65003, 64999, 64999)
			f.announce("10.1.0.0/26", "127.0.0.148", 65003, 64512, 64512, 64512) // the last
			n.wantHops("10.1.0.0/26", "127.0.0.148")
			var got []string
			for i := range 3 {
				if prefix := fmt.Sprintf("10.1.%d.0/26", i); len(n.hops(prefix)) > 0 {
					got = append(got, prefix)
				}
			}
			if fmt.Sprint(got) != want {
				t.Errorf("taken: %v, not %s", got, want)
			}
		})
	}
}
