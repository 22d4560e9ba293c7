package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// encapsulated is the layout of these faults. After each the tunnels of every VPP are compared with
// what they should be.
var encapsulated = layout{overlay: true}

var overlayFaults = []fault{
	{name: "overlay-modes", kind: vppNodes, layout: encapsulated, allowed: "0", long: true,
		what: "the mode of a pool changes: VXLAN, IPIP, none, VXLAN, CrossSubnet, IPIP, VXLAN",
		run:  changeModes},
	{name: "overlay-vpp-kill", kind: vppNodes, layout: encapsulated,
		allowed: "until VPP forwards again",
		what:    "VPP SIGKILL with VXLAN tunnels, started and configured again",
		run: func(ctx context.Context, t *trial) error {
			return t.endVPP(ctx, (*netlab.VPP).Kill)
		}},
	{name: "overlay-agent-kill", kind: vppNodes, layout: encapsulated, allowed: "0", fresh: true,
		what: "agent SIGKILL while 200 VXLAN tunnels are being made, started again",
		run:  killAmongTunnels},
	{name: "overlay-mode-etcd", kind: vppNodes, layout: encapsulated, allowed: "0", fresh: true,
		long: true,
		what: "a pool goes from VXLAN to IPIP, and 0.3 s later all of etcd is down for 10 s",
		run:  changeModeWithoutEtcd},
	{name: "overlay-node-gone", kind: vppNodes, layout: encapsulated, fresh: true, long: true,
		allowed: "to and from the dead node",
		what:    "a node dies for good, and 5 s later its Node and its block are deleted",
		run:     loseOverlayNode},
}

// changeTo has the pool change and waits until routes and tunnels are those of the new mode alone,
// for which late nodes are waited for.
func (t *trial) changeTo(ctx context.Context, m mode) error {
	if err := t.setMode(ctx, m); err != nil {
		return err
	}
	return t.hasMode(ctx, m)
}

func (t *trial) hasMode(ctx context.Context, m mode) error {
	t.tunnels = nil
	if m.kind != "" {
		for _, n := range t.nodes {
			t.tunnels = append(t.tunnels, m.kind+" "+n.nodeAddress().String())
		}
	}
	return t.converged(ctx, 2*recovery)
}

// changeModes waits for the end of each change but two, which come upon another that is under way.
func changeModes(ctx context.Context, t *trial) error {
	for _, m := range []mode{ipipAlways, never, vxlanAlways} {
		if err := t.changeTo(ctx, m); err != nil {
			return fmt.Errorf("%+v: %w", m, err)
		}
	}
	for _, m := range []mode{vxlanCross, ipipAlways} {
		if err := t.setMode(ctx, m); err != nil {
			return err
		}
		if err := testcluster.Pause(ctx, 5*time.Second); err != nil {
			return err
		}
	}
	return t.changeTo(ctx, vxlanAlways)
}

// killAmongTunnels adds nodes that are nowhere.
func killAmongTunnels(ctx context.Context, t *trial) error {
	const nodes = 200
	n, a := t.nodes[0], t.ours(1)
	t.start = time.Now()
	added := make(chan error, 1)
	go func() {
		var err error
		for i := range nodes {
			address := netip.AddrFrom4([4]byte{10, 77, 0, byte(1 + i)})
			err = errors.Join(err, t.addOverlayNode(ctx, fmt.Sprintf("far-%d", i), address,
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(20 + i), 0}), 26)))
		}
		added <- err
	}()
	for i := range nodes {
		t.tunnels = append(t.tunnels, fmt.Sprintf("VXLAN 10.77.0.%d", 1+i))
	}
	before := 0
	err := netlab.Await(ctx, recovery, "some tunnels are there", func(ctx context.Context) error {
		have, err := n.tunnels(ctx)
		if before = len(have); err == nil && before < nodes/5 {
			err = fmt.Errorf("%d", before)
		}
		return err
	})
	if err = errors.Join(err, a.Kill(), <-added); err != nil {
		return err
	}
	have, err := n.tunnels(ctx)
	if err != nil {
		return err
	}
	t.must(len(have) < nodes, "%d tunnels were there before the agent was killed", len(have))
	t.note("killed at %d of %d tunnels", len(have), len(t.tunnels)-1)
	return a.Start(ctx)
}

func changeModeWithoutEtcd(ctx context.Context, t *trial) error {
	t.start = time.Now()
	if err := t.setMode(ctx, ipipAlways); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	if err := t.etcdAway(ctx); err != nil {
		return err
	}
	return t.hasMode(ctx, ipipAlways)
}

func loseOverlayNode(ctx context.Context, t *trial) error {
	dead := t.nodes[2]
	t.spared = func(f flow) bool { return f.from != dead && f.to != dead }
	t.start = time.Now()
	if err := errors.Join(dead.speaker.Kill(), dead.VPP.Kill()); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 5*time.Second); err != nil {
		return err
	}
	err := errors.Join(t.release(ctx, firstBlock(2)), t.Data.Delete(ctx, "Node", dead.Name))
	t.nodes = t.nodes[:2]
	if err = errors.Join(err, t.hasMode(ctx, vxlanAlways)); err != nil {
		return err
	}
	t.note("its tunnels and routes left %.1f s after it died", time.Since(t.start).Seconds())
	t.allowOutage(perNode, time.Since(t.start)+settling)
	return nil
}
