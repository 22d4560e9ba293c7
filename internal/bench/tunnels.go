package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipip"
	"go.fd.io/govpp/binapi/teib"
	"go.fd.io/govpp/binapi/tunnel_types"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// tunnels has an agent take the snapshot of a cluster whose pool has IPIP, until the last tunnel
// and route are acknowledged, in turn with a raw writer that changes the same. Then it rests. Then
// nodes join, one at a time.
func tunnels(l *lab) error {
	if err := l.fillTunnels(); err != nil {
		return err
	}
	if err := l.restWithTunnels(); err != nil {
		return err
	}
	return l.joinTunnels()
}

// tunnelNodes is how many other nodes there are.
const tunnelNodes = 1000

func (l *lab) fillTunnels() error {
	b, p := l.b, l.plane
	t, err := l.tunnelAgent(p.socket, "journal-fill", route.IPIP)
	if err != nil {
		return err
	}
	defer t.stop()
	w, err := connectRaw(p.socket, t.link, hops[0])
	if err != nil {
		return err
	}
	defer w.close()
	full, empty := tunnelCluster(tunnelNodes), tunnelCluster(0)
	var byAgent, byRaw series
	err = rounds(b.pick(45, 5), func() error {
		took, err := t.take(b.ctx, full)
		byAgent = append(byAgent, took.Seconds()*1000)
		if err == nil {
			_, err = t.take(b.ctx, empty)
		}
		return err
	}, func() error {
		x, err := w.tunnelTo(tunnelSource.Addr(), tunnelAddress, full)
		if err != nil {
			return err
		}
		byRaw = append(byRaw, x.took.Seconds()*1000)
		return x.remove()
	})
	if err != nil {
		return err
	}
	b.compare("tunnels: snapshot to the last acknowledgement", "ms", byAgent, "raw writer", byRaw,
		b.quiet(p.limit(atMost(1.3))), fmt.Sprintf("%d tunnels and routes on %s, %d rounds",
			tunnelNodes, p.name, len(byRaw)))
	return nil
}

// restWithTunnels has an agent do nothing, without tunnels and with them.
func (l *lab) restWithTunnels() error {
	b := l.b
	full := tunnelCluster(tunnelNodes)
	t, err := l.tunnelAgent(l.plane.socket, "journal-rest", route.IPIP)
	if err != nil {
		return err
	}
	defer t.stop()
	if _, err := t.take(b.ctx, tunnelCluster(0)); err != nil {
		return err
	}
	span := time.Duration(b.pick(30, 5)) * time.Second
	heapBefore, idleBefore := heapInUse(), idleCPU(span)
	if _, err := t.take(b.ctx, full); err != nil {
		return err
	}
	heap, idle := heapInUse(), idleCPU(span)
	b.single("tunnels: heap of the agent", "KiB/tunnel",
		(float64(heap)-float64(heapBefore))/tunnelNodes/1024, b.quiet(atMost(16)),
		fmt.Sprintf("with its route; %d on %s", tunnelNodes, l.plane.name))
	b.single("tunnels: idle, more than without them", "% of a CPU", 100*(idle-idleBefore),
		b.quiet(atMost(1)), fmt.Sprintf("over %s; without them %.2f %%", span, 100*idleBefore))
	_, err = t.take(b.ctx, tunnelCluster(0))
	return err
}

// idleCPU is which share of a processor this process uses for so long.
func idleCPU(span time.Duration) float64 {
	used := ownCPUSeconds()
	time.Sleep(span)
	return (ownCPUSeconds() - used) / span.Seconds()
}

func (l *lab) joinTunnels() error {
	b, p := l.b, l.plane
	r, err := startRelay(filepath.Join(l.Dir(), "relay.sock"), p.socket)
	if err != nil {
		return err
	}
	defer r.close()
	t, err := l.tunnelAgent(r.path(), "journal-join", route.IPIP)
	if err != nil {
		return err
	}
	defer t.stop()
	w, err := connectRaw(r.path(), t.link, hops[0])
	if err != nil {
		return err
	}
	defer w.close()
	before, after := tunnelCluster(tunnelNodes), tunnelCluster(tunnelNodes+1)
	if _, err := t.take(b.ctx, before); err != nil {
		return err
	}
	// An interface of its own, with another source: the agent's is not touched.
	x, err := w.tunnelTo(tunnelSource.Addr().Prev(), tunnelAddress.Prev(), tunnelCluster(0))
	if err != nil {
		return err
	}
	other := tunnelCluster(tunnelNodes + 2)
	block := blockPrefixes(tunnelNodes + 2)[tunnelNodes+1]
	one, err := x.frames([]calico.Block{other.Blocks[block]}, other)
	if err != nil {
		return err
	}
	samples, written := make([]time.Duration, b.pick(1000, 200)), []time.Duration(nil)
	for i := range samples {
		samples[i], err = b.one(func([]byte) error { return t.give(b.ctx, after) }, r, nil)
		if err == nil {
			_, err = t.take(b.ctx, before)
		}
		if err != nil {
			return fmt.Errorf("node %d joins: %w", i, err)
		}
		took, err := b.one(func([]byte) error { return one.write() }, r, nil)
		if err == nil {
			err = one.remove()
		}
		if err != nil {
			return fmt.Errorf("raw writer, node %d: %w", i, err)
		}
		written = append(written, took)
	}
	slices.Sort(samples)
	slices.Sort(written)
	for _, share := range []float64{0.5, 0.99} {
		limit := noBudget
		if share == 0.99 {
			limit = b.quiet(p.limit(atMost(3)))
		}
		b.compare(fmt.Sprintf("tunnels: one node joins, p%g", 100*share), "ms",
			series{quantile(samples, share)}, "raw writer", series{quantile(written, share)}, limit,
			fmt.Sprintf("%d nodes join, beside %d, on %s", len(samples), tunnelNodes, p.name))
	}
	return x.remove()
}

