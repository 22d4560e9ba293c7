package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var routerFaults = []fault{
	{name: "tor-restart", onlyFirst: true, kind: kernelNodes, long: true, fresh: true, allowed: "0",
		what: "one of two top-of-rack routers: FRR SIGKILL, started again (RFC 4724)",
		run: func(ctx context.Context, t *trial) error {
			return t.withRouters(ctx, restartRouter, lossless)
		}},
	{name: "tor-dies", onlyFirst: true, kind: kernelNodes, long: true, fresh: true,
		allowed: "0 but through the dead router",
		what:    "one of two top-of-rack routers dies without a word, hold time 9 s",
		run: func(ctx context.Context, t *trial) error {
			return t.withRouters(ctx, loseRouter, firstDied)
		}},
}

const (
	routerHold = 9 * time.Second
	// places is how many addresses there are behind the routers, so that node 1 sends to some of
	// them by each.
	places = 16
)

// beyond is what both routers lead to.
var beyond = netip.MustParsePrefix("10.99.0.0/24")

// withRouters runs f with two routers that node 1 shares its traffic among, and one flow by each of
// them, which judge looks at afterwards.
func (t *trial) withRouters(
	ctx context.Context, f func(context.Context, *trial, [2]*router) error,
	judge func(*trial, int, netlab.Report),
) error {
	var routers [2]*router
	for i := range routers {
		var err error
		if routers[i], err = t.addPlaces(ctx, i); err != nil {
			return err
		}
	}
	both := []string{routers[0].address.String(), routers[1].address.String()}
	if err := t.awaitBeyond(ctx, both...); err != nil {
		return err
	}
	var flows [2]*netlab.Flow
	var err error
	for i, r := range routers {
		if flows[i], err = t.flowBy(ctx, r); err != nil {
			break
		}
	}
	if err == nil {
		err = testcluster.Pause(ctx, time.Second)
	}
	t.start = time.Now()
	if err == nil {
		err = f(ctx, t, routers)
	}
	for i, flow := range flows {
		if flow != nil {
			judge(t, i, flow.Stop())
		}
	}
	return err
}

// addPlaces makes router i, 0 or 1, a way of node 1's to the places beyond, which are on the router
// itself.
func (t *trial) addPlaces(ctx context.Context, i int) (*router, error) {
	r, err := t.addRouter(ctx, i, routerHold, []*node{t.nodes[0]}, beyond)
	if err != nil {
		return nil, err
	}
	place := beyond.Addr()
	for range places {
		place = place.Next()
		if err := r.ns.AddAddress("lo", netip.PrefixFrom(place, place.BitLen())); err != nil {
			return nil, err
		}
	}
	return r, t.peerWith(ctx, r, t.nodes[0], "")
}

// awaitBeyond waits until node 1 sends by these routers, and every router's own packets come back
// to node 1's workload.
func (t *trial) awaitBeyond(ctx context.Context, want ...string) error {
	return netlab.Await(ctx, recovery,
		fmt.Sprintf("%s is via %s", beyond, strings.Join(want, " and ")),
		func(ctx context.Context) error {
			routes, err := testcluster.KernelRoutes(ctx, t.nodes[0].NS, "-4", beyond.String())
			if err != nil {
				return err
			}
			var have []string
			for _, r := range routes {
				for _, hop := range r.NextHops {
					have = append(have, hop.String())
				}
			}
			if slices.Sort(have); !slices.Equal(have, want) {
				return fmt.Errorf("it is via %v", have)
			}
			return nil
		})
}

// flowBy sends from node 1's workload to a place that the node's kernel reaches by r.
func (t *trial) flowBy(ctx context.Context, r *router) (*netlab.Flow, error) {
	w := t.nodes[0].workload
	place := beyond.Addr()
	for range places {
		place = place.Next()
		out, err := t.nodes[0].NS.Run(ctx, "ip", "route", "get", place.String(), "from",
			w.Address.String(), "iif", t.nodes[0].port.Outside)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(out), "via "+r.address.String()+" ") {
			return w.NS.StartFlow(netlab.FlowConfig{
				From: w.Address, To: place, Interval: packetInterval, Timeout: answerPatience,
			})
		}
	}
	return nil, fmt.Errorf("node-1 reaches nothing by %s", r.name)
}

// restartRouter kills a router's daemons; its kernel goes on, and the other end has to rely on it.
func restartRouter(ctx context.Context, t *trial, routers [2]*router) error {
	r := routers[0]
	written, err := t.writesDuring(ctx, func() error {
		if err := errors.Join(r.frr.Kill(), testcluster.Pause(ctx, 2*time.Second)); err != nil {
			return err
		}
		if err := r.frr.Restart(ctx); err != nil {
			return err
		}
		if err := t.established(ctx, r.address); err != nil {
			return err
		}
		return errors.Join(t.awaitBeyond(ctx, r.address.String(), routers[1].address.String()),
			testcluster.Pause(ctx, 3*time.Second))
	})
	// A stale path does not share a route with a fresh one: the route loses it, and gets it back.
	t.must(written.put <= 2 && written.deleted == 0, "FIB writes: %+v", written)
	t.note("FIB writes: %d put, %d deleted", written.put, written.deleted)
	return err
}

// established waits for node 1's session with a router.
func (t *trial) established(ctx context.Context, peer netip.Addr) error {
	return netlab.Await(ctx, recovery, "the session with "+peer.String(),
		func(ctx context.Context) error {
			return t.ours(1).Ready(ctx, []netip.Addr{peer})
		})
}

// loseRouter cuts a router's power, the link first, or its kernel would close the session: what
// goes by the other one goes on, and what went by the dead one follows at hold time.
func loseRouter(ctx context.Context, t *trial, routers [2]*router) error {
	if err := errors.Join(routers[0].ns.SetLink("eth0", false), routers[0].frr.Kill()); err != nil {
		return err
	}
	if err := t.awaitBeyond(ctx, routers[1].address.String()); err != nil {
		return err
	}
	gone := time.Since(t.start)
	t.must(gone > routerHold/2, "its path has left after %.1f s already", gone.Seconds())
	t.note("its path left after %.1f s", gone.Seconds())
	return testcluster.Pause(ctx, time.Second)
}

// lossless judges the flow by router i where nothing may be lost.
func lossless(t *trial, i int, report netlab.Report) {
	t.mustArrive(report.Lost == 0, "by tor-%d: %s", i+1, report)
	t.note("by tor-%d: %s", i+1, report)
}

// firstDied judges the flow by router i where the first has died: what went by it may be lost until
// the hold time.
func firstDied(t *trial, i int, report netlab.Report) {
	if i > 0 {
		t.mustArrive(report.Lost == 0, "by the living router: %s", report)
		t.note("by the living router: %s", report)
		return
	}
	// our timer may start a keepalive interval late
	most := int((routerHold + 3*time.Second) / packetInterval)
	t.mustArrive(report.Lost <= most, "by the dead router: %s, allowed %d", report, most)
	t.note("by the dead router: %s", report)
}
