package main

import (
	"context"
	"errors"
	"time"

	"vpp-route-agent/internal/testcluster"
)

var peerFaults = []fault{
	{
		name: "bird-kill", kind: kernelNodes, anyNodes: true, allowed: "0",
		what: "BIRD SIGKILL, started again: the agents keep its routes (RFC 4724)",
		run:  restartBird,
	},
	{name: "bird-twice", kind: kernelNodes, anyNodes: true, allowed: "0", long: true,
		what: "BIRD SIGKILL, started again, and once more as soon as all is well",
		run: func(ctx context.Context, t *trial) error {
			if err := restartBird(ctx, t); err != nil {
				return err
			}
			if err := t.converged(ctx, recovery); err != nil {
				return err
			}
			return restartBird(ctx, t)
		}},
	{
		name: "peer-dies", kind: kernelNodes, long: true, fresh: true,
		allowed: "to and from the dead node",
		what:    "the node with BIRD dies without a word, for good", run: loseNode,
	},
}

// deathNotice bounds the time until a peer that says nothing is given up: the hold time of 90 s,
// and what a busy machine adds.
const deathNotice = 120 * time.Second

// loseNode cuts the power of node 3, the link first, or its kernel would close the sessions: its
// routes must stay until the hold time, and be gone after it.
func loseNode(ctx context.Context, t *trial) error {
	dead := t.nodes[2]
	if err := errors.Join(dead.NS.SetLink("eth0", false), dead.speaker.Kill()); err != nil {
		return err
	}
	t.spared = func(f flow) bool { return f.from != dead && f.to != dead }
	t.nodes = t.agents()
	for block, owner := range t.blocks {
		if owner == dead {
			delete(t.blocks, block)
		}
	}
	err := t.converged(ctx, deathNotice)
	gone := time.Since(t.start)
	t.must(gone > time.Minute, "its routes have left after %.1f s already, the hold time is 90 s",
		gone.Seconds())
	t.note("its routes left after %.1f s, hold time 90 s", gone.Seconds())
	t.allowOutage(2, gone+2*time.Second) // and for ever, but the flows end soon
	return err
}

// restartBird kills the BIRD of node 3. Nothing may be written for what it announces again
// unchanged.
func restartBird(ctx context.Context, t *trial) error {
	b := t.nodes[2].speaker
	written, err := t.writesDuring(ctx, func() error {
		if err := errors.Join(b.Kill(), testcluster.Pause(ctx, time.Second)); err != nil {
			return err
		}
		if err := b.Start(ctx); err != nil {
			return err
		}
		return t.converged(ctx, recovery)
	})
	t.must(written == fibWrites{}, "routes were written: %+v", written)
	return err
}