// tunnelSource is the node's address, which is VPP's, tunnelAddress that of the tunnel interface.
var (
	tunnelSource  = netip.MustParsePrefix(planeAddress)
	tunnelAddress = netip.MustParseAddr("30.255.0.2")
)

// tunnelCluster has this node and n others, each with a block of a pool with IPIP; with none this
// node has no tunnel address, so that the tunnel goes at once.
func tunnelCluster(n int) *calico.Snapshot {
	me := calico.Node{Name: "node", IPv4: tunnelSource}
	if n > 0 {
		me.IPv4IPIPTunnelAddr = tunnelAddress
	}
	s := &calico.Snapshot{
		Nodes: map[string]calico.Node{"node": me},
		IPPools: map[string]calico.IPPool{"pods": {Name: "pods", IPIPMode: calico.EncapAlways,
			CIDR: netip.MustParsePrefix("30.0.0.0/8")}},
		Blocks: map[netip.Prefix]calico.Block{},
	}
	for i, block := range blockPrefixes(n) {
		name := fmt.Sprintf("peer-%d", i)
		s.Nodes[name] = calico.Node{Name: name, IPv4: netip.PrefixFrom(peerAddress(i), 16)}
		s.Blocks[block] = calico.Block{CIDR: block, Owner: calico.Owner{Host: name}}
	}
	return s
}

// tunnelAgent is an agent without BGP in this process.
type tunnelAgent struct {
	*engine
	snapshots chan *calico.Snapshot
	link      uint32 // index of planeLink
	others    int    // objects besides those of nodes
	stop      func()
}

func (a *tunnelAgent) Snapshots() <-chan *calico.Snapshot { return a.snapshots }

func (a *tunnelAgent) Status() agent.DatastoreStatus {
	return agent.DatastoreStatus{Connected: true, Synced: true}
}

func (l *lab) tunnelAgent(socket, journal string, by route.Encap) (*tunnelAgent, error) {
	p := *l.plane
	p.socket = socket
	c, err := p.connect(l.b.ctx)
	if err != nil {
		return nil, err
	}
	t := &tunnelAgent{engine: c.engine(l.b.ctx, filepath.Join(l.Dir(), journal)), link: c.index,
		snapshots: make(chan *calico.Snapshot), others: 3} // link, address, up
	if by == route.VXLAN {
		t.others = 2 // the link has its address
	}
	a := agent.New(agent.Config{Node: "node", Dataplane: "vpp",
		Settings:  agent.Settings{BGP: bgp.Options{Tunnels: []route.Encap{by}}},
		Datastore: t, FIB: t.engine.Engine, EtcdRoutes: []ipam.AddressSource{ipam.NodeObject},
		Log: discard})
	ctx, cancel := context.WithCancel(l.b.ctx)
	var wait sync.WaitGroup
	wait.Go(func() { _ = a.Run(ctx) })
	t.stop = func() {
		cancel()
		wait.Wait()
		t.engine.stop()
		c.stop()
	}
	return t, nil
}

