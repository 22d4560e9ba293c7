package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// Forms of the cluster, by what becomes a reflector.
var (
	agentsOnly = layout{controlled: true}
	// the first and last is an agent without workloads, the other two as well agents
	birdClients = layout{controlled: true, birds: 6, idle: true}
	// the other two run BIRD
	birdReflectors = layout{controlled: true, birds: 11, idle: true, rules: "bird: true",
		loss: true}
	// the first and last is an agent with workloads
	busyAgent = layout{controlled: true, birds: 11, rules: "min: 1\nmax: 1", loss: true}
	birdsOnly = layout{controlled: true, birds: 12, rules: "bird: true", loss: true}
	quorum    = layout{controlled: true, rules: "topology: quorum\nmin: 4\nmax: 4", groups: true}
	multi     = layout{controlled: true, rules: "topology: multi\nmin: 4\nmax: 4", groups: true}
	// six nodes run BIRD, four of the other six reflect
	quorumBirds  = beside(quorum)
	multiBirds   = beside(multi)
	bothFamilies = layout{controlled: true, ipv6: true}
)

// beside is a layout with six nodes that run BIRD, and an agent without workloads.
func beside(l layout) layout {
	l.birds, l.idle = 6, true
	return l
}

// controllerFaults are in a cluster of twelve nodes, where each two workloads send to each other.
var controllerFaults = []fault{
	{name: "controller-migrate", kind: kernelNodes, layout: agentsOnly, long: true, allowed: "0",
		what: "the controller moves twelve nodes from the mesh to three reflectors and back",
		run:  thereAndBack},
	{name: "controller-migrate-vpp", kind: vppNodes, layout: agentsOnly, long: true, allowed: "0",
		what: "the controller moves twelve nodes from the mesh to three reflectors and back",
		run:  thereAndBack},
	{name: "controller-bird", kind: kernelNodes, layout: birdClients, long: true, allowed: "0",
		what: "the same with six nodes that run BIRD; agents reflect, the first and last without " +
			"workloads", run: thereAndBack},
	{name: "controller-bird-reflectors", kind: kernelNodes, layout: birdReflectors, long: true,
		allowed: "between the two with BIRD that reflect",
		what: "the same with eleven nodes that run BIRD; an agent without workloads and two with " +
			"BIRD reflect", run: thereAndBackWithLoss},
	{name: "controller-bird-busy", kind: kernelNodes, layout: busyAgent, long: true,
		allowed: "to and from the reflector",
		what:    "the same with eleven nodes that run BIRD; an agent with workloads reflects",
		run:     thereAndBackWithLoss},
	{name: "controller-bird-only", kind: kernelNodes, layout: birdsOnly, long: true,
		allowed: "to and from reflectors",
		what:    "the same with nodes that all run BIRD", run: thereAndBackWithLoss},
	{name: "controller-quorum", kind: kernelNodes, layout: quorum, long: true, allowed: "0",
		what: "the controller moves twelve nodes to the topology quorum, with four reflectors, " +
			"and back", run: thereAndBack},
	{name: "controller-multi", kind: kernelNodes, layout: multi, long: true, allowed: "0",
		what: "the same with the topology multi", run: thereAndBack},
	{name: "controller-quorum-bird", kind: kernelNodes, layout: quorumBirds, long: true,
		allowed: "0", what: "the same with the topology quorum, and six nodes that run BIRD",
		run: thereAndBack},
	{name: "controller-multi-bird", kind: kernelNodes, layout: multiBirds, long: true,
		allowed: "0", what: "the same with the topology multi, and six nodes that run BIRD",
		run: thereAndBack},
	{name: "controller-ipv6", kind: kernelNodes, layout: bothFamilies, long: true, allowed: "0",
		what: "the controller moves twelve nodes with both families, and a session in each, to " +
			"three reflectors and back", run: thereAndBack},
	{name: "controller-ipv6-cordon", kind: kernelNodes, layout: bothFamilies, long: true,
		allowed: "0", what: "of nodes with both families a reflector is cordoned, and uncordoned " +
			"once another node has the role", run: cordonReflector},
	{name: "controller-leader", kind: kernelNodes, layout: agentsOnly, allowed: "0",
		what: "the controller that leads is killed halfway to reflectors, another goes on; then " +
			"back to the mesh", run: killController},
	{name: "controller-reflector-kill", kind: kernelNodes, layout: agentsOnly, long: true,
		allowed: "to the workload of the dead, after its restart time",
		what: "the agent of a reflector is killed and started again: it keeps the role; killed " +
			"for good: another node gets it", run: killReflector},
	{name: "controller-reflector-drain", kind: kernelNodes, layout: agentsOnly, long: true,
		allowed: "0", what: "a reflector drains until another node has the role, then that is " +
			"cancelled", run: drainReflector},
	{name: "controller-reflector-cordon", kind: kernelNodes, layout: agentsOnly, long: true,
		allowed: "0", what: "a reflector is cordoned, and uncordoned once another node has the " +
			"role", run: cordonReflector},
}

