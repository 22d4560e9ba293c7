package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// both is one cluster in etcd and in the Kubernetes datastore, each read by its source.
type both struct {
	*calicotest.Cluster
	server   *kubetest.Server
	etcd     *etcd.Source
	kube     *running
	fromEtcd *calico.Snapshot
	needs    calico.Needs
}

func startBoth(t *testing.T, needs calico.Needs) *both {
	t.Helper()
	t.Attr("part", "etcd 3.6.16, embedded server")
	t.Attr("part", "Kubernetes API, a stand-in")
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	must(t, err)
	t.Cleanup(e.Close)
	b := &both{needs: needs, Cluster: e.Cluster(), server: kubetest.NewServer(t)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		if err := calicotest.Mirror(ctx, e.Client(), GroupV1, b.server); err != nil &&
			ctx.Err() == nil {
			t.Errorf("mirror: %v", err)
		}
	})
	b.etcd, err = etcd.New(etcd.Config{Endpoints: []string{e.Endpoint()}}, "edge-7", needs,
		slog.New(slog.DiscardHandler))
	must(t, err)
	running.Go(func() { _ = b.etcd.Run(ctx) })
	b.kube = run(t, b.server, func(c *Config) { c.Needs = needs })
	return b
}

// same is a snapshot as both sources must have it: without what only counts, and with problems by
// their resource. Kubernetes has a host's addresses where etcd leaves them out, and Services.
func same(s *calico.Snapshot) *calico.Snapshot {
	c := *s
	c.Services, c.Endpoints = nil, nil
	c.Revision, c.Lists, c.Versions, c.Received, c.Problems = 0, 0, nil, time.Time{}, nil
	c.Nodes = map[string]calico.Node{}
	for name, n := range s.Nodes {
		n.HostIPv4, n.HostIPv6 = calico.FirstOfEach([]netip.Addr{n.IPv4.Addr(), n.IPv6.Addr(),
			n.HostIPv4, n.HostIPv6})
		if len(n.Labels) == 0 {
			n.Labels = nil
		}
		c.Nodes[name] = n
	}
	return &c
}

// read is what of a snapshot every source of these needs reads, so that what is old shows.
func (b *both) read(s *calico.Snapshot) any {
	if b.needs.NoBGP {
		return []any{s.Nodes, s.Affinities, s.Blocks, s.IPPools}
	}
	return []any{s.Nodes, s.Affinities, s.WorkloadEndpoints, s.BGPPeers, s.BGPConfigurations}
}

// expectSame waits until both have what is in etcd, and compares their plans.
func (b *both) expectSame(t *testing.T, what string) {
	t.Helper()
	want, err := b.Snapshot(t.Context(), "edge-7")
	must(t, err)
	equal := cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
	diff := "no snapshot"
	for timeout := time.After(30 * time.Second); ; {
		if b.fromEtcd != nil && b.kube.last != nil {
			diff = cmp.Diff(same(b.fromEtcd), same(b.kube.last), equal...)
			if diff == "" {
				diff = cmp.Diff(b.read(want), b.read(b.fromEtcd), equal...)
			}
			if diff == "" {
				break
			}
		}
		select {
		case b.fromEtcd = <-b.etcd.Snapshots():
		case b.kube.last = <-b.kube.Snapshots():
		case <-timeout:
			t.Fatalf("%s: not the same (-etcd +Kubernetes):\n%s\n%+v", what, diff,
				b.kube.Status())
		}
	}
	plans := [2]bgp.Plan{bgp.PlanFor("edge-7", same(b.fromEtcd), bgp.Options{}),
		bgp.PlanFor("edge-7", same(b.kube.last), bgp.Options{})}
	if diff := cmp.Diff(fmt.Sprintf("%+v", plans[0]), fmt.Sprintf("%+v", plans[1])); diff != "" {
		t.Errorf("%s: plans differ (-etcd +Kubernetes):\n%s", what, diff)
	}
}

