package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	drainCancelled = "a node is drained until it is idle, which under traffic it is not; " +
		"cancelled after 8 s"
	drained = "a node is drained to its end, and its agent started again; a router that " +
		"reaches another node by it goes another way in time"
	drainedAllowed = "0 until it has withdrawn, then to and from its workload"
)

var drainFaults = []fault{
	{
		name: "agent-drain", kind: kernelNodes, fresh: true, allowed: drainedAllowed, what: drained,
		run: drainToTheEnd,
	},
	{
		name: "vpp-agent-drain", kind: vppNodes, fresh: true, long: true, allowed: drainedAllowed,
		what: drained, run: drainToTheEnd,
	},
	{
		name: "agent-drain-cancel", keepsSessions: true, onlyFirst: true, kind: kernelNodes,
		anyNodes: true, allowed: "0", what: drainCancelled, run: drainAndCancel,
	},
	{
		name: "vpp-agent-drain-cancel", keepsSessions: true, onlyFirst: true, kind: vppNodes,
		long: true, allowed: "0", what: drainCancelled, run: drainAndCancel,
	},
}

// exitDrained is the agent's exit status after a drain.
const exitDrained = 3

// drainToTheEnd drains node 1, whose workload stays, until the agent ends, and starts that again.
// Beside the three flows of the mesh there is one from a router to node 3's workload by way of node
// 1, which has to go by node 2 before node 1 withdraws.
func drainToTheEnd(ctx context.Context, t *trial) error {
	const wait = 8 * time.Second
	if err := t.addRack(ctx); err != nil {
		return err
	}
	for _, n := range t.agents() {
		if err := t.joinRack(ctx, n); err != nil {
			return err
		}
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	from, err := t.sourceBy(ctx, t.nodes[0])
	if err != nil {
		return err
	}
	flow, err := t.rack.ns.StartFlow(netlab.FlowConfig{
		From: from, To: t.nodes[2].workload.Address, Interval: packetInterval,
		Timeout: answerPatience,
	})
	if err != nil {
		return err
	}
	err = testcluster.Pause(ctx, time.Second)
	if err == nil {
		err = t.drainFirst(ctx, wait, from)
	}
	t.allowOutage(2, time.Since(t.start)-wait) // between node 1's workload and the two others
	report := flow.Stop()
	t.mustArrive(report.Lost == 0, "from the router: %s", report)
	t.note("from the router: %s", report)
	return err
}

// drainFirst drains node 1 and follows it, until its agent is back. The router's packets from this
// address went by it.
func (t *trial) drainFirst(ctx context.Context, wait time.Duration, from netip.Addr) error {
	a := t.ours(1)
	t.start = time.Now()
	var d agent.DrainStatus
	if err := a.Post(ctx, "/v1/drain", url.Values{"wait": {wait.String()}}, &d); err != nil {
		return err
	}
	err := netlab.Await(ctx, wait, "the router goes by node 2", func(ctx context.Context) error {
		return t.sentBy(ctx, from, t.nodes[1])
	})
	if err != nil {
		return err
	}
	t.note("the router went by node 2 after %.1f s of %.0f",
		time.Since(t.start).Seconds(), wait.Seconds())
	if err := netlab.Await(ctx, recovery, "node 1 has withdrawn", t.withdrawn); err != nil {
		return err
	}
	t.must(time.Since(t.start) >= wait, "it has withdrawn after %.1f s",
		time.Since(t.start).Seconds())
	t.whole = t.start.Add(wait - onTheWay)
	select {
	case <-a.Done():
	case <-time.After(recovery):
		return errors.New("the agent has not ended")
	}
	var exit *exec.ExitError
	t.must(errors.As(a.Err(), &exit) && exit.ExitCode() == exitDrained, "it ended with %v", a.Err())
	return t.comeBack(ctx, a, 0)
}

// withdrawn sees that node 3 has no route to node 1's block.
func (t *trial) withdrawn(ctx context.Context) error {
	have, err := t.nodes[2].inFIB(ctx)
	if _, ok := have[firstBlock(0)]; ok {
		err = errors.New("node 3 has its block")
	}
	return err
}

// sourceBy gives the router addresses until it sends from one to node 3's workload by way of n: it
// shares its traffic among the nodes that it knows that from. Their answers come over the underlay.
func (t *trial) sourceBy(ctx context.Context, n *node) (from netip.Addr, err error) {
	from = netip.AddrFrom4([4]byte{192, 168, 4, 150})
	for range places {
		from = from.Next()
		if err := t.rack.ns.AddAddress("eth0", netip.PrefixFrom(from, from.BitLen())); err != nil {
			return from, err
		}
		if err = t.sentBy(ctx, from, n); err == nil {
			return from, nil
		}
	}
	return from, err
}

// sentBy sees that the router's kernel sends from this address to node 3's workload by way of n.
func (t *trial) sentBy(ctx context.Context, from netip.Addr, n *node) error {
	out, err := t.rack.ns.Run(ctx, "ip", "route", "get", t.nodes[2].workload.Address.String(),
		"from", from.String())
	if err == nil && !strings.Contains(string(out), "via "+n.Address.String()+" ") {
		err = fmt.Errorf("it goes by %s", strings.TrimSpace(string(out)))
	}
	return err
}

func drainAndCancel(ctx context.Context, t *trial) error {
	a := t.ours(1)
	var d agent.DrainStatus
	if err := a.Post(ctx, "/v1/drain",
		url.Values{"wait": {"1m"}, "until-idle": {"100"}}, &d); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 8*time.Second); err != nil {
		return err
	}
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	if s.Drain == nil || s.Drain.Phase != agent.Draining || s.Drain.PacketsPerSecond == nil {
		return fmt.Errorf("with traffic the drain is %+v", s.Drain)
	}
	t.note("%.0f packets a second counted", *s.Drain.PacketsPerSecond)
	t.must(len(s.BGP.Announcements) > 0, "nothing is announced any more")
	for _, ann := range s.BGP.Announcements {
		t.must(ann.LocalPref == 0 && ann.GracefulShutdown,
			"%s is not announced as the worst choice", ann.Prefix)
	}
	return a.Post(ctx, "/v1/drain/cancel", nil, &d)
}
