package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/recorder"
)

// replayed counts what the agents of a cluster have decided again by their own records.
type replayed struct {
	Runs      int `json:"runs"` // processes
	Inputs    int `json:"inputs"`
	Decisions int `json:"decisions"`
	Plans     int `json:"plans"`
	// Short counts processes that ended before anything could be compared (ReasonShort): they are
	// not in the other figures.
	Short int `json:"short,omitempty"`
}

func (r *replayed) add(o replayed) {
	r.Runs, r.Inputs = r.Runs+o.Runs, r.Inputs+o.Inputs
	r.Decisions, r.Plans, r.Short = r.Decisions+o.Decisions, r.Plans+o.Plans, r.Short+o.Short
}

func (r replayed) String() string {
	text := fmt.Sprintf("replayed: %d inputs of %d processes; %d decisions and %d plans compared",
		r.Inputs, r.Runs, r.Decisions, r.Plans)
	if r.Short > 0 {
		text += fmt.Sprintf("; %d processes not compared: %v", r.Short, recorder.ReasonShort)
	}
	return text
}

// briefly is how long a process may record before there is something to compare: its checkpoint is
// of a few hundred routes, and a busy machine takes a while.
const briefly = recovery / 3

// replayed has each of our agents' records decided again, of all processes that the cluster has
// seen, and returns what differs.
func (c *cluster) replayed(ctx context.Context) (all replayed, wrong []string) {
	agents := c.agents()
	of, found := make([]replayed, len(agents)), make([][]string, len(agents))
	var wg sync.WaitGroup
	for i, n := range agents {
		wg.Go(func() { of[i], found[i] = n.replayed(ctx) })
	}
	wg.Wait()
	for i, n := range agents {
		for _, what := range found[i] {
			wrong = append(wrong, fmt.Sprintf("replay of %s: %s", n.Name, what))
		}
		all.add(of[i])
	}
	return all, wrong
}

// replayed waits until there is something to compare of the agent that runs.
func (n *node) replayed(ctx context.Context) (of replayed, wrong []string) {
	var got recorder.Replayed
	var failed error
	err := netlab.Await(ctx, recovery, "a checkpoint of the agent that runs",
		func(ctx context.Context) error {
			got, failed = n.agent().Replayed(ctx)
			i := len(got.Runs) - 1
			if failed == nil && (i < 0 || got.Runs[i].Reason == recorder.ReasonShort) {
				return errors.New("nothing can be compared yet")
			}
			return nil
		})
	if err := errors.Join(err, failed); err != nil {
		return of, []string{err.Error()}
	}
	of, wrong = judge(got.Runs)
	if of.Plans == 0 || of.Decisions == 0 && n.workload != nil {
		wrong = append(wrong, fmt.Sprintf("nothing was compared: %+v", got.Runs))
	}
	return of, wrong
}

// judge counts what was compared, and returns what should not be so. Only a process that was killed
// soon may have left too little; nothing here keeps records from the disk.
func judge(runs []recorder.Run) (of replayed, wrong []string) {
	miss := func(run recorder.Run, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("process of %s: ", run.Process.Format(time.TimeOnly))+
			fmt.Sprintf(format, args...))
	}
	for _, run := range runs {
		if run.Gaps > 0 {
			miss(run, "%d gaps in its records", run.Gaps)
		}
		if run.Reason == recorder.ReasonShort {
			if after := run.Last.Sub(run.Process); after > briefly {
				miss(run, "after %v: %s", after, run.Problem)
			}
			of.Short++
			continue
		}
		for _, n := range run.NotCompared {
			miss(run, "not compared up to %s: %v", n.To.Format(time.TimeOnly), n.Reason)
		}
		if run.Problem != "" {
			continue
		}
		of.add(replayed{Runs: 1, Inputs: run.Inputs, Decisions: run.Compared, Plans: run.Plans})
		for _, d := range run.Differences {
			miss(run, "%s: recorded %q, replayed %q", d.Key, d.Recorded, d.Replayed)
		}
	}
	return of, wrong
}
