package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const configChanges = "BGPPeer, BGPFilter, IPPool and BGPConfiguration made, changed and " +
	"deleted: no session goes but that of the BGPPeer, no route is written but those concerned"

var configFaults = []fault{
	{
		name: "config-changes", kind: kernelNodes, fresh: true, allowed: "0", what: configChanges,
		run: changeConfiguration,
	},
	{
		name: "vpp-config-changes", kind: vppNodes, fresh: true, long: true, allowed: "0",
		what: configChanges, run: changeConfiguration,
	},
}

var (
	// workloadsPool is the pool that carries the traffic, changed in what does not concern BGP.
	workloadsPool = testcluster.Resource("IPPool", "workloads",
		`cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, natOutgoing: true, `+
			`nodeSelector: "has(rack)"`)
	// secondPool is another pool; secondBlock is a block of it.
	secondPool = testcluster.Resource("IPPool", "second",
		"cidr: 10.2.0.0/16, blockSize: 26, ipipMode: Never, natOutgoing: false, "+
			"disableBGPExport: %t")
	// community has the second pool's blocks carry one.
	community = testcluster.Resource("BGPConfiguration", "default", meshSettings+
		`, prefixAdvertisements: [{cidr: 10.2.0.0/16, communities: ["64512:300"]}]`)
)

// settle is how long the agent waits for more changes of etcd's, at most: before that, what changes
// nothing and what is late look the same.
const settle = 250 * time.Millisecond

var secondBlock = netip.MustParsePrefix("10.2.0.0/26")

// step is one change of Calico's data.
type step struct {
	what   string
	change func(context.Context) error
	// resets: it is defined to reset node 1's session with the router.
	resets bool
	// writes are the routes that node 1 and node 2 put and delete.
	writes [2]fibWrites
	// shows, where it is not nil, is asked for what is seen neither in FIBs nor in what the router
	// has received.
	shows func(context.Context) error
}

type fibWrites struct{ put, deleted uint64 }

// changeConfiguration makes one change after the other, each followed until it shows everywhere,
// and looks at sessions and writes after each. Beside the three flows of the mesh there is one by
// the router, from its session's beginning to its end.
func changeConfiguration(ctx context.Context, t *trial) error {
	if err := t.addRack(ctx); err != nil {
		return err
	}
	place := destination(5).Addr().Next()
	if err := t.rack.ns.AddAddress("lo", netip.PrefixFrom(place, place.BitLen())); err != nil {
		return err
	}
	steps := t.configSteps()
	if err := t.make(ctx, steps[0]); err != nil {
		return err
	}
	w := t.nodes[0].workload
	flow, err := w.NS.StartFlow(netlab.FlowConfig{
		From: w.Address, To: place, Interval: packetInterval, Timeout: answerPatience,
	})
	if err != nil {
		return err
	}
	last := len(steps) - 1
	for _, s := range steps[1:last] {
		if err = t.make(ctx, s); err != nil {
			break
		}
	}
	report := flow.Stop()
	t.mustArrive(report.Lost == 0 && report.Sent > 0, "by the router: %s", report)
	t.note("%d changes; by the router: %s", len(steps), report)
	if err != nil {
		return err
	}
	return t.make(ctx, steps[last])
}