func thereAndBack(ctx context.Context, t *trial) error {
	return t.controlled(ctx, "mesh", fibWrites{}, func() error {
		if err := t.there(ctx, func() error { return nil }); err != nil {
			return err
		}
		return t.back(ctx)
	})
}

// thereAndBackWithLoss allows that flows of a node are lost when it becomes a reflector beside BIRD
// or stops being one: of an agent that is not alone in that only those with other reflectors.
func thereAndBackWithLoss(ctx context.Context, t *trial) error {
	return t.controlled(ctx, "mesh", fibWrites{}, func() error {
		if err := t.there(ctx, func() error { return nil }); err != nil {
			return err
		}
		reflects := map[*node]bool{}
		for _, n := range t.nodes {
			reflects[n] = n.reflects
		}
		t.spared = func(f flow) bool {
			if t.layout == birdReflectors {
				return !reflects[f.from] || !reflects[f.to]
			}
			return !reflects[f.from] && !reflects[f.to]
		}
		const outage = 10 * time.Second // of BIRD's session, each way
		concerned := 0
		for _, a := range t.nodes {
			for _, b := range t.nodes {
				if a != b && a.workload != nil && b.workload != nil &&
					!t.spared(flow{from: a, to: b}) {
					concerned++
				}
			}
		}
		t.budget = concerned * int(2*outage/pairInterval)
		return t.back(ctx)
	})
}

func killController(ctx context.Context, t *trial) error {
	return t.controlled(ctx, "mesh", fibWrites{}, func() error {
		if err := t.there(ctx, func() error { return t.endLeader(ctx) }); err != nil {
			return err
		}
		return t.back(ctx)
	})
}

// controlled runs f in a cluster that is in a mode. All agents together write so many routes
// meanwhile; where flows are lost, those of sessions that BIRD resets, too.
func (t *trial) controlled(
	ctx context.Context, mode string, want fibWrites, f func() error,
) error {
	if err := t.toward(ctx, mode); err != nil {
		return err
	}
	before, err := t.writes(ctx)
	if err != nil {
		return err
	}
	t.start = time.Now()
	if err := f(); err != nil {
		return err
	}
	after, err := t.writes(ctx)
	if err != nil {
		return err
	}
	var sum fibWrites
	for i, w := range after {
		if w.put < before[i].put { // it was started again
			before[i] = fibWrites{}
		}
		sum.put += w.put - before[i].put
		sum.deleted += w.deleted - before[i].deleted
	}
	t.must(sum == want || t.layout.loss, "routes were written: %+v, want %+v", sum, want)
	t.note("FIB writes: %d put, %d deleted", sum.put, sum.deleted)
	return nil
}

