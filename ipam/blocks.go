// Package ipam says which node a prefix belongs to, from Calico's IPAM data: the node's blocks, its
// single addresses outside of them, the pools. It has functions over a calico.Snapshot, without I/O
// or state. Whether a route is announced is decided by package bgp.
package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Skipped is a prefix of this node in Calico's data that is not used, and the reason.
type Skipped struct {
	Prefix netip.Prefix
	Reason string
}

// OwnBlocks returns the blocks that node self originates, sorted, and why other affinities of it do
// not count. As in confd's bird_aggr.cfg a block is own until its affinity is gone, so that its
// packets do not loop. Not own are blocks that name another owner, and blocks with a node's BGP
// address.
func OwnBlocks(self string, s *calico.Snapshot) (own []netip.Prefix, skipped []Skipped) {
	for cidr, state := range s.Affinities {
		if reason := notOwn(self, cidr, state, s); reason != "" {
			skipped = append(skipped, Skipped{cidr, reason})
			continue
		}
		own = append(own, cidr)
	}
	own, with := withoutNodes(own, s)
	skipped = append(skipped, with...)
	sortSkipped(skipped)
	return own, skipped
}

// notOwn returns why an affinity of ours does not make the block own, or "" if it does.
func notOwn(self string, cidr netip.Prefix, state calico.AffinityState, s *calico.Snapshot) string {
	switch state {
	case calico.AffinityConfirmed, "", // no state: written before Calico 3, means confirmed
		calico.AffinityPendingDeletion:
	case calico.AffinityPending:
		return "affinity is pending: the block is being claimed"
	default:
		return fmt.Sprintf("affinity has unknown state %q", state)
	}
	switch owner := s.Blocks[cidr].Owner; { // zero where there is no block
	case owner.Virtual != "":
		return fmt.Sprintf("affinity is stale: the block belongs to virtual owner %s",
			owner.Virtual)
	case owner.Host != "" && owner.Host != self:
		return fmt.Sprintf("affinity is stale: the block belongs to node %s", owner.Host)
	}
	return ""
}

// Aggregated returns the own blocks that stand for all addresses inside them. From a block being
// released each address leaves on its own (confd, calico_aggr).
func Aggregated(own []netip.Prefix, s *calico.Snapshot) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(own), func(b netip.Prefix) bool {
		return s.Affinities[b] == calico.AffinityPendingDeletion
	})
}

// NamedBlocks returns the blocks whose own key names node self, with or without an affinity, except
// those that contain a node's BGP address. Without BGP, other nodes forward by that key.
func NamedBlocks(self string, s *calico.Snapshot) (named []netip.Prefix) {
	for cidr, b := range s.Blocks {
		if b.Owner.Host == self {
			named = append(named, cidr)
		}
	}
	named, _ = withoutNodes(named, s)
	return named
}

// withoutNodes splits blocks into those without a node's BGP address, sorted, and those with one.
// Of several nodes in a block it names the first.
func withoutNodes(blocks []netip.Prefix, s *calico.Snapshot) (without []netip.Prefix,
	with []Skipped) {
	type node struct {
		name    string
		address netip.Addr
	}
	inside := make(map[netip.Prefix]node, len(blocks))
	var lengths []int
	for _, b := range blocks {
		inside[b] = node{}
		if !slices.Contains(lengths, b.Bits()) {
			lengths = append(lengths, b.Bits())
		}
	}
	for name, n := range s.Nodes {
		for _, a := range [...]netip.Addr{n.IPv4.Addr(), n.IPv6.Addr()} {
			for _, bits := range lengths {
				block, _ := a.Prefix(bits) // invalid for more bits than a has
				first, known := inside[block]
				if known && (first.name == "" || name < first.name) {
					inside[block] = node{name, a}
				}
			}
		}
	}
	for _, b := range blocks {
		if n := inside[b]; n.name != "" {
			with = append(with, Skipped{b, fmt.Sprintf("the block contains %s, the BGP address of "+
				"Node(%s)", n.address, n.name)})
			continue
		}
		without = append(without, b)
	}
	slices.SortFunc(without, route.ComparePrefixes)
	return without, with
}

// NeedsDrop reports whether a block needs a drop route, without which packets to its unused
// addresses would follow the default route and loop. A block of one address needs none.
func NeedsDrop(block netip.Prefix) bool { return !block.IsSingleIP() }

func sortSkipped(s []Skipped) {
	slices.SortFunc(s, func(a, b Skipped) int {
		return cmp.Or(route.ComparePrefixes(a.Prefix, b.Prefix), cmp.Compare(a.Reason, b.Reason))
	})
}
