package calicotest

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
)

// values are Calico's data by the keys and in the form that etcd has, wherever they are.
type values interface {
	// get returns a value and its revision; nil: there is none.
	get(ctx context.Context, key calico.Key) (value []byte, revision int64, err error)
	// put writes a value if the key still is at revision (0: does not exist), else it returns
	// errConflict.
	put(ctx context.Context, key calico.Key, value []byte, revision int64) error
	// delete deletes a key if it still is at revision, else it returns errConflict.
	delete(ctx context.Context, key calico.Key, revision int64) error
	// endpoints are the WorkloadEndpoints of a namespace.
	endpoints(ctx context.Context, namespace string) ([][]byte, error)
	// snapshot reads what an agent on node would see, and all blocks.
	snapshot(ctx context.Context, node string) (*calico.Snapshot, error)
	Close() error
}

// etcdValues are in etcd.
type etcdValues struct{ client *clientv3.Client }

func (e etcdValues) Close() error { return e.client.Close() }

func (e etcdValues) get(ctx context.Context, key calico.Key) ([]byte, int64, error) {
	resp, err := e.client.Get(ctx, key.String())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, 0, err
	}
	return resp.Kvs[0].Value, resp.Kvs[0].ModRevision, nil
}

func (e etcdValues) put(ctx context.Context, key calico.Key, value []byte, revision int64) error {
	return e.commit(ctx, key, revision, clientv3.OpPut(key.String(), string(value)))
}

func (e etcdValues) delete(ctx context.Context, key calico.Key, revision int64) error {
	return e.commit(ctx, key, revision, clientv3.OpDelete(key.String()))
}

func (e etcdValues) commit(ctx context.Context, key calico.Key, revision int64,
	op clientv3.Op) error {
	unchanged := clientv3.Compare(clientv3.ModRevision(key.String()), "=", revision)
	resp, err := e.client.Txn(ctx).If(unchanged).Then(op).Commit()
	if err == nil && !resp.Succeeded {
		err = errConflict
	}
	return err
}

func (e etcdValues) endpoints(ctx context.Context, namespace string) (all [][]byte, err error) {
	prefix := calico.Key{Kind: calico.KindWorkloadEndpoint, Namespace: namespace}.String()
	resp, err := e.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	for _, kv := range resp.Kvs {
		all = append(all, kv.Value)
	}
	return all, nil
}

func (e etcdValues) snapshot(ctx context.Context, node string) (*calico.Snapshot, error) {
	store := calico.NewStore(node)
	revision := int64(0) // of the first range; the others are read at the same
	ranges := append(calico.Needs{}.Ranges(node), calico.Range{Prefix: calico.DefaultBlocks})
	for _, r := range ranges {
		resp, err := e.client.Get(ctx, r.Prefix, clientv3.WithPrefix(),
			clientv3.WithRev(revision))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.Prefix, err)
		}
		if revision == 0 {
			revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			store.Put(string(kv.Key), kv.Value)
		}
	}
	return store.Snapshot(revision), nil
}
