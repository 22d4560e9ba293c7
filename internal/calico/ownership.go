package calico

import "net/netip"

// Ownership is what IPAM says of one block.
type Ownership struct {
	Block Block
	// Affinity is that of the block's host; "": it has none, or the block has no host.
	Affinity AffinityState
}

// BlocksAround returns the blocks that a prefix may lie in, by the pools: IPAM names a block by its
// CIDR, so that these are found without a list.
func (s *Snapshot) BlocksAround(p netip.Prefix) (all []netip.Prefix) {
	seen := map[netip.Prefix]bool{}
	for _, pool := range s.IPPools {
		block := pool.block(p.Addr())
		if block.IsValid() && block.Bits() <= p.Bits() && !seen[block] {
			seen[block] = true
			all = append(all, block)
		}
	}
	return all
}

// block returns the block that an address of the pool lies in; invalid: it lies outside.
func (p IPPool) block(a netip.Addr) netip.Prefix {
	if !p.CIDR.Contains(a) {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, max(p.BlockSize, p.CIDR.Bits())).Masked()
}

// BlockKey is where etcd has a block.
func (s *Store) BlockKey(cidr netip.Prefix) string { return s.needs.blocks() + blockSegments(cidr) }
