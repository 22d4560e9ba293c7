package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// meshPatience is how long a mesh may take to come up: BIRD waits 2 s before it dials, and 5 s before it dials again.
const meshPatience = 25 * time.Second

// startSpeakers starts the agents and BIRD and waits until each has a session with both others.
func (d *demo) startSpeakers(ctx context.Context) error {
	for _, n := range d.nodes {
		if err := n.speaker.start(ctx); err != nil {
			return err
		}
	}
	if err := d.awaitMesh(ctx, d.nodes); err != nil {
		return err
	}
	for _, n := range []*node{d.nodes[node1], d.nodes[node3]} {
		command, output, err := n.speaker.quote(ctx)
		if err != nil {
			return err
		}
		d.report.note("%s$ %s", n.name, command)
		d.report.quote(output)
	}
	return nil
}

// awaitMesh notes for each node how long it takes until its sessions with all others are Established.
func (d *demo) awaitMesh(ctx context.Context, nodes []*node) error {
	return d.each(ctx, nodes, meshPatience, func(ctx context.Context, n *node) (bool, error) {
		up, err := n.speaker.sessions(ctx)
		return slices.Equal(up, without(d.addresses(), n.address)), err
	}, func(n *node) string {
		return fmt.Sprintf("%s (%s) has both its sessions up", n.name, n.speaker.name())
	})
}

func (d *demo) addresses() (all []netip.Addr) {
	for _, n := range d.nodes {
		all = append(all, n.address)
	}
	return all
}

// each waits on all nodes at once until holds, and notes for each under its name how long that took.
func (d *demo) each(ctx context.Context, nodes []*node, patience time.Duration,
	holds func(context.Context, *node) (bool, error), name func(*node) string) error {
	type outcome struct {
		took time.Duration
		ok   bool
		err  error
	}
	outcomes := make([]outcome, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			o := &outcomes[i]
			o.took, o.ok, o.err = await(ctx, patience, func(ctx context.Context) (bool, error) { return holds(ctx, n) })
		})
	}
	wg.Wait()
	for i, n := range nodes {
		o := outcomes[i]
		detail := inSeconds(o.took)
		switch {
		case o.err != nil:
			detail = o.err.Error()
		case !o.ok:
			detail = "not after " + detail
		}
		d.report.check(o.ok, name(n), detail)
	}
	return ctx.Err()
}
