package reflectors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/kubernetes"
)

// Statuses reads by one list what the agents of all nodes have published, as a program of this
// version understands it. datastore is nil where it is etcd.
func Statuses(ctx context.Context, c etcd.Config, datastore *KubernetesConfig, version string) (
	map[string]reflector.Status, []calico.Problem, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := newReading(0)
	if datastore != nil {
		s := newKubeStore(*datastore, slog.New(slog.DiscardHandler))
		all, err := s.list(ctx, []kubernetes.Resource{kubernetes.Leases(s.Namespace)})
		if err != nil {
			return nil, nil, err
		}
		r = all.reading(version, 0, time.Now())
	} else {
		client, err := etcd.NewClient(c, "to read under "+reflector.NodesPrefix)
		if err != nil {
			return nil, nil, err
		}
		err = client.Once(ctx, func(ctx context.Context, kv *clientv3.Client) error {
			resp, err := kv.Get(ctx, reflector.NodesPrefix, clientv3.WithPrefix())
			if err == nil {
				for _, kv := range resp.Kvs {
					r.hear(string(kv.Key), kv.Value, kv.ModRevision, version)
				}
			}
			return err
		})
		if err != nil {
			return nil, nil, errors.New(client.Explain(err))
		}
	}
	out := map[string]reflector.Status{}
	for node, s := range r.statuses {
		out[node] = s.Status
	}
	return out, r.problems, nil
}
