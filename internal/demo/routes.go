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
)

// block is an IPAM block and the node that has it.
type block struct {
	cidr  netip.Prefix
	owner *node
}

// wanted is what the speaker of n must have programmed: the others' blocks and the addresses that are not where their block is, each
// towards the node that has it, and a drop (the zero Addr) for each own block.
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
		if w.node != n && d.ownerOf(w.address) != w.node {
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

// differences names what a node's data plane holds and should not, or the other way round.
func differences(want map[netip.Prefix]netip.Addr, have map[netip.Prefix]entry) (diff []string) {
	for p, via := range want {
		e, ok := have[p]
		switch {
		case !ok:
			diff = append(diff, fmt.Sprintf("%s is missing", p))
		case e.nextHop != via:
			diff = append(diff, fmt.Sprintf("%s is via %s, not %s", p, hop(e.nextHop), hop(via)))
		}
	}
	for p := range have {
		if _, ok := want[p]; !ok {
			diff = append(diff, fmt.Sprintf("%s should not be there", p))
		}
	}
	slices.Sort(diff)
	return diff
}

func hop(a netip.Addr) string {
	if !a.IsValid() {
		return "drop"
	}
	return a.String()
}

// settlePatience is how long a node may take to hold what it should.
const settlePatience = 20 * time.Second

// settle waits until a node holds exactly what it should, and returns what it holds and what of that is wrong when the time is up.
func (d *demo) settle(ctx context.Context, n *node) (have map[netip.Prefix]entry, wrong []string, err error) {
	_, err = await(ctx, settlePatience, func(ctx context.Context) (_ bool, err error) {
		have, err = n.fib.learned(ctx)
		wrong = differences(d.wanted(n), have)
		return len(wrong) == 0, err
	})
	return have, wrong, err
}

// converge notes whether a node comes to hold exactly what it should.
func (d *demo) converge(ctx context.Context, n *node, what string) (map[netip.Prefix]entry, error) {
	have, wrong, err := d.settle(ctx, n)
	if err != nil {
		return nil, err
	}
	detail := fmt.Sprintf("%d routes", len(have))
	if len(wrong) > 0 {
		detail = strings.Join(wrong, ", ")
	}
	d.report.check(len(wrong) == 0, fmt.Sprintf("%s: %s", n.name, what), detail)
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
			rows = append(rows, []string{p.String(), hop(have[p].nextHop), d.why(n, p), have[p].where})
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
			return "block of " + b.owner.name
		}
	}
	for _, w := range d.workloads {
		if w.host() == p {
			return fmt.Sprintf("%s, borrowed by %s", w.name, w.node.name)
		}
	}
	return ""
}

// sameHops compares next hops.
func sameHops(a, b map[netip.Prefix]entry) bool {
	return maps.EqualFunc(a, b, func(x, y entry) bool { return x.nextHop == y.nextHop })
}
