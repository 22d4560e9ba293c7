package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// meshPatience is how long a mesh may take to come up: BIRD waits 2 s before it dials, and 5 s
// before it dials again.
const meshPatience = 25 * time.Second

// startSpeakers starts the agents and BIRD and waits until each has a session with both others.
func (d *demo) startSpeakers(ctx context.Context) error {
	if err := d.pingNodes(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := d.startAll(ctx); err != nil {
		return err
	}
	if err := d.awaitMesh(ctx, d.nodes, start); err != nil {
		return err
	}
	shown := []*node{d.nodes[node1], d.nodes[node3]}
	if d.cfg.Learn != "bgp" {
		shown = shown[:1] // the third one's looks the same
	}
	return d.quoteSpeakers(ctx, shown...)
}

// quoteSpeakers shows what speakers say of their peers once they are ready and their nodes hold
// what they should.
func (d *demo) quoteSpeakers(ctx context.Context, nodes ...*node) error {
	for _, n := range nodes {
		await(ctx, settlePatience, n.speaker.ready) // else the quote says why it is not
		if _, _, err := d.settle(ctx, n); err != nil {
			return err
		}
		command, output, err := n.speaker.quote(ctx)
		if err != nil {
			return err
		}
		d.report.note("%s$ %s", n.Name, command)
		d.report.quote(output)
	}
	return nil
}

// pingNodes sees that the underlay is there: with VPP this is the way of BGP through it.
func (d *demo) pingNodes(ctx context.Context) error {
	var ends []end
	for _, n := range d.nodes {
		ends = append(ends, end{name: n.Name, ns: n.NS, address: n.Address})
	}
	_, answered := pingEach(ctx, ends)
	all := len(ends) * (len(ends) - 1)
	d.report.check(answered == all, fmt.Sprintf("the nodes reach each other in the underlay %s",
		underlay),
		fmt.Sprintf("%d of %d", answered, all))
	return ctx.Err()
}

// awaitMesh notes for each node how long it takes until its sessions with all others are
// Established.
func (d *demo) awaitMesh(ctx context.Context, nodes []*node, start time.Time) error {
	return d.each(ctx, nodes, start, meshPatience, func(ctx context.Context, n *node) error {
		up, err := n.speaker.Established(ctx)
		return held(slices.Equal(up, allBut(d.addresses(), n.Address)), err)
	}, func(n *node) string {
		return fmt.Sprintf("%s: %s has both its sessions Established", n.Name, n.speaker.name())
	})
}

func (d *demo) addresses() (all []netip.Addr) {
	for _, n := range d.nodes {
		all = append(all, n.Address)
	}
	return all
}

// each waits on all nodes at once until holds, and notes for each under its name how long after
// start that was.
func (d *demo) each(ctx context.Context, nodes []*node, start time.Time, patience time.Duration,
	holds func(context.Context, *node) error, name func(*node) string) error {
	type outcome struct {
		took time.Duration
		err  error
	}
	outcomes := make([]outcome, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			o := &outcomes[i]
			o.err = await(ctx, patience, func(ctx context.Context) error { return holds(ctx, n) })
			o.took = time.Since(start)
		})
	}
	wg.Wait()
	for i, n := range nodes {
		o := outcomes[i]
		detail := inSeconds(o.took)
		switch {
		case errors.Is(o.err, errNotYet):
			detail = "not after " + detail
		case o.err != nil:
			detail = o.err.Error()
		}
		d.report.check(o.err == nil, name(n), detail)
	}
	return ctx.Err()
}
