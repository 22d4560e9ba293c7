package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testlog"
)

// patience is for what is bound to happen: BIRD waits 2 s before it dials, and 5 s after a failure.
const patience = 90 * time.Second

var pool = Resource("IPPool", "workloads",
	"cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never")

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newCluster makes one with an etcd, of which nothing is left after the test.
func newCluster(t *testing.T, vpp *netlab.VPPPrograms) *Cluster {
	t.Helper()
	if err := netlab.Available(); err != nil {
		t.Skip(err)
	}
	bird, err := netlab.FindBird(t.Context(), "../../build/packages")
	if err != nil {
		t.Skip(err)
	}
	programs := Programs{Agent: filepath.Join(t.TempDir(), "vpp-route-agent"), Bird: bird, VPP: vpp}
	check(t, Build(t.Context(), filepath.Dir(programs.Agent), AgentPackage))
	log := testlog.New(t)
	c, err := New("testcluster", programs, log)
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(Tails(c.Lab, 60))
		}
		check(t, c.Close())
		for _, trace := range netlab.Traces(filepath.Base(c.Dir())) {
			t.Errorf("left behind: %s", trace)
		}
	})
	etcd, err := c.Machine("etcd", pfx("192.168.4.10/24"))
	check(t, err)
	check(t, c.StartEtcd(t.Context(), etcd, addr("192.168.4.10")))
	check(t, c.Apply(t.Context(), pool))
	return c
}

// plugged is a workload of a node, in the block that the node owns.
func plugged(t *testing.T, n *Node, block string) *Workload {
	t.Helper()
	check(t, n.Cluster.Data.AddNode(t.Context(), n.Name, netip.PrefixFrom(n.Address, 24)))
	check(t, n.Cluster.Data.ClaimBlock(t.Context(), n.Name, pfx(block)))
	w, err := n.Cluster.Workload("w-"+n.Name, pfx(block).Addr().Next())
	check(t, err)
	port, err := n.Link(w, "eth0", "cali"+n.Name)
	check(t, err)
	check(t, w.Use(t.Context(), port))
	check(t, n.Deliver(t.Context(), port))
	return w
}

func await(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	check(t, netlab.Await(t.Context(), patience, what, holds))
}

// holds waits until a node forwards by exactly these next hops; the zero Addr is a drop.
func holds(t *testing.T, n *Node, protocol string, want map[netip.Prefix]netip.Addr) {
	t.Helper()
	await(t, n.Name+" has its routes", func(ctx context.Context) error {
		for _, ask := range []func(context.Context, string) (FIB, error){n.Learned, n.Forwarding} {
			have, err := ask(ctx, protocol)
			if err != nil {
				return err
			}
			if wrong := have.Difference(want); wrong != nil {
				return fmt.Errorf("%q", wrong)
			}
		}
		return nil
	})
}

// TestAgentBesideBird has an agent's node and BIRD's exchange blocks and packets, restarts the
// agent, and takes a workload away.
func TestAgentBesideBird(t *testing.T) {
	vpp, err := netlab.FindVPP()
	for name, programs := range map[string]*netlab.VPPPrograms{"kernel": nil, "VPP": &vpp} {
		t.Run(name, func(t *testing.T) {
			if programs != nil && err != nil {
				t.Skip(err)
			}
			t.Attr("part", map[string]string{"kernel": "Linux", "VPP": "VPP"}[name])
			besideBird(t, newCluster(t, programs))
		})
	}
}

func besideBird(t *testing.T, c *Cluster) {
	ctx := t.Context()
	var one *Node
	var err error
	if c.VPP == nil {
		one, err = c.KernelNode("one", pfx("192.168.4.11/24"))
	} else {
		one, err = c.VPPNode(ctx, "one", addr("192.168.4.11"), VPPUplink{
			Address: pfx("192.168.4.111/24"), MAC: []byte{2, 0xfe, 0, 0, 0, 1},
		})
	}
	check(t, err)
	two, err := c.KernelNode("two", pfx("192.168.4.12/24"))
	check(t, err)
	w1, w2 := plugged(t, one, "10.1.0.0/26"), plugged(t, two, "10.1.0.64/26")
	agent := c.NewAgent("one", one.NS, one.Dataplane()...)
	bird := c.NewBird("two", two.NS, BirdConfig(two.Address, one.Address))
	bird.Config.Blocks = []netip.Prefix{pfx("10.1.0.64/26")}
	check(t, bird.Start(ctx))
	check(t, agent.Start(ctx))
	ready := func(ctx context.Context) error {
		return errors.Join(agent.Ready(ctx, []netip.Addr{two.Address}),
			bird.Ready(ctx, []netip.Addr{one.Address}))
	}
	await(t, "the session is up", ready)
	if err := agent.Ready(ctx, []netip.Addr{addr("192.168.4.13")}); err == nil {
		t.Error("it is ready without a session with a third node")
	}
	mine := map[netip.Prefix]netip.Addr{pfx("10.1.0.0/26"): {}, pfx("10.1.0.64/26"): two.Address}
	holds(t, one, agent.Protocol(), mine)
	holds(t, two, bird.Protocol(), map[netip.Prefix]netip.Addr{
		pfx("10.1.0.64/26"): {}, pfx("10.1.0.0/26"): one.Address,
	})
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = w1.NS.Ping(limited, w2.Address)
	check(t, err)
	routes, err := agent.Figure(ctx, "/metrics", "process_start_time_seconds ")
	if err != nil || routes <= 0 {
		t.Errorf("a metric is %v: %v", routes, err)
	}

	check(t, agent.Kill())
	if agent.Alive() == nil {
		t.Error("it is said to live")
	}
	holds(t, one, agent.Protocol(), mine)
	check(t, agent.Start(ctx))
	await(t, "the session is up again", ready)
	if have, err := agent.Audited(ctx); err != nil || have.Difference(mine) != nil {
		t.Errorf("audited: %v %v", have.Difference(mine), err)
	}
	if one.VPP != nil {
		check(t, one.VPP.Kill())
		check(t, one.RestartVPP(ctx))
		holds(t, one, agent.Protocol(), mine)
		_, err = w1.NS.Ping(limited, w2.Address)
		check(t, err)
	}
	port := Port{Inside: "eth0", Outside: "calione", Address: w1.Address}
	port.MAC, err = w1.NS.MAC("eth0")
	check(t, err)
	check(t, one.Unplug(ctx, port))
	if _, err := one.NS.MAC("calione"); err == nil {
		t.Error("the workload's link is still there")
	}
}
