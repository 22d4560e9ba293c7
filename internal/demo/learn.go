package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/testcluster"
)

// ipamSteps show what the first agent of this kind did: no BGP, and uplinks that the agents set up
// and publish.
var ipamSteps = []step{
	{"A cluster: etcd, three nodes with our agent and without BGP, five workloads",
		(*demo).buildCluster},
	{"Uplinks: each agent brings its own up, gives it its address and publishes that",
		(*demo).startLinks},
	{"Routes: Calico's blocks, and where each node has programmed them", (*demo).showRoutes},
	{"Packets: every workload pings every other", (*demo).pingAll},
	{"A workload moves to another node: its /32 beats the block", (*demo).moveWorkload},
	{"A block is released: its route goes everywhere", (*demo).releaseBlock},
	{"A block changes its owner: its route follows", (*demo).handOverBlock},
	{"A host dies: its address goes with its lease, and the routes with the address",
		(*demo).killHost},
}

// bothSteps show etcd's routes behind those of BGP.
var bothSteps = []step{
	{"A cluster: etcd, three nodes with our agent, five workloads", (*demo).buildCluster},
	{"BGP: the agents peer in Calico's node-to-node mesh", (*demo).startSpeakers},
	{"Routes: what each node has learned, and where it is programmed", (*demo).showRoutes},
	{"Packets: every workload pings every other", (*demo).pingAll},
	{"BGP dies under traffic, and comes back", (*demo).loseBGP},
}

// leaseTime is short, so that a death is seen within the demo's time.
const leaseTime = 5 * time.Second

// learnArgs are the agents' flags about where routes come from.
func (d *demo) learnArgs(uplink string, address netip.Prefix) []string {
	if d.encapsulates() {
		return []string{"--learn", "ipam"}
	}
	switch d.cfg.Learn {
	case "ipam":
		return []string{
			"--learn", "ipam", "--host-address", "peerip",
			"--uplink", uplink, "--uplink-address", address.String(), "--uplink-ttl",
			leaseTime.String(),
		}
	case "bgp,ipam":
		return []string{"--learn", "bgp,ipam"}
	}
	return nil
}

// startLinks starts the agents and waits until each has published its uplink's address.
func (d *demo) startLinks(ctx context.Context) error {
	start := time.Now()
	if err := d.startAll(ctx); err != nil {
		return err
	}
	err := d.each(ctx, d.nodes, start, meshPatience, func(ctx context.Context, n *node) error {
		s, err := n.agent().Status(ctx)
		up := s.Uplink != nil && s.Uplink.OK
		return held(up && slices.Equal(s.Uplink.Published, []netip.Addr{n.nextHop}), err)
	}, func(n *node) string {
		return fmt.Sprintf("%s: the uplink is up, and %s is published", n.Name, n.nextHop)
	})
	if err != nil {
		return err
	}
	if err := d.pingNodes(ctx); err != nil {
		return err
	}
	return d.quoteSpeakers(ctx, d.nodes[node1])
}

// agent is the node's speaker, which is ours.
func (n *node) agent() agentSpeaker { return n.speaker.(agentSpeaker) }

// handOverBlock has node-2 release a block that node-3 then claims.
func (d *demo) handOverBlock(ctx context.Context) error {
	from, to := d.nodes[node2], d.nodes[node3]
	d.report.note("%s releases %s, and %s claims it", from.Name, idleBlock, to.Name)
	start := time.Now()
	if err := d.release(ctx, idleBlock, d.nodes[node1]); err != nil {
		return err
	}
	if err := d.claimBlock(ctx, to, idleBlock); err != nil {
		return err
	}
	err := d.each(ctx, []*node{d.nodes[node1], from}, start, eventPatience,
		func(ctx context.Context, n *node) error {
			return n.via(ctx, idleBlock, to.nextHop)
		}, func(n *node) string {
			return fmt.Sprintf("%s: %s via %s, of %s", n.Name, idleBlock, to.nextHop, to.Name)
		})
	if err != nil {
		return err
	}
	_, err = d.converge(ctx, to,
		"holds exactly what it should, with a drop of its own for the block")
	return err
}

