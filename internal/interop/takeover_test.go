package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// takeover is a mesh of four: an agent, two nodes with BIRD, and a node that goes from BIRD to an
// agent and back.
type takeover struct {
	*lab
	two       *agentNode
	nine, ten *birdNode
	bird      *birdNode  // the node that changes, and
	agent     *agentNode // the same one

	twoPod, pod, ninePod, tenPod *netlab.Namespace
}

// TestTakeover does what docs/upgrading.md says, step by step, with packets counted: from BIRD to
// the agent on one node, and back.
func TestTakeover(t *testing.T) {
	t.Parallel()
	k := newTakeover(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"BIRD everywhere", k.before},
		{"the agent is started while BIRD is there", k.agentWaits},
		{"BIRD is taken away", k.birdEnds},
		{"a block moves while BIRD's routes are left", k.blockMoves},
		{"BIRD's routes are flushed", k.flushBird},
		{"the agent is drained, and its routes are flushed", k.drainAndFlush},
		{"BIRD is back", k.birdReturns},
		{"flushed too late", k.lateFlush},
	} {
		if !t.Run(step.name, step.do) {
			return // every step waits for the one before
		}
	}
}

func newTakeover(t *testing.T) *takeover {
	k := &takeover{lab: newLab(t, "takeover")}
	k.two = k.agentNode(t, "two", "10.0.0.2/24")
	k.bird = k.birdNode(t, "five", "10.0.0.5/24", "10.0.0.2", "10.0.0.9", "10.0.0.10")
	k.nine = k.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2", "10.0.0.5", "10.0.0.10")
	k.ten = k.birdNode(t, "ten", "10.0.0.10/24", "10.0.0.2", "10.0.0.5", "10.0.0.9")
	k.agent = k.bird.host.agent()
	check(t, k.Data.ClaimBlock(t.Context(), "two", pfx("10.1.0.0/26")))
	k.bird.setBlocks(t, "10.1.0.64/26")
	k.nine.setBlocks(t, "10.1.0.128/26", "10.1.1.0/26")
	k.ten.setBlocks(t, "10.1.0.192/26")

	k.twoPod = k.two.workload(t, "pod2", "10.1.0.1")
	k.pod = k.bird.workload(t, "pod5", "10.1.0.65")
	k.ninePod = k.nine.workload(t, "pod9", "10.1.0.129")
	k.tenPod = k.ten.workload(t, "pod10", "10.1.0.193")
	k.attach(t, "two", "pod2", "10.1.0.1")
	k.attach(t, "five", "pod5", "10.1.0.65")
	return k
}

// others is what the changing node learns, as its BIRD has it in the kernel.
func (k *takeover) others(metric int) []kernelRoute {
	return []kernelRoute{
		{"10.1.0.0/26 via 10.0.0.2", metric}, {"10.1.0.128/26 via 10.0.0.9", metric},
		{"10.1.0.192/26 via 10.0.0.10", metric},
		{"10.1.0.64/26 blackhole", 0}, {"10.1.1.0/26 via 10.0.0.9", metric},
	}
}

func (k *takeover) before(t *testing.T) {
	for _, b := range []*birdNode{k.bird, k.nine, k.ten} {
		b.start(t)
	}
	k.two.start(t)
	k.two.awaitPeers(t, "10.0.0.5", "10.0.0.9", "10.0.0.10")
	for _, b := range []*birdNode{k.bird, k.nine, k.ten} {
		b.awaitEstablished(t)
	}
	k.bird.awaitKernel(t, "-4", k.others(1024)...)
	k.announced(t)
	k.reachable(t)
}

// announced: the others have the node's block, from it and as good as ever; and besides these.
func (k *takeover) announced(t *testing.T, more ...string) {
	t.Helper()
	for _, b := range []*birdNode{k.nine, k.ten} {
		b.awaitRIB(t, mesh("10.0.0.5"), append(more, iBGP("10.1.0.64/26", "10.0.0.5"))...)
	}
}

