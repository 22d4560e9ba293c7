package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"regexp"
	"time"
)

const (
	// quietRounds is how many rounds of mere churn there are for each fault, on average.
	quietRounds = 3
	// growth is what an agent may hold more than when it was first quiet: what the collector has not returned yet.
	growth = 96 << 20
)

// soak changes Calico's data and makes faults by chance for so long, and checks after each round what must always hold: every FIB is what
// it should be, no flow lost more than the fault allows, no session went down in a round without a fault, and the agents do not grow.
func soak(ctx context.Context, s settings, d time.Duration, seed uint64) error {
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	k := kernelNodes
	if s.vpp != nil {
		k = vppNodes
	}
	fmt.Fprintf(s.out, "soak for %s, data plane %s, -seed %d\n", d, k, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c, err := newCluster(ctx, s, k)
	if err != nil {
		return err
	}
	defer c.close()
	sizes := newSizes()
	unproved := 0 // rounds in a row in which the machine itself lost packets
	for round, end := 1, time.Now().Add(d); time.Now().Before(end); round++ {
		f := fault{name: "churn", kind: k, allowed: "0", run: churn(random)}
		if random.IntN(quietRounds+1) == 0 {
			f = soakFault(random, k)
		}
		var r result
		before, err := c.sessionsSince(ctx)
		if err != nil {
			return err
		}
		controlLost := runOnce(ctx, c, f, &r)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err := sizes.check(ctx, c); err != nil {
			r.miss(err.Error())
		}
		if f.name == "churn" {
			if after, err := c.sessionsSince(ctx); err != nil || after != before {
				r.miss(fmt.Sprintf("a session went down in a quiet round: %s, before %s %v", after, before, err))
			}
		}
		fmt.Fprintf(s.out, "%5d %-20s %-3s %d of %d lost, %d allowed, control %s; %s %v\n", round, f.name, verdict(r), r.Lost, r.Sent, r.Allowed, r.Control, sizes, r.Failed)
		if controlLost == 0 || r.OK {
			unproved = 0
		} else {
			unproved++
		}
		if !r.OK && !(r.onlyPackets && 0 < unproved && unproved < attempts) { // the machine itself lost packets: nothing is proved
			if s.keepLogs != "" {
				saveLogs(c.lab.Dir(), filepath.Join(s.keepLogs, "soak"))
			}
			return fmt.Errorf("round %d (%s) of -seed %d did not hold", round, f.name, seed)
		}
	}
	return nil
}

// notInSoak are faults that take long and show nothing more than others, and one that happens only the first time.
var notInSoak = regexp.MustCompile(`^(vpp-late|agent-no-etcd|agent-reexec)$`)

// soakFault chooses a fault that leaves the cluster as it was.
func soakFault(random *rand.Rand, k kind) fault {
	var fit []fault
	for _, f := range faults {
		if !f.fresh && !notInSoak.MatchString(f.name) && (f.kind == k || k == vppNodes && f.kind == kernelNodes && f.anyNodes) {
			fit = append(fit, f)
		}
	}
	return fit[random.IntN(len(fit))]
}

// churn claims and releases some blocks of both nodes of ours, of those that no fault uses.
func churn(random *rand.Rand) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		for range 20 + random.IntN(60) {
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(230 + random.IntN(25)), byte(random.IntN(4) * 64)}), 26)
			var err error
			if _, claimed := t.blocks[block]; claimed {
				err = t.release(ctx, block)
			} else {
				err = t.claim(ctx, t.nodes[random.IntN(2)], block)
			}
			if err != nil {
				return err
			}
			if random.IntN(10) == 0 {
				if err := pause(ctx, time.Duration(random.IntN(500))*time.Millisecond); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// sessionsSince is when each session of the agents came up, as text: equal texts mean that none went down.
func (c *cluster) sessionsSince(ctx context.Context) (text string, err error) {
	for _, n := range c.agents() {
		s, err := n.speaker.(*agentSpeaker).status(ctx)
		if err != nil {
			return "", err
		}
		for _, p := range s.BGP.Peers {
			text += fmt.Sprintf("%s-%s %v %v; ", n.name, p.Address, p.Established, p.Since)
		}
	}
	return text, nil
}

// sizes remembers what each agent process held when it had settled: the more of the ends of its first two rounds, since after the first one it may
// not have found its etcd again.
type sizes struct {
	first map[int]held // by process number
	last  footprint
}

// held is what one process holds, memory in bytes, after the rounds that it has lived through.
type held struct {
	rounds             int
	goroutines, memory float64
}

func newSizes() *sizes { return &sizes{first: map[int]held{}} }

func (z *sizes) check(ctx context.Context, c *cluster) error {
	t := &trial{cluster: c}
	now, err := t.footprint(ctx)
	if err != nil {
		return err
	}
	z.last = now
	for i, n := range c.agents() {
		pid := n.speaker.(*agentSpeaker).process.PID()
		first := z.first[pid]
		if first.rounds < 2 {
			z.first[pid] = held{first.rounds + 1, max(first.goroutines, now.goroutines[i]), max(first.memory, now.memory[i])}
			continue
		}
		if now.goroutines[i] > first.goroutines+30 || now.memory[i] > first.memory+growth {
			return fmt.Errorf("%s grows: %.0f goroutines and %.0f MiB, first %.0f and %.0f MiB", n.name,
				now.goroutines[i], now.memory[i]/(1<<20), first.goroutines, first.memory/(1<<20))
		}
	}
	return nil
}

func (z *sizes) String() string {
	text := ""
	for i := range z.last.memory {
		text += fmt.Sprintf("%.0f MiB %.0f goroutines ", z.last.memory[i]/(1<<20), z.last.goroutines[i])
	}
	return text
}
