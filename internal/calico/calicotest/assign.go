package calicotest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
)

// assignFrom allocates an address for attr: from a block of node in one of the pools, else from one
// claimed there, else from another node's.
func (c *Cluster) assignFrom(ctx context.Context, s *calico.Snapshot, node string,
	pools []calico.IPPool, attr attribute) (netip.Addr, netip.Prefix, error) {
	own, err := c.blocksOf(ctx, node)
	if err != nil {
		return netip.Addr{}, netip.Prefix{}, err
	}
	for _, pool := range pools {
		for _, cidr := range own {
			if !pool.CIDR.Contains(cidr.Addr()) {
				continue
			}
			if addr, err := c.allocate(ctx, cidr, netip.Addr{}, attr); !errors.Is(err, errFull) {
				return addr, cidr, err
			}
		}
		for cidr := range blocksIn(pool) {
			if _, taken := s.Blocks[cidr]; taken {
				continue
			}
			if c.ClaimBlock(ctx, node, cidr) != nil {
				if ctx.Err() != nil {
					return netip.Addr{}, netip.Prefix{}, ctx.Err()
				}
				continue // somebody was faster
			}
			addr, err := c.allocate(ctx, cidr, netip.Addr{}, attr)
			return addr, cidr, err
		}
	}
	for _, pool := range pools {
		for _, cidr := range slices.SortedFunc(maps.Keys(s.Blocks), netip.Prefix.Compare) {
			if !pool.CIDR.Contains(cidr.Addr()) || s.Blocks[cidr].Owner.Virtual != "" {
				continue
			}
			if addr, err := c.allocate(ctx, cidr, netip.Addr{}, attr); !errors.Is(err, errFull) {
				return addr, cidr, err
			}
		}
	}
	return netip.Addr{}, netip.Prefix{}, fmt.Errorf("pool %s: %w", pools[0].Name, errFull)
}

// assignAddress allocates addr itself. It claims a missing block for node, and borrows addr from
// another node's block.
func (c *Cluster) assignAddress(ctx context.Context, s *calico.Snapshot, node string,
	addr netip.Addr, attr attribute) (netip.Addr, netip.Prefix, error) {
	for _, name := range slices.Sorted(maps.Keys(s.IPPools)) {
		pool := s.IPPools[name]
		if !pool.CIDR.Contains(addr) {
			continue
		}
		cidr := netip.PrefixFrom(addr, max(pool.BlockSize, pool.CIDR.Bits())).Masked()
		if _, there := s.Blocks[cidr]; !there {
			if err := c.ClaimBlock(ctx, node, cidr); err != nil {
				return netip.Addr{}, netip.Prefix{}, err
			}
		}
		_, err := c.allocate(ctx, cidr, addr, attr)
		return addr, cidr, err
	}
	return netip.Addr{}, netip.Prefix{}, fmt.Errorf("%s is in no IPPool", addr)
}

// allocate takes want, or without it the address that is free for longest, from block cidr. As in
// Calico the handle is written before the block.
func (c *Cluster) allocate(ctx context.Context, cidr netip.Prefix, want netip.Addr,
	attr attribute) (netip.Addr, error) {
	if err := c.countHandle(ctx, attr.Handle, cidr, 1); err != nil {
		return netip.Addr{}, err
	}
	var got netip.Addr
	err := c.changeBlock(ctx, cidr, func(b *block) error {
		if len(b.Unallocated) == 0 && !want.IsValid() {
			return errFull
		}
		ordinal := 0
		if want.IsValid() {
			ordinal = int(distance(cidr.Addr(), want))
			if i := b.Allocations[ordinal]; i != nil {
				return fmt.Errorf("%s is in use by %v", want, b.Attributes[*i].Secondary)
			}
		} else {
			ordinal = b.Unallocated[0]
		}
		b.allocate(ordinal, attr)
		got = advance(cidr.Addr(), uint64(ordinal))
		return nil
	})
	if err != nil {
		return netip.Addr{}, errors.Join(err, c.countHandle(ctx, attr.Handle, cidr, -1))
	}
	return got, nil
}

// blocksIn yields the blocks of a pool in order.
func blocksIn(pool calico.IPPool) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		bits := max(pool.BlockSize, pool.CIDR.Bits())
		size := uint64(1) << (pool.CIDR.Addr().BitLen() - bits)
		for a := pool.CIDR.Addr(); pool.CIDR.Contains(a); a = advance(a, size) {
			if !yield(netip.PrefixFrom(a, bits)) {
				return
			}
		}
	}
}

// advance returns a + n, or the zero Addr beyond the last address.
func advance(a netip.Addr, n uint64) netip.Addr {
	b := a.AsSlice()
	carry := n
	for i := len(b) - 1; i >= 0; i-- {
		carry += uint64(b[i])
		b[i] = byte(carry)
		carry >>= 8
	}
	if carry != 0 {
		return netip.Addr{}
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// distance returns to - from, two addresses of one block.
func distance(from, to netip.Addr) uint64 {
	var n uint64
	f, t := from.AsSlice(), to.AsSlice()
	for i := range f {
		n = n<<8 + uint64(t[i]) - uint64(f[i])
	}
	return n
}
