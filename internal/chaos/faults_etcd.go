package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var etcdFaults = []fault{
	{
		name: "etcd-outage", keepsSessions: true, uponChanges: true, kind: kernelNodes,
		anyNodes: true, allowed: "0",
		what: "all of etcd killed for 10 s, started again", run: killEtcd,
	},
	{
		name: "etcd-leader", keepsSessions: true, uponChanges: true, kind: kernelNodes,
		anyNodes: true, allowed: "0",
		what: "etcd's leader killed, started again after a change", run: killLeader,
	},
	{
		name: "etcd-quorum", keepsSessions: true, uponChanges: true, kind: kernelNodes,
		anyNodes: true, allowed: "0",
		what: "two of three etcds killed for 8 s, started again", run: loseQuorum,
	},
	{
		name: "etcd-frozen", keepsSessions: true, uponChanges: true, kind: kernelNodes,
		anyNodes: true, allowed: "0",
		what: "etcd's leader frozen for 8 s (SIGSTOP), a change meanwhile", run: freezeLeader,
	},
	{
		name: "etcd-compaction", keepsSessions: true, kind: kernelNodes, allowed: "0",
		what: "the nodes cut off from etcd, a block released, one claimed, the history compacted",
		run:  compactMeanwhile,
	},
	{
		name: "etcd-member", keepsSessions: true, kind: kernelNodes, allowed: "0", long: true,
		fresh: true, what: "an etcd member replaced by an empty one", run: replaceMember,
	},
	{
		name: "etcd-empty", kind: kernelNodes, allowed: "0", long: true, fresh: true,
		what: "etcd comes back empty for 20 s, an agent is killed and started again meanwhile",
		run:  emptyEtcd,
	},
	{
		name: "etcd-flood", keepsSessions: true, kind: kernelNodes, anyNodes: true, allowed: "0",
		what: "10 100 changes of blocks in etcd, as fast as it takes them", run: floodEtcd,
	},
	{
		name: "etcd-slow-watch", keepsSessions: true, kind: kernelNodes, anyNodes: true, long: true,
		allowed: "0",
		what: "an agent is frozen for 8 s (SIGSTOP) and does not read its watch of 10 100 " +
			"changes of its blocks", run: floodFrozen,
	},
	{
		name: "etcd-token", kind: kernelNodes, allowed: "0", long: true, fresh: true,
		what: "etcd asks for a password, and tokens expire after 3 s; the nodes cut off, a " +
			"change meanwhile, twice", run: expireTokens,
	},
	{
		name: "etcd-old", keepsSessions: true, kind: kernelNodes, allowed: "0", long: true,
		fresh: true, oldEtcd: true,
		what: "Debian's etcd 3.4: leader killed, then cut off, changed and compacted, then two " +
			"of three killed for 8 s", run: troubleOldEtcd,
	},
}

// etcdAway has all of etcd down for 10 s.
func (t *trial) etcdAway(ctx context.Context) error {
	if err := t.etcd.stop(); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 10*time.Second); err != nil {
		return err
	}
	return t.etcd.startAgain(ctx)
}

func killEtcd(ctx context.Context, t *trial) error {
	if err := t.etcdAway(ctx); err != nil {
		return err
	}
	return t.getsThrough(ctx)
}

// getsThrough sees that a change reaches the nodes: one that waits for nothing is claimed, and
// released again.
func (t *trial) getsThrough(ctx context.Context) error {
	if err := netlab.Await(ctx, recovery, "etcd takes a change", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return t.claim(ctx, t.nodes[1], spare)
	}); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.release(ctx, spare)
}

func killLeader(ctx context.Context, t *trial) error {
	m, err := t.etcd.leader(ctx)
	if err != nil {
		return err
	}
	if err := m.process.Kill(); err != nil {
		return err
	}
	if err := t.getsThrough(ctx); err != nil {
		return err
	}
	return t.etcd.start(m)
}

