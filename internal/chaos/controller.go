package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	nodesOfTwelve = 12
	// twelveWithVPP is which of them do not forward with the kernel: more VPPs are too many for a
	// small machine.
	twelveWithVPP = "vpp: nodes 1 and 12; kernel: the others"
	// grace is that of the controllers: their default of a minute would only lengthen the faults.
	grace = 5 * time.Second
)

// layout is the form of a cluster. The zero layout has three nodes.
type layout struct {
	// controlled: there are twelve nodes in two zones, and two controllers of reflectors. Each two
	// workloads send to each other.
	controlled bool
	birds      int  // so many of the last nodes run BIRD
	ipv6       bool // the nodes have both families, with a session in each; none runs BIRD
	idle       bool // node 1 forwards nothing, and has no workload
	// rules of the choice of reflectors, besides the grace time, in YAML; loss: a migration by them
	// loses packets
	rules string
	// groups: there are four reflectors, and clients peer with three of them
	groups bool
	loss   bool
	// overlay: three nodes with VPP and without BGP have pools that encapsulate.
	overlay bool
	// kubernetes: agents and controllers find the data in the Kubernetes API
	kubernetes bool
}

// zones of the twelve nodes, in turn.
var zones = []string{"east", "west"}

// controller is one of reflectors, on a machine of its own.
type controller struct {
	name    string
	ns      *netlab.Namespace
	process *netlab.Process // the last
}

func newControlled(ctx context.Context, s settings, k kind, l layout) (*cluster, error) {
	return makeCluster(ctx, s, k, "", func(c *cluster) error {
		c.layout = l
		if l.kubernetes {
			if err := c.startAPI(); err != nil {
				return err
			}
		}
		if l.ipv6 {
			if err := c.addPool6(ctx); err != nil {
				return err
			}
		}
		for i := range nodesOfTwelve {
			if err := c.addControlled(ctx, i); err != nil {
				return err
			}
		}
		for i := range 2 {
			if err := c.addController(i); err != nil {
				return err
			}
		}
		rules := filepath.Join(c.Dir(), "rules.yaml")
		text := fmt.Sprintf("graceSeconds: %.0f\n%s", grace.Seconds(), l.rules)
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			return err
		}
		return c.command(ctx, "set", "-f", rules)
	})
}

// addControlled adds node i, from 0.
func (c *cluster) addControlled(ctx context.Context, i int) error {
	n, err := c.makeNode(ctx, i, i == 0 || i == nodesOfTwelve-1)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, n)
	addresses := fmt.Sprintf("ipv4Address: %s", onUnderlay(byte(11+i)))
	if c.layout.ipv6 {
		if err := n.addAddress6(i); err != nil {
			return err
		}
		addresses += fmt.Sprintf(", ipv6Address: %q",
			netip.PrefixFrom(n.address6, underlayNet6.Bits()))
	}
	err = c.Apply(ctx, testcluster.Resource("Node",
		fmt.Sprintf("%s, labels: {topology.kubernetes.io/zone: %s}", n.Name, zone(n)),
		"bgp: {"+addresses+"}"))
	if err != nil {
		return err
	}
	if i > 0 || !c.layout.idle {
		if err := c.addBlock(ctx, n, i); err != nil {
			return err
		}
		if c.layout.ipv6 {
			if err := n.addBlock6(ctx, i); err != nil {
				return err
			}
		}
	}
	if i >= nodesOfTwelve-c.layout.birds {
		n.speaker = c.NewCalicoNode(n.Name, n.NS, testcluster.BirdConfig(n.Address))
		return nil
	}
	a := c.NewAgent(n.Name, n.NS, n.dataplane()...)
	a.Flags = []string{"--publish-status"}
	n.speaker = a
	return nil
}

// zone is that of a node: of every second one it is the same.
func zone(n *node) string { return zones[slices.Index(n.cluster.nodes, n)%len(zones)] }

func (c *cluster) addController(i int) (err error) {
	name := fmt.Sprintf("controller-%d", i+1)
	ct := &controller{name: name}
	ct.ns, err = c.machine(name, netip.AddrFrom4([4]byte{192, 168, 4, byte(41 + i)}))
	if err != nil {
		return err
	}
	c.controllers = append(c.controllers, ct)
	return c.startController(ct)
}

func (c *cluster) startController(ct *controller) (err error) {
	ct.process, err = c.Start(netlab.Spec{Name: ct.name, Namespace: ct.ns, Path: c.Agent,
		Args: append([]string{"reflector-controller", "--node-name", ct.name},
			c.Datastore()...)})
	return err
}

