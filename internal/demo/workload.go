package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"vpp-route-agent/internal/netlab"
)

// workload is what Kubernetes would call a pod: a namespace of its own with one address, reached through the node that it runs on.
type workload struct {
	name    string
	address netip.Addr
	node    *node
	ns      *netlab.Namespace
	port    port
}

// port is a workload's current link to its node. A workload that moves gets a second one before it gives up the first.
type port struct {
	inside  string // device in the workload's namespace
	outside string // device in the node's namespace, named as Calico names them
	mac     net.HardwareAddr
}

func (w *workload) host() netip.Prefix { return netip.PrefixFrom(w.address, w.address.BitLen()) }

// gateway is the address that Calico's CNI plugin gives every workload as its router. It is on no interface: a permanent neighbour
// entry stands for it, with the fixed MAC of the node's end.
var (
	gateway    = netip.MustParseAddr("169.254.1.1")
	gatewayMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
)

// plug plays the CNI plugin and Felix on n: it links w to the node and gives the node a route to it. The workload itself keeps
// sending through an earlier link until useNewest.
func (n *node) plug(ctx context.Context, lab *netlab.Lab, w *workload) (p port, err error) {
	n.ports++
	p = port{inside: "eth0", outside: fmt.Sprintf("cali%s%d", w.name, n.ports)}
	if w.port.inside == p.inside {
		p.inside = "eth1"
	}
	err = lab.Veth(
		netlab.End{Namespace: w.ns, Device: p.inside, Addresses: []netip.Prefix{w.host()}},
		netlab.End{Namespace: n.ns, Device: p.outside, MAC: n.fib.portMAC()})
	if err != nil {
		return port{}, err
	}
	if p.mac, err = w.ns.MAC(p.inside); err != nil {
		return port{}, err
	}
	if err := w.ns.FillChecksums(p.inside); err != nil {
		return port{}, err
	}
	if err := w.ns.AddNeighbour(p.inside, gateway, gatewayMAC); err != nil {
		return port{}, err
	}
	return p, n.fib.addWorkload(ctx, w.host(), p)
}

// unplug takes the route and the link away that plug has made.
func (n *node) unplug(ctx context.Context, w *workload, p port) error {
	if err := n.fib.removeWorkload(ctx, w.host(), p); err != nil {
		return err
	}
	return n.ns.DeleteLink(p.outside)
}

// use makes the workload send through p from now on.
func (w *workload) use(ctx context.Context, n *node, p port) error {
	_, err := w.ns.Run(ctx, "ip", "route", "replace", "default", "via", gateway.String(), "dev", p.inside, "onlink", "src", w.address.String())
	w.node, w.port = n, p
	return err
}
