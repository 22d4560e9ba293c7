package interop

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPeerHangs stops a BIRD without ending it: the connection stays, and only its silence tells.
// Graceful restart must not keep the routes of a peer that is silent for the hold time.
func TestPeerHangs(t *testing.T) {
	t.Parallel()
	const hold = 9 * time.Second // instead of the 90 s that the agent offers
	l := newLab(t, "hang")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	ten := l.birdNode(t, "ten", "10.0.0.10/24", "10.0.0.2")
	nine.config.Peers[0].HoldTime = hold
	nine.setBlocks(t, "10.1.0.64/26")
	ten.setBlocks(t, "10.1.0.128/26")
	nine.workload(t, "pod9", "10.1.0.65")
	tenPod := ten.workload(t, "pod10", "10.1.0.129")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	pod := us.pod(t, "pod", "10.1.0.1")
	nine.start(t)
	ten.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.9", "10.0.0.10")
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
		"10.1.0.128/26 via 10.0.0.10")
	for _, b := range []*birdNode{nine, ten} {
		b.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	}
	ping(t, pod, "10.1.0.65")
	ping(t, tenPod, "10.1.0.1")
	// its kernel goes on
	control, through := flow(t, ten.NS, "10.0.0.9"), flow(t, pod, "10.1.0.129")
	before, err := us.session(t.Context(), addr("10.0.0.10"))
	check(t, err)

	check(t, nine.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.128/26 via 10.0.0.10")
	// The last keepalive is at most a third of the hold time old when BIRD stops. Graceful restart
	// would keep the routes for two minutes.
	if took := time.Since(stopped); took < hold*2/3-time.Second || took > time.Minute {
		t.Errorf("the routes went after %s, hold time is %s", took, hold)
	}
	s, err := us.session(t.Context(), addr("10.0.0.9"))
	if err == nil || !strings.Contains(s.LastError, "hold timer expired") {
		t.Errorf("peer: %+v, %v; want it down because its hold timer expired", s, err)
	}

	check(t, nine.Signal(syscall.SIGCONT))
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
		"10.1.0.128/26 via 10.0.0.10")
	after, err := us.session(t.Context(), addr("10.0.0.10"))
	check(t, err)
	if !after.Since.Equal(*before.Since) {
		t.Error("the other session was reset")
	}
	await(t, "the sessions stay up", func(ctx context.Context) error {
		if time.Since(stopped) < hold*3 {
			return fmt.Errorf("only %s have passed", time.Since(stopped))
		}
		_, err := us.session(ctx, addr("10.0.0.9"))
		return err
	})
	nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	ping(t, pod, "10.1.0.65")
	noneLost(t, control, through)
}
