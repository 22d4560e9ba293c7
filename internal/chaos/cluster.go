package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
	"vpp-route-agent/vpp/vpptest"
)

// kind is what the agents of a cluster forward with.
type kind string

const (
	kernelNodes kind = "kernel"
	vppNodes    kind = "vpp"
	// a VPP API server without packets, for faults that a real VPP does not make on demand
	apiNodes kind = "vpptest"
)

var underlayNet = netip.MustParsePrefix("192.168.4.0/24")

// calicoData is what every cluster starts with, in calicoctl's YAML.
var calicoData = testcluster.Resource("IPPool", "workloads",
	"cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, natOutgoing: false") +
	testcluster.Resource("BGPConfiguration", "default", meshSettings)

const meshSettings = "nodeToNodeMeshEnabled: true, asNumber: 64512, nodeMeshMaxRestartTime: 120s"

// restartTime is that of meshSettings.
const restartTime = 120 * time.Second

// cluster is two nodes with our agent and one with BIRD, in Calico's full mesh, each with a
// workload and its block; an etcd of three members; and two machines beside them whose packets
// cross the same segment and nothing else: the control flow. Another form of it has twelve nodes.
type cluster struct {
	settings
	*testcluster.Cluster
	kind      kind
	layout    layout
	etcd      *etcdCluster
	kube      *testcluster.APIServer // that has the same; nil: agents are in etcd
	nodes     []*node                // agent, agent, BIRD; or twelve
	control   [2]*netlab.Namespace
	controlTo netip.Addr
	outside   *netlab.Namespace // the attacker's machine; nil before it is needed
	// reflectors take the place of the mesh, in the faults that make them.
	reflectors []*reflector
	// controllers choose reflectors among the nodes; nil but with twelve of them. meshOff is what
	// they have made of the mesh, when they were last asked.
	controllers []*controller
	meshOff     bool
	// nil but in a soak, and in faults that change the configuration
	rack       *rack
	tunnels    []string               // that each node must have, but to itself
	blocks     map[netip.Prefix]*node // who must be announcing what
	unexported map[netip.Prefix]bool  // but for these: disableBGPExport
}

func newCluster(ctx context.Context, s settings, k kind) (*cluster, error) {
	return newClusterWith(ctx, s, k, "")
}

// newClusterWith has an etcd program of its own for the members; "": this one.
func newClusterWith(ctx context.Context, s settings, k kind, etcd string) (*cluster, error) {
	return makeCluster(ctx, s, k, etcd, func(c *cluster) error { return c.addThree(ctx) })
}

// addThree adds two nodes with our agent and one with BIRD.
func (c *cluster) addThree(ctx context.Context) error {
	for i := range 3 {
		if err := c.addNode(ctx, i, i == 2, i < 2); err != nil {
			return err
		}
	}
	return nil
}

// makeCluster makes a cluster whose nodes addNodes adds.
func makeCluster(
	ctx context.Context, s settings, k kind, etcd string, addNodes func(*cluster) error,
) (c *cluster, err error) {
	c = &cluster{settings: s, kind: k,
		blocks: map[netip.Prefix]*node{}, unexported: map[netip.Prefix]bool{}}
	if c.Cluster, err = testcluster.New("chaos", s.programs, s.log); err != nil {
		return nil, err
	}
	made := c
	defer func() {
		if err != nil {
			err = errors.Join(err, made.close())
		}
	}()
	if c.etcd, err = startEtcd(ctx, c.Cluster, s.self, etcd); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, calicoData); err != nil {
		return nil, err
	}
	if err := c.addControl(); err != nil {
		return nil, err
	}
	if err := addNodes(c); err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if err := n.speaker.Start(ctx); err != nil {
			return nil, err
		}
	}
	return c, c.converged(ctx, recovery)
}

func (c *cluster) close() error {
	for _, n := range c.nodes {
		if n.api != nil {
			n.api.Close()
		}
	}
	if c.kube != nil {
		return errors.Join(c.kube.Close(), c.Close())
	}
	return c.Close()
}

// machine makes a machine with one address on the underlay and its kernel behind it.
func (c *cluster) machine(name string, address netip.Addr) (*netlab.Namespace, error) {
	return c.Machine(name, netip.PrefixFrom(address, underlayNet.Bits()))
}

// addControl makes the two machines of the control flow.
func (c *cluster) addControl() (err error) {
	for i := range c.control {
		c.controlTo = netip.AddrFrom4([4]byte{192, 168, 4, byte(201 + i)})
		if c.control[i], err = c.machine(fmt.Sprintf("control-%d", i+1), c.controlTo); err != nil {
			return err
		}
	}
	return nil
}