// The resources that are examples of others give the same snapshot and the same plan.
func TestExamplesAreTheSame(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/examples/*.yaml")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there is no example")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			b := startBoth(t, calico.Needs{})
			must(t, b.AddNode(t.Context(), "edge-7", pfx("172.30.8.7/24")))
			_, err = b.Apply(t.Context(), text)
			must(t, err)
			b.expectSame(t, file)
		})
	}
}

// Any changes in any order give the same snapshots and plans, also while the API server is in
// trouble.
func TestRandomChangesAreTheSame(t *testing.T) {
	for _, needs := range []calico.Needs{{}, {NoBGP: true}, {Hosts: calico.DefaultHosts}} {
		t.Run(fmt.Sprintf("%+v", needs), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			b := startBoth(t, needs)
			c := changes{both: b, rand: rand.New(rand.NewPCG(seed, 0))}
			must(t, b.AddNode(t.Context(), "edge-7", pfx("172.30.8.7/24")))
			must(t, b.AddPool(t.Context(), "edge-v4", pfx("10.77.0.0/16"), 26))
			b.expectSame(t, "at first")
			for round := range 12 {
				for range 8 {
					c.one(t)
				}
				switch c.rand.IntN(6) {
				case 0:
					b.server.Compact()
				case 1:
					b.server.EndWatches()
				case 2:
					b.server.RefuseEach(3, 503, 0)
				default:
					b.server.Refuse(0)
				}
				b.expectSame(t, fmt.Sprintf("seed %d, round %d", seed, round))
			}
		})
	}
}

type changes struct {
	*both
	rand *rand.Rand
	pods int
}

// one makes a change. Those that cannot be, such as of a pod that is not there, are none.
func (c *changes) one(t *testing.T) {
	ctx := t.Context()
	nodes := []string{"edge-7", "edge-8", "edge-9"}
	node := nodes[c.rand.IntN(3)]
	pod := fmt.Sprintf("shop/pod-%d", c.rand.IntN(c.pods+1))
	apply := func(text string, args ...any) {
		if _, err := c.Apply(ctx, fmt.Appendf(nil, text, args...)); err != nil {
			t.Fatal(err)
		}
	}
	n := c.rand.IntN(4)
	switch c.rand.IntN(13) {
	case 0:
		apply(`{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: %s, labels: `+
			`{rack: r%d}}, spec: {bgp: {ipv4Address: 172.30.8.%d/24, asNumber: %d}}}`, node, n,
			7+n, 65000+n)
	case 1:
		apply(`{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: %s}, spec: `+
			`{bgp: {ipv4Address: 172.30.8.%d/24, ipv6Address: "fd00::%d/64", ipv4IPIPTunnelAddr: `+
			`10.77.%d.1}, ipv4VXLANTunnelAddr: 10.77.%d.1, addresses: [{address: 192.0.2.%d, `+
			`type: InternalIP}]}}`, node, 7+n, n, n, n, n)
	case 2:
		if node != "edge-7" {
			_ = c.Delete(ctx, "Node", node)
		}
	case 3, 4, 5:
		c.pods++
		_, _ = c.Attach(ctx, node, fmt.Sprintf("shop/pod-%d", c.pods), "")
	case 6:
		_, _ = c.Release(ctx, pod)
	case 7:
		_, _ = c.Move(ctx, pod, node)
	case 8:
		_ = c.ClaimBlock(ctx, node, netip.PrefixFrom(
			netip.AddrFrom4([4]byte{10, 77, byte(n), byte(64 * c.rand.IntN(4))}), 26))
	case 9:
		_, _ = c.ReleaseBlocks(ctx, node)
	case 10:
		apply(`{apiVersion: projectcalico.org/v3, kind: BGPPeer, metadata: {name: tor-%d}, spec: `+
			`{peerIP: 192.0.2.%d, asNumber: %d, nodeSelector: "rack == 'r%d'"}}`, n, 1+n,
			64500+n, n)
	case 11:
		_ = c.Delete(ctx, "BGPPeer", fmt.Sprintf("tor-%d", n))
	case 12:
		apply(`{apiVersion: projectcalico.org/v3, kind: BGPConfiguration, metadata: {name: `+
			`default}, spec: {asNumber: %d, nodeToNodeMeshEnabled: %t}}`, 64512+n, n%2 == 0)
	}
}