func loseQuorum(ctx context.Context, t *trial) error {
	two := t.etcd.members[:2]
	if err := errors.Join(two[0].process.Kill(), two[1].process.Kill()); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 8*time.Second); err != nil {
		return err
	}
	if err := errors.Join(t.etcd.start(two[0]), t.etcd.start(two[1])); err != nil {
		return err
	}
	return t.getsThrough(ctx)
}

func freezeLeader(ctx context.Context, t *trial) error {
	m, err := t.etcd.leader(ctx)
	if err != nil {
		return err
	}
	if err := t.etcd.signal(syscall.SIGSTOP, m); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 8*time.Second); err != nil {
		return err
	}
	if err := t.etcd.signal(syscall.SIGCONT, m); err != nil {
		return err
	}
	return t.getsThrough(ctx)
}

// compactMeanwhile cuts the nodes off from etcd until they have noticed, so that their watches
// cannot go on where they ended.
func compactMeanwhile(ctx context.Context, t *trial) error {
	if err := t.withSpare(ctx, t.nodes[1]); err != nil {
		return err
	}
	t.start = time.Now()
	if err := t.cutOff(ctx, "add"); err != nil {
		return err
	}
	for _, n := range t.agents() {
		a := n.agent()
		err := netlab.Await(ctx, recovery, n.Name+" notices that etcd is away",
			func(ctx context.Context) error {
				s, err := a.Status(ctx)
				if err == nil && s.Datastore.Connected {
					err = errors.New("it is connected")
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	other := netip.MustParsePrefix("10.1.101.0/26")
	if err := errors.Join(t.release(ctx, spare), t.claim(ctx, t.nodes[1], other),
		t.etcd.compact(ctx)); err != nil {
		return err
	}
	if err := t.cutOff(ctx, "del"); err != nil {
		return err
	}
	t.start = time.Now() // of what has to converge
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.release(ctx, other)
}

// cutOff adds or removes routes on the agents' nodes that keep etcd out of their reach.
func (t *trial) cutOff(ctx context.Context, verb string) error {
	for _, n := range t.agents() {
		for _, m := range t.etcd.members {
			_, err := n.NS.Run(ctx, "ip", "route", verb, "unreachable", m.address.String()+"/32")
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func replaceMember(ctx context.Context, t *trial) error {
	m, err := t.etcd.leader(ctx)
	if err != nil {
		return err
	}
	if err := t.etcd.replace(ctx, m); err != nil {
		return err
	}
	return t.getsThrough(ctx)
}

// emptyEtcd: the cluster has a ClusterInformation, as calico-node makes it.
func emptyEtcd(ctx context.Context, t *trial) error {
	if err := t.Apply(ctx, "apiVersion: projectcalico.org/v3\nkind: ClusterInformation\n"+
		"metadata: {name: default}\nspec: {datastoreReady: true}\n"); err != nil {
		return err
	}
	if err := t.getsThrough(ctx); err != nil {
		return err
	}
	empty := func(dir string) string { return dir + "-empty" }
	if err := t.etcd.restartIn(ctx, empty); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 10*time.Second); err != nil {
		return err
	}
	a := t.ours(1)
	t.happened("agent is ended")
	if err := a.Kill(); err != nil {
		return err
	}
	if err := t.comeBack(ctx, a, 0); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 10*time.Second); err != nil {
		return err
	}
	for _, n := range t.agents() {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return err
		}
		t.must(slices.ContainsFunc(s.Conditions, func(c agent.Condition) bool {
			return strings.Contains(c.Message, "ClusterInformation is gone")
		}), "%s does not say that the data are gone: %+v", n.Name, s.Conditions)
	}
	t.start = time.Now()
	before := func(dir string) string { return strings.TrimSuffix(dir, "-empty") }
	if err := t.etcd.restartIn(ctx, before); err != nil {
		return err
	}
	return t.getsThrough(ctx)
}

// flood changes 100 blocks of node 2, which has the spare one, a hundred times each: claimed and
// released in turn, and in the end claimed. It returns what releases them, and the spare one.
func (t *trial) flood(ctx context.Context) (release func() error, err error) {
	const blocks, rounds = 100, 101
	key := func(cidr netip.Prefix) string {
		return calico.Key{Kind: calico.KindBlockAffinity, CIDR: cidr,
			Owner: calico.Owner{Host: t.nodes[1].Name}}.String()
	}
	value, err := t.Data.GetRaw(ctx, key(spare))
	if err != nil {
		return nil, err
	}
	claimed, released := map[string]string{}, map[string]string{} // "" deletes
	for i := range blocks {
		claimed[key(passing(i))], released[key(passing(i))] = value, ""
	}
	t.start = time.Now()
	for round := range rounds {
		changes := claimed
		if round%2 == 1 {
			changes = released
		}
		if err := t.Data.ChangeRaw(ctx, changes); err != nil {
			return nil, err
		}
	}
	t.note("%d changes in %.1f s", blocks*rounds, time.Since(t.start).Seconds())
	for i := range blocks {
		t.blocks[passing(i)] = t.nodes[1]
	}
	return func() error {
		for i := range blocks {
			delete(t.blocks, passing(i))
		}
		return errors.Join(t.Data.ChangeRaw(ctx, released), t.release(ctx, spare))
	}, nil
}

func floodEtcd(ctx context.Context, t *trial) error {
	return t.flooded(ctx, func(flood func() error) error { return flood() })
}

// floodFrozen has etcd keep the changes for an agent that does not read its watch. All of them have
// to come.
func floodFrozen(ctx context.Context, t *trial) error {
	a := t.ours(2)
	return t.flooded(ctx, func(flood func() error) error {
		if err := a.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := flood()
		if err == nil {
			err = testcluster.Pause(ctx, 8*time.Second)
		}
		t.start = time.Now()
		return errors.Join(err, a.Signal(syscall.SIGCONT))
	})
}

// flooded floods as how says, waits until all is well, and takes the blocks away again.
func (t *trial) flooded(ctx context.Context, how func(flood func() error) error) error {
	before, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	if err := t.withSpare(ctx, t.nodes[1]); err != nil {
		return err
	}
	var release func() error
	err = how(func() (err error) {
		release, err = t.flood(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	t.note("the last was everywhere after %.1f s", time.Since(t.start).Seconds())
	if err := t.noGrowth(ctx, before, 64<<20); err != nil {
		return err
	}
	return release()
}

// footprint is what the agents hold: goroutines without the two that watch each block of the node,
// and resident memory in bytes.
type footprint struct {
	goroutines, memory []float64
}

func (t *trial) footprint(ctx context.Context) (f footprint, err error) {
	for _, n := range t.agents() {
		a := n.agent()
		goroutines, err := a.Figure(ctx, "/metrics", "go_goroutines ")
		if err != nil {
			return f, err
		}
		memory, err := a.Figure(ctx, "/metrics", "process_resident_memory_bytes ")
		if err != nil {
			return f, err
		}
		for _, owner := range t.blocks {
			if owner == n {
				goroutines -= 2
			}
		}
		f.goroutines, f.memory = append(f.goroutines, goroutines), append(f.memory, memory)
	}
	return f, nil
}

// noGrowth sees that the agents came back to what they held before, but for so many bytes that the
// collector has not returned yet.
func (t *trial) noGrowth(ctx context.Context, before footprint, bytes float64) error {
	return netlab.Await(ctx, 20*time.Second, "the agents are as small as before",
		func(ctx context.Context) error {
			after, err := t.footprint(ctx)
			if err != nil {
				return err
			}
			for i := range after.memory {
				if after.goroutines[i] > before.goroutines[i]+20 ||
					after.memory[i] > before.memory[i]+bytes {
					return fmt.Errorf(
						"agent %d has %.0f goroutines and %.0f MiB, before %.0f and %.0f MiB",
						i+1, after.goroutines[i], after.memory[i]/(1<<20), before.goroutines[i],
						before.memory[i]/(1<<20))
				}
			}
			t.note("resident %.0f MiB before, %.0f MiB after",
				before.memory[0]/(1<<20), after.memory[0]/(1<<20))
			return nil
		})
}
