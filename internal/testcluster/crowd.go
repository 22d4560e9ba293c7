package testcluster

import (
	"net/netip"

	"vpp-route-agent/internal/netlab"
)

// Crowd makes a namespace with all of these addresses on one interface, in whose subnet a node has
// its own on eth0. It is for more peers than there can be namespaces.
func (c *Cluster) Crowd(
	node *netlab.Namespace, name string, own netip.Prefix, peers []netip.Addr,
) (*netlab.Namespace, error) {
	far, err := c.Namespace(name)
	if err != nil {
		return nil, err
	}
	end := netlab.End{Namespace: far, Device: "eth0"}
	for _, a := range peers {
		end.Addresses = append(end.Addresses, netip.PrefixFrom(a, own.Bits()))
	}
	near := netlab.End{Namespace: node, Device: "eth0", Addresses: []netip.Prefix{own}}
	if err := c.Veth(near, end); err != nil {
		return nil, err
	}
	// The kernel resolves no more than 1024 neighbours in all namespaces together (gc_thresh3 of
	// arp(7)), and does not count those that it was told of.
	mac, err := far.MAC(end.Device)
	if err != nil {
		return nil, err
	}
	for _, a := range peers {
		if err := node.AddNeighbour(near.Device, a, mac); err != nil {
			return nil, err
		}
	}
	return far, nil
}
