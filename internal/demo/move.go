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
	w := d.workloads[w1]
	pairs := [][2]*workload{{d.workloads[w2], w}, {d.workloads[w3], w}}
	return d.underTraffic(ctx, pairs, [2]*workload{d.workloads[w2], d.workloads[w3]}, func(ctx context.Context) error {
		home, away := d.nodes[node1], d.nodes[node2]
		for _, to := range []*node{away, home} {
			if err := d.move(ctx, w, to); err != nil {
				return err
			}
			if err := pause(ctx, time.Second); err != nil { // with traffic on the new way only
				return err
			}
		}
		return nil
	})
}

// move makes before it breaks: link and route on the new node, then Calico's data, and when the other nodes' FIBs follow the old link
// goes.
func (d *demo) move(ctx context.Context, w *workload, to *node) error {
	from, fromPort := w.node, w.port
	p, err := to.plug(ctx, d.lab, w)
	if err != nil {
		return err
	}
	d.report.note("%s %s moves from %s to %s", w.name, w.address, from.name, to.name)
	start := time.Now()
	if _, err := d.cluster.Move(ctx, w.name, to.name); err != nil {
		return err
	}
	if err := d.awaitMoved(ctx, w, to, start); err != nil {
		return err
	}
	if err := w.use(ctx, to, p); err != nil {
		return err
	}
	return from.unplug(ctx, w, fromPort)
}

// awaitMoved waits until the other nodes have a /32 towards it, or none any more where its block covers it again.
func (d *demo) awaitMoved(ctx context.Context, w *workload, to *node, start time.Time) error {
	owner := d.ownerOf(w.address)
	if to == owner {
		return d.each(ctx, allBut(d.nodes, w.node), start, eventPatience, gone(w.host()), func(n *node) string {
			return fmt.Sprintf("%s: no %s any more, the block of %s covers it", n.name, w.host(), owner.name)
		})
	}
	return d.each(ctx, allBut(d.nodes, to), start, eventPatience, func(ctx context.Context, n *node) (bool, error) {
		e, ok, err := n.fib.lookup(ctx, w.host())
		return ok && e.nextHop == to.nextHop, err
	}, func(n *node) string {
		return fmt.Sprintf("%s: %s via %s beats the block of %s", n.name, w.host(), to.nextHop, owner.name)
	})
}