// command runs one of `vpp-route-agent reflectors`.
func (c *cluster) command(ctx context.Context, args ...string) error {
	_, err := c.run(ctx, args...)
	return err
}

func (c *cluster) run(ctx context.Context, args ...string) ([]byte, error) {
	args = slices.Concat([]string{"reflectors"}, args, c.Datastore())
	return c.controllers[0].ns.Run(ctx, c.Agent, args...)
}

// roles is what `reflectors status -o json` says, as far as it matters here.
type roles struct {
	Goal    struct{ Mode, Undo string }
	Reached bool
	MeshOn  bool

	Controllers []struct {
		Name, Waits, Done, Last string
		Leads                   bool
	}
	Reflectors []struct {
		Node, Zone         string
		Sessions, Complete int
	}
	Problems []string
}

func (c *cluster) roles(ctx context.Context) (r roles, err error) {
	out, err := c.run(ctx, "status", "-o", "json")
	if len(out) > 0 { // status 1 says that something is not as wanted
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		return r, err
	}
	c.meshOff = !r.MeshOn
	for _, n := range c.nodes {
		n.reflects = slices.Contains(r.nodes(), n.Name)
	}
	if !c.layout.groups {
		return r, nil
	}
	s, err := c.Data.Snapshot(ctx, c.nodes[0].Name)
	if err != nil {
		return r, err
	}
	for _, n := range c.nodes {
		peers, _ := bgp.Peers(n.Name, s)
		n.wanted = nil
		for _, p := range peers {
			n.wanted = append(n.wanted, p.Address)
		}
	}
	return r, nil
}

// nodes are the reflectors.
func (r roles) nodes() (names []string) {
	for _, role := range r.Reflectors {
		names = append(names, role.Node)
	}
	return names
}

// leader is the name of the controller that leads; "": none does.
func (r roles) leader() string {
	if len(r.Controllers) == 0 || !r.Controllers[0].Leads {
		return ""
	}
	return r.Controllers[0].Name
}

// state is r for whoever waits.
func (r roles) state() error {
	doing := "no controller leads"
	if r.leader() != "" {
		doing = r.Controllers[0].Done + r.Controllers[0].Waits
	}
	return fmt.Errorf("reflectors %v, mesh on: %t, %s %v", r.nodes(), r.MeshOn, doing, r.Problems)
}

// migration bounds the way to reflectors or back, or to another reflector. The controllers' own
// limit is 10 minutes for each step.
const migration = 5 * time.Minute

// awaitRoles waits until the goal is reached and the roles are as wanted.
func (c *cluster) awaitRoles(
	ctx context.Context, what string, wanted func(roles) bool,
) (r roles, err error) {
	err = netlab.AwaitEvery(ctx, migration, 300*time.Millisecond, what,
		func(ctx context.Context) (err error) {
			if r, err = c.roles(ctx); err != nil {
				return err
			}
			if !r.Reached || r.Goal.Undo != "" || !wanted(r) {
				return r.state()
			}
			return nil
		})
	return r, err
}

// toward has the controllers move the cluster, and waits until it is there.
func (c *cluster) toward(ctx context.Context, mode string) error {
	r, err := c.roles(ctx)
	if err != nil {
		return err
	}
	if r.Goal.Mode != mode {
		if err := c.migrate(ctx, mode); err != nil {
			return err
		}
	}
	return c.arrived(ctx, mode)
}

// migrate has the controllers begin.
func (c *cluster) migrate(ctx context.Context, mode string) error {
	args := []string{"migrate", "--to", mode}
	if c.layout.loss {
		args = append(args, "--accept-loss")
	}
	return c.command(ctx, args...)
}

// arrived waits until the cluster is as wanted: all routes and sessions are there, too.
func (c *cluster) arrived(ctx context.Context, mode string) error {
	_, err := c.awaitRoles(ctx, "the way to "+mode, func(r roles) bool {
		if len(r.Problems) > 0 {
			return false
		}
		if mode == "mesh" {
			return r.MeshOn && len(r.Reflectors) == 0
		}
		return !r.MeshOn && len(r.Reflectors) > 0
	})
	if err != nil {
		return err
	}
	return c.converged(ctx, recovery)
}

// leading is the controller that leads.
func (c *cluster) leading(ctx context.Context) (*controller, error) {
	r, err := c.roles(ctx)
	if err != nil {
		return nil, err
	}
	for _, ct := range c.controllers {
		if ct.name == r.leader() {
			return ct, nil
		}
	}
	return nil, errors.New("no controller leads")
}
