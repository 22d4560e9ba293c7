package calicotest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// MemberOptions say how to run one member of an etcd cluster of several.
type MemberOptions struct {
	Name, Dir    string
	Client, Peer string // host:port that it listens on, and by which others reach it
	// Cluster is all members as etcd's flag has them:
	// "a=http://192.0.2.1:2380,b=http://192.0.2.2:2380".
	Cluster string
	// Joining: the cluster exists and knows this member.
	Joining bool
	// TokenTTL is how long an authentication token lasts without use; zero: etcd's default, 5
	// minutes.
	TokenTTL time.Duration
}

// ServeMember runs a member in this process until ctx ends. It starts without the others, too.
func ServeMember(ctx context.Context, o MemberOptions) error {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = o.Name, o.Dir
	clients, peers := []url.URL{{Scheme: "http", Host: o.Client}},
		[]url.URL{{Scheme: "http", Host: o.Peer}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.InitialCluster = o.Cluster
	if o.Joining {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	if o.TokenTTL != 0 {
		cfg.AuthTokenTTL = uint(o.TokenTTL / time.Second)
	}
	makeCheap(cfg)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", o.Name, err)
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("etcd %s: %w", o.Name, err)
	case <-server.Server.StopNotify():
		return errors.New("etcd " + o.Name + ": it was removed from the cluster")
	}
}

// Dial returns a Cluster that connects through dial, for instance inside a network namespace. It
// does not wait for an answer. The caller closes it.
func Dial(endpoints []string, dial func(ctx context.Context, address string) (net.Conn,
	error)) (*Cluster, error) {
	return DialAs("", "", endpoints, dial)
}

// DialAs is Dial with a log-in, for which it does wait.
func DialAs(username, password string, endpoints []string,
	dial func(ctx context.Context, address string) (net.Conn, error)) (*Cluster, error) {
	client, err := clientv3.New(clientv3.Config{
		Username: username, Password: password,
		Endpoints: endpoints, DialTimeout: 5 * time.Second, DialKeepAliveTime: 3 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		Logger:               zap.NewNop(),
		DialOptions:          []grpc.DialOption{grpc.WithContextDialer(dial)},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return NewCluster(client), nil
}

// Client returns the Cluster's client, for other data than Calico's.
func (c *Cluster) Client() *clientv3.Client { return c.client }

// ChangeRaw writes many values in few transactions. An empty value deletes its key.
func (c *Cluster) ChangeRaw(ctx context.Context, changes map[string]string) error {
	const most = 100 // etcd's default limit is 128 operations
	var ops []clientv3.Op
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		_, err := c.client.Txn(ctx).Then(ops...).Commit()
		ops = nil
		return err
	}
	for key, value := range changes {
		op := clientv3.OpPut(key, value)
		if value == "" {
			op = clientv3.OpDelete(key)
		}
		if ops = append(ops, op); len(ops) == most {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// GetRaw returns the value of a key, or "".
func (c *Cluster) GetRaw(ctx context.Context, key string) (string, error) {
	resp, err := c.client.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}
