// Package ipam answers whose a prefix is, from Calico's IPAM data: which blocks this node has, which single addresses live here
// outside of them, which pools there are. Functions over a calico.Snapshot, without I/O or state.
//
// It says what is ours, not what is announced: whether a route may leave the node is for package bgp to decide.
package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Skipped is something of this node in Calico's data that does not count as ours, and why, for a person to read.
type Skipped struct {
	Prefix netip.Prefix
	Reason string
}

// OwnBlocks returns the blocks that node self originates, sorted, and its other affinities with the reason why they are not among
// them. A block is own when our affinity is confirmed or being deleted and the block, where it
// exists, does not name another owner. One that is being released is own until its affinity is
// gone, as in confd's bird_aggr.cfg: packets to it are dropped here and do not go in a circle.
//
// The second half is stricter than Calico's confd, which reads no blocks: a confirmed affinity left behind after the block was given
// to another node must not attract that node's traffic. A confirmed affinity without a block is normal: IPAM writes the block when
// the first address is taken.
//
// A block that contains a node's BGP address is not taken either: its drop route would cut this node off from that one.
func OwnBlocks(self string, s *calico.Snapshot) (own []netip.Prefix, skipped []Skipped) {
	for cidr, state := range s.Affinities {
		if reason := notOwn(self, cidr, state, s); reason != "" {
			skipped = append(skipped, Skipped{cidr, reason})
			continue
		}
		own = append(own, cidr)
	}
	slices.SortFunc(own, route.ComparePrefixes)
	sortSkipped(skipped)
	return own, skipped
}

// notOwn returns why an affinity of ours does not make the block own, or "" when it does.
func notOwn(self string, cidr netip.Prefix, state calico.AffinityState, s *calico.Snapshot) string {
	switch state {
	case calico.AffinityConfirmed, "", // no state: written before Calico 3, means confirmed
		calico.AffinityPendingDeletion:
	case calico.AffinityPending:
		return "affinity is pending: the block is being claimed"
	default:
		return fmt.Sprintf("affinity has unknown state %q", state)
	}
	switch owner := s.Blocks[cidr].Owner; { // zero, nobody, where there is no block
	case owner.Virtual != "":
		return fmt.Sprintf("affinity is stale: the block belongs to virtual owner %s", owner.Virtual)
	case owner.Host != "" && owner.Host != self:
		return fmt.Sprintf("affinity is stale: the block belongs to node %s", owner.Host)
	}
	return nodeInside(cidr, s)
}

// Aggregated returns those of own that stand for everything inside them. In one that is being
// released each address leaves by itself: it may outlive the block here (confd, calico_aggr).
func Aggregated(own []netip.Prefix, s *calico.Snapshot) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(own), func(b netip.Prefix) bool {
		return s.Affinities[b] == calico.AffinityPendingDeletion
	})
}

// NamedBlocks returns the blocks whose own key names node self, with an affinity of ours or without, but for those that contain a node's BGP
// address. Without BGP that key is what sends others' packets here.
func NamedBlocks(self string, s *calico.Snapshot) (named []netip.Prefix) {
	for cidr, b := range s.Blocks {
		if b.Owner.Host == self && nodeInside(cidr, s) == "" {
			named = append(named, cidr)
		}
	}
	slices.SortFunc(named, route.ComparePrefixes)
	return named
}

// nodeInside says which node's BGP address lies in cidr, "" if none does.
func nodeInside(cidr netip.Prefix, s *calico.Snapshot) string {
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		for _, a := range []netip.Prefix{n.IPv4, n.IPv6} {
			if a.IsValid() && cidr.Contains(a.Addr()) {
				return fmt.Sprintf("the block contains %s, the BGP address of Node(%s)", a.Addr(), name)
			}
		}
	}
	return ""
}

// NeedsDrop reports whether an own block needs a drop route beneath its workloads' routes, without which packets to addresses not in
// use would follow the default route and loop. A block of one address has none: the route of its only workload is all there is.
func NeedsDrop(block netip.Prefix) bool { return !block.IsSingleIP() }

func sortSkipped(s []Skipped) {
	slices.SortFunc(s, func(a, b Skipped) int {
		return cmp.Or(route.ComparePrefixes(a.Prefix, b.Prefix), cmp.Compare(a.Reason, b.Reason))
	})
}
