package kubernetes

import (
	"context"
	"encoding/json"
	"net/netip"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/kubernetes"
)

// Owners reads what IPAM says of these blocks, for one question of an operator: with BGP a snapshot
// has the blocks of this node alone. Blocks that are not there are left out. It is called once
// there is a snapshot.
func (s *Source) Owners(ctx context.Context, cidrs []netip.Prefix) (
	found []calico.Ownership, err error) {
	if s.data.UsePodCIDR {
		return nil, nil // they follow from Nodes, which are all read
	}
	for _, cidr := range cidrs {
		store, err := s.readInto(ctx, s.data.Node, "ipamblocks", kube.BlockName(cidr))
		if err != nil {
			return nil, err
		}
		block, there := store.Snapshot(0).Blocks[cidr]
		o := calico.Ownership{Block: block}
		if owner := block.Owner.Host; owner != "" {
			name := owner + "-" + kube.BlockName(cidr)
			if store, err = s.readInto(ctx, owner, "blockaffinities", name); err != nil {
				return nil, err
			}
			o.Affinity = store.Snapshot(0).Affinities[cidr]
		}
		if there {
			found = append(found, o)
		}
	}
	return found, nil
}

// readInto returns a store of a node with one object of Calico's, if that is there.
func (s *Source) readInto(ctx context.Context, node, plural, name string) (*calico.Store, error) {
	d := data{Config: s.data.Config, store: calico.NewStoreFor(node, s.data.Needs)}
	r := d.crd(plural)
	r.Name = name
	_, err := s.client.List(ctx, r, kubernetes.ListOptions{Whole: true},
		func(_ string, objects []json.RawMessage) error {
			for _, o := range objects {
				d.Put(r, o)
			}
			return nil
		})
	return d.store, err
}