// give hands over a snapshot, unless the agent has ended with ctx.
func (a *tunnelAgent) give(ctx context.Context, s *calico.Snapshot) error {
	select {
	case a.snapshots <- s:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take hands over a snapshot and returns how long it took until the last of its routes was
// acknowledged.
func (a *tunnelAgent) take(ctx context.Context, s *calico.Snapshot) (time.Duration, error) {
	routes := len(s.Nodes) - 1
	objects := routes
	if routes > 0 {
		objects += a.others
	}
	began := time.Now()
	if err := a.give(ctx, s); err != nil {
		return 0, err
	}
	err := await(ctx, time.Minute, 500*time.Microsecond, func() error {
		now := a.Stats()
		if o := now.Objects; o.Desired != objects || o.Programmed != objects || o.Deleting > 0 {
			return fmt.Errorf("objects: %+v", o)
		}
		for _, r := range now.Routes {
			if r.Desired != routes || r.Programmed != routes || r.Deleting > 0 {
				return fmt.Errorf("routes: %+v", r)
			}
		}
		return nil
	})
	return a.acked.Sub(began), err
}

// rawTunnel is an interface that the raw writer has made, with its routes.
type rawTunnel struct {
	rawNodes
	index uint32
	took  time.Duration // until all of it was answered
}

// rawNodes are the frames about some nodes.
type rawNodes struct {
	w *raw

	tunnels, routes, routesGone, tunnelsGone [][]byte
}

const rawInstance = 7

// tunnelTo makes an interface with tunnels to all nodes of a cluster, and routes to their blocks.
func (r *raw) tunnelTo(source, address netip.Addr, s *calico.Snapshot) (*rawTunnel, error) {
	x := &rawTunnel{rawNodes: rawNodes{w: r}}
	began := time.Now()
	m, err := r.ask(&ipip.IpipAddTunnel{Tunnel: ipip.IpipTunnel{Instance: rawInstance,
		Src: addressOf(source), Dst: addressOf(netip.IPv4Unspecified()),
		Mode: tunnel_types.TUNNEL_API_MODE_MP}})
	if err != nil {
		return nil, err
	}
	x.index = binary.BigEndian.Uint32(m[10:])
	on := interface_types.InterfaceIndex(x.index)
	tag := &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: on, Tag: "bench"}
	for _, m := range []api.Message{tag, // as the agent, first without its settings
		&interfaces.SwInterfaceSetMtu{SwIfIndex: on, Mtu: []uint32{1480, 0, 0, 0}}, tag,
		&interfaces.SwInterfaceAddDelAddress{SwIfIndex: on, IsAdd: true,
			Prefix: ip_types.AddressWithPrefix{Len: 32, Address: addressOf(address)}},
		&interfaces.SwInterfaceSetFlags{SwIfIndex: on,
			Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP},
	} {
		if _, err := r.ask(m); err != nil {
			return nil, err
		}
	}
	x.took = time.Since(began)
	if x.rawNodes, err = x.frames(slices.Collect(maps.Values(s.Blocks)), s); err != nil {
		return nil, err
	}
	began = time.Now() // making frames does not count
	err = x.write()
	x.took += time.Since(began)
	return x, err
}

// remove deletes the interface, too.
func (x *rawTunnel) remove() error {
	err := x.rawNodes.remove()
	if err == nil {
		_, err = x.w.ask(&ipip.IpipDelTunnel{SwIfIndex: interface_types.InterfaceIndex(x.index)})
	}
	return err
}

// frames are about the nodes that have these blocks.
func (x *rawTunnel) frames(blocks []calico.Block, s *calico.Snapshot) (n rawNodes, err error) {
	n.w = x.w
	for _, b := range blocks {
		outer := s.Nodes[b.Owner.Host].IPv4.Addr()
		hop := route.EndpointHop(outer)
		entry := teib.TeibEntry{SwIfIndex: interface_types.InterfaceIndex(x.index),
			Peer: addressOf(hop), Nh: addressOf(outer)}
		to := ip.IPRouteV2{Prefix: ip_types.Prefix{Address: addressOf(b.CIDR.Addr()),
			Len: uint8(b.CIDR.Bits())}}
		through := to
		through.Paths = []fib_types.FibPath{{SwIfIndex: x.index, Weight: 1,
			Proto: fib_types.FIB_API_PATH_NH_PROTO_IP6,
			Nh:    fib_types.FibPathNh{Address: addressOf(hop).Un}}}
		for _, f := range []struct {
			to *[][]byte
			m  api.Message
		}{
			{&n.tunnels, &teib.TeibEntryAddDel{IsAdd: 1, Entry: entry}},
			{&n.routes, &ip.IPRouteAddDelV2{IsAdd: true, Route: through}},
			{&n.routesGone, &ip.IPRouteAddDelV2{Route: to}},
			{&n.tunnelsGone, &teib.TeibEntryAddDel{Entry: entry}},
		} {
			frame, err := x.w.encode(f.m)
			if err != nil {
				return n, err
			}
			*f.to = append(*f.to, frame)
		}
	}
	return n, nil
}

var teibAnswer = answer{name: "teib_entry_add_del_reply"}

// write puts tunnels, then routes, as the agent must.
func (n *rawNodes) write() error {
	return errors.Join(n.send(n.tunnels, teibAnswer), n.send(n.routes, routeAnswer))
}

func (n *rawNodes) remove() error {
	return errors.Join(n.send(n.routesGone, routeAnswer), n.send(n.tunnelsGone, teibAnswer))
}

func (n *rawNodes) send(frames [][]byte, to answer) error {
	return n.w.exchange(len(frames), to, func(out []byte, i int) []byte {
		return append(out, frames[i]...)
	})
}

// ask sends one request and returns its reply, which is no error.
func (r *raw) ask(m api.Message) ([]byte, error) {
	frame, err := r.encode(m)
	if err == nil {
		_, err = r.conn.Write(frame)
	}
	if err != nil {
		return nil, err
	}
	reply, err := r.read()
	if err != nil {
		return nil, err
	}
	if retval := int32(binary.BigEndian.Uint32(reply[6:])); retval != 0 {
		return nil, fmt.Errorf("raw writer: %s: error %d", m.GetMessageName(), retval)
	}
	return reply, nil
}

func addressOf(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}
