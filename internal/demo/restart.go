package demo

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// restartAgent kills the agent of node-1 and starts it again while its workload is pinged. Meanwhile a block elsewhere is released:
// its route, and only it, must be swept afterwards.
func (d *demo) restartAgent(ctx context.Context) error {
	n := d.nodes[node1]
	victim, ok := n.speaker.(*agentSpeaker)
	if !ok {
		panic("demo: the first node runs no agent")
	}
	var pings flows
	for _, pair := range [][2]int{{w2, w1}, {w3, w1}, {w1, w3}} {
		if err := pings.startFlow(d.workloads[pair[0]], d.workloads[pair[1]]); err != nil {
			return err
		}
	}
	before, err := n.fib.learned(ctx)
	if err != nil {
		return err
	}
	if err := victim.kill(); err != nil {
		return err
	}
	d.report.note("the agent of %s is killed (SIGKILL), and while it is away %s releases %s", n.name, d.nodes[node2].name, idleBlock)
	d.blocks = slices.DeleteFunc(d.blocks, func(b block) bool { return b.cidr == idleBlock })
	if _, err := d.cluster.ReleaseBlock(ctx, idleBlock); err != nil {
		return err
	}
	if err := d.each(ctx, []*node{d.nodes[node3]}, eventPatience, gone(idleBlock), func(n *node) string {
		return fmt.Sprintf("%s has no route to %s any more", n.name, idleBlock)
	}); err != nil {
		return err
	}
	during, err := n.fib.learned(ctx)
	if err != nil {
		return err
	}
	same := sameEntries(before, during)
	d.report.check(same, fmt.Sprintf("%s still forwards as before, %s included", n.name, idleBlock), fmt.Sprintf("%d routes", len(during)))

	start := time.Now()
	if err := victim.start(ctx); err != nil {
		return err
	}
	if err := d.awaitMesh(ctx, []*node{n}); err != nil {
		return err
	}
	return d.judgeRestart(ctx, n, victim, &pings, start)
}

// judgeRestart waits until the agent has swept and checks what that cost.
func (d *demo) judgeRestart(ctx context.Context, n *node, victim *agentSpeaker, pings *flows, start time.Time) error {
	_, ok, err := await(ctx, meshPatience, func(ctx context.Context) (bool, error) {
		_, stale, err := n.fib.lookup(ctx, idleBlock)
		return !stale, err
	})
	if err != nil {
		return err
	}
	d.report.check(ok, fmt.Sprintf("the stale route to %s is swept, after End-of-RIB of all peers", idleBlock), inSeconds(time.Since(start))+" after the start")
	if _, err := d.converge(ctx, n, "holds exactly what the others announce"); err != nil {
		return err
	}
	s, err := victim.status(ctx)
	if err != nil {
		return err
	}
	d.report.check(s.FIB.OpsPut == 0 && s.FIB.OpsDeleted == 1, "the new agent wrote no route that was there already",
		fmt.Sprintf("%d written, %d deleted", s.FIB.OpsPut, s.FIB.OpsDeleted))
	d.report.check(s.Ready, "the agent says that it is ready", fmt.Sprintf("adopted %s", s.FIB.Adopted))
	pings.judge(d.report)
	return nil
}
