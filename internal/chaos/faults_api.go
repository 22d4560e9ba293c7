package main

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var apiFaults = []fault{
	{
		name: "api-socket", keepsSessions: true, kind: apiNodes, allowed: "–",
		what: "VPP's API socket goes and comes again, VPP itself goes on", run: replaceSocket,
	},
	{
		name: "api-slow", keepsSessions: true, kind: apiNodes, allowed: "–",
		what: "VPP answers each request 3 s late for 15 s, 20 new blocks meanwhile", run: slowVPP,
	},
	{
		name: "api-errors", keepsSessions: true, kind: apiNodes, allowed: "–",
		what: "VPP refuses every tenth route for 5 s, 200 new blocks meanwhile",
		run:  refuseEveryTenth,
	},
	{
		name: "api-withdraw", long: true, kind: apiNodes, allowed: "–",
		what: "VPP is away, and no route is to lead to a node without " +
			"(--withdraw-without-dataplane)", run: withdrawWithoutVPP,
	},
}

// vppUnspecified is VNET_API_ERROR_UNSPECIFIED (vnet/api_errno.h).
const vppUnspecified = -1

func replaceSocket(ctx context.Context, t *trial) error {
	n := t.nodes[0]
	written, err := t.writesDuring(ctx, func() error {
		n.api.CloseSocket()
		err := errors.Join(netlab.Await(ctx, recovery, "the agent notices", t.notReady),
			testcluster.Pause(ctx, 3*time.Second))
		if err != nil {
			return err
		}
		if err := n.api.OpenSocket(); err != nil {
			return err
		}
		return t.converged(ctx, recovery)
	})
	t.must(written.put == 0, "%d routes were written though VPP had kept them", written.put)
	return err
}

// notReady sees that the agent of node 1 says that something is wrong.
func (t *trial) notReady(ctx context.Context) error {
	s, err := t.ours(1).Status(ctx)
	if err == nil && s.Ready {
		err = errors.New("it is ready")
	}
	return err
}

func slowVPP(ctx context.Context, t *trial) error {
	api := t.nodes[0].api
	before, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	api.Delay(3 * time.Second)
	defer api.Delay(0)
	release, err := t.manyBlocks(ctx, 20)
	if err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 15*time.Second); err != nil {
		return err
	}
	during, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	t.must(during.goroutines[0] <= before.goroutines[0]+10,
		"%.0f goroutines meanwhile, %.0f before", during.goroutines[0], before.goroutines[0])
	api.Delay(0)
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return release()
}

func refuseEveryTenth(ctx context.Context, t *trial) error {
	api := t.nodes[0].api
	var seen, refused atomic.Int64
	api.RefuseRoutes(func(netip.Prefix) int32 {
		if seen.Add(1)%10 != 0 {
			return 0
		}
		refused.Add(1)
		return vppUnspecified
	})
	release, err := t.manyBlocks(ctx, 200)
	if err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 5*time.Second); err != nil {
		return err
	}
	s, err := t.ours(1).Status(ctx)
	if err != nil {
		return err
	}
	programmed := 0
	for _, c := range s.FIB.Routes {
		programmed += c.Programmed
	}
	t.must(programmed >= 100,
		"only %d routes are programmed: those that are refused hold up the others", programmed)
	api.RefuseRoutes(nil)
	t.must(refused.Load() > 0, "nothing was refused")
	t.note("%d refusals", refused.Load())
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return release()
}

// withdrawWithoutVPP has BGP go another way than by VPP; where it goes by VPP, nothing can be
// withdrawn without.
func withdrawWithoutVPP(ctx context.Context, t *trial) error {
	const awaited = 5 * time.Second // how long announcements wait for a data plane
	n, a := t.nodes[0], t.ours(1)
	a.Flags = []string{"--withdraw-without-dataplane"}
	defer func() { a.Flags = nil }()
	if err := t.restart(ctx, a); err != nil {
		return err
	}
	before, err := t.sessions(ctx)
	if err != nil {
		return err
	}
	t.start = time.Now()
	n.api.CloseSocket()
	if err := netlab.Await(ctx, recovery, "node 1 has withdrawn", t.withdrawn); err != nil {
		return err
	}
	t.must(time.Since(t.start) >= awaited, "it has withdrawn after %.1f s",
		time.Since(t.start).Seconds())
	t.note("withdrawn after %.1f s", time.Since(t.start).Seconds())
	if err := n.api.OpenSocket(); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	err = t.sessionsKept(ctx, before, nil)
	t.must(err == nil, "%v", err)
	a.Flags = nil
	return t.restart(ctx, a)
}
