package calicotest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
)

// block is a block's value (libcalico-go lib/backend/model/block.go). Invariant: an ordinal is in
// Unallocated exactly if its allocation is nil, and every attribute has an allocation.
type block struct {
	CIDR           string            `json:"cidr"`
	Affinity       *string           `json:"affinity"`
	ClaimTime      string            `json:"affinity_claim_time,omitempty"`
	Allocations    []*int            `json:"allocations"`
	Unallocated    []int             `json:"unallocated"`
	Attributes     []attribute       `json:"attributes"`
	Sequence       uint64            `json:"sequenceNumber"`
	SequenceOfAddr map[string]uint64 `json:"sequenceNumberForAllocation"`
	Deleted        bool              `json:"deleted"`
}

type attribute struct {
	Handle    string            `json:"handle_id,omitempty"`
	Secondary map[string]string `json:"secondary,omitempty"`
}

// handle is a handle's value: its number of addresses in each block.
type handle struct {
	Block   map[string]int `json:"block"`
	Deleted bool           `json:"deleted"`
}

func newBlock(cidr netip.Prefix, node string) *block {
	size := 1 << (cidr.Addr().BitLen() - cidr.Bits())
	owner := "host:" + node
	b := &block{
		CIDR:           cidr.String(),
		Affinity:       &owner,
		ClaimTime:      now(),
		Allocations:    make([]*int, size),
		Unallocated:    make([]int, size),
		Attributes:     []attribute{},
		Sequence:       uint64(time.Now().UnixNano()),
		SequenceOfAddr: map[string]uint64{},
	}
	for i := range b.Unallocated {
		b.Unallocated[i] = i
	}
	return b
}

// allocate assigns the address of ordinal to attr.
func (b *block) allocate(ordinal int, attr attribute) {
	index := len(b.Attributes)
	b.Attributes = append(b.Attributes, attr)
	b.Allocations[ordinal] = &index
	b.Unallocated = slices.DeleteFunc(b.Unallocated, func(o int) bool { return o == ordinal })
	b.SequenceOfAddr[strconv.Itoa(ordinal)] = b.Sequence
}

// free releases the addresses of attribute index and removes it. Those after it move up.
func (b *block) free(index int) {
	for ordinal, i := range b.Allocations {
		switch {
		case i == nil:
		case *i == index:
			b.Allocations[ordinal] = nil
			b.Unallocated = append(b.Unallocated, ordinal)
			delete(b.SequenceOfAddr, strconv.Itoa(ordinal))
		case *i > index:
			*i--
		}
	}
	b.Attributes = slices.Delete(b.Attributes, index, index+1)
}

// find returns the index of the attribute with that handle, or -1.
func (b *block) find(handle string) int {
	return slices.IndexFunc(b.Attributes, func(a attribute) bool { return a.Handle == handle })
}

func (b *block) empty() bool { return len(b.Unallocated) == len(b.Allocations) }

func blockKey(cidr netip.Prefix) calico.Key {
	return calico.Key{Kind: calico.KindBlock, CIDR: cidr}
}

func affinityKey(node string, cidr netip.Prefix) calico.Key {
	return calico.Key{Kind: calico.KindBlockAffinity, Owner: calico.Owner{Host: node}, CIDR: cidr}
}

// ClaimBlock makes cidr a block of node, in Calico's steps: affinity pending, block, affinity
// confirmed. It succeeds if the node has the block. It fails if another node has it, or if it is
// still in use without an owner.
func (c *Cluster) ClaimBlock(ctx context.Context, node string, cidr netip.Prefix) error {
	cidr = cidr.Masked()
	if err := c.setAffinity(ctx, node, cidr, calico.AffinityPending); err != nil {
		return fmt.Errorf("claim %s for %s: %w", cidr, node, err)
	}
	err := c.write(ctx, blockKey(cidr), newBlock(cidr, node), 0)
	if errors.Is(err, errConflict) {
		var there block
		if _, err = c.read(ctx, blockKey(cidr), &there); err == nil &&
			(there.Affinity == nil || *there.Affinity != "host:"+node) {
			err = fmt.Errorf("it is there, and its owner is %s", ownerName(there.Affinity))
			err = errors.Join(err, c.deleteAffinity(ctx, node, cidr)) // the race is lost
		}
	}
	if err == nil {
		err = c.setAffinity(ctx, node, cidr, calico.AffinityConfirmed)
	}
	if err != nil {
		return fmt.Errorf("claim %s for %s: %w", cidr, node, err)
	}
	return nil
}

func ownerName(affinity *string) string {
	if affinity == nil {
		return "nobody"
	}
	return *affinity
}

