package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"vpp-route-agent/internal/testcluster"
)

const (
	destinations = 40
	rackHold     = 90 * time.Second
	rackFilter   = "rack"
)

// rack is a router that both nodes of ours may peer with, and what Calico's data say of it: who
// does, and what the BGPFilter of those sessions rejects.
type rack struct {
	*router
	peers    map[*node]bool
	rejected map[netip.Prefix]bool // destinations that are not imported
	withheld netip.Prefix          // blocks inside it are not exported; the zero Prefix: all are
}

// addRack makes the rack's router. Nobody peers with it yet.
func (c *cluster) addRack(ctx context.Context) error {
	var announced []netip.Prefix
	for i := range destinations {
		announced = append(announced, destination(i))
	}
	r, err := c.addRouter(ctx, 0, rackHold, c.agents(), announced...)
	if err != nil {
		return err
	}
	c.rack = &rack{router: r, peers: map[*node]bool{}}
	return c.filterRack(ctx, nil, netip.Prefix{})
}

// destination is number i of the prefixes behind the rack's router.
func destination(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, byte(i), 0}), 24)
}

// serves reports whether n peers with the rack's router.
func (r *rack) serves(n *node) bool { return r != nil && r.peers[n] }

// learned is what n has from the rack's router.
func (r *rack) learned(n *node) (all []netip.Prefix) {
	if !r.serves(n) {
		return nil
	}
	for i := range destinations {
		if p := destination(i); !r.rejected[p] {
			all = append(all, p)
		}
	}
	return all
}

// joinRack has n peer with the rack's router.
func (c *cluster) joinRack(ctx context.Context, n *node) error {
	c.rack.peers[n] = true
	return c.peerWith(ctx, c.rack.router, n, fmt.Sprintf("filters: [%s]", rackFilter))
}

// leaveRack ends that.
func (c *cluster) leaveRack(ctx context.Context, n *node) error {
	delete(c.rack.peers, n)
	return c.Data.Delete(ctx, "BGPPeer", peerName(c.rack.router, n))
}

// filterRack replaces the filter of the sessions with the rack's router.
func (c *cluster) filterRack(
	ctx context.Context, rejected map[netip.Prefix]bool, withheld netip.Prefix,
) error {
	c.rack.rejected, c.rack.withheld = rejected, withheld
	var imports, exports string
	for p := range rejected {
		imports += fmt.Sprintf("{action: Reject, matchOperator: Equal, cidr: %s},", p)
	}
	if withheld.IsValid() {
		exports = fmt.Sprintf("{action: Reject, matchOperator: In, cidr: %s}", withheld)
	}
	return c.Apply(ctx, testcluster.Resource("BGPFilter", rackFilter,
		fmt.Sprintf("importV4: [%s], exportV4: [%s]", imports, exports)))
}

// rackObjection names a route that the rack's router lacks, or should not have; nil when all
// is as it should be. Nodes also announce each other's routes to it.
func (c *cluster) rackObjection(ctx context.Context) error {
	announced, err := c.rack.announced(ctx)
	if err != nil {
		return err
	}
	for _, n := range c.agents() {
		have := announced[n.Address]
		want := 0
		for block := range c.blocks {
			// it is never inside a block
			withheld := c.unexported[block] ||
				c.rack.withheld.IsValid() && c.rack.withheld.Contains(block.Addr())
			announced := c.rack.serves(n) && !withheld
			if announced {
				want++
			}
			if announced != have[block] {
				return fmt.Errorf("%s has announced %s to it: %t, want %t",
					n.Name, block, have[block], announced)
			}
		}
		if len(have) != want {
			return fmt.Errorf("%s has announced %d prefixes to it, want %d",
				n.Name, len(have), want)
		}
	}
	return nil
}
