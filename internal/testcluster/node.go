package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

// Node is a machine of a cluster that forwards.
type Node struct {
	Cluster *Cluster
	Name    string
	Address netip.Addr // of its BGP speaker
	NS      *netlab.Namespace
	VPP     *netlab.VPP // nil: the kernel forwards
	Uplink  VPPUplink

	ports []Port // behind VPP, to be made again when it restarts
}

// VPPUplink is how a VPP is on the underlay.
type VPPUplink struct {
	Address netip.Prefix // VPP's own, beside the node's
	// MAC outlives VPP, as a card's does: with a new one the others would send into the void until
	// their ARP entries age.
	MAC  net.HardwareAddr
	Bare bool // the agent sets it up: it is down and has no address
}

// KernelNode makes a node that forwards with the kernel, with these addresses on eth0.
func (c *Cluster) KernelNode(name string, addresses ...netip.Prefix) (*Node, error) {
	n := &Node{Cluster: c, Name: name}
	if len(addresses) > 0 {
		n.Address = addresses[0].Addr()
	}
	var err error
	if n.NS, err = c.Machine(name, addresses...); err != nil {
		return nil, err
	}
	return n, n.NS.Forward()
}

// VPPNode makes a node that forwards with VPP. VPP has the uplink and an address of its own there.
// The node's address is the kernel's, behind VPP on a veth: VPP has a route to it and answers ARP
// for it on the uplink, so that BGP runs over the underlay through VPP.
func (c *Cluster) VPPNode(
	ctx context.Context, name string, address netip.Addr, uplink VPPUplink,
) (*Node, error) {
	n := &Node{Cluster: c, Name: name, Address: address, Uplink: uplink}
	var err error
	if n.NS, err = c.namespace(name); err != nil {
		return nil, err
	}
	// The kernel sees VPP's devices too and would answer ARP on all of them.
	err = sysctls(n.NS, "1", "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.default.arp_ignore")
	if err != nil {
		return nil, err
	}
	if err := c.Attach(c.Underlay, netlab.End{Namespace: n.NS, Device: "uplink"}); err != nil {
		return nil, err
	}
	vpp := netlab.End{Namespace: n.NS, Device: "vpp0"}
	host := netlab.End{Namespace: n.NS, Device: "host0",
		Addresses: []netip.Prefix{route.HostPrefix(address)}}
	if err := c.Veth(host, vpp); err != nil {
		return nil, err
	}
	router, everything := gateway(address)
	mac, errMAC := n.NS.MAC(host.Device)
	err = errors.Join(errMAC, n.NS.FillChecksums(host.Device),
		n.NS.AddNeighbour(host.Device, router, gatewayMAC),
		n.NS.AddRoute(everything, router, host.Device))
	if err != nil {
		return nil, err
	}
	n.ports = []Port{{Outside: vpp.Device, Address: address, MAC: mac}}
	n.VPP, err = c.StartVPP(ctx, *c.Programs.VPP, n.NS, name+"-vpp", netlab.VPPConfig{})
	if err != nil {
		return nil, err
	}
	return n, n.configureVPP(ctx)
}

// RestartVPP starts a VPP that has ended, with its uplink and ports, as a CNI plugin does. Routes
// are the agent's to bring back.
func (n *Node) RestartVPP(ctx context.Context) error {
	if err := n.VPP.Restart(ctx); err != nil {
		return err
	}
	return n.configureVPP(ctx)
}

func (n *Node) configureVPP(ctx context.Context) error {
	if err := n.VPP.CreateHost(ctx, "uplink", n.Uplink.MAC); err != nil {
		return err
	}
	lines := []string{
		fmt.Sprintf("set arp proxy start %s end %s", n.Address, n.Address),
		"set interface proxy-arp host-uplink enable",
	}
	if !n.Uplink.Bare {
		lines = append(lines, "set interface state host-uplink up",
			"set interface ip address host-uplink "+n.Uplink.Address.String())
	}
	if err := n.VPP.Configure(ctx, lines...); err != nil {
		return err
	}
	for _, p := range n.ports {
		if err := n.configurePort(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// configurePort gives VPP a device and the route to the address behind it, as a CNI plugin for VPP
// does. VPP ignores ARP requests from outside an interface's subnet, so the neighbour is permanent.
func (n *Node) configurePort(ctx context.Context, p Port) error {
	if err := n.VPP.CreateHost(ctx, p.Outside, gatewayMAC); err != nil {
		return err
	}
	name := "host-" + p.Outside
	return n.VPP.Configure(ctx,
		"set interface state "+name+" up",
		"set interface unnumbered "+name+" use host-uplink",
		fmt.Sprintf("set ip neighbor %s %s %s static", name, p.Address, p.MAC),
		fmt.Sprintf("ip route add %s via %s %s", route.HostPrefix(p.Address), p.Address, name))
}

// Dataplane are the agent's flags for what the node forwards with.
func (n *Node) Dataplane() []string {
	if n.VPP != nil {
		return []string{"--dataplane", "vpp", "--vpp-socket", n.VPP.APISocket(),
			"--vpp-stats-socket", n.VPP.StatsSocket()}
	}
	return []string{"--dataplane", "kernel", "--kernel-protocol", AgentProtocol}
}

// serves reports whether a port of the node's VPP leads to a prefix.
func (n *Node) serves(p netip.Prefix) bool {
	return slices.ContainsFunc(n.ports, func(q Port) bool {
		return route.HostPrefix(q.Address) == p
	})
}
