package demo

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testcluster"
)

// block is an IPAM block and the node that has it.
type block struct {
	cidr  netip.Prefix
	owner *node
}

// wanted is what the speaker of n must have programmed: the others' blocks and the addresses that
// are not where their block is, each towards the node that has it, and a drop (the zero Addr) for
// each own block.
func (d *demo) wanted(n *node) map[netip.Prefix]netip.Addr {
	want := map[netip.Prefix]netip.Addr{}
	for _, b := range d.blocks {
		if b.owner == n {
			want[b.cidr] = netip.Addr{}
		} else {
			want[b.cidr] = b.owner.nextHop
		}
	}
	for _, w := range d.workloads {
		if w.node != n && d.ownerOf(w.Address) != w.node {
			want[w.host()] = w.node.nextHop
		}
	}
	return want
}

// find returns the block that an address is from, the zero one if it is from none.
func (d *demo) find(a netip.Addr) block {
	for _, b := range d.blocks {
		if b.cidr.Contains(a) {
			return b
		}
	}
	return block{}
}

func (d *demo) ownerOf(a netip.Addr) *node { return d.find(a).owner }

// settlePatience is how long a node may take to hold what it should.
const settlePatience = 20 * time.Second

// settle waits until a node holds exactly what it should, and returns what it holds and what of
// that is wrong when the time is up.
func (d *demo) settle(
	ctx context.Context, n *node,
) (have testcluster.FIB, wrong []string, err error) {
	await(ctx, settlePatience, func(ctx context.Context) error {
		now, asked := n.learned(ctx)
		if ctx.Err() == nil { // else it was not asked
			have, err = now, asked
			wrong = have.Difference(d.wanted(n))
		}
		return held(len(wrong) == 0, err)
	})
	return have, wrong, err
}

// converge notes whether a node comes to hold exactly what it should.
func (d *demo) converge(ctx context.Context, n *node, what string) (testcluster.FIB, error) {
	have, wrong, err := d.settle(ctx, n)
	if err != nil {
		return nil, err
	}
	detail := fmt.Sprintf("%d routes", len(have))
	if len(wrong) > 0 {
		detail = strings.Join(wrong, ", ")
	}
	d.report.check(len(wrong) == 0, fmt.Sprintf("%s: %s", n.Name, what), detail)
	return have, nil
}

// showRoutes is the per-node table: prefix, next hop, and where it was found.
func (d *demo) showRoutes(ctx context.Context) error {
	for _, n := range d.nodes {
		have, err := d.converge(ctx, n, "holds exactly what the others announce")
		if err != nil {
			return err
		}
		rows := [][]string{{"PREFIX", "NEXT HOP", "WHY", "FOUND IN"}}
		for _, p := range slices.SortedFunc(maps.Keys(have), route.ComparePrefixes) {
			hop := testcluster.Hop(have[p].NextHop())
			rows = append(rows, []string{p.String(), hop, d.why(n, p), n.where(have[p])})
		}
		d.report.table(rows)
	}
	return nil
}

// why explains a route to a person.
func (d *demo) why(n *node, p netip.Prefix) string {
	for _, b := range d.blocks {
		switch {
		case b.cidr == p && b.owner == n:
			return "own block: no loops"
		case b.cidr == p:
			return "block of " + b.owner.Name
		}
	}
	for _, w := range d.workloads {
		if w.host() == p {
			return fmt.Sprintf("%s, borrowed by %s", w.Name, w.node.Name)
		}
	}
	return ""
}

// sameHops compares next hops.
func sameHops(a, b testcluster.FIB) bool {
	return maps.EqualFunc(a, b, func(x, y testcluster.Route) bool {
		return x.NextHop() == y.NextHop()
	})
}