// configSteps begins with the session to the router and ends with it.
func (t *trial) configSteps() []step {
	node1, node2 := t.nodes[0], t.nodes[1]
	apply := func(text string) func(context.Context) error {
		return func(ctx context.Context) error {
			return t.Apply(ctx, text)
		}
	}
	return []step{
		{what: "a BGPPeer is made", resets: true, writes: [2]fibWrites{{put: destinations}},
			change: func(ctx context.Context) error { return t.joinRack(ctx, node1) }},
		{what: "a BGPFilter rejects two destinations and a block",
			writes: [2]fibWrites{{deleted: 2}},
			change: func(ctx context.Context) error {
				return t.filterRack(ctx,
					map[netip.Prefix]bool{destination(1): true, destination(2): true},
					netip.MustParsePrefix("10.1.2.0/24"))
			}},
		{what: "it rejects another destination instead", writes: [2]fibWrites{{put: 2, deleted: 1}},
			change: func(ctx context.Context) error {
				return t.filterRack(ctx,
					map[netip.Prefix]bool{destination(3): true}, netip.Prefix{})
			}},
		{
			what:   "the workloads' IPPool has other NAT and another nodeSelector",
			change: apply(workloadsPool),
		},
		{what: "an IPPool is made and a block of it claimed",
			writes: [2]fibWrites{{put: 1}, {put: 1}},
			change: func(ctx context.Context) error {
				return errors.Join(apply(fmt.Sprintf(secondPool, false))(ctx),
					t.claim(ctx, node2, secondBlock))
			}},
		{what: "BGPConfiguration has a community for it", change: apply(community),
			shows: func(ctx context.Context) error { return t.carriesCommunity(ctx, true) }},
		{what: "BGPConfiguration and the workloads' IPPool are as before",
			change: apply(calicoData),
			shows:  func(ctx context.Context) error { return t.carriesCommunity(ctx, false) }},
		{what: "the second IPPool is not exported any more", writes: [2]fibWrites{{deleted: 1}},
			change: func(ctx context.Context) error {
				t.unexported[secondBlock] = true
				return apply(fmt.Sprintf(secondPool, true))(ctx)
			}},
		{what: "the block is released and the second IPPool deleted",
			writes: [2]fibWrites{{}, {deleted: 1}},
			change: func(ctx context.Context) error {
				return errors.Join(t.release(ctx, secondBlock),
					t.Data.Delete(ctx, "IPPool", "second"))
			}},
		{what: "the BGPPeer is deleted", resets: true,
			writes: [2]fibWrites{{deleted: destinations - 1}},
			change: func(ctx context.Context) error { return t.leaveRack(ctx, node1) }},
	}
}

// make makes one step and compares.
func (t *trial) make(ctx context.Context, s step) error {
	sessions, err := t.sessions(ctx)
	if err != nil {
		return err
	}
	before, err := t.writes(ctx)
	if err != nil {
		return err
	}
	if err := s.change(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	if s.shows != nil {
		if err := netlab.Await(ctx, recovery, s.what, s.shows); err != nil {
			return err
		}
	}
	if err := testcluster.Pause(ctx, 2*settle); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	err = t.sessionsKept(ctx, sessions, map[session]bool{
		{t.nodes[0].Name, t.rack.address}: s.resets,
	})
	t.must(err == nil, "%s: %v", s.what, err)
	after, errAfter := t.writes(ctx)
	if errAfter != nil {
		return errors.Join(err, errAfter)
	}
	for i, want := range s.writes {
		got := fibWrites{after[i].put - before[i].put, after[i].deleted - before[i].deleted}
		t.must(got == want, "%s: %s put %d routes and deleted %d, want %d and %d",
			s.what, t.nodes[i].Name, got.put, got.deleted, want.put, want.deleted)
	}
	return nil
}

// writes are the routes that each agent has put and deleted since it started.
func (c *cluster) writes(ctx context.Context) (w []fibWrites, err error) {
	for _, n := range c.agents() {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return w, err
		}
		w = append(w, fibWrites{s.FIB.OpsPut, s.FIB.OpsDeleted})
	}
	return w, nil
}

// writesDuring are the routes that node 1 puts and deletes while f runs.
func (t *trial) writesDuring(ctx context.Context, f func() error) (fibWrites, error) {
	before, err := t.writes(ctx)
	if err != nil {
		return fibWrites{}, err
	}
	if err := f(); err != nil {
		return fibWrites{}, err
	}
	after, err := t.writes(ctx)
	if err != nil {
		return fibWrites{}, err
	}
	return fibWrites{after[0].put - before[0].put, after[0].deleted - before[0].deleted}, nil
}

// carriesCommunity sees that the router has the second block with its community, or without.
func (t *trial) carriesCommunity(ctx context.Context, want bool) error {
	out, err := t.rack.frr.Command(ctx, "show bgp ipv4 unicast "+secondBlock.String())
	if err != nil {
		return err
	}
	if has := strings.Contains(out, "Community: 64512:300"); has != want {
		return fmt.Errorf("the router has it with the community: %t", has)
	}
	return nil
}
