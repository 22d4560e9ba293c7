package kernel

import (
	"context"
	"fmt"

	"vpp-route-agent/internal/route"
)

// rebind puts recalled routes again that now resolve differently, or that were lost with an
// interface: their caller asked for a next hop without interface and would not put them again. A
// route that no longer resolves stays, and Resolve tells the caller. After an error some routes may
// be unchecked.
func (d *Dataplane) rebind(ctx context.Context) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if len(d.recalled) == 0 {
		return nil
	}
	return d.putMoved(ctx)
}

// Recall implements fib.Recaller. It leaves missing routes to the audit, and puts routes whose
// resolution changed while we were not running.
func (d *Dataplane) Recall(ctx context.Context, routes []route.Route) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	there, losses, err := d.programmed(ctx, routes)
	if err == nil {
		d.mu.Lock()
		for _, r := range routes {
			switch p, ok := there[r.Key]; {
			case !ok, p.Kind != r.Kind: // a route of another kind is somebody's edit
			case p.SameForwarding(r):
				d.carry(r.Key, carries(r))
			default:
				d.recalled[r.Key] = recall{r, p, losses}
			}
		}
		d.mu.Unlock()
		err = d.putMoved(ctx)
	}
	if err != nil {
		return fmt.Errorf("kernel: recall: %w", err)
	}
	return nil
}

// programmed lists our routes with the keys of routes in the kernel's form, and the number of
// losses before the list.
func (d *Dataplane) programmed(ctx context.Context,
	routes []route.Route) (there map[route.Key]route.Route, losses uint32, err error) {
	ifaces, err := d.interfaces()
	if err != nil {
		return nil, 0, err
	}
	asked := make(map[route.Key]bool, len(routes))
	for _, r := range routes {
		asked[r.Key] = true
	}
	there = map[route.Key]route.Route{}
	err = d.each(ctx, selection{protocol: d.protocol}, func() { clear(there) }, func(e entry) {
		if !d.ours(e) {
			return
		}
		if r := d.routeOf(e, ifaces); asked[r.Key] {
			there[r.Key] = r
		}
	})
	return there, ifaces.losses, err
}

func (d *Dataplane) putMoved(ctx context.Context) error {
	w := d.newWrite(ctx, func(_ int, err error) {
		if err != nil {
			d.log.Warn("cannot follow a next hop", "err", err)
		}
	})
	if err := w.catchUp(); err != nil {
		return err
	}
	var moved []route.Op
	for _, m := range d.recalled {
		op := route.Op{Route: m.put}
		e, err := w.encode(&op)
		if err == nil && (m.lost(w.ifaces) ||
			!d.routeOf(e, w.ifaces).SameForwarding(m.programmed)) {
			moved = append(moved, op)
		}
	}
	for i, op := range moved {
		if err := w.add(i, op); err != nil {
			return err
		}
	}
	return w.flush()
}