func (k *takeover) reachable(t *testing.T) {
	t.Helper()
	for _, to := range []string{"10.1.0.1", "10.1.0.129", "10.1.0.193"} {
		ping(t, k.pod, to)
	}
	for _, from := range []*netlab.Namespace{k.twoPod, k.ninePod, k.tenPod} {
		ping(t, from, "10.1.0.65")
	}
}

// flows are packets from and to the node's workload, and a control flow that the node has no part
// in.
func (k *takeover) flows(t *testing.T) (control *netlab.Flow, through []*netlab.Flow) {
	t.Helper()
	return flow(t, k.ninePod, "10.1.0.193"), []*netlab.Flow{
		flow(t, k.twoPod, "10.1.0.65"), flow(t, k.ninePod, "10.1.0.65"),
		flow(t, k.pod, "10.1.0.193"),
	}
}

// countOutages stops flows through a node that was away once. The control flow is one that this
// cannot touch.
func (k *takeover) countOutages(t *testing.T, control *netlab.Flow, through []*netlab.Flow) {
	t.Helper()
	c := control.Stop()
	t.Logf("control: %s", c)
	for _, f := range through {
		r := f.Stop()
		for _, o := range r.Outages {
			t.Logf("%s; away for %.1f s", r, o.Last.Sub(o.First).Seconds())
		}
		if len(r.Outages) > 1+len(c.Outages) {
			t.Errorf("more than one outage: %+v", r.Outages)
		}
	}
}

