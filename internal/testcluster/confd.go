package testcluster

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/netlab"
)

// WithPeers is what confd writes for a node once Calico's data are these: the sessions, its blocks
// and its cluster ID follow from them.
func WithPeers(c netlab.BirdConfig, node string, s *calico.Snapshot) netlab.BirdConfig {
	c.Peers, c.Blocks, c.Cluster = nil, nil, netip.Addr{}
	if id := s.Nodes[node].RouteReflectorClusterID; id != "" {
		c.Cluster, _ = netip.ParseAddr(id) // Calico checks it
	}
	peers, _ := bgp.Peers(node, s)
	for _, p := range peers {
		if p.Address.Is4() != c.Address.Is4() {
			continue
		}
		b := netlab.MeshPeer(c.Address, p.Address, p.RemoteAS)
		b.Port, b.RestartTime, b.Client = p.Port, new(p.RestartTime), p.Client
		switch p.Scope {
		case bgp.ScopeGlobal:
			b.Name, b.Passive = "Global"+b.Name[len("Mesh"):], b.Passive && p.CalicoNode != ""
		case bgp.ScopeNode: // both ends dial
			b.Name, b.Passive = "Node"+b.Name[len("Mesh"):], false
		}
		c.Peers = append(c.Peers, b)
	}
	for cidr, block := range s.Blocks {
		if block.Owner.Host == node && cidr.Addr().Is4() == c.Address.Is4() {
			c.Blocks = append(c.Blocks, cidr)
		}
	}
	sortPrefixes(c.Blocks)
	return c
}

// Follow has BIRD's configuration follow Calico's data, as confd does, until ctx ends.
func (b *Bird) Follow(ctx context.Context, every time.Duration) error {
	for {
		s, err := b.cluster.Data.Snapshot(ctx, b.Name)
		if err == nil {
			if now := WithPeers(b.Config, b.Name, s); !reflect.DeepEqual(now, b.Config) {
				if b.Config, err = now, b.Reconfigure(ctx, now); err != nil {
					err = fmt.Errorf("confd of %s: %w", b.Name, err)
				}
			}
		}
		if err == nil {
			err = Pause(ctx, every)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
