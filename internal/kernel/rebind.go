package kernel

import (
	"context"
	"fmt"

	"vpp-route-agent/internal/route"
)

// rebind puts again the recalled routes that come out elsewhere now, because of the kernel's other routes, and those that went with an
// interface: the caller asked for a next hop without interface and so has no reason to put them again. One that cannot be resolved any
// more stays as it is: the caller learns that from Resolve and decides. After an error some of them may not have been looked at.
func (d *Dataplane) rebind(ctx context.Context) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if len(d.recalled) == 0 {
		return nil
	}
	return d.putMoved(ctx)
}

// Recall is fib.Recaller's. A route that is not there is left to whoever looks for drift; one that would come out elsewhere now has moved while
// nobody followed it, and is put.
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

// programmed lists our routes that have the keys of routes, as the kernel has them, and tells how many losses there had been before.
func (d *Dataplane) programmed(ctx context.Context, routes []route.Route) (there map[route.Key]route.Route, losses uint32, err error) {
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
		if err == nil && (m.lost(w.ifaces) || !d.routeOf(e, w.ifaces).SameForwarding(m.programmed)) {
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
