package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var memoryFaults = []fault{
	{name: "host-memory", onlyFirst: true, memory: true, kind: kernelNodes, long: true,
		fresh: true, allowed: "0",
		what: "a peer changes its 10 000 prefixes a million times, one UPDATE each, and a cgroup " +
			"allows the agent twice what it has when idle with them", run: limitMemory},
	{name: "input-flood-million", onlyFirst: true, kind: kernelNodes, long: true, allowed: "0",
		what: "a peer announces 1 000 000 prefixes and has a limit of 1000; it is accepted " +
			"again, and behaves",
		run: func(ctx context.Context, t *trial) error { return floodPrefixes(ctx, t, 1_000_000) }},
}

// memoryGroup is a cgroup that bounds the memory of what is started in it.
type memoryGroup struct {
	folder      string
	limit, peak string // files
}

// newMemoryGroup makes one: below our own where the machine has the first version of cgroups, at
// the top where it has the second, in which a group with processes has no groups below it.
func newMemoryGroup() (*memoryGroup, error) {
	parent, g := "/sys/fs/cgroup", &memoryGroup{limit: "memory.max", peak: "memory.peak"}
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		own, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return nil, err
		}
		parent = "/sys/fs/cgroup/memory"
		g = &memoryGroup{limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes"}
		for line := range strings.Lines(string(own)) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
				parent = filepath.Join(parent, path)
			}
		}
	}
	g.folder = filepath.Join(parent, fmt.Sprintf("vpp-route-agent-chaos-%d", os.Getpid()))
	if err := os.Mkdir(g.folder, 0o755); err != nil {
		return nil, fmt.Errorf("no cgroup can be made here: %w", err)
	}
	if _, err := os.Stat(filepath.Join(g.folder, g.limit)); err != nil {
		return nil, errors.Join(errors.New("cgroups here do not bound memory"), g.remove())
	}
	return g, nil
}

// canLimitMemory tries whether there may be such a group.
func canLimitMemory() error {
	g, err := newMemoryGroup()
	if err != nil {
		return err
	}
	return g.remove()
}

func (g *memoryGroup) setLimit(bytes int) error {
	return os.WriteFile(filepath.Join(g.folder, g.limit), []byte(strconv.Itoa(bytes)), 0o644)
}

// most is what its processes had at most.
func (g *memoryGroup) most() (bytes int, err error) {
	text, err := os.ReadFile(filepath.Join(g.folder, g.peak))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// wrap is a command that runs another in the group.
func (g *memoryGroup) wrap(env string) []string {
	return []string{
		"sh", "-c", fmt.Sprintf(`echo $$ > %s/cgroup.procs && exec env %s "$0" "$@"`,
			g.folder, env),
	}
}

// remove waits for the last process to be gone.
func (g *memoryGroup) remove() (err error) {
	for range 50 {
		if err = os.Remove(g.folder); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

const mib = 1 << 20

// crowd are the prefixes of limitMemory.
func crowd(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)
}

const (
	crowdSize = 10_000
	changes   = 1_000_000
)

// limitMemory looks how large the agent is when it is idle with the attacker's prefixes, starts it
// anew with twice that as a limit, and has them change. They end up by another next hop.
func limitMemory(ctx context.Context, t *trial) (err error) {
	g, err := newMemoryGroup()
	if err != nil {
		return err
	}
	a := t.ours(1)
	defer func() {
		a.Wrap = nil
		err = errors.Join(err, a.Stop(), g.remove())
		if err == nil {
			err = a.Start(ctx)
		}
	}()
	var idle int
	err = t.attacked(ctx, func(x attacker) error {
		if err := t.crowded(ctx, x, crowdSize, attackerAddress); err != nil {
			return err
		}
		if err := testcluster.Pause(ctx, 5*time.Second); err != nil {
			return err
		}
		idle, err = a.Memory("VmRSS")
		return err
	})
	if err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	if err := g.setLimit(2 * idle); err != nil {
		return err
	}
	// As docs/operating.md says: Go gets three quarters of the limit.
	a.Wrap = g.wrap(fmt.Sprintf("GOMEMLIMIT=%d", 2*idle/4*3))
	if err := t.restart(ctx, a); err != nil {
		return err
	}
	return t.attacked(ctx, func(x attacker) error {
		if err := t.crowded(ctx, x, crowdSize, attackerAddress); err != nil {
			return err
		}
		before, err := t.sessions(ctx)
		if err != nil {
			return err
		}
		t.start = time.Now()
		if err := t.crowded(ctx, x, changes, netip.MustParseAddr("192.168.4.98")); err != nil {
			return err
		}
		took := time.Since(t.start)
		err = t.sessionsKept(ctx, before, nil)
		t.must(err == nil, "%v", err)
		most, err := g.most()
		if err != nil {
			return err
		}
		t.note("idle %d MiB, limit %d MiB, at most %d MiB; %.0f changes a second",
			idle/mib, 2*idle/mib, most/mib, changes/took.Seconds())
		return nil
	})
}

// crowded has the attacker send n UPDATEs for its prefixes, in turn and each with another MED than
// before, of which the last for each has this next hop, and waits until that is what node 1 has.
func (t *trial) crowded(ctx context.Context, x attacker, n int, hop netip.Addr) error {
	var batch [][]byte
	for i := range n {
		via := attackerAddress
		if i >= n-crowdSize {
			via = hop
		}
		h := via.As4()
		attributes := append(append(append([]byte(nil), origin...), asPath...), 0x40, 3, 4, h[0],
			h[1], h[2], h[3], 0x80, 4, 4, 0, 0, 0, byte(i/crowdSize))
		if batch = append(batch, update(attributes, crowd(i%crowdSize))); len(batch) == 1000 {
			x.send(batch...)
			batch = batch[:0]
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	x.send(batch...)
	return netlab.Await(ctx, 2*recovery, "the attacker's prefixes are programmed",
		func(ctx context.Context) error {
			have, err := t.nodes[0].programmed(ctx)
			if err != nil {
				return err
			}
			right := 0
			for i := range crowdSize {
				if have[crowd(i)].NextHop() == hop {
					right++
				}
			}
			if right < crowdSize {
				return fmt.Errorf("%d of %d are", right, crowdSize)
			}
			return nil
		})
}
