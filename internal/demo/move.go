package demo

import (
	"context"
	"fmt"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// eventPatience is how long a change of Calico's data may take to reach the FIBs before the check
// fails.
const eventPatience = 10 * time.Second

// moveWorkload moves w1 from node-1, whose block its address is from, to node-2 and back, while it
// is pinged from the others. As in a live migration it is reachable on both nodes for a moment:
// whatever is lost is lost by routing.
func (d *demo) moveWorkload(ctx context.Context) error {
	w := d.workloads[w1]
	pairs := [][2]*workload{{d.workloads[w2], w}, {d.workloads[w3], w}}
	return d.underTraffic(ctx, pairs, [2]*workload{d.workloads[w2], d.workloads[w3]},
		func(ctx context.Context) error {
			home, away := d.nodes[node1], d.nodes[node2]
			for _, to := range []*node{away, home} {
				if err := d.move(ctx, w, to); err != nil {
					return err
				}
				// with traffic on the new way only
				if err := testcluster.Pause(ctx, time.Second); err != nil {
					return err
				}
			}
			return nil
		})
}

// move makes before it breaks: link and route on the new node, then Calico's data, and when the
// other nodes' FIBs follow the old link goes.
func (d *demo) move(ctx context.Context, w *workload, to *node) error {
	from, fromPort := w.node, w.port
	p, err := to.plug(ctx, w)
	if err != nil {
		return err
	}
	d.report.note("%s %s moves from %s to %s", w.Name, w.Address, from.Name, to.Name)
	start := time.Now()
	if _, err := d.Data.Move(ctx, w.Name, to.Name); err != nil {
		return err
	}
	if err := d.awaitMoved(ctx, w, to, start); err != nil {
		return err
	}
	if err := w.use(ctx, to, p); err != nil {
		return err
	}
	// Packets that took the old way may still be in a queue of a busy machine.
	if err := testcluster.Pause(ctx, 200*time.Millisecond); err != nil {
		return err
	}
	return from.Unplug(ctx, fromPort)
}

// awaitMoved waits until the other nodes have a /32 towards it, or none any more where its block
// covers it again.
func (d *demo) awaitMoved(ctx context.Context, w *workload, to *node, start time.Time) error {
	owner := d.ownerOf(w.Address)
	if to == owner {
		return d.each(ctx, allBut(d.nodes, w.node), start, eventPatience, gone(w.host()),
			func(n *node) string {
				return fmt.Sprintf("%s: no %s any more, the block of %s covers it",
					n.Name, w.host(), owner.Name)
			})
	}
	return d.each(ctx, allBut(d.nodes, to), start, eventPatience,
		func(ctx context.Context, n *node) error {
			return n.via(ctx, w.host(), to.nextHop)
		}, func(n *node) string {
			return fmt.Sprintf("%s: %s via %s beats the block of %s",
				n.Name, w.host(), to.nextHop, owner.Name)
		})
}
