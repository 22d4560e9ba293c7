package testcluster

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"sync"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

// CalicoNode is what calico-node runs: BIRD, confd's part, which gives BIRD the sessions that
// Calico's data say, also when they change, and the answers to CalicoNodeStatus.
type CalicoNode struct {
	*Bird
	cluster *Cluster

	mu      sync.Mutex // guards Config, BIRD's process, and follows
	follows bool
}

// NewCalicoNode returns one that is not started. Its sessions are not taken from config.
func (c *Cluster) NewCalicoNode(
	name string, ns *netlab.Namespace, config netlab.BirdConfig,
) *CalicoNode {
	return &CalicoNode{Bird: c.NewBird(name, ns, config), cluster: c}
}

// Start runs BIRD, for the first time or again; the rest runs until the cluster is closed.
func (n *CalicoNode) Start(ctx context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Config, err = n.confd(ctx); err != nil {
		return err
	}
	if err := n.Bird.Start(ctx); err != nil || n.follows {
		return err
	}
	n.follows = true
	answers := calicotest.CalicoNode{
		Node: n.Name, Client: n.cluster.Data.Client(), Tables: n.tables,
	}
	n.cluster.background(func(ctx context.Context) error { return answers.Run(ctx) })
	for _, kind := range []calico.Kind{
		calico.KindNode, calico.KindBGPPeer, calico.KindBGPConfiguration,
	} {
		n.cluster.background(func(ctx context.Context) error {
			return n.cluster.Data.Follow(ctx, kind, n.reconfigure)
		})
	}
	return nil
}

// Ready returns what BIRD still lacks, as a Bird does.
func (n *CalicoNode) Ready(ctx context.Context, peers []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Bird.Ready(ctx, peers)
}

func (n *CalicoNode) tables(ctx context.Context, ipv6 bool) (
	[]calicotest.NodePeer, []calicotest.NodeRoute, error,
) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Tables(ctx, ipv6)
}

// reconfigure gives BIRD other sessions if Calico's data make others of them.
func (n *CalicoNode) reconfigure(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	config, err := n.confd(ctx)
	if err != nil || reflect.DeepEqual(config, n.Config) {
		return err
	}
	select {
	case <-n.Done(): // it starts with the configuration of then
		return nil
	default:
	}
	n.Config = config
	return n.Reconfigure(ctx, config)
}

// confd is the configuration with the sessions that Calico's data say.
func (n *CalicoNode) confd(ctx context.Context) (netlab.BirdConfig, error) {
	s, err := n.cluster.Data.Snapshot(ctx, n.Name)
	if err != nil {
		return n.Config, err
	}
	return WithPeers(n.Config, n.Name, s), nil
}

// background runs f until the cluster is closed. What f returns is the cluster's to tell then.
func (c *Cluster) background(f func(ctx context.Context) error) {
	c.running.Go(func() {
		if err := f(c.ctx); err != nil && !errors.Is(err, context.Canceled) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended = errors.Join(c.ended, err)
		}
	})
}

// Ended is why something has ended that should run until the cluster is closed.
func (c *Cluster) Ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}
