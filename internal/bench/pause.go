package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

// pause has a worker of VPP forward a flow, and an agent make a tunnel of VXLAN to each node: each
// is an interface, for which VPP's main thread stops the worker. In turn with that one interface is
// made by hand in as long a time. What counts is the packet that took longest.
func pause(l *lab) error {
	if l.VPP == nil {
		return fmt.Errorf("%w: there is no VPP", errNotHere)
	}
	p, err := l.startPlane("1G", "cpu { workers 1 }")
	if err != nil {
		return err
	}
	l.plane = p
	to, err := l.throughPlane(p)
	if err != nil {
		return err
	}
	t, err := l.tunnelAgent(p.socket, "journal-pause", route.VXLAN)
	if err != nil {
		return err
	}
	defer t.stop()
	full, empty := vxlanCluster(tunnelNodes), vxlanCluster(0)
	var byAgent, byHand, idle series
	var took time.Duration                                      // of the agent, the last time
	slowest := func(all *series, f func() error) func() error { // of the packets meanwhile
		return func() error {
			flow, err := l.far.StartFlow(netlab.FlowConfig{To: to,
				Interval: 500 * time.Microsecond})
			if err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
			err = f()
			r := flow.Stop()
			if r.Lost > 0 {
				err = errors.Join(err, fmt.Errorf("the flow: %s", r))
			}
			*all = append(*all, r.Slowest.Seconds()*1000)
			return err
		}
	}
	byOne := func() error {
		began := time.Now()
		const line = "create vxlan tunnel src 10.0.255.254 dst 10.0.0.9 vni 9"
		_, err := p.real.Command(l.b.ctx, line)
		if err == nil {
			_, err = p.real.Command(l.b.ctx, line+" del")
		}
		time.Sleep(took - time.Since(began))
		return err
	}
	err = rounds(l.b.pick(15, 3), func() error {
		err := slowest(&byAgent, func() (err error) {
			took, err = t.take(l.b.ctx, full)
			return err
		})()
		if err == nil {
			_, err = t.take(l.b.ctx, empty)
		}
		return err
	}, slowest(&byHand, byOne), slowest(&idle, func() error { time.Sleep(took); return nil }))
	if err != nil {
		return err
	}
	l.b.compare("pause: slowest packet while VXLAN tunnels are made", "ms", byAgent,
		"one interface by hand", byHand, l.b.quiet(atMost(2)),
		fmt.Sprintf("%d in %s, %s with one worker; without either %.2f ms", tunnelNodes,
			took.Round(time.Millisecond), p.name, idle.median()))
	return nil
}

// throughPlane has the far host reach another address through VPP, and returns that.
func (l *lab) throughPlane(p *plane) (netip.Addr, error) {
	answers, err := l.Namespace("answers")
	if err != nil {
		return netip.Addr{}, err
	}
	to := netip.MustParseAddr("10.9.2.2")
	for _, x := range []struct {
		host    *netlab.Namespace
		device  string
		address string
	}{{l.far, "asks", "10.9.1"}, {answers, "answers", "10.9.2"}} {
		near, far := netlab.End{Namespace: l.node, Device: x.device},
			netlab.End{Namespace: x.host, Device: x.device,
				Addresses: []netip.Prefix{netip.MustParsePrefix(x.address + ".2/24")}}
		gateway := netip.MustParsePrefix(x.address + ".1/24")
		if err := l.Veth(near, far); err != nil {
			return to, err
		}
		if _, err := p.real.Host(l.b.ctx, x.device, gateway); err != nil {
			return to, err
		}
		err := x.host.AddRoute(netip.MustParsePrefix("10.9.0.0/16"), gateway.Addr(), x.device)
		if err != nil {
			return to, err
		}
	}
	_, err = l.far.Ping(l.b.ctx, to)
	return to, err
}

// vxlanCluster is tunnelCluster with a pool that has VXLAN.
func vxlanCluster(n int) *calico.Snapshot {
	s := tunnelCluster(n)
	for name, p := range s.IPPools {
		p.IPIPMode, p.VXLANMode = calico.EncapNever, calico.EncapAlways
		s.IPPools[name] = p
	}
	for name, node := range s.Nodes {
		if node.IPv4VXLANTunnelAddr = node.IPv4IPIPTunnelAddr; name != "node" {
			a := node.IPv4.Addr().As4()
			node.IPv4VXLANTunnelAddr = netip.AddrFrom4([4]byte{30, 254, a[2], a[3]})
		}
		s.Nodes[name] = node
	}
	return s
}
