package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// The addresses are those of the classic Calico tutorials: nodes in 192.168.4.0/24, workloads in
// 10.1.0.0/16.
var (
	underlay    = netip.MustParsePrefix("192.168.4.0/24")
	etcdAddress = netip.MustParsePrefix("192.168.4.10/24")
)

// pool is that of the workloads, with a mode: "none", "ipip" or "vxlan".
func pool(mode string) string {
	ipip, vxlan := "Never", "Never"
	switch mode {
	case "ipip":
		ipip = "Always"
	case "vxlan":
		vxlan = "Always"
	}
	return testcluster.Resource("IPPool", "workloads", fmt.Sprintf("cidr: 10.1.0.0/16, "+
		"blockSize: 26, ipipMode: %s, vxlanMode: %s, natOutgoing: false", ipip, vxlan))
}

// mesh turns the node-to-node mesh on or off.
func mesh(on bool) string {
	return testcluster.Resource("BGPConfiguration", "default",
		fmt.Sprintf("nodeToNodeMeshEnabled: %v, asNumber: %d", on, testcluster.AS))
}

// The parts with a role in the story, by their place in the lists.
const (
	node1, node2, node3 = 0, 1, 2 // agent, agent, BIRD
	w1, w2, w3, w4, w5  = 0, 1, 2, 3, 4
)

// nodeAddress is the underlay address of the i-th node: 192.168.4.11, .12, .13.
func nodeAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 4, byte(11 + i)}) }

// plannedWorkloads are started in this order: w4 borrows from the block of node-1, w5 is alone in a
// block of its own.
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
	way := map[string]string{"bgp": "BGP → FIB", "ipam": "FIB, without BGP",
		"bgp,ipam": "BGP, with IPAM behind it → FIB"}[d.cfg.Learn]
	if d.encapsulates() {
		way = "FIB and tunnels, without BGP"
	}
	d.report.printf("%s\n",
		d.report.paint(bold,
			"vpp-route-agent demo: Calico's data in etcd → "+way+" → packets that arrive"))
	if d.cfg.Datastore == "kubernetes" {
		d.report.note("the agents read Calico's data from a stand-in for the Kubernetes API, " +
			"which has what is in etcd")
	}
	d.report.note("the agents' nodes forward with: %s", d.describe())
}

func (d *demo) buildCluster(ctx context.Context) error {
	if err := d.startEtcd(ctx); err != nil {
		return err
	}
	if err := d.Apply(ctx, pool(d.cfg.Encap)+mesh(true)); err != nil {
		return err
	}
	for i := range 3 {
		if err := d.addNode(ctx, i); err != nil {
			return err
		}
	}
	for i, p := range plannedWorkloads {
		err := d.addWorkload(ctx, fmt.Sprintf("w%d", i+1), d.nodes[p.node], p.address)
		if err != nil {
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

// startEtcd runs the etcd in a namespace of its own on the underlay.
func (d *demo) startEtcd(ctx context.Context) error {
	ns, err := d.Machine("etcd", etcdAddress)
	if err != nil {
		return err
	}
	start, begin := time.Now(), d.StartEtcd
	if d.cfg.Datastore == "kubernetes" {
		begin = d.StartKubernetes
	}
	if err := begin(ctx, ns, etcdAddress.Addr()); err != nil {
		return err
	}
	d.report.check(true, "etcd answers on "+d.Endpoints[0], inSeconds(time.Since(start)))
	return nil
}

// addNode makes a node and registers it with Calico as calico-node would. The third has BIRD, where
// there is BGP beside the agents', and gets it later.
func (d *demo) addNode(ctx context.Context, i int) (err error) {
	n, name := &node{nextHop: nodeAddress(i)}, fmt.Sprintf("node-%d", i+1)
	bird := i == node3 && d.cfg.Learn == "bgp"
	byAgent := d.cfg.Learn == "ipam" && !d.encapsulates() // the uplink is set up
	address := netip.PrefixFrom(nodeAddress(i), underlay.Bits())
	uplink, own := "eth0", address
	if d.VPP == nil || bird {
		addresses := []netip.Prefix{address}
		if byAgent {
			addresses = nil
		}
		if n.Node, err = d.KernelNode(name, addresses...); err == nil {
			n.Address = address.Addr()
			n.changes, err = d.WatchRoutes(ctx, n.NS, name+"-routes")
		}
	} else {
		own = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 4, byte(111 + i)}),
			underlay.Bits())
		uplink = "host-uplink"
		// Others' next hop is what the agent publishes, and what tunnelled packets come to.
		if byAgent || d.encapsulates() {
			n.nextHop = own.Addr()
		}
		n.Node, err = d.VPPNode(ctx, name, address.Addr(), testcluster.VPPUplink{
			Address: own, MAC: net.HardwareAddr{0x02, 0xfe, 0, 0, 0, byte(1 + i)}, Bare: byAgent,
		})
		if err == nil {
			n.version, err = vppVersion(ctx, n.VPP)
		}
	}
	if err != nil {
		return err
	}
	if !bird {
		a := d.NewAgent(name, n.NS, n.Dataplane()...)
		a.Flags = d.learnArgs(uplink, own)
		n.speaker = agentSpeaker{a}
	}
	d.nodes = append(d.nodes, n)
	if d.encapsulates() {
		n.tunnelled = true
		return d.addTunnelAddresses(ctx, i, own)
	}
	return d.Data.AddNode(ctx, name, address)
}

// addWorkload starts a workload: address and endpoint in Calico's data, link and route on the node.
func (d *demo) addWorkload(ctx context.Context, name string, n *node, address string) error {
	data, err := d.Data.Attach(ctx, n.Name, name, address)
	if err != nil {
		return err
	}
	if d.ownerOf(data.Address) == nil {
		d.blocks = append(d.blocks, block{data.Block, n})
	}
	w := &workload{node: n}
	if w.Workload, err = d.Workload(name, data.Address); err != nil {
		return err
	}
	p, err := n.plug(ctx, w)
	if err != nil {
		return err
	}
	d.workloads = append(d.workloads, w)
	return w.use(ctx, n, p)
}

func (d *demo) claimBlock(ctx context.Context, n *node, cidr netip.Prefix) error {
	d.blocks = append(d.blocks, block{cidr, n})
	return d.Data.ClaimBlock(ctx, n.Name, cidr)
}

// showCluster is the picture of what was built.
func (d *demo) showCluster() {
	rows := [][]string{{"NODE", "ADDRESS", "BGP", "FORWARDS WITH", "BLOCKS", "WORKLOADS"}}
	for _, n := range d.nodes {
		address := n.Address
		if n.tunnelled {
			address = n.nextHop
		}
		first := []string{n.Name, address.String(), n.speaker.name(), n.forwarder()}
		var blocks, workloads []string
		for _, b := range d.blocks {
			if b.owner == n {
				blocks = append(blocks, b.cidr.String())
			}
		}
		for _, w := range d.workloads {
			if w.node == n {
				text := w.Name + " " + w.Address.String()
				if d.ownerOf(w.Address) != n {
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
