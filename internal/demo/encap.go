package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testcluster"
)

// encapSteps show a pool with ipipMode or vxlanMode. There is no BGP: tunnelled packets come in at
// VPP's own address, so that is the node's, and the agent cannot be reached by it.
var encapSteps = []step{
	{"A cluster: etcd, three nodes with our agent, a pool that encapsulates, five workloads",
		(*demo).buildCluster},
	{"Tunnels: each node makes one to each other", (*demo).startTunnels},
	{"Routes: Calico's blocks, and where each node has programmed them", (*demo).showRoutes},
	{"Packets: every workload pings every other", (*demo).pingAll},
	{"The pool's mode changes under traffic: to none, to the other kind, and back",
		(*demo).changeModes},
	{"A workload moves to another node: its /32 beats the block", (*demo).moveWorkload},
	{"A block is released: its route goes everywhere", (*demo).releaseBlock},
}

func (d *demo) encapsulates() bool { return d.cfg.Encap == "ipip" || d.cfg.Encap == "vxlan" }

// addTunnelAddresses registers the i-th node with the addresses that calico-node allocates, from
// blocks that no workload has.
func (d *demo) addTunnelAddresses(ctx context.Context, i int, address netip.Prefix) error {
	return d.Apply(ctx, testcluster.Resource("Node", d.nodes[i].Name, fmt.Sprintf(
		"bgp: {ipv4Address: %s, ipv4IPIPTunnelAddr: 10.1.200.%d}, ipv4VXLANTunnelAddr: 10.1.201.%d",
		address, i+1, i+1)))
}

// kinds are what packets travel in with each mode, as `routes` says.
var kinds = map[string]route.Encap{"none": route.Plain, "ipip": route.IPIP, "vxlan": route.VXLAN}

func (d *demo) startTunnels(ctx context.Context) error {
	start := time.Now()
	if err := d.startAll(ctx); err != nil {
		return err
	}
	err := d.each(ctx, d.nodes, start, meshPatience, func(ctx context.Context, n *node) error {
		s, err := n.agent().Status(ctx)
		t := s.FIB.Tunnels
		return held(t != nil && t.Programmed == len(d.nodes)-1, err)
	}, func(n *node) string {
		return fmt.Sprintf("%s: VPP has tunnels to both other nodes", n.Name)
	})
	if err != nil {
		return err
	}
	one := d.nodes[node1]
	a := one.agent()
	for _, command := range []string{"tunnels", "routes"} {
		out, err := a.NS.Run(ctx, a.Binary, command, "--admin-socket", a.Socket)
		if err != nil {
			return err
		}
		d.report.note("%s$ vpp-route-agent %s", one.Name, command)
		d.report.quote(string(out))
	}
	return d.quoteSpeakers(ctx, one)
}

// changeModes waits after each change until all nodes send by it: until then they send as before,
// and receive both.
func (d *demo) changeModes(ctx context.Context) error {
	one, two, three := d.workloads[w1], d.workloads[w2], d.workloads[w3]
	pairs := [][2]*workload{{two, one}, {three, one}, {one, three}}
	// There is no way between nodes that this does not touch: the control flow stays on one.
	control := [2]*workload{two, d.workloads[w5]}
	other := map[string]string{"ipip": "vxlan", "vxlan": "ipip"}[d.cfg.Encap]
	return d.underTraffic(ctx, pairs, control, func(ctx context.Context) error {
		for _, mode := range []string{"none", other, d.cfg.Encap} {
			start := time.Now()
			if err := d.Apply(ctx, pool(mode)); err != nil {
				return err
			}
			err := d.each(ctx, d.nodes, start, settlePatience,
				func(ctx context.Context, n *node) error { return n.sendsBy(ctx, kinds[mode]) },
				func(n *node) string {
					return fmt.Sprintf("%s: encapsulation of all routes is %s", n.Name, kinds[mode])
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// sendsTo holds when the agent has programmed a route to p by that node, also where another's goes
// before it.
func (n *node) sendsTo(ctx context.Context, p netip.Prefix, hop netip.Addr) error {
	var all []agent.RouteStatus
	err := n.agent().Get(ctx, "/v1/routes", &all)
	return held(slices.ContainsFunc(all, func(r agent.RouteStatus) bool {
		return r.Prefix == p && (r.State == "programmed" || r.State == "shadowed") &&
			len(r.Paths) == 1 && r.Paths[0].NextHop == hop.String()
	}), err)
}

// sendsBy holds when all routes to other nodes leave in that.
func (n *node) sendsBy(ctx context.Context, kind route.Encap) error {
	var all []agent.RouteStatus
	if err := n.agent().Get(ctx, "/v1/routes", &all); err != nil {
		return err
	}
	remote := 0
	for _, r := range all {
		for _, p := range r.Paths {
			remote++
			is := route.Plain
			if p.Encapsulation != nil {
				is = *p.Encapsulation
			}
			if is != kind || r.State != "programmed" {
				return errNotYet
			}
		}
	}
	return held(remote > 0, nil)
}
