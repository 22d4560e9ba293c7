package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var agentFaults = []fault{
	{name: "agent-kill", onlyFirst: true, kind: kernelNodes, anyNodes: true, allowed: "0",
		what: "agent SIGKILL, started again; a block is released meanwhile",
		run: func(ctx context.Context, t *trial) error {
			return t.restartAgent(ctx, (*testcluster.Agent).Kill)
		}},
	{name: "agent-term", onlyFirst: true, kind: kernelNodes, anyNodes: true, allowed: "0",
		what: "agent SIGTERM, started again; a block is released meanwhile",
		run: func(ctx context.Context, t *trial) error {
			return t.restartAgent(ctx, (*testcluster.Agent).Stop)
		}},
	{
		name: "agent-both", kind: kernelNodes, anyNodes: true, allowed: "0", long: true,
		what: "both agents SIGKILL at once, started again", run: restartBothAgents,
	},
	{
		name: "agent-no-etcd", kind: kernelNodes, allowed: "0",
		what: "agent SIGKILL, started again while all of etcd is down; a block is " +
			"released when it is back", run: restartWithoutEtcd,
	},
	{
		name: "agent-reexec", kind: kernelNodes, fresh: true, allowed: "0",
		what: "bindMode changes: both agents start anew by themselves", run: changeBindMode,
	},
	{
		name: "agent-upgrade", onlyFirst: true, kind: kernelNodes, allowed: "0", long: true,
		fresh: true, upgrade: true,
		what: "an older agent gives way to this one, by SIGTERM; then the same while " +
			"all of etcd is down", run: upgradeAgent,
	},
	{
		name: "vpp-agent-upgrade", onlyFirst: true, kind: vppNodes, allowed: "0", long: true,
		fresh: true, upgrade: true,
		what: "an older agent gives way to this one, by SIGTERM; then the same while " +
			"all of etcd is down", run: upgradeAgent,
	},
	{
		name: "agent-term-reconcile", kind: kernelNodes, anyNodes: true, allowed: "0",
		what: "agent SIGTERM when it has 300 new blocks to program, started again",
		run:  stopDuringReconcile,
	},
}

// spare is a block without workloads, for changes that must get through.
var spare = netip.MustParsePrefix("10.1.100.0/26")

// restartAgent ends the agent of node 1 and starts it again; the spare block of node 2, and more of
// its blocks, are released while it is away.
func (t *trial) restartAgent(
	ctx context.Context, end func(*testcluster.Agent) error, more ...netip.Prefix,
) error {
	if err := t.withSpare(ctx, t.nodes[1]); err != nil {
		return err
	}
	a := t.ours(1)
	t.start = time.Now()
	t.happened("agent is ended")
	if err := end(a); err != nil {
		return err
	}
	released := append(more, spare)
	for _, block := range released {
		if err := t.release(ctx, block); err != nil {
			return err
		}
	}
	return t.comeBack(ctx, a, uint64(len(released)))
}

// comeBack starts an agent a second after its end, and sees that it writes nothing that was there
// already, and deletes only so many routes.
func (t *trial) comeBack(ctx context.Context, a *testcluster.Agent, deleted uint64) error {
	if err := testcluster.Pause(ctx, time.Second); err != nil {
		return err
	}
	t.happened("started again")
	if err := a.Start(ctx); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.wroteNothing(ctx, a, deleted)
}

// withSpare gives n the spare block and waits until all nodes have the route.
func (t *trial) withSpare(ctx context.Context, n *node) error {
	if err := t.claim(ctx, n, spare); err != nil {
		return err
	}
	return t.converged(ctx, recovery)
}

// wroteNothing sees that a restarted agent wrote no route that was there already, and deleted only
// so many.
func (t *trial) wroteNothing(ctx context.Context, a *testcluster.Agent, deleted uint64) error {
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	t.must(s.FIB.OpsPut == 0 && s.FIB.OpsDeleted == deleted,
		"the new agent wrote %d routes and deleted %d, want 0 and %d",
		s.FIB.OpsPut, s.FIB.OpsDeleted, deleted)
	t.note("FIB writes: %d put, %d deleted", s.FIB.OpsPut, s.FIB.OpsDeleted)
	return nil
}

