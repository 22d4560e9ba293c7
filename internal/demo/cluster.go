package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

// The addresses are those of the classic Calico tutorials: nodes in 192.168.4.0/24, workloads in 10.1.0.0/16.
var (
	underlay    = netip.MustParsePrefix("192.168.4.0/24")
	etcdAddress = netip.MustParsePrefix("192.168.4.10/24")
)

const etcdURL = "http://192.168.4.10:2379"

// pool is in calicoctl's YAML.
const pool = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: workloads}
spec: {cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, natOutgoing: false}
---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: true, asNumber: 64512}
`

// The parts with a role in the story, by their place in the lists.
const (
	node1, node2, node3 = 0, 1, 2 // agent, agent, BIRD
	w1, w2, w3, w4, w5  = 0, 1, 2, 3, 4
)

// nodeAddress is the underlay address of the i-th node: 192.168.4.11, .12, .13.
func nodeAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 4, byte(11 + i)}) }

// plannedWorkloads are started in this order: w4 borrows from the block of node-1, w5 is alone in a block of its own.
var plannedWorkloads = []struct {
	node    int
	address string
}{
	w1: {node1, "10.1.0.1"},
	w2: {node2, "10.1.0.65"},
	w3: {node3, "10.1.0.129"},
	w4: {node2, "10.1.0.2"},
	w5: {node2, "10.1.0.193"},
}

// idleBlock is a block of node-2 without a workload.
var idleBlock = netip.MustParsePrefix("10.1.1.0/26")

// introduce says what follows.
func (d *demo) introduce() {
	way := map[string]string{"bgp": "BGP → FIB", "ipam": "FIB, without BGP", "bgp,ipam": "BGP, with IPAM behind it → FIB"}[d.cfg.Learn]
	d.report.printf("%s\n", d.report.paint(bold, "vpp-route-agent demo: Calico's data in etcd → "+way+" → packets that arrive"))
	d.report.note("the agents' nodes forward with: %s", d.tools.describe(d.cfg.Dataplane))
}

func (d *demo) buildCluster(ctx context.Context) (err error) {
	if d.underlay, err = d.lab.Segment("underlay"); err != nil {
		return err
	}
	if err := d.startEtcd(ctx); err != nil {
		return err
	}
	if _, err := d.cluster.Apply(ctx, []byte(pool)); err != nil {
		return err
	}
	for i := range 3 {
		if err := d.addNode(ctx, i); err != nil {
			return err
		}
	}
	for i, p := range plannedWorkloads {
		if err := d.addWorkload(ctx, fmt.Sprintf("w%d", i+1), d.nodes[p.node], p.address); err != nil {
			return err
		}
	}
	if err := d.claimBlock(ctx, d.nodes[node2], idleBlock); err != nil {
		return err
	}
	if d.cfg.Learn == "bgp" { // BIRD's configuration names the node's blocks, as confd's does
		d.addBIRD(d.nodes[node3])
	}
	d.showCluster()
	return nil
}

// startEtcd runs the etcd in a namespace of its own on the underlay. The demo itself, which is in none of the namespaces, reaches it
// by its unix socket.
func (d *demo) startEtcd(ctx context.Context) error {
	ns, err := d.lab.Namespace("etcd")
	if err != nil {
		return err
	}
	if err := d.lab.Attach(d.underlay, netlab.End{Namespace: ns, Device: "eth0", Addresses: []netip.Prefix{etcdAddress}}); err != nil {
		return err
	}
	if err := ns.FillChecksums("eth0"); err != nil {
		return err
	}
	process, err := d.lab.Start(netlab.Spec{Name: "etcd", Namespace: ns, Path: d.cfg.Binary, Args: []string{
		"lab", "etcd", "--listen", netip.AddrPortFrom(etcdAddress.Addr(), 2379).String(), "--data-dir", filepath.Join(d.lab.Dir(), "etcd"), "--socket", d.etcdSocket(),
	}})
	if err != nil {
		return err
	}
	start := time.Now()
	ok, err := await(ctx, 20*time.Second, func(ctx context.Context) (bool, error) {
		if _, err := os.Stat(d.etcdSocket()); err != nil {
			return false, err
		}
		d.cluster, err = calicotest.Connect(ctx, "unix://"+d.etcdSocket(), nil)
		return err == nil, err
	})
	if !ok {
		return fmt.Errorf("etcd does not come up: %w\n%s", err, tail(process.LogPath()))
	}
	d.report.check(true, "etcd answers on "+etcdURL, inSeconds(time.Since(start)))
	return nil
}

func (d *demo) etcdSocket() string { return filepath.Join(d.lab.Dir(), "etcd.sock") }

// addNode makes a node, without its speaker, and registers it with Calico as calico-node would.
func (d *demo) addNode(ctx context.Context, i int) (err error) {
	n := &node{name: fmt.Sprintf("node-%d", i+1), address: nodeAddress(i), nextHop: nodeAddress(i)}
	if n.ns, err = d.lab.Namespace(n.name); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(d.lab.Dir(), n.name), 0o700); err != nil {
		return err
	}
	switch {
	case i == node3 && d.cfg.Learn == "bgp":
		err = d.makeKernelNode(n, birdProtocol)
	case d.tools.vpp != nil:
		err = d.makeVPPNode(ctx, n, i)
	default:
		err = d.makeKernelNode(n, agentProtocol)
	}
	if err != nil {
		return err
	}
	d.nodes = append(d.nodes, n)
	return d.cluster.AddNode(ctx, n.name, netip.PrefixFrom(n.address, underlay.Bits()))
}

// makeKernelNode makes n a machine that forwards with the kernel.
func (d *demo) makeKernelNode(n *node, by protocol) error {
	if err := relaxSourceChecks(n.ns); err != nil {
		return err
	}
	if err := n.ns.Forward(); err != nil {
		return err
	}
	uplink := netlab.End{Namespace: n.ns, Device: "eth0"}
	address := netip.PrefixFrom(n.address, underlay.Bits())
	if d.cfg.Learn != "ipam" { // else the agent sets it
		uplink.Addresses = []netip.Prefix{address}
	}
	if err := d.lab.Attach(d.underlay, uplink); err != nil {
		return err
	}
	changes, err := watchChanges(d.lab, n)
	if err != nil {
		return err
	}
	n.fib = &kernelFIB{n.ns, by, changes}
	if by == agentProtocol {
		args := append([]string{"--dataplane", "kernel", "--kernel-protocol", by.number}, d.learnArgs("eth0", address)...)
		n.speaker = newAgent(d.lab, d.cfg.Binary, n.name, n.ns, args...)
	}
	return n.ns.FillChecksums("eth0")
}

// relaxSourceChecks lets packets in by another way than their answers would go, as while a workload moves. Distributions turn this
// check on, and new namespaces take it over from the host.
func relaxSourceChecks(ns *netlab.Namespace) error {
	for _, key := range []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"} {
		if err := ns.Sysctl(key, "0"); err != nil {
			return err
		}
	}
	return nil
}

// addWorkload starts a workload: address and endpoint in Calico's data, link and route on the node.
func (d *demo) addWorkload(ctx context.Context, name string, n *node, address string) error {
	data, err := d.cluster.Attach(ctx, n.name, name, address)
	if err != nil {
		return err
	}
	if d.ownerOf(data.Address) == nil {
		d.blocks = append(d.blocks, block{data.Block, n})
	}
	w := &workload{name: name, address: data.Address, node: n}
	if w.ns, err = d.lab.Namespace(name); err != nil {
		return err
	}
	if err := relaxSourceChecks(w.ns); err != nil {
		return err
	}
	p, err := n.plug(ctx, d.lab, w)
	if err != nil {
		return err
	}
	d.workloads = append(d.workloads, w)
	return w.use(ctx, n, p)
}

func (d *demo) claimBlock(ctx context.Context, n *node, cidr netip.Prefix) error {
	d.blocks = append(d.blocks, block{cidr, n})
	return d.cluster.ClaimBlock(ctx, n.name, cidr)
}

// showCluster is the picture of what was built.
func (d *demo) showCluster() {
	rows := [][]string{{"NODE", "ADDRESS", "BGP", "FORWARDS WITH", "BLOCKS", "WORKLOADS"}}
	for _, n := range d.nodes {
		first := []string{n.name, n.address.String(), n.speaker.name(), n.fib.name()}
		var blocks, workloads []string
		for _, b := range d.blocks {
			if b.owner == n {
				blocks = append(blocks, b.cidr.String())
			}
		}
		for _, w := range d.workloads {
			if w.node == n {
				text := w.name + " " + w.address.String()
				if d.ownerOf(w.address) != n {
					text += ", borrowed"
				}
				workloads = append(workloads, text)
			}
		}
		for i := range max(len(blocks), len(workloads), 1) {
			row := first
			if i > 0 {
				row = make([]string, len(first))
			}
			rows = append(rows, append(row[:len(row):len(row)], at(blocks, i), at(workloads, i)))
		}
	}
	d.report.table(rows)
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}
