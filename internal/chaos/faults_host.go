package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var hostFaults = []fault{
	{name: "host-disk-full", kind: vppNodes, allowed: "0",
		what: "the state directory is full: the agent goes on without its journal, and restarts",
		run: func(ctx context.Context, t *trial) error {
			return t.onDisk(ctx, "size=4k,mode=700")
		}},
	{name: "host-disk-readonly", kind: vppNodes, allowed: "0",
		what: "the state directory is read-only", run: func(ctx context.Context, t *trial) error {
			return t.onDisk(ctx, "ro")
		}},
	{
		name: "host-fd-limit", onlyFirst: true, kind: kernelNodes, allowed: "0",
		what: "at most 64 file descriptors, and 100 clients that want them", run: limitDescriptors,
	},
	{
		name: "host-clocks", onlyFirst: true, kind: kernelNodes, allowed: "0", long: true,
		what: "agent restarted in a time namespace: monotonic and boot clock 30 days ahead",
		run:  jumpClocks,
	},
	{
		name: "host-link", onlyFirst: true, keepsSessions: true, kind: kernelNodes,
		allowed: "until 0.3 s after it is up",
		what: "a node's interface is set down and up at once, then for a second: Linux " +
			"forgets 200 routes over it, the sessions stay", run: blinkLink,
	},
}

// onDisk restarts the agent of node 1 with its state directory on a small or read-only file system
// of its own, has it learn 350 blocks, kills it there, and goes back to the old directory, whose
// journal is out of date, after they are released.
func (t *trial) onDisk(ctx context.Context, options string) error {
	a := t.ours(1)
	if err := os.MkdirAll(a.StateDir, 0o700); err != nil {
		return err
	}
	a.Wrap = []string{
		"unshare", "--mount", "sh", "-c",
		fmt.Sprintf(`mount -t tmpfs -o %s tmpfs %s && exec "$0" "$@"`, options, a.StateDir),
	}
	defer func() { a.Wrap = nil }()
	t.start = time.Now()
	if err := t.restart(ctx, a); err != nil {
		return err
	}
	release, err := t.manyBlocks(ctx, 350) // the journal of them takes 6 KiB and does not fit
	if err != nil {
		return err
	}
	err = netlab.Await(ctx, 20*time.Second, "the state directory's trouble shows",
		func(ctx context.Context) error {
			s, err := a.Status(ctx)
			if err == nil &&
				!(strings.HasPrefix(s.FIB.Journal, "degraded") &&
					strings.HasPrefix(s.Datastore.Kept, "degraded")) {
				err = fmt.Errorf("journal %s, copy of Calico's data %s",
					s.FIB.Journal, s.Datastore.Kept)
			}
			return err
		})
	t.must(err == nil, "%v", err)
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	if s, err := a.Status(ctx); err == nil {
		journal, _, _ := strings.Cut(s.FIB.Journal, ":")
		kept, _, _ := strings.Cut(s.Datastore.Kept, ":")
		t.note("journal %s, copy of Calico's data %s", journal, kept)
	}
	a.Wrap = nil
	if err := errors.Join(a.Kill(), release(), a.Start(ctx)); err != nil {
		return err
	}
	return t.converged(ctx, recovery)
}

func limitDescriptors(ctx context.Context, t *trial) error {
	a := t.ours(1)
	a.Wrap = []string{"sh", "-c", `ulimit -n 64; exec "$0" "$@"`}
	defer func() { a.Wrap = nil }()
	if err := t.restart(ctx, a); err != nil {
		return err
	}
	before, err := t.sessions(ctx)
	if err != nil {
		return err
	}
	if err := hammer(ctx, t); err != nil {
		return err
	}
	err = t.sessionsKept(ctx, before, nil)
	t.must(err == nil, "%v", err)
	a.Wrap = nil
	return t.restart(ctx, a)
}

// jumpClocks lets the agent live in a time 30 days ahead of that of the run before. The wall clock
// cannot be set for one process.
func jumpClocks(ctx context.Context, t *trial) error {
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		return errors.New("this kernel has no time namespaces")
	}
	a := t.ours(1)
	a.Wrap = []string{
		"unshare", "--time", "--fork", "--kill-child", "--monotonic", "2592000",
		"--boottime", "2592000",
	}
	defer func() { a.Wrap = nil }()
	t.start = time.Now()
	if err := t.restart(ctx, a); err != nil {
		return err
	}
	if err := testcluster.Pause(ctx, 3*time.Second); err != nil {
		return err
	}
	a.Wrap = nil
	return t.restart(ctx, a)
}

// blinkLink has Linux drop the routes over node 1's interface. Without 200 of them the drift check
// would soon have put them again.
func blinkLink(ctx context.Context, t *trial) error {
	release, err := t.manyBlocks(ctx, 200)
	if err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	for _, away := range []time.Duration{0, time.Second} {
		t.start = time.Now()
		if err := errors.Join(t.nodes[0].NS.SetLink("eth0", false), testcluster.Pause(ctx, away),
			t.nodes[0].NS.SetLink("eth0", true)); err != nil {
			return err
		}
		t.allowOutage(2, time.Since(t.start)+300*time.Millisecond)
		if err := t.converged(ctx, recovery); err != nil {
			return err
		}
		t.note("back %.2f s after it was set down", time.Since(t.start).Seconds())
	}
	return release()
}