func restartBothAgents(ctx context.Context, t *trial) error {
	for _, n := range t.agents() {
		if err := n.speaker.Kill(); err != nil {
			return err
		}
	}
	for _, n := range t.agents() {
		if err := n.speaker.Start(ctx); err != nil {
			return err
		}
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return errors.Join(t.wroteNothing(ctx, t.ours(1), 0), t.wroteNothing(ctx, t.ours(2), 0))
}

func restartWithoutEtcd(ctx context.Context, t *trial) error {
	if err := t.withSpare(ctx, t.nodes[1]); err != nil {
		return err
	}
	a := t.ours(1)
	if err := netlab.Await(ctx, recovery, "the copy on disk has the last change",
		func(ctx context.Context) error {
			s, err := a.Status(ctx)
			if err == nil && s.Datastore.KeptBehind {
				err = errors.New("it is behind")
			}
			return err
		}); err != nil {
		return err
	}
	t.start = time.Now()
	if err := errors.Join(t.etcd.stop(), a.Kill()); err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return fmt.Errorf("without etcd: %w", err)
	}
	t.note("converged without etcd after %.1f s", time.Since(t.start).Seconds())
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	t.must(s.Datastore.Stale, "status does not say that the data are stale")
	if err := t.wroteNothing(ctx, a, 0); err != nil {
		return err
	}
	if err := t.etcd.startAgain(ctx); err != nil {
		return err
	}
	return t.release(ctx, spare)
}

// changeBindMode has GoBGP listen on the node's address alone, which it can only do by stopping.
func changeBindMode(ctx context.Context, t *trial) error {
	before := map[*node]int{}
	for _, n := range t.agents() {
		before[n] = n.agent().PID()
	}
	t.start = time.Now()
	conf := testcluster.Resource("BGPConfiguration", "default", meshSettings+", bindMode: NodeIP")
	if err := t.Apply(ctx, conf); err != nil {
		return err
	}
	for _, n := range t.agents() {
		a := n.agent()
		err := netlab.Await(ctx, recovery, "a new process of "+n.Name, func(context.Context) error {
			if !a.Logged("a new process takes over\"") {
				return errors.New("the old one goes on")
			}
			return nil
		})
		if err != nil {
			return err
		}
		t.must(a.PID() == before[n], "%s has another process number", n.Name)
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return errors.Join(t.wroteNothing(ctx, t.ours(1), 0), t.wroteNothing(ctx, t.ours(2), 0))
}

// stopDuringReconcile freezes the agent of node 1 while 300 blocks come, thaws it, and ends it
// within 20 ms, which is about what all of them take it.
func stopDuringReconcile(ctx context.Context, t *trial) error {
	const blocks = 300
	a := t.ours(1)
	t.start = time.Now()
	if err := a.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	release, err := t.manyBlocks(ctx, blocks)
	if err == nil {
		// less than the hold time
		err = netlab.Await(ctx, 30*time.Second, "they have come to node 3", t.nodes[2].objection)
	}
	err = errors.Join(err, a.Signal(syscall.SIGCONT),
		testcluster.Pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond), a.Stop())
	if err != nil {
		return err
	}
	t.must(a.Err() == nil, "it did not end by SIGTERM: %v", a.Err())
	have, err := t.nodes[0].inFIB(ctx)
	if err != nil {
		return err
	}
	got := 0
	for i := range blocks {
		if _, ok := have[passing(i)]; ok {
			got++
		}
	}
	t.note("%d of them were in the FIB when it had ended", got)
	if err := a.Start(ctx); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return release()
}

// upgradeAgent has an agent of another version write the journal and the copy of Calico's data that
// ours then starts from.
func upgradeAgent(ctx context.Context, t *trial) error {
	a := t.ours(1)
	for _, withEtcd := range []bool{true, false} {
		// without flags that it may not know
		a.Binary, a.Dataplane = t.previous, t.nodes[0].Dataplane()
		if err := t.restart(ctx, a); err != nil {
			return fmt.Errorf("the older agent: %w", err)
		}
		// the copy on disk is a second behind
		if err := testcluster.Pause(ctx, 2*time.Second); err != nil {
			return err
		}
		a.Binary, a.Dataplane = t.Agent, t.nodes[0].dataplane()
		t.start = time.Now()
		if !withEtcd {
			if err := t.etcd.stop(); err != nil {
				return err
			}
		}
		if err := t.restart(ctx, a); err != nil {
			return err
		}
		s, err := a.Status(ctx)
		if err != nil {
			return err
		}
		t.must(s.Datastore.Stale != withEtcd, "stale: %v", s.Datastore.Stale)
		if err := t.wroteNothing(ctx, a, 0); err != nil {
			return err
		}
	}
	return t.etcd.startAgain(ctx)
}
