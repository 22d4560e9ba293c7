package demo

import (
	"context"
	"fmt"
	"time"
)

// eventPatience is how long a change of Calico's data may take to reach the FIBs before the check fails.
const eventPatience = 10 * time.Second

// moveWorkload moves w1 from node-1, whose block its address is from, to node-2 and back, while it is pinged from the others. As in a
// live migration it is reachable on both nodes for a moment: whatever is lost is lost by routing.
func (d *demo) moveWorkload(ctx context.Context) error {
	w, from, to := d.workloads[w1], d.nodes[node1], d.nodes[node2]
	var pings flows
	for _, i := range []int{w2, w3} {
		if err := pings.startFlow(d.workloads[i], w); err != nil {
			return err
		}
	}
	d.report.note("%s %s: %s → %s", w.name, w.address, from.name, to.name)
	if err := d.move(ctx, w, to, func(ctx context.Context) error {
		return d.each(ctx, []*node{from, d.nodes[node3]}, eventPatience, func(ctx context.Context, n *node) (bool, error) {
			e, ok, err := n.fib.lookup(ctx, w.host())
			return ok && e.nextHop == to.address, err
		}, func(n *node) string { return fmt.Sprintf("%s has %s via %s", n.name, w.host(), to.address) })
	}); err != nil {
		return err
	}
	d.report.note("%s %s: %s → %s", w.name, w.address, to.name, from.name)
	if err := d.move(ctx, w, from, func(ctx context.Context) error {
		return d.each(ctx, []*node{from, d.nodes[node3]}, eventPatience, func(ctx context.Context, n *node) (bool, error) {
			_, ok, err := n.fib.lookup(ctx, w.host())
			return !ok, err
		}, func(n *node) string { return fmt.Sprintf("%s has no %s any more, the block covers it", n.name, w.host()) })
	}); err != nil {
		return err
	}
	pings.judge(d.report)
	return nil
}

// move makes before it breaks: link and route on the new node, then Calico's data, then, once arrived reports that the others follow,
// the end of the old link.
func (d *demo) move(ctx context.Context, w *workload, to *node, arrived func(context.Context) error) error {
	old, oldPort := w.node, w.port
	p, err := to.plug(ctx, d.lab, w)
	if err != nil {
		return err
	}
	if _, err := d.cluster.Move(ctx, w.name, to.name); err != nil {
		return err
	}
	if err := arrived(ctx); err != nil {
		return err
	}
	if err := w.use(ctx, to, p); err != nil {
		return err
	}
	return old.unplug(ctx, w, oldPort)
}
