package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// scene is an agent with what it has to show.
type scene struct {
	*testcluster.Cluster
	agent    *testcluster.Agent
	birds    map[string]*testcluster.CalicoNode
	speakers map[string]*testcluster.Speaker
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

// newScene makes a cluster, and has build fill it. The logs are gone afterwards, so their ends are
// printed if that fails.
func (h *harness) newScene(name string, build func(*scene) error) (*scene, error) {
	c, err := testcluster.New(name, h.programs, h.log)
	if err != nil {
		return nil, err
	}
	s := &scene{
		Cluster: c, birds: map[string]*testcluster.CalicoNode{},
		speakers: map[string]*testcluster.Speaker{},
	}
	if err := build(s); err != nil {
		if h.ctx.Err() == nil {
			fmt.Fprint(os.Stderr, testcluster.Tails(c.Lab, 15))
		}
		return nil, errors.Join(fmt.Errorf("scene %s: %w", name, err), s.close())
	}
	return s, nil
}

func (s *scene) close() error {
	for _, x := range s.speakers {
		x.Close()
	}
	return s.Close()
}

// addAgent makes the agent of a node, and starts it.
func (s *scene) addAgent(ctx context.Context, name string, ns *netlab.Namespace) error {
	s.agent = s.NewAgent(name, ns, "--dataplane", "kernel",
		"--kernel-protocol", testcluster.AgentProtocol)
	return s.agent.Start(ctx)
}

// until waits until the agent's status is right.
func (s *scene) until(ctx context.Context, what string, holds func(agent.Status) error) error {
	return netlab.Await(ctx, 3*patience, what, func(ctx context.Context) error {
		now, err := s.agent.Status(ctx)
		if err == nil {
			err = holds(now)
		}
		return err
	})
}

const etcdNode = "192.168.4.10/24"

// empty is a node alone, which has nothing.
func (h *harness) empty(s *scene) error {
	ns, err := s.Machine("node-1", pfx("192.168.4.11/24"))
	if err != nil {
		return err
	}
	etcd, err := s.Machine("etcd", pfx(etcdNode))
	if err == nil {
		err = s.StartEtcd(h.ctx, etcd, pfx(etcdNode).Addr())
	}
	if err == nil {
		err = s.Data.AddNode(h.ctx, "node-1", pfx("192.168.4.11/24"))
	}
	if err == nil {
		err = s.addAgent(h.ctx, "node-1", ns)
	}
	if err != nil {
		return err
	}
	return s.until(h.ctx, "the agent is ready", func(now agent.Status) error {
		if !now.Ready {
			return fmt.Errorf("%+v", now.Conditions)
		}
		return nil
	})
}

// small has something for every view: BIRDs in the mesh, one node of which is down, a reflector,
// a rack's router with a filter, one that says hostile things, a route with a next hop that leads
// nowhere, and data that are wrong.
func (h *harness) small(s *scene) error {
	etcd, err := s.Machine("etcd", pfx(etcdNode))
	if err == nil {
		err = s.StartEtcd(h.ctx, etcd, pfx(etcdNode).Addr())
	}
	if err != nil {
		return err
	}
	if err := s.Apply(h.ctx, smallData); err != nil {
		return err
	}
	err = s.Data.PutRaw(h.ctx, "/calico/resources/v3/projectcalico.org/bgppeers/garbage",
		`{"kind": "BGPPeer", "metadata": {"name": "garbage"}, "spec": {"asNumber": 65009,
			"peerIP": "`+hostile+`"}}`)
	if err != nil {
		return err
	}
	for name, address := range map[string]string{
		"node-1": "192.168.4.11/24", "node-2": "192.168.4.12/24", "node-3": "192.168.4.13/24",
	} {
		if err := s.Data.AddNode(h.ctx, name, pfx(address)); err != nil {
			return err
		}
	}
	for node, block := range map[string]string{"node-1": "10.1.0.0/26", "node-2": "10.1.0.64/26",
		"node-3": "10.1.0.128/26", "node-4": "10.1.0.192/26"} {
		if err := s.Data.ClaimBlock(h.ctx, node, pfx(block)); err != nil {
			return err
		}
	}
	for name, address := range map[string]string{"node-2": "192.168.4.12/24",
		"node-3": "192.168.4.13/24", "rr-1": "192.168.4.21/24"} {
		n, err := s.KernelNode(name, pfx(address))
		if err != nil {
			return err
		}
		b := s.NewCalicoNode(name, n.NS, testcluster.BirdConfig(n.Address))
		if err := b.Start(h.ctx); err != nil {
			return err
		}
		s.birds[name] = b
	}
	if err := s.routers(h.ctx); err != nil {
		return err
	}
	n, err := s.KernelNode("node-1", pfx("192.168.4.11/24"))
	if err == nil {
		err = s.addAgent(h.ctx, "node-1", n.NS)
	}
	if err != nil {
		return err
	}
	err = s.until(h.ctx, "all that is to be shown is there", func(now agent.Status) error {
		return s.shows(h.ctx, now)
	})
	if err != nil {
		return err
	}
	// A BIRD that starts waits for all its peers, so that the one that is down comes late.
	return s.Data.AddNode(h.ctx, "node-4", pfx("192.168.4.14/24"))
}

// smallData are the pool, the reflector and the routers of small, in calicoctl's YAML.
var smallData = testcluster.Resource("IPPool", "workloads",
	"cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, natOutgoing: false") +
	testcluster.Resource("BGPConfiguration", "default", "nodeToNodeMeshEnabled: true") +
	testcluster.ReflectorNode("rr-1", "244.0.0.1", "ipv4Address: 192.168.4.21/24") +
	testcluster.ToReflectors +
	testcluster.Resource("BGPFilter", "rack",
		"importV4: [{cidr: 172.16.2.0/24, matchOperator: In, action: Reject}]") +
	testcluster.Peer("tor-1", "192.168.4.1", 65001, "node: node-1, filters: [rack]") +
	testcluster.Peer("tor-2", "192.168.4.2", 65002, "node: node-1") +
	testcluster.Peer("tor-3", "192.168.4.3", 65003, "node: node-1")

// routers are tor-1, a BIRD; tor-2, which ends each session with a hostile reason (RFC 9003); and
// tor-3, whose next hop leads nowhere.
func (s *scene) routers(ctx context.Context) error {
	ns, err := s.Machine("tor-1", pfx("192.168.4.1/24"))
	if err != nil {
		return err
	}
	self := addr("192.168.4.1")
	tor := s.NewBird("tor-1", ns, netlab.BirdConfig{
		RouterID: self, Address: self, AS: 65001,
		Services: []netip.Prefix{pfx("172.16.1.0/24"), pfx("172.16.2.0/24")},
		Peers: []netlab.BirdPeer{{
			Name: "node_1", Address: addr("192.168.4.11"), AS: testcluster.AS,
		}},
	})
	if err := tor.Start(ctx); err != nil {
		return err
	}
	shutdown := testcluster.Message(testcluster.MsgNotification,
		append([]byte{6, 2, byte(len(hostile))}, hostile...))
	attributes := []byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xeb, // AS_PATH 65003
		0x40, 3, 4, 203, 0, 113, 9, // NEXT_HOP
	}
	update := testcluster.UpdateMessage(nil, attributes, pfx("172.16.3.0/24"))
	for name, x := range map[string]struct {
		address  string
		as       uint32
		greeting []byte
	}{
		"tor-2": {"192.168.4.2/24", 65002, shutdown},
		"tor-3": {"192.168.4.3/24", 65003, append(update, endOfRIB...)},
	} {
		ns, err := s.Machine(name, pfx(x.address))
		if err != nil {
			return err
		}
		a := pfx(x.address).Addr()
		open := testcluster.OpenMessage(x.as, 90, a, testcluster.Unicast(a)...)
		if s.speakers[name], err = testcluster.Listen(ns, a, open, x.greeting, nil); err != nil {
			return err
		}
	}
	return nil
}

