package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"vpp-route-agent/internal/testcluster"
)

const (
	// quietRounds is how many rounds of mere churn there are for each fault, on average.
	quietRounds = 3
	// growth is what an agent may hold more than when it was first quiet: what the collector has
	// not returned yet.
	growth = 48 << 20
)

// soak changes Calico's data and makes faults by chance for so long, and checks after each round
// what must always hold: every FIB is what it should be, and so is what the rack's router was sent;
// no flow lost more than the fault allows; in a round without a fault no session went down but one
// whose BGPPeer came or went; and the agents do not grow.
func soak(ctx context.Context, s settings, d time.Duration, seed uint64) error {
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	k := kernelNodes
	if s.programs.VPP != nil {
		k = vppNodes
	}
	fmt.Fprintf(s.out, "soak for %s, data plane %s, -seed %d\n", d, k, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c, err := newCluster(ctx, s, k)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.addRack(ctx); err != nil {
		return err
	}
	for _, n := range c.agents() {
		if err := c.joinRack(ctx, n); err != nil {
			return err
		}
	}
	if err := c.converged(ctx, time.Minute); err != nil {
		return err
	}
	sizes, seen := newSizes(), tally{start: time.Now()}
	defer func() { fmt.Fprintln(s.out, seen) }()
	unproved := 0 // rounds in a row in which the machine itself lost packets
	for time.Since(seen.start) < d {
		touched := map[session]bool{}
		f := fault{name: "churn", kind: k, allowed: "0", keepsSessions: true, mayEnd: touched,
			run: churn(random, touched)}
		quiet := random.IntN(quietRounds+1) > 0
		if !quiet {
			changes := f
			if f = soakFault(random, k); f.uponChanges && random.IntN(2) == 0 {
				f = after(changes, f)
			}
		}
		var r result
		controlLost := runOnce(ctx, c, f, &r)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err := sizes.check(ctx, c); err != nil {
			r.miss(err.Error())
		}
		proved := controlLost == 0 || r.OK
		seen.add(r, quiet, proved)
		fmt.Fprintf(s.out, "%5d %-26s %-3s %d of %d lost, %d allowed, control %s; %s %v\n",
			seen.rounds, f.name, verdict(r), r.Lost, r.Sent, r.Allowed, r.Control, sizes, r.Failed)
		if unproved++; proved {
			unproved = 0
		}
		excused := r.onlyPackets && !proved && unproved < attempts &&
			seen.unproved <= attempts+seen.rounds/20
		if !r.OK && !excused {
			if s.keepLogs != "" {
				testcluster.SaveLogs(c.Lab, filepath.Join(s.keepLogs, "soak")) // what can be had
			}
			return fmt.Errorf("round %d (%s) of -seed %d did not hold", seen.rounds, f.name, seed)
		}
	}
	again, wrong := c.replayed(ctx)
	fmt.Fprintln(s.out, again)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// after is a fault that comes upon changes that have not arrived everywhere. Those may concern any
// node, and end sessions.
func after(changes, f fault) fault {
	broken := f.run
	f.name, f.onlyFirst, f.mayEnd = f.name+"+"+changes.name, false, changes.mayEnd
	f.run = func(ctx context.Context, t *trial) error {
		if err := changes.run(ctx, t); err != nil {
			return err
		}
		t.start = time.Now()
		return broken(ctx, t)
	}
	return f
}

// tally is what a soak has seen so far.
type tally struct {
	start                         time.Time
	rounds, faults, sent, allowed int // allowed: lost where a fault may cost that
	unproved                      int // rounds in which the machine itself lost packets
}

func (t *tally) add(r result, quiet, proved bool) {
	t.rounds++
	t.sent += r.Sent
	if !quiet {
		t.faults++
	}
	if !proved {
		t.unproved++
	} else if r.OK {
		t.allowed += r.Lost
	}
}

func (t tally) String() string {
	return fmt.Sprintf(
		"%d rounds in %s, %d of them with a fault; %d packets sent, %d lost where a fault allows "+
			"that; in %d rounds the machine itself lost some",
		t.rounds, time.Since(t.start).Round(time.Second), t.faults, t.sent, t.allowed, t.unproved)
}

// notInSoak takes long and shows nothing more than others. With VPP, those that have a twin for it
// are left to that.
var (
	notInSoak = regexp.MustCompile(`^vpp-late$`)
	haveTwin  = regexp.MustCompile(`^agent-(no-etcd|kill|drain-cancel)$`)
)

// soakFault chooses a fault that leaves the cluster as it was.
func soakFault(random *rand.Rand, k kind) fault {
	var fit []fault
	for _, f := range faults {
		if !f.fresh && !f.layout.controlled && !notInSoak.MatchString(f.name) &&
			!(k == vppNodes && haveTwin.MatchString(f.name)) &&
			(f.kind == k || k == vppNodes && f.kind == kernelNodes && f.anyNodes) {
			fit = append(fit, f)
		}
	}
	return fit[random.IntN(len(fit))]
}

// sizes remembers what each agent process held when it had settled: the more of the ends of its
// first two rounds, since after the first one it may not have found its etcd again.
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
		pid := n.agent().PID()
		first := z.first[pid]
		if first.rounds < 2 {
			z.first[pid] = held{
				first.rounds + 1, max(first.goroutines, now.goroutines[i]),
				max(first.memory, now.memory[i]),
			}
			continue
		}
		if now.goroutines[i] > first.goroutines+30 || now.memory[i] > first.memory+growth {
			return fmt.Errorf("%s grows: %.0f goroutines and %.0f MiB, first %.0f and %.0f MiB",
				n.Name,
				now.goroutines[i], now.memory[i]/(1<<20), first.goroutines, first.memory/(1<<20))
		}
	}
	return nil
}

func (z *sizes) String() string {
	text := ""
	for i := range z.last.memory {
		text += fmt.Sprintf("%.0f MiB %.0f goroutines ",
			z.last.memory[i]/(1<<20), z.last.goroutines[i])
	}
	return text
}
