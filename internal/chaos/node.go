package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/vpp/vpptest"
)

// node is one machine of a cluster.
type node struct {
	cluster  *cluster
	name     string
	address  netip.Addr
	address6 netip.Addr // the zero Addr: IPv4 only
	ns       *netlab.Namespace
	vpp      *netlab.VPP     // nil: the kernel forwards
	api      *vpptest.Server // in place of a VPP, without packets; nil: none
	ports    []port          // behind VPP, to be made again when it restarts
	speaker  speaker
	workload workload
}

// speaker is a node's BGP daemon, a process of its own.
type speaker interface {
	start(ctx context.Context) error
	kill() error
	stop() error
	// ready returns what is missing before the speaker is as it should be: sessions with all others, and for ours a finished sweep.
	ready(ctx context.Context, peers []netip.Addr) error
	protocol() string // of its routes in the kernel
}

// workload is a namespace with one address behind a node.
type workload struct {
	address netip.Addr
	ns      *netlab.Namespace
}

// port is a device behind which VPP finds one address.
type port struct {
	device string
	behind netip.Addr
	mac    net.HardwareAddr
}

// Every workload has the same router, on no interface, as Calico's CNI plugin sets it up.
var (
	gateway    = netip.MustParseAddr("169.254.1.1")
	gatewayMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	everything = netip.MustParsePrefix("0.0.0.0/0")
)

// objection is what is wrong with a node, nil when all is as it should be.
func (n *node) objection(ctx context.Context) error {
	if err := n.speaker.ready(ctx, n.peers()); err != nil {
		return err
	}
	have, err := n.programmed(ctx)
	if err != nil {
		return err
	}
	delete(have, beyond) // has several next hops: who makes routers looks at it
	if err := difference(n.cluster.wanted(n), have); err != nil || n.vpp == nil {
		return err
	}
	if have, err = n.inFIB(ctx); err != nil {
		return err
	}
	if err := difference(n.cluster.wanted(n), have); err != nil {
		return fmt.Errorf("VPP forwards otherwise than the agent says: %w", err)
	}
	return nil
}

// peers are those that n must have a session with: the reflectors where there are some, else all other nodes; and the router of its rack.
func (n *node) peers() (all []netip.Addr) {
	for _, r := range n.cluster.reflectors {
		all = append(all, r.address)
	}
	if len(all) == 0 {
		for _, other := range n.cluster.nodes {
			if other == n {
				continue
			}
			all = append(all, other.address)
			if n.address6.IsValid() && other.address6.IsValid() {
				all = append(all, other.address6)
			}
		}
	}
	if n.cluster.rack.serves(n) {
		all = append(all, n.cluster.rack.address)
	}
	return all
}

// programmed is what the data plane of n has of its speaker: asked of the kernel, or listed by the agent out of VPP.
func (n *node) programmed(ctx context.Context) (map[netip.Prefix]netip.Addr, error) {
	if a, ok := n.speaker.(*agentSpeaker); ok && n.vpp != nil || ok && n.api != nil {
		return a.audited(ctx)
	}
	return n.inFIB(ctx)
}

// inFIB is what the data plane itself has of n's speaker; the agent has no part in it.
func (n *node) inFIB(ctx context.Context) (map[netip.Prefix]netip.Addr, error) {
	if n.vpp != nil {
		return n.forwarded(ctx)
	}
	found, err := n.inKernel(ctx, "-4")
	if err == nil && n.address6.IsValid() {
		var more map[netip.Prefix]netip.Addr
		more, err = n.inKernel(ctx, "-6")
		maps.Copy(found, more)
	}
	return found, err
}

// inKernel lists what the kernel of n has of its speaker, in one family: "-4" or "-6".
func (n *node) inKernel(ctx context.Context, family string) (map[netip.Prefix]netip.Addr, error) {
	out, err := n.ns.Run(ctx, "ip", "-json", family, "route", "show", "proto", n.speaker.protocol())
	if err != nil {
		return nil, err
	}
	var listed []struct{ Dst, Gateway string }
	if err := json.Unmarshal(out, &listed); err != nil {
		return nil, fmt.Errorf("ip route: %w", err)
	}
	found := map[netip.Prefix]netip.Addr{}
	for _, r := range listed {
		p, err := netip.ParsePrefix(r.Dst)
		if r.Dst == "default" {
			p, err = everything, nil
		}
		if err != nil {
			a, err := netip.ParseAddr(r.Dst)
			if err != nil {
				return nil, fmt.Errorf("ip route: %w", err)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		hop := netip.Addr{}
		if r.Gateway != "" {
			if hop, err = netip.ParseAddr(r.Gateway); err != nil {
				return nil, fmt.Errorf("ip route: %w", err)
			}
		}
		found[p] = hop
	}
	return found, nil
}

// makeKernel makes n a machine that forwards with the kernel.
func (n *node) makeKernel() error {
	if err := n.ns.Forward(); err != nil {
		return err
	}
	return n.cluster.connect(n.ns, n.address)
}

// addWorkload plays the CNI plugin and Felix. Calico's data are not needed for an address inside the node's block.
func (n *node) addWorkload(ctx context.Context, address netip.Addr) (err error) {
	w := workload{address: address}
	if w.ns, err = n.cluster.lab.Namespace("w-" + n.name); err != nil {
		return err
	}
	if err := relaxSourceChecks(w.ns); err != nil {
		return err
	}
	outside := netlab.End{Namespace: n.ns, Device: n.workloadDevice()}
	if n.vpp == nil {
		outside.MAC = gatewayMAC
	}
	if err := n.cluster.lab.Veth(netlab.End{Namespace: w.ns, Device: "eth0"}, outside); err != nil {
		return err
	}
	if err := w.ns.FillChecksums("eth0"); err != nil {
		return err
	}
	if err := w.use(address, gateway, everything); err != nil {
		return err
	}
	n.workload = w
	if n.vpp == nil {
		return n.deliver(address)
	}
	mac, err := w.ns.MAC("eth0")
	if err != nil {
		return err
	}
	return n.addPort(ctx, port{outside.Device, address, mac})
}

func (n *node) workloadDevice() string { return "cali" + n.name }

// use gives the workload an address, and a gateway to everything.
func (w workload) use(address, gateway netip.Addr, everything netip.Prefix) error {
	if err := w.ns.AddAddress("eth0", netip.PrefixFrom(address, address.BitLen())); err != nil {
		return err
	}
	if err := w.ns.AddNeighbour("eth0", gateway, gatewayMAC); err != nil {
		return err
	}
	return w.ns.AddRoute(everything, gateway, "eth0")
}

// deliver has n's kernel send what is for this address to its workload.
func (n *node) deliver(address netip.Addr) error {
	mac, err := n.workload.ns.MAC("eth0")
	if err != nil {
		return err
	}
	if err := n.ns.AddNeighbour(n.workloadDevice(), address, mac); err != nil {
		return err
	}
	return n.ns.AddRouteMetric(netip.PrefixFrom(address, address.BitLen()), netip.Addr{}, n.workloadDevice(), 1024) // Felix' metric
}
