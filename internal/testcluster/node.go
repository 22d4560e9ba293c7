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

// Every workload has the same router, on no interface, as Calico's CNI plugin sets it up.
var gatewayMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

// gateway returns a workload's router for packets of an address's family, and what is behind it.
func gateway(a netip.Addr) (router netip.Addr, everything netip.Prefix) {
	if a.Is6() {
		return netip.MustParseAddr("fe80::1"), netip.MustParsePrefix("::/0")
	}
	return netip.MustParseAddr("169.254.1.1"), netip.MustParsePrefix("0.0.0.0/0")
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
		return []string{"--dataplane", "vpp", "--vpp-socket", n.VPP.APISocket()}
	}
	return []string{"--dataplane", "kernel", "--kernel-protocol", AgentProtocol}
}

// Workload is what Kubernetes would call a pod: a namespace with an address behind a node.
type Workload struct {
	Name    string
	Address netip.Addr
	NS      *netlab.Namespace
}

// Port is the link between a workload, or a VPP node's own kernel, and its node.
type Port struct {
	Inside, Outside string // devices in the workload's namespace and in the node's
	Address         netip.Addr
	MAC             net.HardwareAddr // of Inside
}

// Workload makes one that has no link yet.
func (c *Cluster) Workload(name string, address netip.Addr) (*Workload, error) {
	ns, err := c.namespace(name)
	return &Workload{Name: name, Address: address, NS: ns}, err
}

// Link plays the CNI plugin: it links a workload to the node. Packets take the link after Use, and
// Deliver, in the order that loses none. Calico's data are not touched.
func (n *Node) Link(w *Workload, inside, outside string) (p Port, err error) {
	p = Port{Inside: inside, Outside: outside, Address: w.Address}
	end := netlab.End{Namespace: n.NS, Device: outside}
	if n.VPP == nil { // else the kernel, which sees the same packets, must not take them for its own
		end.MAC = gatewayMAC
	}
	if err := n.Cluster.Veth(netlab.End{Namespace: w.NS, Device: inside}, end); err != nil {
		return p, err
	}
	if err := w.NS.FillChecksums(inside); err != nil {
		return p, err
	}
	if p.MAC, err = w.NS.MAC(inside); err != nil {
		return p, err
	}
	return p, w.AddAddress(p)
}

// AddAddress gives the workload a port's address, and its router's hardware address.
func (w *Workload) AddAddress(p Port) error {
	router, _ := gateway(p.Address)
	return errors.Join(w.NS.AddAddress(p.Inside, route.HostPrefix(p.Address)),
		w.NS.AddNeighbour(p.Inside, router, gatewayMAC))
}

// Deliver gives the node the route to a port's address, as Felix does.
func (n *Node) Deliver(ctx context.Context, p Port) error {
	if n.VPP != nil {
		n.ports = append(n.ports, p)
		return n.configurePort(ctx, p)
	}
	if err := n.NS.AddNeighbour(p.Outside, p.Address, p.MAC); err != nil {
		return err
	}
	const felix = 1024 // metric, since Calico 3.32
	return n.NS.AddRouteMetric(route.HostPrefix(p.Address), netip.Addr{}, p.Outside, felix)
}

// Use makes the workload send what is from the port's address through it.
func (w *Workload) Use(ctx context.Context, p Port) error {
	router, everything := gateway(p.Address)
	_, err := w.NS.Run(ctx, "ip", "route", "replace", everything.String(), "via", router.String(),
		"dev", p.Inside, "onlink", "src", p.Address.String())
	return err
}

// Unplug takes a link and the route over it away.
func (n *Node) Unplug(ctx context.Context, p Port) error {
	if n.VPP != nil {
		n.ports = slices.DeleteFunc(n.ports, func(q Port) bool { return q.Outside == p.Outside })
		name := "host-" + p.Outside
		err := n.VPP.Configure(ctx,
			fmt.Sprintf("ip route del %s via %s %s", route.HostPrefix(p.Address), p.Address, name),
			fmt.Sprintf("set ip neighbor del %s %s %s", name, p.Address, p.MAC),
			"delete host-interface name "+p.Outside)
		if err != nil {
			return err
		}
	}
	return n.NS.DeleteLink(p.Outside)
}

// serves reports whether a port of the node's VPP leads to a prefix.
func (n *Node) serves(p netip.Prefix) bool {
	return slices.ContainsFunc(n.ports, func(q Port) bool {
		return route.HostPrefix(q.Address) == p
	})
}
