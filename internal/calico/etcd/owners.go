package etcd

import (
	"context"
	"errors"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
)

// Owners reads what IPAM says of these blocks, for one question of an operator: with BGP a snapshot
// has the blocks of this node alone. Blocks that are not there are left out.
func (s *Source) Owners(ctx context.Context, cidrs []netip.Prefix) (
	found []calico.Ownership, err error) {
	if len(cidrs) == 0 {
		return nil, nil
	}
	err = s.client.Once(ctx, func(ctx context.Context, client *clientv3.Client) error {
		for _, cidr := range cidrs {
			o, there, err := s.owner(ctx, client, cidr)
			if err != nil {
				return errors.New(s.client.Explain(err))
			}
			if there {
				found = append(found, o)
			}
		}
		return nil
	})
	return found, err
}

func (s *Source) owner(ctx context.Context, client *clientv3.Client, cidr netip.Prefix) (
	o calico.Ownership, there bool, err error) {
	store := calico.NewStoreFor(s.store.Node(), s.needs)
	read := func(key string) error {
		resp, err := client.Get(ctx, key)
		if err == nil && len(resp.Kvs) == 1 {
			store.Put(key, resp.Kvs[0].Value)
		}
		return err
	}
	if err := read(store.BlockKey(cidr)); err != nil {
		return o, false, err
	}
	if o.Block, there = store.Snapshot(0).Blocks[cidr]; !there || o.Block.Owner.Host == "" {
		return o, there, nil
	}
	// Affinities are kept of one node alone.
	store = calico.NewStoreFor(o.Block.Owner.Host, s.needs)
	err = read(calico.Key{Kind: calico.KindBlockAffinity, Owner: o.Block.Owner,
		CIDR: cidr}.String())
	o.Affinity = store.Snapshot(0).Affinities[cidr]
	return o, true, err
}
