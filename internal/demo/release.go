package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// releaseBlock ends w5 and releases the block that it was alone in.
func (d *demo) releaseBlock(ctx context.Context) error {
	w := d.workloads[w5]
	if _, err := d.Data.Release(ctx, w.Name); err != nil {
		return err
	}
	if err := w.node.Unplug(ctx, w.port); err != nil {
		return err
	}
	d.workloads = slices.Delete(d.workloads, w5, w5+1)
	cidr := d.find(w.Address).cidr
	d.report.note("%s ends, and %s releases %s", w.Name, w.node.Name, cidr)
	if err := d.release(ctx, cidr, d.nodes...); err != nil {
		return err
	}
	for _, n := range d.nodes {
		if _, err := d.converge(ctx, n, "holds exactly what is left"); err != nil {
			return err
		}
	}
	return nil
}

// release has the owner of a block give it up, and notes how long the block's route stays on the
// nodes.
func (d *demo) release(ctx context.Context, cidr netip.Prefix, nodes ...*node) error {
	owner := d.ownerOf(cidr.Addr())
	start := time.Now()
	if _, err := d.Data.ReleaseBlock(ctx, cidr); err != nil {
		return err
	}
	d.blocks = slices.DeleteFunc(d.blocks, func(b block) bool { return b.cidr == cidr })
	return d.each(ctx, nodes, start, eventPatience, gone(cidr), func(n *node) string {
		if n == owner {
			return fmt.Sprintf("%s: the drop route of %s is gone", n.Name, cidr)
		}
		return fmt.Sprintf("%s: the route to %s is gone", n.Name, cidr)
	})
}

// gone holds when a node's data plane has no learned route for p.
func gone(p netip.Prefix) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		_, ok, err := n.Lookup(ctx, n.speaker.Protocol(), p)
		return held(!ok, err)
	}
}
