package main

import (
	"context"
	"time"
)

var peerFaults = []fault{
	{name: "bird-kill", kind: kernelNodes, anyNodes: true, allowed: "0", what: "BIRD SIGKILL, started again: the agents keep its routes (RFC 4724)", run: restartBird},
	{name: "bird-twice", kind: kernelNodes, anyNodes: true, allowed: "0", long: true, what: "BIRD SIGKILL, started again, and once more as soon as all is well", run: func(ctx context.Context, t *trial) error {
		if err := restartBird(ctx, t); err != nil {
			return err
		}
		if err := t.converged(ctx, recovery); err != nil {
			return err
		}
		return restartBird(ctx, t)
	}},
}

// restartBird kills the BIRD of node 3. Nothing may be written for what it announces again unchanged.
func restartBird(ctx context.Context, t *trial) error {
	before, err := t.ours(1).status(ctx)
	if err != nil {
		return err
	}
	b := t.nodes[2].speaker
	if err := b.kill(); err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	after, err := t.ours(1).status(ctx)
	if err != nil {
		return err
	}
	t.must(after.FIB.OpsPut == before.FIB.OpsPut && after.FIB.OpsDeleted == before.FIB.OpsDeleted, "routes were written: %d put, %d deleted",
		after.FIB.OpsPut-before.FIB.OpsPut, after.FIB.OpsDeleted-before.FIB.OpsDeleted)
	return nil
}
