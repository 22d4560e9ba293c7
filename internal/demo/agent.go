package demo

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// agentSpeaker is our own agent as a node's BGP speaker: `run` of the demo's own binary in the node's namespace.
type agentSpeaker struct {
	lab    *netlab.Lab
	binary string
	node   string // name in Calico, and of the process
	ns     *netlab.Namespace
	args   []string
	socket string
	admin  *adminclient.Client

	process *netlab.Process
}

func newAgent(lab *netlab.Lab, binary, node string, ns *netlab.Namespace, dataplane ...string) *agentSpeaker {
	dir := filepath.Join(lab.Dir(), node)
	a := &agentSpeaker{lab: lab, binary: binary, node: node, ns: ns, socket: filepath.Join(dir, "agent.sock")}
	a.args = append([]string{
		"run", "--node-name", node, "--etcd-endpoints", etcdURL,
		"--admin-socket", a.socket, "--state-dir", filepath.Join(dir, "state"),
	}, dataplane...)
	a.admin = adminclient.New(a.socket)
	return a
}

func (a *agentSpeaker) name() string { return "vpp-route-agent" }

func (a *agentSpeaker) start(context.Context) (err error) {
	a.process, err = a.lab.Start(netlab.Spec{Name: a.node, Namespace: a.ns, Path: a.binary, Args: a.args})
	return err
}

// kill ends the agent as a crash would, without a last word to anybody.
func (a *agentSpeaker) kill() error { return a.process.Kill() }

// status asks the agent. One that has ended will not answer any more.
func (a *agentSpeaker) status(ctx context.Context) (agent.Status, error) {
	select {
	case <-a.process.Done():
		return agent.Status{}, fmt.Errorf("the agent of %s has ended: %w\n%s", a.node, a.process.Err(), tail(a.process.LogPath()))
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return a.admin.Status(ctx)
}

func (a *agentSpeaker) sessions(ctx context.Context) (up []netip.Addr, err error) {
	s, err := a.status(ctx)
	for _, p := range s.BGP.Peers {
		if p.Established {
			up = append(up, p.Address)
		}
	}
	slices.SortFunc(up, netip.Addr.Compare)
	return up, err
}

// quote returns what `vpp-route-agent status` prints for a person.
func (a *agentSpeaker) quote(ctx context.Context) (command, output string, err error) {
	out, err := a.ns.Run(ctx, a.binary, "status", "--admin-socket", a.socket)
	return "vpp-route-agent status", string(out), err
}

func (a *agentSpeaker) commands() []string {
	return []string{
		fmt.Sprintf("%s status --admin-socket %s", a.binary, a.socket),
		fmt.Sprintf("%s routes --admin-socket %s", a.binary, a.socket),
		fmt.Sprintf("ip netns exec %s %s global rib", a.ns.Name(), filepath.Join(filepath.Dir(a.binary), "gobgp")),
	}
}
