package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// Pools of workloads' addresses, the same in every cluster.
var (
	Pool4 = netip.MustParsePrefix("10.1.0.0/16")
	Pool6 = netip.MustParsePrefix("fd01::/48")
)

// BirdConfig is what confd writes for a node at this address, with mesh sessions to these peers.
func BirdConfig(address netip.Addr, peers ...netip.Addr) netlab.BirdConfig {
	c := netlab.BirdConfig{RouterID: RouterID(address), Address: address, AS: AS,
		Pools: []netlab.BirdPool{{Prefix: Pool4}}}
	if address.Is6() {
		c.Pools[0].Prefix = Pool6
	}
	for _, p := range peers {
		c.Peers = append(c.Peers, netlab.MeshPeer(address, p, AS))
	}
	return c
}

// RouterID is the address itself, or for IPv6 one made from its end.
func RouterID(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte{10, 0, b[14], b[15]})
}

// Bird is BIRD as calico-node runs it.
type Bird struct {
	*netlab.Bird // nil before Start
	Name         string
	NS           *netlab.Namespace
	Config       netlab.BirdConfig

	cluster *Cluster
	ipv6    bool // its address is
}

// NewBird returns a BIRD that is not started.
func (c *Cluster) NewBird(name string, ns *netlab.Namespace, config netlab.BirdConfig) *Bird {
	return &Bird{Name: name, NS: ns, Config: config, cluster: c, ipv6: config.Address.Is6()}
}

// Start runs BIRD with its current configuration, for the first time or again.
func (b *Bird) Start(ctx context.Context) (err error) {
	b.Bird, err = b.cluster.StartBird(ctx, b.cluster.Bird, b.NS, b.Name, b.Config)
	return err
}

// Protocol is that of its routes in the kernel.
func (b *Bird) Protocol() string { return "bird" }

// Session is the name of the protocol that has a peer's session; "" for none.
func (b *Bird) Session(peer netip.Addr) string {
	for _, p := range b.Config.Peers {
		if p.Address == peer {
			return p.Name
		}
	}
	return ""
}

// Established are the peers with a session that is up, sorted.
func (b *Bird) Established(ctx context.Context) (up []netip.Addr, err error) {
	protocols, err := b.Protocols(ctx)
	for _, peer := range b.Config.Peers {
		if slices.ContainsFunc(protocols, func(p netlab.BirdProtocol) bool {
			return p.Name == peer.Name && p.Info == "Established"
		}) {
			up = append(up, peer.Address)
		}
	}
	slices.SortFunc(up, netip.Addr.Compare)
	return up, err
}

// Ready returns what BIRD still lacks: a session with one of these peers, or its End-of-RIB.
func (b *Bird) Ready(ctx context.Context, peers []netip.Addr) error {
	up, err := b.Established(ctx)
	if err != nil {
		return err
	}
	for _, peer := range peers {
		if !slices.Contains(up, peer) {
			return fmt.Errorf("BIRD has no session with %s", peer)
		}
	}
	details, err := b.Command(ctx, "show protocols all")
	if err != nil {
		return err
	}
	// Until End-of-RIB; what is stale would be dropped if its speaker went once more
	// (bgp_handle_graceful_restart).
	if slices.ContainsFunc(details, func(line string) bool {
		return strings.Contains(line, "Neighbor graceful restart active")
	}) {
		return errors.New("BIRD has stale routes")
	}
	return nil
}