var endOfRIB = testcluster.UpdateMessage(nil, nil)

// shows returns what small still lacks.
func (s *scene) shows(ctx context.Context, now agent.Status) error {
	for _, p := range now.BGP.Peers {
		if !p.Established && p.Address != addr("192.168.4.2") {
			return fmt.Errorf("%s is %s %s", p.Address, p.State, p.LastError)
		}
	}
	if !slices.ContainsFunc(now.BGP.Peers, func(p agent.PeerStatus) bool {
		return strings.Contains(p.LastError, hostile)
	}) {
		return errors.New("no peer has said anything hostile")
	}
	var routes []agent.RouteStatus
	if err := s.agent.Get(ctx, "/v1/routes", &routes); err != nil {
		return err
	}
	programmed := map[netip.Prefix]bool{}
	for _, r := range routes {
		programmed[r.Prefix] = r.State == "programmed"
	}
	for _, p := range []string{"10.1.0.64/26", "10.1.0.128/26", "172.16.1.0/24"} {
		if !programmed[pfx(p)] {
			return fmt.Errorf("no route to %s", p)
		}
	}
	if len(now.Problems) == 0 {
		return errors.New("no data are wrong")
	}
	return nil
}

// largeAgent has the greatest address of all as a string, so that it dials.
const largeAgent = "10.99.0.1/8"

