package calico

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// tunnelHandles are the handles of the addresses that node-local devices have (calico
// node/pkg/allocateip). Each names the blocks that its addresses are from, perhaps another node's.
func tunnelHandles(node string) []string {
	return []string{
		"ipip-tunnel-addr-" + node, "vxlan-tunnel-addr-" + node, "vxlan-v6-tunnel-addr-" + node,
		"wireguard-tunnel-addr-" + node, "wireguard-v6-tunnel-addr-" + node,
	}
}

// decodeHandle returns the blocks that a handle's addresses are from, sorted (libcalico-go
// lib/backend/model/ipam_handle.go).
func decodeHandle(_ Key, value []byte) ([]netip.Prefix, error) {
	var stored struct {
		Block   map[string]int `json:"block"`
		Deleted bool           `json:"deleted"`
	}
	if err := unmarshal(value, &stored); err != nil {
		return nil, err
	}
	if stored.Deleted {
		return nil, errAbsent
	}
	var blocks []netip.Prefix
	var wrong []string
	for text := range stored.Block {
		if cidr, err := ParseNetwork(text); err != nil {
			wrong = append(wrong, err.Error())
		} else {
			blocks = append(blocks, cidr)
		}
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	if wrong != nil {
		slices.Sort(wrong)
		return blocks, partialError(fmt.Sprintf("block: %s", strings.Join(wrong, "; ")))
	}
	return blocks, nil
}

// Ranges returns what to read, which depends on what has been Put: Needs.Ranges and, unless all
// blocks are read, WantedBlocks.
func (s *Store) Ranges() []Range {
	all := s.ranges
	if s.AllBlocks() && !s.needs.AllBlocks() {
		return append(all, Range{Prefix: s.needs.blocks()})
	}
	for _, cidr := range s.WantedBlocks() {
		all = append(all, Range{Prefix: s.BlockKey(cidr), Exact: true})
	}
	return all
}

// AllBlocks reports whether all blocks are to be read. That stays true: a pool whose mode changes
// may change it back.
func (s *Store) AllBlocks() bool {
	if s.needs.AllBlocks() || s.overlay || !s.needs.VXLAN {
		return s.needs.AllBlocks() || s.overlay
	}
	s.overlay = HasVXLAN(s.now.IPPools)
	return s.overlay
}

// WantedBlocks returns the blocks that a node with BGP needs, sorted: those that affinities of this
// node name, and those with an address of a tunnel of this node, by IPAM's handles and by the Node.
// It returns none where all blocks are read.
func (s *Store) WantedBlocks() []netip.Prefix {
	if s.AllBlocks() {
		return nil
	}
	wanted := map[netip.Prefix]bool{}
	for cidr := range s.now.Affinities {
		wanted[cidr] = true
	}
	for _, blocks := range s.now.handles {
		for _, cidr := range blocks {
			wanted[cidr] = true
		}
	}
	for _, t := range s.now.Nodes[s.node].Tunnels() {
		for _, pool := range s.now.IPPools {
			if cidr := pool.block(t.Address); cidr.IsValid() {
				wanted[cidr] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(wanted), netip.Prefix.Compare)
}
