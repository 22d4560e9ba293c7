package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// node is our agent in a process of its own.
type node struct {
	*netlab.Process
	lab     *lab
	args    []string
	admin   *adminclient.Client
	metrics *http.Client
}

const metricsAddress = "127.0.0.1:9179"

// startAgent runs the agent in the node's namespace; args choose its data plane. What it knows of an earlier run is in the folder of state.
func (l *lab) startAgent(state string, args ...string) (*node, error) {
	socket := filepath.Join(l.Dir(), "agent.sock")
	n := &node{lab: l, args: append([]string{
		"run", "--node-name", "node", "--etcd-endpoints", "http://" + etcdAddress, "--admin-socket", socket, "--metrics-listen", metricsAddress,
		"--state-dir", filepath.Join(l.Dir(), state), "--log-level", "warn",
	}, args...)}
	n.admin = adminclient.New(socket)
	n.metrics = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		err = l.node.Do(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", metricsAddress)
			return err
		})
		return conn, err
	}}}
	return n, n.start()
}

func (n *node) start() (err error) {
	n.Process, err = n.lab.Start(netlab.Spec{Name: "agent", Namespace: n.lab.node, Path: n.lab.b.agent, Args: n.args})
	return err
}

// kill ends it as a crash would.
func (n *node) kill() error {
	n.metrics.CloseIdleConnections()
	return n.Kill()
}

// pollInterval bounds what a time that is taken by asking can resolve, and what asking costs.
const pollInterval = 10 * time.Millisecond

// until asks for the status until holds has no objection.
func (n *node) until(holds func(agent.Status) error) error {
	return await(n.lab.b.ctx, 10*time.Minute, pollInterval, func() error {
		select {
		case <-n.Done():
			return nil // noticed below
		default:
		}
		s, err := n.admin.Status(n.lab.b.ctx)
		if err != nil {
			return err
		}
		return holds(s)
	})
}

// alive returns an error if the agent has ended.
func (n *node) alive() error {
	select {
	case <-n.Done():
		return fmt.Errorf("the agent has ended: %w", n.Err())
	default:
		return nil
	}
}

// awaitProgrammed waits until exactly that many BGP routes are in the data plane and nothing is queued.
func (n *node) awaitProgrammed(count int) error {
	err := n.until(func(s agent.Status) error {
		got := 0
		for _, c := range s.FIB.Routes {
			if c.Origin == "bgp" {
				got += c.Programmed
			}
		}
		if got != count || s.FIB.OpsQueued > 0 {
			return fmt.Errorf("%d routes programmed instead of %d, %d operations queued, problem %q", got, count, s.FIB.OpsQueued, s.FIB.Problem)
		}
		return nil
	})
	if err == nil {
		err = n.alive()
	}
	return err
}

// awaitEndOfRIB waits until all peers have told all they know, and it has been taken in.
func (n *node) awaitEndOfRIB() error {
	err := n.until(func(s agent.Status) error {
		for _, p := range s.BGP.Peers {
			if !p.EndOfRIB {
				return fmt.Errorf("no End-of-RIB from %s: %s %s, %d paths", p.Address, p.State, p.LastError, p.Received)
			}
		}
		return nil
	})
	if err == nil {
		err = n.alive()
	}
	return err
}

// heapBytes has the agent collect its garbage and returns what is left.
func (n *node) heapBytes() (float64, error) {
	resp, err := n.metrics.Get("http://" + metricsAddress + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
		if rest, ok := strings.CutPrefix(scanner.Text(), "# HeapAlloc = "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("no HeapAlloc in the agent's heap profile")
}

// profiled runs f while the agent takes a CPU profile of itself, if profiles are asked for.
func (n *node) profiled(name string, f func() error) error {
	if n.lab.b.profile == "" {
		return f()
	}
	const span = "4" // seconds, about as long as f takes
	result := make(chan error, 1)
	go func() {
		result <- n.saveProfile("/debug/pprof/profile?seconds="+span, filepath.Join(n.lab.b.profile, name+".pprof"))
	}()
	return errors.Join(f(), <-result)
}

func (n *node) saveProfile(path, file string) error {
	resp, err := n.metrics.Get("http://" + metricsAddress + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, resp.Body)
	return errors.Join(err, out.Close())
}
