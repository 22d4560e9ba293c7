package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/etcd"
)

// ReadCluster reads Calico's data of all nodes at one revision, by one list of each kind.
func ReadCluster(ctx context.Context, cfg Config) (*calico.Cluster, error) {
	client, err := etcd.NewClient(cfg, "to read all of Calico's keys under /calico/")
	if err != nil {
		return nil, err
	}
	r, revision := calico.NewClusterReader(), int64(0)
	err = client.Once(ctx, func(ctx context.Context, kv *clientv3.Client) error {
		for _, prefix := range calico.ClusterPrefixes() {
			resp, err := kv.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
			if err != nil {
				return err
			}
			if revision == 0 {
				revision = resp.Header.Revision
			}
			for _, kv := range resp.Kvs {
				r.PutKey(string(kv.Key), kv.Value)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.New(client.Explain(err))
	}
	return r.Cluster(revision), nil
}