// there migrates to reflectors. While it does, something happens. No session of an agent with a
// reflector may end.
func (t *trial) there(ctx context.Context, meanwhile func() error) error {
	before, err := t.sessions(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.migrate(ctx, "reflectors"); err != nil {
		return err
	}
	if err := meanwhile(); err != nil {
		return err
	}
	if err := t.arrived(ctx, "reflectors"); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	for _, n := range t.nodes {
		t.must(!t.layout.groups || n.reflects || len(n.peers()) == 3,
			"%s peers with %v instead of three reflectors", n.Name, n.peers())
	}
	t.noteReflectors(fmt.Sprintf("reflectors after %.1f s", took))
	return t.sessionsKept(ctx, before, t.mayEnd(before))
}

// back migrates to the mesh.
func (t *trial) back(ctx context.Context) error {
	before, err := t.sessions(ctx)
	if err != nil {
		return err
	}
	mayEnd := t.mayEnd(before)
	began := time.Now()
	if err := t.toward(ctx, "mesh"); err != nil {
		return err
	}
	t.note("mesh after %.1f s", time.Since(began).Seconds())
	return t.sessionsKept(ctx, before, mayEnd)
}

// noteReflectors notes which they are; each zone must have one.
func (t *trial) noteReflectors(what string) {
	var names []string
	inZone := map[string]int{}
	for _, n := range t.nodes {
		if n.reflects {
			names = append(names, n.Name)
			inZone[zone(n)]++
		}
	}
	t.must(len(inZone) == min(len(names), len(zones)),
		"the reflectors %v are not spread over the zones", names)
	t.note("%s: %s", what, strings.Join(names, ", "))
}

// mayEnd are the sessions that may end: those with BIRD, which resets one when a role changes, and
// where clients have groups, those that the node does not want.
func (t *trial) mayEnd(all map[session]time.Time) map[session]bool {
	may := map[session]bool{}
	for s := range all {
		stays := t.isReflectors(s)
		if t.layout.groups {
			stays = t.isWanted(s)
		}
		may[s] = !stays || t.isBirds(s)
	}
	return may
}

func (t *trial) isBirds(s session) bool {
	return slices.ContainsFunc(t.nodes, func(n *node) bool {
		return n.Address == s.peer && n.runsBird()
	})
}

func (t *trial) isWanted(s session) bool {
	return slices.ContainsFunc(t.nodes, func(n *node) bool {
		return n.Name == s.node && slices.Contains(n.wanted, s.peer)
	})
}

// isReflectors: there is a reflector at an end.
func (t *trial) isReflectors(s session) (reflects bool) {
	for _, n := range t.nodes {
		reflects = reflects || n.reflects &&
			(n.Name == s.node || n.Address == s.peer || n.address6 == s.peer)
	}
	return reflects
}

// endLeader kills the controller that leads when there are two reflectors, and starts it again when
// the other one leads.
func (t *trial) endLeader(ctx context.Context) error {
	err := netlab.AwaitEvery(ctx, migration, 100*time.Millisecond, "two reflectors",
		func(ctx context.Context) error {
			r, err := t.roles(ctx)
			if err == nil && len(r.Reflectors) < 2 {
				err = r.state()
			}
			return err
		})
	if err != nil {
		return err
	}
	killed, err := t.leading(ctx)
	if err != nil {
		return err
	}
	if err := killed.process.Kill(); err != nil {
		return err
	}
	at := time.Now()
	r, err := t.roles(ctx)
	if err != nil {
		return err
	}
	t.must(r.MeshOn, "it was killed too late: the mesh is off")
	err = netlab.AwaitEvery(ctx, recovery, 300*time.Millisecond, "another controller leads",
		func(ctx context.Context) error {
			r, err := t.roles(ctx)
			if err == nil && (r.leader() == "" || r.leader() == killed.name) {
				err = r.state()
			}
			return err
		})
	if err != nil {
		return err
	}
	t.note("killed with %d reflectors, another leads after %.1f s", len(r.Reflectors),
		time.Since(at).Seconds())
	return t.startController(killed)
}

// firstReflector is the node that was made a reflector first.
func (t *trial) firstReflector(ctx context.Context) (*node, error) {
	r, err := t.roles(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(t.nodes, func(n *node) bool { return n.Name == r.Reflectors[0].Node })
	return t.nodes[i], nil
}

// replaced waits until another node has the role of one that something has happened to, and undoes
// that. The role does not return.
func (t *trial) replaced(ctx context.Context, left *node, undo func() error) error {
	r, err := t.awaitRoles(ctx, "another reflector than "+left.Name, func(r roles) bool {
		return len(r.Reflectors) == 3 && !slices.Contains(r.nodes(), left.Name)
	})
	if err != nil {
		return err
	}
	t.noteReflectors(fmt.Sprintf("%s replaced after %.1f s", left.Name,
		time.Since(t.start).Seconds()))
	if err := undo(); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.sameRoles(ctx, r)
}

// sameRoles sees that the roles stay for longer than the grace time.
func (t *trial) sameRoles(ctx context.Context, before roles) error {
	if err := testcluster.Pause(ctx, 2*grace); err != nil {
		return err
	}
	now, err := t.roles(ctx)
	t.must(slices.Equal(now.nodes(), before.nodes()), "the reflectors are %v, were %v",
		now.nodes(), before.nodes())
	return err
}

// killReflector: what graceful restart keeps of the dead is no copy, so gates are shut until it has
// gone. Then its route is deleted at all others, and put again when it is back.
func killReflector(ctx context.Context, t *trial) error {
	const others = nodesOfTwelve - 1
	return t.controlled(ctx, "reflectors", fibWrites{others, others}, func() error {
		dead, err := t.firstReflector(ctx)
		if err != nil {
			return err
		}
		before, err := t.roles(ctx)
		if err != nil {
			return err
		}
		if err := dead.speaker.Kill(); err != nil {
			return err
		}
		if err := t.comeBack(ctx, dead.agent(), 0); err != nil {
			return err
		}
		if err := t.sameRoles(ctx, before); err != nil {
			return err
		}
		t.start = time.Now()
		t.spared = func(f flow) bool { return f.to != dead }
		t.whole = t.start.Add(restartTime - onTheWay)
		if err := dead.speaker.Kill(); err != nil {
			return err
		}
		return t.replaced(ctx, dead, func() error {
			err := errors.Join(dead.speaker.Start(ctx), t.converged(ctx, recovery))
			t.budget = others * int((time.Since(t.whole)+time.Second)/pairInterval)
			return err
		})
	})
}

func drainReflector(ctx context.Context, t *trial) error {
	return t.controlled(ctx, "reflectors", fibWrites{}, func() error {
		n, err := t.firstReflector(ctx)
		if err != nil {
			return err
		}
		var d agent.DrainStatus
		if err := n.agent().Post(ctx, "/v1/drain", url.Values{"wait": {"3m"}}, &d); err != nil {
			return err
		}
		return t.replaced(ctx, n, func() error {
			return n.agent().Post(ctx, "/v1/drain/cancel", nil, &d)
		})
	})
}

func cordonReflector(ctx context.Context, t *trial) error {
	return t.controlled(ctx, "reflectors", fibWrites{}, func() error {
		n, err := t.firstReflector(ctx)
		if err != nil {
			return err
		}
		if err := t.command(ctx, "cordon", n.Name); err != nil {
			return err
		}
		return t.replaced(ctx, n, func() error { return t.command(ctx, "uncordon", n.Name) })
	})
}
