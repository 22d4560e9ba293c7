package ipam

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
)

// Ownership is what IPAM's data say of a prefix.
type Ownership struct {
	Pool  *calico.IPPool // the longest that it lies in; nil: none
	Block netip.Prefix   // the longest that it lies in; invalid: none is known
	Owner calico.Owner   // of Block
	// Affinity is that of the owner, or of this node where nobody owns the block; "": none.
	Affinity calico.AffinityState
	// Allocation is that of a single address; nil: it has none, or is no single address.
	Allocation *calico.Allocation
	// Host is the node that packets belong to: who has borrowed the address, else the owner. ""
	// for none. Borrowed: it is not the owner.
	Host     string
	Borrowed bool
	// Expected is what Host is to announce: the borrowed address, else the block. Invalid: nothing.
	Expected netip.Prefix
}

// OwnershipOf says whose a prefix is. read are blocks that the snapshot may lack, and whose word
// counts for more.
func OwnershipOf(self string, p netip.Prefix, read []calico.Ownership,
	s *calico.Snapshot) Ownership {
	var o Ownership
	for _, pool := range Pools(s) {
		if pool.CIDR.Bits() <= p.Bits() && pool.CIDR.Contains(p.Addr()) {
			o.Pool = &pool // sorted, so that the longest is last
		}
	}
	block, found := calico.Ownership{}, false
	for bits := p.Bits(); bits >= 0 && !found; bits-- {
		cidr, _ := p.Addr().Prefix(bits)
		i := slices.IndexFunc(read, func(r calico.Ownership) bool { return r.Block.CIDR == cidr })
		affinity, affine := s.Affinities[cidr]
		if block.Block, found = s.Blocks[cidr]; found && block.Block.Owner.Host == self {
			block.Affinity = affinity
		}
		switch {
		case i >= 0:
			block, found = read[i], true
		case affine && !found:
			block, found = calico.Ownership{Block: calico.Block{CIDR: cidr},
				Affinity: affinity}, true
		}
	}
	if !found {
		return o
	}
	o.Block, o.Owner, o.Affinity = block.Block.CIDR, block.Block.Owner, block.Affinity
	o.Host, o.Expected = o.Owner.Host, o.Block
	if o.Host == "" {
		o.Expected = netip.Prefix{}
	}
	for _, a := range block.Block.Allocations {
		if !p.IsSingleIP() || a.Address != p.Addr() {
			continue
		}
		if o.Allocation = &a; a.Node != "" && a.Node != o.Host {
			o.Host, o.Borrowed, o.Expected = a.Node, true, p
		}
	}
	return o
}

// NodesByAddress returns the names of Nodes by their BGP addresses. Of those that share one it is
// the first.
func NodesByAddress(s *calico.Snapshot) map[netip.Addr]string {
	all := make(map[netip.Addr]string, len(s.Nodes))
	for name, n := range s.Nodes {
		for _, p := range []netip.Prefix{n.IPv4, n.IPv6} {
			if other, taken := all[p.Addr()]; p.IsValid() && (!taken || name < other) {
				all[p.Addr()] = name
			}
		}
	}
	return all
}
