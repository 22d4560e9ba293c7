package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// releaseBlock ends w5 and releases the block that it was alone in.
func (d *demo) releaseBlock(ctx context.Context) error {
	w := d.workloads[w5]
	owner := w.node
	i := slices.IndexFunc(d.blocks, func(b block) bool { return b.cidr.Contains(w.address) })
	cidr := d.blocks[i].cidr
	if _, err := d.cluster.Release(ctx, w.name); err != nil {
		return err
	}
	if err := owner.unplug(ctx, w, w.port); err != nil {
		return err
	}
	d.workloads = slices.Delete(d.workloads, w5, w5+1)
	d.blocks = slices.Delete(d.blocks, i, i+1)
	d.report.note("%s ends, and %s releases %s", w.name, owner.name, cidr)
	if _, err := d.cluster.ReleaseBlock(ctx, cidr); err != nil {
		return err
	}
	err := d.each(ctx, d.nodes, eventPatience, gone(cidr), func(n *node) string {
		if n == owner {
			return fmt.Sprintf("%s has no drop route for %s any more", n.name, cidr)
		}
		return fmt.Sprintf("%s has no route to %s any more", n.name, cidr)
	})
	if err != nil {
		return err
	}
	for _, n := range d.nodes {
		if _, err := d.converge(ctx, n, "holds exactly what is left"); err != nil {
			return err
		}
	}
	return nil
}

// gone holds when a node's data plane has no learned route for p.
func gone(p netip.Prefix) func(context.Context, *node) (bool, error) {
	return func(ctx context.Context, n *node) (bool, error) {
		_, ok, err := n.fib.lookup(ctx, p)
		return !ok, err
	}
}
