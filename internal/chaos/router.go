package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const routerAS = 65001

// router is a top-of-rack router with FRR on the underlay.
type router struct {
	name    string
	address netip.Addr
	ns      *netlab.Namespace
	frr     *netlab.FRR
}

// addRouter makes router i, 0 or 1, that takes sessions from these nodes and announces these
// prefixes. Calico does not know it yet.
func (c *cluster) addRouter(
	ctx context.Context, i int, hold time.Duration, nodes []*node, announced ...netip.Prefix,
) (*router, error) {
	programs, err := netlab.FindFRR(ctx, filepath.Join(c.build, "packages"))
	if err != nil {
		return nil, err
	}
	r := &router{
		name:    fmt.Sprintf("tor-%d", i+1),
		address: netip.AddrFrom4([4]byte{192, 168, 4, byte(61 + i)}),
	}
	if r.ns, err = c.machine(r.name, r.address); err != nil {
		return nil, err
	}
	if err := r.ns.Forward(); err != nil {
		return nil, err
	}
	var config strings.Builder
	fmt.Fprintf(&config, `
router bgp %d
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 timers bgp %d %d
`, routerAS, r.address, int(hold.Seconds())/3, int(hold.Seconds()))
	for _, n := range nodes {
		fmt.Fprintf(&config,
			" neighbor %s remote-as %d\n neighbor %[1]s timers connect 1\n neighbor %[1]s "+
				"ebgp-multihop 2\n", n.Address, testcluster.AS)
	}
	fmt.Fprintln(&config, " address-family ipv4 unicast")
	for _, p := range announced {
		fmt.Fprintf(&config, "  network %s\n", p)
	}
	r.frr, err = c.StartFRR(ctx, programs, r.ns, r.name, netlab.FRRConfig{
		Keep: time.Minute, BGP: config.String(),
	})
	return r, err
}

// peerWith has n peer with r, with more for the BGPPeer's spec.
func (c *cluster) peerWith(ctx context.Context, r *router, n *node, more string) error {
	spec := fmt.Sprintf("node: %s, %s", n.Name, more)
	return c.Apply(ctx, testcluster.Peer(peerName(r, n), r.address.String(), routerAS, spec))
}

func peerName(r *router, n *node) string { return r.name + "-" + n.Name }

// announced is what each neighbour has announced to r.
func (r *router) announced(ctx context.Context) (map[netip.Addr]map[netip.Prefix]bool, error) {
	paths, err := r.frr.Paths(ctx, "ipv4")
	announced := map[netip.Addr]map[netip.Prefix]bool{}
	for _, path := range paths {
		from, own := netip.ParseAddr(path.Peer)
		prefix, err := netip.ParsePrefix(path.Prefix)
		if err != nil {
			return nil, err
		}
		if own != nil || path.Stale {
			continue
		}
		if announced[from] == nil {
			announced[from] = map[netip.Prefix]bool{}
		}
		announced[from][prefix] = true
	}
	return announced, err
}
