package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/testcluster"
)

// node is our agent on the node that is measured.
type node struct {
	*testcluster.Agent
	lab *lab
}

// startAgent runs the agent in the node's namespace; args choose its data plane. What it knows of
// an earlier run is in the folder of state.
func (l *lab) startAgent(state string, args ...string) (*node, error) {
	n := &node{l.NewAgent("node", l.node, args...), l}
	n.StateDir, n.Flags = filepath.Join(l.Dir(), state), []string{"--log-level", "warn"}
	return n, n.Start(l.b.ctx)
}

// pollInterval bounds what a time that is taken by asking can resolve, and what asking costs.
const pollInterval = 10 * time.Millisecond

// until asks for the status until holds has no objection. That the agent has ended is an error.
func (n *node) until(holds func(agent.Status) error) error {
	err := await(n.lab.b.ctx, 10*time.Minute, pollInterval, func() error {
		if n.Alive() != nil {
			return nil
		}
		s, err := n.Admin.Status(n.lab.b.ctx)
		if err != nil {
			return err
		}
		return holds(s)
	})
	return errors.Join(err, n.Alive())
}

// awaitProgrammed waits until exactly that many BGP routes are in the data plane and nothing is
// queued.
func (n *node) awaitProgrammed(count int) error {
	return n.until(func(s agent.Status) error {
		got := 0
		for _, c := range s.FIB.Routes {
			if c.Origin == "bgp" {
				got += c.Programmed
			}
		}
		if got != count || s.FIB.OpsQueued > 0 {
			return fmt.Errorf(
				"%d routes programmed instead of %d, %d operations queued, problem %q",
				got, count, s.FIB.OpsQueued, s.FIB.Problem)
		}
		return nil
	})
}

// awaitEndOfRIB waits until all peers have sent End-of-RIB and their routes are in the RIB.
func (n *node) awaitEndOfRIB() error {
	return n.until(func(s agent.Status) error {
		for _, p := range s.BGP.Peers {
			if !p.EndOfRIB {
				return fmt.Errorf("no End-of-RIB from %s: %s %s, %d paths",
					p.Address, p.State, p.LastError, p.Received)
			}
		}
		return nil
	})
}

// heapBytes has the agent collect its garbage and returns what is left.
func (n *node) heapBytes() (float64, error) {
	return n.Figure(n.lab.b.ctx, "/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc = ")
}

// mebibytes is a figure of the process's memory: VmRSS, or VmHWM, the most there has been.
func (n *node) mebibytes(figure string) (float64, error) {
	bytes, err := n.Memory(figure)
	return float64(bytes) / (1 << 20), err
}

// profiled runs f while the agent takes a CPU profile of itself, if profiles are asked for.
func (n *node) profiled(name string, f func() error) error {
	if n.lab.b.profile == "" {
		return f()
	}
	const span = "4" // seconds, about as long as f takes
	result := make(chan error, 1)
	go func() {
		profile, err := n.Fetch(n.lab.b.ctx, "/debug/pprof/profile?seconds="+span)
		if err == nil {
			err = os.MkdirAll(n.lab.b.profile, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(n.lab.b.profile, name+".pprof"), profile, 0o644)
		}
		result <- err
	}()
	return errors.Join(f(), <-result)
}
