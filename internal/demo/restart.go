package demo

import (
	"context"
	"fmt"
	"time"

	"vpp-route-agent/internal/agent"
)

// restartAgent kills the agent of node-1 and starts it again while its workload is pinged.
func (d *demo) restartAgent(ctx context.Context) error {
	n := d.nodes[node1]
	one, two, three := d.workloads[w1], d.workloads[w2], d.workloads[w3]
	pairs := [][2]*workload{{two, one}, {three, one}, {one, three}}
	return d.underTraffic(ctx, pairs, [2]*workload{two, three}, func(ctx context.Context) error {
		if d.ownerOf(idleBlock.Addr()) == nil { // this is a repetition
			if err := d.claimBlock(ctx, d.nodes[node2], idleBlock); err != nil {
				return err
			}
			if _, err := d.converge(ctx, n, "holds the block again"); err != nil {
				return err
			}
		}
		return d.killAndStart(ctx, n, n.agent())
	})
}

// killAndStart has a block elsewhere released while the agent is away: its route, and only it, must
// be swept afterwards.
func (d *demo) killAndStart(ctx context.Context, n *node, victim agentSpeaker) error {
	before, err := n.learned(ctx)
	if err != nil {
		return err
	}
	changes := map[*node]int{n: 0, d.nodes[node3]: 0}
	for m := range changes {
		all, err := m.learnedChanges(ctx)
		if err != nil {
			return err
		}
		changes[m] = len(all)
	}
	if err := victim.Kill(); err != nil {
		return err
	}
	d.report.note("the agent of %s is killed (SIGKILL); while it is away %s releases %s",
		n.Name, d.nodes[node2].Name, idleBlock)
	if err := d.release(ctx, idleBlock, d.nodes[node3]); err != nil {
		return err
	}
	during, err := n.learned(ctx)
	if err != nil {
		return err
	}
	d.report.check(len(during) > 0 && sameHops(before, during),
		fmt.Sprintf("%s: forwards as before, with %s", n.Name, idleBlock),
		fmt.Sprintf("%d routes", len(during)))

	start := time.Now()
	if err := victim.Start(ctx); err != nil {
		return err
	}
	if err := d.awaitMesh(ctx, []*node{n}, start); err != nil {
		return err
	}
	if err := d.each(ctx, []*node{n}, start, meshPatience, gone(idleBlock), func(n *node) string {
		return fmt.Sprintf("%s: %s is swept, after End-of-RIB of all peers", n.Name, idleBlock)
	}); err != nil {
		return err
	}
	if _, err := d.converge(ctx, n, "holds exactly what the others announce"); err != nil {
		return err
	}
	var written agent.FIBStatus
	err = await(ctx, settlePatience, func(ctx context.Context) error { // counted after it is done
		s, err := victim.Status(ctx)
		written = s.FIB
		return held(written.OpsPut == 0 && written.OpsDeleted == 1, err)
	})
	d.report.check(err == nil, "the new agent wrote no route that was there already",
		fmt.Sprintf("%d written, %d deleted, from %s",
			written.OpsPut, written.OpsDeleted, written.Adopted))
	for _, m := range []*node{n, d.nodes[node3]} {
		if err := d.report.onlyDeleted(ctx, m, changes[m], idleBlock); err != nil {
			return err
		}
	}
	return nil
}
