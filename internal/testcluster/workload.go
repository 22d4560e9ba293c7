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

// Every workload has the same router, on no interface, as Calico's CNI plugin sets it up.
var gatewayMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

// gateway returns a workload's router for packets of an address's family, and what is behind it.
func gateway(a netip.Addr) (router netip.Addr, everything netip.Prefix) {
	if a.Is6() {
		return netip.MustParseAddr("fe80::1"), netip.MustParsePrefix("::/0")
	}
	return netip.MustParseAddr("169.254.1.1"), netip.MustParsePrefix("0.0.0.0/0")
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
	// else the kernel, which sees the same packets, must not take them for its own
	if n.VPP == nil {
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
