package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"vpp-route-agent/internal/testcluster"
)

// Tunnelled packets come in at VPP's own address, so that is the node's here, and there is no BGP:
// nobody could reach the agent by it.

func newOverlay(ctx context.Context, s settings, k kind, l layout) (*cluster, error) {
	return makeCluster(ctx, s, k, "", func(c *cluster) error {
		c.layout = l
		if err := c.setMode(ctx, vxlanAlways); err != nil {
			return err
		}
		for i := range 3 {
			n, err := c.makeNode(ctx, i, true)
			if err != nil {
				return err
			}
			c.nodes = append(c.nodes, n)
			err = errors.Join(c.addOverlayNode(ctx, n.Name, n.nodeAddress(), firstBlock(i)),
				c.addBlock(ctx, n, i))
			if err != nil {
				return err
			}
			a := c.NewAgent(n.Name, n.NS, n.dataplane()...)
			a.Flags = []string{"--learn", "ipam"}
			n.speaker = a
			c.tunnels = append(c.tunnels, "VXLAN "+n.nodeAddress().String())
		}
		return nil
	})
}

// modes of the pool of workloads, and the kind of tunnels that nodes have then.
type mode struct{ ipip, vxlan, kind string }

var (
	vxlanAlways = mode{"Never", "Always", "VXLAN"}
	vxlanCross  = mode{"Never", "CrossSubnet", "VXLAN"}
	ipipAlways  = mode{"Always", "Never", "IPIP"}
	never       = mode{"Never", "Never", ""}
)

func (c *cluster) setMode(ctx context.Context, m mode) error {
	return c.Apply(ctx, testcluster.Resource("IPPool", "workloads", fmt.Sprintf("cidr: "+
		"10.1.0.0/16, blockSize: 26, ipipMode: %s, vxlanMode: %s, natOutgoing: false", m.ipip,
		m.vxlan)))
}

// addOverlayNode adds a node with the addresses of both its tunnels, at the end of a block.
func (c *cluster) addOverlayNode(ctx context.Context, name string, address netip.Addr,
	block netip.Prefix) error {
	b := block.Addr().As4()
	b[3] += 61
	ipip := netip.AddrFrom4(b)
	return c.Apply(ctx, testcluster.Resource("Node", name, fmt.Sprintf(
		"bgp: {ipv4Address: %s/24, ipv4IPIPTunnelAddr: %s}, ipv4VXLANTunnelAddr: %s",
		address, ipip, ipip.Next())))
}

// nodeAddress is what the Node says.
func (n *node) nodeAddress() netip.Addr {
	if n.cluster.layout.overlay {
		return n.Uplink.Address.Addr()
	}
	return n.Address
}

// "[0] instance 1 src 10.0.0.1 dst 10.0.0.2 src_port …", "[0] ipip1: fe80::2 via [0]:10.0.0.2/32"
var (
	vxlanTunnel = regexp.MustCompile(`(?m)^\[\d+\] instance .* dst ([0-9.]+) `)
	teibEntry   = regexp.MustCompile(`(?m)^\[\d+\].* via .*?([0-9]+(?:\.[0-9]+){3})`)
)

// tunnels are those of a node, as VPP shows them: "VXLAN 10.0.0.2".
func (n *node) tunnels(ctx context.Context) (all []string, err error) {
	for _, x := range []struct {
		kind, command string
		entry         *regexp.Regexp
	}{{"VXLAN", "show vxlan tunnel", vxlanTunnel}, {"IPIP", "show teib", teibEntry}} {
		out, err := n.VPP.Command(ctx, x.command)
		if err != nil {
			return nil, err
		}
		for _, m := range x.entry.FindAllStringSubmatch(out, -1) {
			all = append(all, x.kind+" "+m[1])
		}
	}
	slices.Sort(all)
	return all, nil
}

// tunnelsObjection is nil when VPP has exactly the tunnels that it should have.
func (n *node) tunnelsObjection(ctx context.Context) error {
	have, err := n.tunnels(ctx)
	if err != nil {
		return err
	}
	var want []string
	for _, t := range n.cluster.tunnels {
		if _, to, _ := strings.Cut(t, " "); to != n.nodeAddress().String() {
			want = append(want, t)
		}
	}
	if slices.Sort(want); !slices.Equal(have, want) {
		return fmt.Errorf("VPP has %d tunnels, and should have %d: %.200q instead of %.200q",
			len(have), len(want), have, want)
	}
	return nil
}
