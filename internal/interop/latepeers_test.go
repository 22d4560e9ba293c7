package interop

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// The agent is killed and started while the BIRDs of some nodes hang, so that they come back long
// after another is complete; one does not come back at all. A BIRD that hears nothing of a restart
// forgets our routes for a moment. Whether its kernel sees that is luck, so there are several.
func TestLatePeersAfterRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, "late")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	early := l.birdNode(t, "early", "10.0.0.10/24", "10.0.0.2", "10.0.0.7", "10.0.0.8", "10.0.0.9")
	late := []*birdNode{
		l.birdNode(t, "late7", "10.0.0.7/24", "10.0.0.2", "10.0.0.10"),
		l.birdNode(t, "late8", "10.0.0.8/24", "10.0.0.2", "10.0.0.10"),
		l.birdNode(t, "late9", "10.0.0.9/24", "10.0.0.2", "10.0.0.10"),
	}
	check(t, l.Data.AddNode(t.Context(), "dead", pfx("10.0.0.11/24")))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	early.setBlocks(t, "10.1.0.128/26")
	late[0].setBlocks(t, "10.1.0.64/26")
	us.workload(t, "pod", "10.1.0.1")
	early.workload(t, "pod10", "10.1.0.129")
	latePod := late[0].workload(t, "pod7", "10.1.0.65")
	all := append(slices.Clone(late), early)
	for _, b := range all {
		b.start(t)
	}
	us.start(t)
	before := []string{iBGP("10.1.0.0/26", "10.0.0.2")}
	var watches []*routeMonitor
	for _, b := range all {
		b.awaitEstablished(t)
		b.awaitRIB(t, mesh("10.0.0.2"), before...)
		b.awaitKernelHas(t, "10.1.0.0/26 via 10.0.0.2")
		watches = append(watches, b.watchRoutes(t))
	}
	ping(t, latePod, "10.1.0.1")
	ping(t, latePod, "10.1.0.129")

	control, through := flow(t, latePod, "10.1.0.129"), flow(t, latePod, "10.1.0.1")
	for _, b := range late {
		check(t, b.Signal(syscall.SIGSTOP))
	}
	check(t, us.agent.Kill())
	us.start(t)
	await(t, "early is complete", func(ctx context.Context) error {
		s, err := us.session(ctx, addr("10.0.0.10"))
		if err == nil && !s.EndOfRIB {
			err = fmt.Errorf("no End-of-RIB: %+v", s)
		}
		return err
	})
	time.Sleep(2 * time.Second)

	// Peers that are away hold up no one else.
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.2.0/26")))
	claimed := time.Now()
	after := append(before, iBGP("10.1.2.0/26", "10.0.0.2"))
	early.awaitRIB(t, mesh("10.0.0.2"), after...)
	if took := time.Since(claimed); took > 15*time.Second {
		t.Errorf("a new block took %s to a peer that is up", took)
	}

	for _, b := range late {
		check(t, b.Signal(syscall.SIGCONT))
	}
	for i, b := range all {
		b.awaitRIB(t, mesh("10.0.0.2"), after...)
		b.awaitEstablished(t)
		b.awaitKernelHas(t, "10.1.2.0/26 via 10.0.0.2")
		changes := watches[i].stop(t, "bird", "via 10.0.0.2 ")
		err := same("changes of routes to us in the kernel of "+b.name, changes, []string{
			"10.1.2.0/26 via 10.0.0.2",
		})
		if err != nil {
			t.Error(err)
		}
	}
	noneLost(t, control, through)
}

// awaitKernelHas waits for one of BIRD's routes in the kernel.
func (b *birdNode) awaitKernelHas(t *testing.T, want string) {
	t.Helper()
	await(t, "the kernel of "+b.name+" has "+want, func(ctx context.Context) error {
		got, err := b.kernel(ctx, "-4", "bird")
		if err == nil && !slices.Contains(stripMetric(got), want) {
			err = fmt.Errorf("%v", got)
		}
		return err
	})
}