// killHost kills the agent of node-3, and with it all that keeps its lease alive.
func (d *demo) killHost(ctx context.Context) error {
	dead, left := d.nodes[node3], d.nodes[:node3]
	d.report.note("the agent of %s is killed (SIGKILL) and does not come back; its lease lasts %s",
		dead.Name, leaseTime)
	start := time.Now()
	if err := dead.agent().Kill(); err != nil {
		return err
	}
	for _, b := range d.blocks {
		if b.owner != dead {
			continue
		}
		err := d.each(ctx, left, start, leaseTime+eventPatience, gone(b.cidr),
			func(n *node) string {
				return fmt.Sprintf("%s: the route to %s is gone", n.Name, b.cidr)
			})
		if err != nil {
			return err
		}
	}
	for _, n := range left {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return err
		}
		d.report.check(len(s.Unrouted) > 0, n.Name+": status says why", unroutedReason(s))
	}
	start = time.Now()
	if err := dead.speaker.Start(ctx); err != nil {
		return err
	}
	d.report.note("the agent of %s is started again", dead.Name)
	for _, n := range d.nodes {
		if _, err := d.converge(ctx, n, "holds exactly what it should again"); err != nil {
			return err
		}
	}
	d.report.note("after %s", inSeconds(time.Since(start)))
	return nil
}

func unroutedReason(s agent.Status) string {
	for _, u := range s.Unrouted {
		return fmt.Sprintf("%s: %s", u.Prefix, u.Reason)
	}
	return "nothing"
}

// loseBGP switches the mesh off and on again under traffic. All sessions of all nodes end, without
// graceful restart: what forwards then is what etcd says. It leads the same way, so nothing is
// written.
func (d *demo) loseBGP(ctx context.Context) error {
	one, two, three, borrowed := d.workloads[w1], d.workloads[w2], d.workloads[w3], d.workloads[w4]
	pairs := [][2]*workload{{two, one}, {three, one}, {one, three}, {three, borrowed}}
	// There is no way that this does not touch: the control flow stays on one node.
	control := [2]*workload{d.workloads[w2], d.workloads[w5]}
	return d.underTraffic(ctx, pairs, control, func(ctx context.Context) error {
		before := map[*node]agent.FIBStatus{}
		for _, n := range d.nodes {
			s, err := n.agent().Status(ctx)
			if err != nil {
				return err
			}
			before[n] = s.FIB
		}
		d.report.note(
			"the mesh is switched off: every session ends, and all that was learned " +
				"over it is withdrawn")
		if err := d.setMesh(ctx, false, "etcd"); err != nil {
			return err
		}
		// with traffic on etcd's routes only
		if err := testcluster.Pause(ctx, time.Second); err != nil {
			return err
		}
		d.report.note("the mesh is switched on again")
		if err := d.setMesh(ctx, true, "bgp"); err != nil {
			return err
		}
		for _, n := range d.nodes {
			s, err := n.agent().Status(ctx)
			if err != nil {
				return err
			}
			put, deleted := s.FIB.OpsPut-before[n].OpsPut, s.FIB.OpsDeleted-before[n].OpsDeleted
			d.report.check(put == 0 && deleted == 0,
				n.Name+": nothing was written when one took over from the other",
				fmt.Sprintf("%d put, %d deleted", put, deleted))
			if _, err := d.converge(ctx, n, "holds exactly what it should"); err != nil {
				return err
			}
		}
		return nil
	})
}

// setMesh waits until all routes to other nodes are of that origin on every node.
func (d *demo) setMesh(ctx context.Context, on bool, origin string) error {
	start := time.Now()
	if err := d.Apply(ctx, mesh(on)); err != nil {
		return err
	}
	return d.each(ctx, d.nodes, start, meshPatience, func(ctx context.Context, n *node) error {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return err
		}
		remote, ofOrigin := 0, 0
		for _, c := range s.FIB.Routes {
			if c.Origin != "own" {
				remote += c.Desired
			}
			if c.Origin == origin {
				ofOrigin += c.Programmed
			}
		}
		return held(remote > 0 && remote == ofOrigin, nil)
	}, func(n *node) string {
		return fmt.Sprintf("%s: all routes to other nodes are of origin %s", n.Name, origin)
	})
}