func largePeer(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(i / 200), byte(i%200 + 2)})
}

// largeBlock is number i of the blocks of all peers.
func largeBlock(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{
		30 + byte(i>>18), byte(i >> 10), byte(i >> 2), byte(i << 6),
	}), 26)
}

// large is a mesh of many peers that announce many blocks.
func (h *harness) large(s *scene) error {
	ns, err := s.Namespace("node-1")
	if err != nil {
		return err
	}
	addresses := make([]netip.Addr, h.peers)
	for i := range addresses {
		addresses[i] = largePeer(i)
	}
	far, err := s.Crowd(ns, "far", pfx(largeAgent), addresses)
	if err != nil {
		return err
	}
	if err := s.StartEtcd(h.ctx, ns, pfx(largeAgent).Addr()); err != nil {
		return err
	}
	if err := s.Data.AddPool(h.ctx, "pods", pfx("30.0.0.0/8"), 26); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(h.ctx)
	group.SetLimit(20)
	each := h.routes / h.peers
	for i, a := range addresses {
		open := testcluster.OpenMessage(testcluster.AS, 90, a, testcluster.Unicast(a)...)
		update := slices.Concat(announce(a, each*i, each), endOfRIB)
		x, err := testcluster.Listen(far, a, open, update, nil)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("peer-%d", i)
		s.speakers[name] = x
		group.Go(func() error { return s.Data.AddNode(ctx, name, netip.PrefixFrom(a, 8)) })
	}
	group.Go(func() error { return s.Data.AddNode(ctx, "node-1", pfx(largeAgent)) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := s.addAgent(h.ctx, "node-1", ns); err != nil {
		return err
	}
	return s.until(h.ctx, "all routes are there", func(now agent.Status) error {
		n := 0
		for _, c := range now.FIB.Routes {
			n += c.Programmed
		}
		if n != each*h.peers {
			return fmt.Errorf("%d of %d", n, each*h.peers)
		}
		return nil
	})
}

// announce are the UPDATEs of a peer for n blocks from number first on.
func announce(peer netip.Addr, first, n int) (out []byte) {
	attributes := append([]byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 0, // AS_PATH, empty
		0x40, 5, 4, 0x7f, 0xff, 0xfb, 0xff, // LOCAL_PREF 2147482623, as Calico's nodes
		0x40, 3, 4, // NEXT_HOP
	}, peer.AsSlice()...)
	blocks := make([]netip.Prefix, n)
	for i := range blocks {
		blocks[i] = largeBlock(first + i)
	}
	for some := range slices.Chunk(blocks, 500) { // more do not fit into a message
		out = append(out, testcluster.UpdateMessage(nil, attributes, some...)...)
	}
	return out
}

// churn has the first peer take a block back and announce it again, ten times a second, until ctx
// ends: a cluster is never silent.
func (s *scene) churn(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		update := announce(largePeer(0), 0, 1)
		if i%2 == 0 {
			update = testcluster.UpdateMessage([]netip.Prefix{largeBlock(0)}, nil)
		}
		if err := s.speakers["peer-0"].Send(update); err != nil {
			return err
		}
	}
}