// setAffinity creates or replaces node's affinity for cidr.
func (c *Cluster) setAffinity(ctx context.Context, node string, cidr netip.Prefix,
	state calico.AffinityState) error {
	key := affinityKey(node, cidr)
	return retry(ctx, func() error {
		revision, err := c.read(ctx, key, new(manifest.Affinity))
		if err != nil {
			return err
		}
		return c.write(ctx, key, manifest.Affinity{State: state}, revision)
	})
}

func (c *Cluster) deleteAffinity(ctx context.Context, node string, cidr netip.Prefix) error {
	key := affinityKey(node, cidr)
	return retry(ctx, func() error {
		revision, err := c.read(ctx, key, new(manifest.Affinity))
		if err != nil || revision == 0 {
			return err
		}
		return c.remove(ctx, key, revision)
	})
}

// ReleaseBlock releases the block cidr in Calico's steps: affinity pendingDeletion; block deleted,
// or without owner if in use; affinity deleted.
func (c *Cluster) ReleaseBlock(ctx context.Context, cidr netip.Prefix) (owner string, err error) {
	cidr = cidr.Masked()
	s, err := c.Snapshot(ctx, "")
	if err != nil {
		return "", err
	}
	b, ok := s.Blocks[cidr]
	if !ok {
		return "", fmt.Errorf("release %s: there is no such block", cidr)
	}
	if owner = b.Owner.Host; owner == "" {
		return "", fmt.Errorf("release %s: it is no host's", cidr)
	}
	if err := c.setAffinity(ctx, owner, cidr, calico.AffinityPendingDeletion); err != nil {
		return "", fmt.Errorf("release %s: %w", cidr, err)
	}
	if err := c.changeBlock(ctx, cidr, func(b *block) error {
		b.Affinity, b.ClaimTime = nil, ""
		return nil
	}); err != nil {
		return "", fmt.Errorf("release %s: %w", cidr, err)
	}
	if err := c.deleteAffinity(ctx, owner, cidr); err != nil {
		return "", fmt.Errorf("release %s: %w", cidr, err)
	}
	return owner, nil
}

// ReleaseBlocks releases all blocks of node and returns them.
func (c *Cluster) ReleaseBlocks(ctx context.Context, node string) ([]netip.Prefix, error) {
	blocks, err := c.blocksOf(ctx, node)
	if err != nil {
		return nil, err
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("release blocks: %s has none", node)
	}
	for i, cidr := range blocks {
		if _, err := c.ReleaseBlock(ctx, cidr); err != nil {
			return blocks[:i], err
		}
	}
	return blocks, nil
}

// blocksOf returns the confirmed blocks of node, sorted.
func (c *Cluster) blocksOf(ctx context.Context, node string) ([]netip.Prefix, error) {
	s, err := c.Snapshot(ctx, node)
	if err != nil {
		return nil, err
	}
	var mine []netip.Prefix
	for cidr, state := range s.Affinities {
		if b, ok := s.Blocks[cidr]; ok && b.Owner.Host == node &&
			state == calico.AffinityConfirmed {
			mine = append(mine, cidr)
		}
	}
	slices.SortFunc(mine, netip.Prefix.Compare)
	return mine, nil
}

// changeBlock edits a block, and deletes it if it is then empty and has no owner.
func (c *Cluster) changeBlock(ctx context.Context, cidr netip.Prefix,
	edit func(*block) error) error {
	key := blockKey(cidr)
	return retry(ctx, func() error {
		b := &block{SequenceOfAddr: map[string]uint64{}}
		revision, err := c.read(ctx, key, b)
		if err != nil {
			return err
		}
		if revision == 0 {
			return fmt.Errorf("block %s does not exist", cidr)
		}
		if err := edit(b); err != nil {
			return err
		}
		b.Sequence++
		if b.empty() && b.Affinity == nil {
			return c.remove(ctx, key, revision)
		}
		return c.write(ctx, key, b, revision)
	})
}

// countHandle adds n to handle id's addresses in block cidr, and deletes a handle without any.
func (c *Cluster) countHandle(ctx context.Context, id string, cidr netip.Prefix, n int) error {
	key := calico.Key{Kind: calico.KindHandle, Name: id}
	return retry(ctx, func() error {
		h := handle{Block: map[string]int{}}
		revision, err := c.read(ctx, key, &h)
		if err != nil {
			return err
		}
		if h.Block[cidr.String()] += n; h.Block[cidr.String()] <= 0 {
			delete(h.Block, cidr.String())
		}
		switch {
		case len(h.Block) > 0:
			return c.write(ctx, key, h, revision)
		case revision > 0:
			return c.remove(ctx, key, revision)
		}
		return nil
	})
}