// addNode makes node i, from 0, with its workload 10.1.i.1 in block 10.1.i.0/26. It runs our agent
// or BIRD. elsewhere: it does not forward with the kernel, but as the kind of the cluster says.
func (c *cluster) addNode(ctx context.Context, i int, bird, elsewhere bool) error {
	n, err := c.makeNode(ctx, i, elsewhere)
	if err != nil {
		return err
	}
	if err := c.Data.AddNode(ctx, n.Name, onUnderlay(byte(11+i))); err != nil {
		return err
	}
	if err := c.addBlock(ctx, n, i); err != nil {
		return err
	}
	if !bird {
		n.speaker = c.NewAgent(n.Name, n.NS, n.dataplane()...)
	} else {
		var others []netip.Addr
		for _, n := range c.nodes {
			others = append(others, n.Address)
		}
		config := testcluster.BirdConfig(n.Address, others...)
		config.Blocks = []netip.Prefix{firstBlock(i)}
		n.speaker = c.NewBird(n.Name, n.NS, config)
	}
	c.nodes = append(c.nodes, n)
	return nil
}

// makeNode makes the machine of node i.
func (c *cluster) makeNode(ctx context.Context, i int, elsewhere bool) (n *node, err error) {
	n = &node{cluster: c}
	name, address := fmt.Sprintf("node-%d", i+1), onUnderlay(byte(11+i))
	if elsewhere && c.kind == vppNodes {
		n.Node, err = c.VPPNode(ctx, name, address.Addr(), testcluster.VPPUplink{
			Address: onUnderlay(byte(111 + i)),
			MAC:     net.HardwareAddr{0x02, 0xfe, 0, 0, 0, byte(1 + i)},
		})
	} else {
		n.Node, err = c.KernelNode(name, address)
	}
	if err != nil {
		return nil, err
	}
	if elsewhere && c.kind == apiNodes {
		if n.api, err = vpptest.Start(filepath.Join(c.Dir(), name+"-vpptest.sock")); err != nil {
			return nil, err
		}
		addUplink(n.api)
	}
	return n, nil
}

// addBlock gives node i its block and the workload in it.
func (c *cluster) addBlock(ctx context.Context, n *node, i int) error {
	if err := c.claim(ctx, n, firstBlock(i)); err != nil {
		return err
	}
	return n.addWorkload(ctx, firstBlock(i).Addr().Next())
}

// onUnderlay is the address with this last byte.
func onUnderlay(last byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 4, last}), underlayNet.Bits())
}

// firstBlock is the block that has the workload of node i, from 0.
func firstBlock(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 26)
}

// agents are the nodes that run our agent.
func (c *cluster) agents() (ours []*node) {
	for _, n := range c.nodes {
		if !n.runsBird() {
			ours = append(ours, n)
		}
	}
	return ours
}

// claim gives n a block in Calico's data.
func (c *cluster) claim(ctx context.Context, n *node, block netip.Prefix) error {
	c.blocks[block] = n
	return c.Data.ClaimBlock(ctx, n.Name, block)
}

func (c *cluster) release(ctx context.Context, block netip.Prefix) error {
	delete(c.blocks, block)
	delete(c.unexported, block)
	_, err := c.Data.ReleaseBlock(ctx, block)
	return err
}

// manyBlocks gives node 2 many blocks, and returns what takes them away again.
func (c *cluster) manyBlocks(ctx context.Context, n int) (release func() error, err error) {
	for i := range n {
		if err := c.claim(ctx, c.nodes[1], passing(i)); err != nil {
			return nil, err
		}
	}
	return func() error {
		for i := range n {
			if err := c.release(ctx, passing(i)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// passing is number i of the blocks that are there during a fault only, of which there are about
// 400 below those that the soak changes.
func passing(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(128 + i/4), byte(i % 4 * 64)}), 26)
}

// wanted is what the speaker of n must have programmed: each block towards who has it, and a drop
// (the zero Addr) for its own.
func (c *cluster) wanted(n *node) map[netip.Prefix]netip.Addr {
	want := map[netip.Prefix]netip.Addr{}
	for p, owner := range c.blocks {
		switch {
		case owner == n:
			want[p] = netip.Addr{}
		case c.unexported[p]:
		case p.Addr().Is4():
			want[p] = owner.nodeAddress()
		case n.address6.IsValid():
			want[p] = owner.address6
		}
	}
	for _, p := range c.rack.learned(n) {
		want[p] = c.rack.address
	}
	return want
}

// converged waits until every node has its sessions and exactly the routes that it should have,
// every agent is ready and has swept, and the rack's router has the routes that it should have.
func (c *cluster) converged(ctx context.Context, patience time.Duration) error {
	errs := make([]error, len(c.nodes)+1)
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = netlab.Await(ctx, patience, n.Name, n.objection) })
	}
	if c.rack != nil {
		wg.Go(func() {
			errs[len(c.nodes)] = netlab.Await(ctx, patience, c.rack.name, c.rackObjection)
		})
	}
	wg.Wait()
	return errors.Join(append(errs, c.Ended())...)
}

// difference names the first few routes that a node should have and has not, or the other way
// round.
func difference(want map[netip.Prefix]netip.Addr, have testcluster.FIB) error {
	wrong := have.Difference(want)
	if len(wrong) == 0 {
		return nil
	}
	if len(wrong) > 4 {
		wrong = append(wrong[:4], fmt.Sprintf("and %d more", len(wrong)-4))
	}
	return errors.New(strings.Join(wrong, ", "))
}