func (k *takeover) agentWaits(t *testing.T) {
	control, through := k.flows(t)
	k.agent.start(t)
	await(t, "the agent says who has the port", func(ctx context.Context) error {
		s, err := k.agent.agent.Status(ctx)
		if err != nil {
			return err
		}
		for _, c := range s.Conditions {
			if c.Name == "bgp" && !c.OK &&
				strings.Contains(c.Message, "another BGP speaker has the port") {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Conditions)
	})
	// BIRD takes what others put into the kernel for its own (learn), with their metric: our drop
	// route for the block comes behind its own.
	k.announced(t, "10.1.0.64/26 via 10.0.0.5 2147482597 IGP")
	noneLost(t, control, through...)
}

// birdEnds: BIRD says CEASE, and its peers drop its routes until the agent has its sessions. That
// loss is the only one.
func (k *takeover) birdEnds(t *testing.T) {
	control, through := k.flows(t)
	check(t, k.bird.Stop())
	k.agent.awaitPeers(t, "10.0.0.2", "10.0.0.9", "10.0.0.10")
	k.announced(t)
	k.reachable(t)
	k.countOutages(t, control, through)
	control, through = k.flows(t)
	k.awaitShadowed(t, "10.1.0.0/26", "10.1.0.64/26", "10.1.0.128/26",
		"10.1.0.192/26", "10.1.1.0/26")
	noneLost(t, control, through...)
}

// awaitShadowed waits until the agent is ready and says of exactly these routes that BIRD's hide
// them. All the others are programmed.
func (k *takeover) awaitShadowed(t *testing.T, want ...string) {
	t.Helper()
	await(t, fmt.Sprintf("the agent is ready, with %d routes hidden", len(want)),
		func(ctx context.Context) error {
			if _, err := k.agent.NS.Run(ctx, programs.Agent, "audit", "--admin-socket",
				k.agent.agent.Socket); err != nil {
				return err
			}
			s, err := k.agent.agent.Status(ctx)
			if err != nil {
				return err
			}
			if !s.Ready || s.FIB.Sweep != "done" {
				return fmt.Errorf("ready %t, sweep %s: %+v", s.Ready, s.FIB.Sweep, s.Conditions)
			}
			var routes []agent.RouteStatus
			if err := k.agent.agent.Get(ctx, "/v1/routes", &routes); err != nil {
				return err
			}
			var hidden []string
			for _, r := range routes {
				switch {
				case r.State == "shadowed" &&
					strings.HasPrefix(r.Reason, "hidden by a route of proto bird, metric "):
					hidden = append(hidden, r.Prefix.String())
				case r.State != "programmed":
					return fmt.Errorf("%s is %s: %s", r.Prefix, r.State, r.Reason)
				}
			}
			return same("hidden", hidden, want)
		})
}

// blockMoves: what BIRD left is stale from now on, and packets follow it.
func (k *takeover) blockMoves(t *testing.T) {
	_, err := k.Data.ReleaseBlock(t.Context(), pfx("10.1.1.0/26"))
	check(t, err)
	k.nine.config.Blocks = prefixes("10.1.0.128/26")
	k.nine.reconfigure(t)
	k.ten.setBlocks(t, "10.1.0.192/26", "10.1.1.0/26")
	k.ten.reconfigure(t)
	k.ten.workload(t, "moved", "10.1.1.1")
	await(t, "the agent's own route follows", func(ctx context.Context) error {
		got, err := k.agent.kernel(ctx, "-4", agentProtocol)
		if err == nil &&
			!strings.Contains(fmt.Sprint(stripMetric(got)), "10.1.1.0/26 via 10.0.0.10") {
			err = fmt.Errorf("%v", got)
		}
		return err
	})
	left, err := k.bird.kernel(t.Context(), "-4", "bird")
	check(t, err)
	if !strings.Contains(fmt.Sprint(stripMetric(left)), "10.1.1.0/26 via 10.0.0.9") {
		t.Errorf("BIRD's routes have changed: %v", left)
	}
}

// flushBird is the page's command. Its routes covered ours all the time.
func (k *takeover) flushBird(t *testing.T) {
	control, through := k.flows(t)
	_, err := k.agent.NS.Run(t.Context(), "ip", "route", "flush", "proto", "bird")
	check(t, err)
	k.awaitShadowed(t)
	k.agent.awaitFIB(t, "-4", "10.1.0.0/26 via 10.0.0.2", "10.1.0.128/26 via 10.0.0.9",
		"10.1.0.192/26 via 10.0.0.10", "10.1.0.64/26 blackhole", "10.1.1.0/26 via 10.0.0.10")
	ping(t, k.pod, "10.1.1.1")
	noneLost(t, control, through...)
}

// drainAndFlush goes back: our routes go before BIRD comes, which would take them for its own and
// announce them.
func (k *takeover) drainAndFlush(t *testing.T) {
	_, err := k.agent.NS.Run(t.Context(), programs.Agent, "drain", "--wait", "0s", "--admin-socket",
		k.agent.agent.Socket)
	check(t, err)
	select {
	case <-k.agent.agent.Done():
	case <-time.After(patience):
		t.Fatal("drained, and the agent is still there")
	}
	for _, b := range []*birdNode{k.nine, k.ten} {
		b.awaitRIB(t, mesh("10.0.0.5"))
	}
	k.flushOurs(t)
}

func (k *takeover) flushOurs(t *testing.T) {
	t.Helper()
	_, err := k.agent.NS.Run(t.Context(), "ip", "route", "flush", "proto", agentProtocol)
	check(t, err)
}

func (k *takeover) birdReturns(t *testing.T) {
	control, through := k.flows(t)
	check(t, k.bird.Restart(t.Context()))
	k.bird.awaitEstablished(t)
	k.announced(t)
	k.reachable(t)
	k.countOutages(t, control, through)
	left := k.others(1024)
	left[4].text = "10.1.1.0/26 via 10.0.0.10"
	k.bird.awaitKernel(t, "-4", left...)
}

// lateFlush: BIRD announces a route that the agent left, and withdraws it when it is flushed after
// all.
func (k *takeover) lateFlush(t *testing.T) {
	_, err := k.agent.NS.Run(t.Context(), "ip", "route", "add", "10.1.2.0/26", "via", "10.0.0.9",
		"proto", agentProtocol, "metric", "1050")
	check(t, err)
	k.ten.awaitRIB(t, mesh("10.0.0.5"), iBGP("10.1.0.64/26", "10.0.0.5"),
		"10.1.2.0/26 via 10.0.0.9 2147482597 IGP")
	control, through := k.flows(t)
	k.flushOurs(t)
	k.announced(t)
	noneLost(t, control, through...)
}
