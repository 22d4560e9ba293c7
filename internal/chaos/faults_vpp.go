package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var vppFaults = []fault{
	{name: "vpp-agent-kill", onlyFirst: true, kind: vppNodes, allowed: "0",
		what: "agent SIGKILL, started again; a block is released meanwhile",
		run: func(ctx context.Context, t *trial) error {
			return t.restartAgent(ctx, (*testcluster.Agent).Kill)
		}},
	{
		name: "vpp-agent-no-etcd", kind: vppNodes, allowed: "0", long: true,
		what: "agent SIGKILL, started again while all of etcd is down", run: restartWithoutEtcd,
	},
	{name: "vpp-kill", keepsSessions: true, uponChanges: true, onlyFirst: true, kind: vppNodes,
		allowed: "until VPP forwards again", what: "VPP SIGKILL, started and configured again",
		run: func(ctx context.Context, t *trial) error {
			return t.endVPP(ctx, (*netlab.VPP).Kill)
		}},
	{name: "vpp-term", keepsSessions: true, uponChanges: true, onlyFirst: true, kind: vppNodes,
		long: true, allowed: "until VPP forwards again",
		what: "VPP SIGTERM, started and configured again",
		run: func(ctx context.Context, t *trial) error {
			return t.endVPP(ctx, (*netlab.VPP).Stop)
		}},
	{
		name: "vpp-freeze", keepsSessions: true, uponChanges: true, onlyFirst: true, kind: vppNodes,
		allowed: "while it is frozen", what: "VPP frozen for 16 s (SIGSTOP)", run: freezeVPP,
	},
	{
		name: "vpp-late", onlyFirst: true, kind: vppNodes, allowed: "until BGP is back",
		what: "VPP and agent killed, the agent started before VPP, as after a reboot", run: lateVPP,
	},
}

// perNode is how many of the flows cross one node: it sends one and gets one.
const perNode = 2

// settling is what VPP and its neighbours may take after it forwards again: addresses are resolved
// anew.
const settling = 1500 * time.Millisecond

func (t *trial) endVPP(ctx context.Context, end func(*netlab.VPP) error) error {
	n := t.nodes[0]
	t.happened("VPP is ended")
	if err := end(n.VPP); err != nil {
		return err
	}
	return t.backWithVPP(ctx, n)
}

// backWithVPP starts VPP and waits for the routes.
func (t *trial) backWithVPP(ctx context.Context, n *node) error {
	down := time.Now()
	if err := n.RestartVPP(ctx); err != nil {
		return err
	}
	configured := time.Now()
	t.happened("started and configured again")
	t.allowOutage(perNode, configured.Sub(t.start)+settling)
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	t.note("VPP was back and configured after %.1f s, its FIB refilled %.1f s later",
		configured.Sub(down).Seconds(), time.Since(configured).Seconds())
	return nil
}

// freezeVPP stops VPP for longer than the 10 s for which the agent takes its silence.
func freezeVPP(ctx context.Context, t *trial) error {
	const frozen = 16 * time.Second
	n := t.nodes[0]
	before, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	t.start = time.Now()
	if err := n.VPP.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err = netlab.Await(ctx, frozen, "the agent says that VPP does not answer", t.notReady)
	t.must(err == nil, "%v", err)
	if err := testcluster.Pause(ctx, frozen-time.Since(t.start)); err != nil {
		return err
	}
	during, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	t.must(during.goroutines[0] <= before.goroutines[0]+10,
		"%.0f goroutines while it was frozen, %.0f before",
		during.goroutines[0], before.goroutines[0])
	t.must(during.memory[0] <= before.memory[0]+32<<20, "%.0f MiB while it was frozen, %.0f before",
		during.memory[0]/(1<<20), before.memory[0]/(1<<20))
	if err := n.VPP.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	t.allowOutage(perNode, time.Since(t.start)+settling)
	if err := t.converged(ctx, recovery); err != nil {
		return fmt.Errorf("after it was thawed: %w", err)
	}
	return t.noGrowth(ctx, before, 32<<20)
}

func lateVPP(ctx context.Context, t *trial) error {
	n, a := t.nodes[0], t.ours(1)
	if err := errors.Join(n.VPP.Kill(), a.Kill()); err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	// longer than announcements wait for a data plane
	if err := testcluster.Pause(ctx, 7*time.Second); err != nil {
		return err
	}
	if err := t.backWithVPP(ctx, n); err != nil {
		return err
	}
	t.budget = 0
	// no route was kept anywhere: the sessions must be back, too
	t.allowOutage(perNode, time.Since(t.start)+settling)
	return nil
}
