package main

import (
	"context"
	"fmt"
	"sync"

	"vpp-route-agent/internal/recorder"
)

// replayed counts what the agents of a cluster have decided again by their own records.
type replayed struct {
	Runs      int `json:"runs"` // processes
	Inputs    int `json:"inputs"`
	Decisions int `json:"decisions"`
	Plans     int `json:"plans"`
	// Short counts processes that ended before their first checkpoint was whole: they are not in
	// the other figures.
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
		text += fmt.Sprintf("; %d processes ended too soon", r.Short)
	}
	return text
}

// replayed has each of our agents' records decided again, of all processes that the cluster has
// seen, and returns what differs. A process that is killed before its first checkpoint is whole
// cannot be replayed.
func (c *cluster) replayed(ctx context.Context) (all replayed, wrong []string) {
	agents := c.agents()
	found, errs := make([]recorder.Replayed, len(agents)), make([]error, len(agents))
	var wg sync.WaitGroup
	for i, n := range agents {
		wg.Go(func() { found[i], errs[i] = n.agent().Replayed(ctx) })
	}
	wg.Wait()
	for i, n := range agents {
		if errs[i] != nil {
			wrong = append(wrong, fmt.Sprintf("replay of %s: %v", n.Name, errs[i]))
			continue
		}
		of := replayed{}
		for _, run := range found[i].Runs {
			if run.Problem != "" {
				of.Short++
				continue
			}
			of.add(replayed{Runs: 1, Inputs: run.Inputs, Decisions: run.Compared,
				Plans: run.Plans})
			for _, d := range run.Differences {
				wrong = append(wrong, fmt.Sprintf("replay of %s: %s: recorded %q, replayed %q",
					n.Name, d.Key, d.Recorded, d.Replayed))
			}
		}
		if of.Plans == 0 || of.Decisions == 0 && n.workload != nil {
			wrong = append(wrong, fmt.Sprintf("replay of %s: nothing was compared: %+v", n.Name,
				found[i].Runs))
		}
		all.add(of)
	}
	return all, wrong
}
