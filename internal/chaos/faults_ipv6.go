package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var ipv6Faults = []fault{
	{name: "agent-kill-ipv6", onlyFirst: true, kind: kernelNodes, fresh: true, allowed: "0",
		what: "agent SIGKILL, started again, where our nodes have IPv6 as well, with a session " +
			"of its own; a block of each family is released meanwhile",
		run: func(ctx context.Context, t *trial) error {
			return t.withIPv6(ctx, (*testcluster.Agent).Kill)
		}},
}

var (
	underlayNet6 = netip.MustParsePrefix("fd00:4::/64")
	pods6        = netip.MustParsePrefix("fd00:10::/64")
	spare6       = netip.MustParsePrefix("fd00:10::f00/122")
)

// withIPv6 ends the agent of node 1 and starts it again under one flow of IPv6, besides those of
// IPv4.
func (t *trial) withIPv6(ctx context.Context, end func(*testcluster.Agent) error) error {
	if err := t.addPool6(ctx); err != nil {
		return err
	}
	for i, n := range t.agents() {
		if err := n.addIPv6(ctx, i); err != nil {
			return err
		}
	}
	if err := t.claim(ctx, t.nodes[1], spare6); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	w := t.nodes[0].workload
	flow, err := w.NS.StartFlow(netlab.FlowConfig{
		From: workload6(0), To: workload6(1), Interval: packetInterval, Timeout: answerPatience,
	})
	if err != nil {
		return err
	}
	err = testcluster.Pause(ctx, time.Second)
	if err == nil {
		err = t.restartAgent(ctx, end, spare6)
	}
	report := flow.Stop()
	t.mustArrive(report.Lost == 0, "IPv6: %s", report)
	t.note("IPv6: %s", report)
	return err
}

func (c *cluster) addPool6(ctx context.Context) error {
	return c.Data.AddPool(ctx, "workloads6", pods6, 0)
}

// workload6 is the address of node i's workload, the first one in its block.
func workload6(i int) netip.Addr {
	b := pods6.Addr().As16()
	b[14], b[15] = byte(i), 1
	return netip.AddrFrom16(b)
}

// addIPv6 gives node i, which forwards with the kernel, an address, so that a second session comes
// to each node that has one, and its workload one, with the block that it is in.
func (n *node) addIPv6(ctx context.Context, i int) error {
	if err := n.addAddress6(i); err != nil {
		return err
	}
	err := n.cluster.Data.AddNode(ctx, n.Name, netip.PrefixFrom(n.Address, underlayNet.Bits()),
		netip.PrefixFrom(n.address6, underlayNet6.Bits()))
	if err != nil {
		return err
	}
	return n.addBlock6(ctx, i)
}

// addAddress6 gives the machine of node i an address on the underlay.
func (n *node) addAddress6(i int) error {
	b := underlayNet6.Addr().As16()
	b[15] = byte(11 + i)
	n.address6 = netip.AddrFrom16(b)
	return n.NS.AddAddress("eth0", netip.PrefixFrom(n.address6, underlayNet6.Bits()))
}

// addBlock6 gives node i a block, and its workload an address in that.
func (n *node) addBlock6(ctx context.Context, i int) error {
	address := workload6(i)
	block, err := address.Prefix(spare6.Bits())
	if err != nil {
		return err
	}
	if err := n.cluster.claim(ctx, n, block); err != nil {
		return err
	}
	port := n.port
	port.Address = address
	return errors.Join(n.workload.AddAddress(port), n.workload.Use(ctx, port), n.Deliver(ctx, port))
}
