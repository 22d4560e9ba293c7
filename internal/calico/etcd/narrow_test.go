package etcd

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
)

// cidrOf returns the i-th of some blocks.
func cidrOf(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), 0}), 26)
}

func blockKey(cidr netip.Prefix) string {
	return calico.Key{Kind: calico.KindBlock, CIDR: cidr}.String()
}

func affinityKey(node string, cidr netip.Prefix) string {
	return calico.Key{Kind: calico.KindBlockAffinity, Owner: calico.Owner{Host: node},
		CIDR: cidr}.String()
}

func handleKey(name string) string {
	return calico.Key{Kind: calico.KindHandle, Name: name}.String()
}

// blockOf is a block's value, with its first address given to a device of node.
func blockOf(cidr netip.Prefix, owner, node, device string) string {
	return fmt.Sprintf(`{"cidr":%q,"affinity":"host:%s","allocations":[0],"attributes":[`+
		`{"handle_id":"h","secondary":{"node":%q,"type":%q}}]}`, cidr, owner, node, device)
}

func ownedBy(cidr netip.Prefix, owner string) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { return s.Blocks[cidr].Owner.Host == owner }
}

func lacksBlock(cidr netip.Prefix) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { _, ok := s.Blocks[cidr]; return !ok }
}

func TestBlocksFollowTheirAffinities(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	c := e.Cluster()
	put := func(key, value string) { t.Helper(); must(t, c.PutRaw(t.Context(), key, value)) }
	one, two := cidrOf(1), cidrOf(2)
	put(blockKey(one), blockOf(one, "edge-7", "edge-7", ""))
	put(blockKey(two), blockOf(two, "edge-10", "edge-10", ""))
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	if first := <-r.Snapshots(); len(first.Blocks) != 0 {
		t.Fatalf("read without need: %v", first.Blocks)
	}

	put(affinityKey("edge-7", one), `{"state":"confirmed"}`)
	r.until(t, "a block that was there before its affinity", ownedBy(one, "edge-7"))
	if len(r.last.Blocks) != 1 || r.last.Affinities[one] == "" {
		t.Errorf("got %v, %v", r.last.Blocks, r.last.Affinities)
	}
	put(blockKey(one), blockOf(one, "edge-9", "edge-9", ""))
	r.until(t, "a change of that block", ownedBy(one, "edge-9"))

	three := cidrOf(3)
	put(affinityKey("edge-7", three), `{"state":"pending"}`)
	r.until(t, "an affinity without block", func(s *calico.Snapshot) bool {
		return s.Affinities[three] == calico.AffinityPending
	})
	put(blockKey(three), blockOf(three, "edge-7", "edge-7", ""))
	r.until(t, "a block that came after its affinity", ownedBy(three, "edge-7"))
	must(t, c.DeleteRaw(t.Context(), blockKey(three)))
	r.until(t, "no block, while the affinity stays", lacksBlock(three))

	must(t, c.DeleteRaw(t.Context(), affinityKey("edge-7", one)))
	r.until(t, "no affinity and no block", lacksBlock(one))
	put(affinityKey("edge-7", one), `{}`)
	r.until(t, "both again", ownedBy(one, "edge-9"))
	if st := r.Status(); st.Lists != 1 || st.Failures != 0 {
		t.Errorf("status %+v", st)
	}
	r.expectSame(t, e)
}

// An affinity counts only together with its block, which may name another owner.
func TestAnAffinityIsNotPublishedBeforeItsBlock(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	c := e.Cluster()
	const n = 40
	for i := range n {
		cidr := cidrOf(i)
		must(t, c.PutRaw(t.Context(), blockKey(cidr), blockOf(cidr, "edge-10", "edge-10", "")))
	}
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	<-r.Snapshots()
	go func() {
		for i := range n {
			c.PutRaw(t.Context(), affinityKey("edge-7", cidrOf(i)), "")
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r.until(t, "all affinities", func(s *calico.Snapshot) bool {
		for cidr := range s.Affinities {
			if s.Blocks[cidr].Owner.Host != "edge-10" {
				t.Fatalf("affinity %s was published without its block", cidr)
			}
		}
		return len(s.Affinities) == n
	})
}

// Tunnel addresses may be from anybody's block: by IPAM's handle, or by what the Node says.
func TestBlocksOfTunnelAddresses(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	c := e.Cluster()
	put := func(key, value string) { t.Helper(); must(t, c.PutRaw(t.Context(), key, value)) }
	seed(t, c)
	one, two, three := cidrOf(101), cidrOf(102), cidrOf(103)
	put(blockKey(one), blockOf(one, "edge-10", "edge-7", "ipipTunnelAddress"))
	put(blockKey(two), blockOf(two, "edge-10", "edge-7", "vxlanTunnelAddress"))
	put(blockKey(three), blockOf(three, "edge-10", "edge-10", ""))
	put(handleKey("ipip-tunnel-addr-edge-7"), `{"block":{"`+one.String()+`":1}}`)
	put(handleKey("ipip-tunnel-addr-edge-77"), `{"block":{"`+three.String()+`":1}}`)
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	r.until(t, "the block of the handle", ownedBy(one, "edge-10"))
	if !lacksBlock(two)(r.last) || !lacksBlock(three)(r.last) {
		t.Errorf("blocks %v", slices.Collect(maps.Keys(r.last.Blocks)))
	}
	put(handleKey("vxlan-tunnel-addr-edge-7"), `{"block":{"`+two.String()+`":1}}`)
	r.until(t, "the block of a new handle", ownedBy(two, "edge-10"))
	put(calico.Key{Kind: calico.KindNode, Name: "edge-7"}.String(), fmt.Sprintf(
		`{"spec":{"bgp":{"ipv4Address":"172.30.8.7/24","ipv4IPIPTunnelAddr":%q}}}`,
		three.Addr().Next()))
	r.until(t, "the block of the Node's tunnel address", ownedBy(three, "edge-10"))
	must(t, c.DeleteRaw(t.Context(), handleKey("ipip-tunnel-addr-edge-7")))
	r.until(t, "no block of a handle that is gone", lacksBlock(one))

	put(handleKey("vxlan-tunnel-addr-edge-7"), `{`)
	r.until(t, "a bad handle is named, and what it named before stays",
		func(s *calico.Snapshot) bool {
			return len(s.Problems) == 1 && ownedBy(two, "edge-10")(s)
		})
	must(t, c.Delete(t.Context(), "IPPool", "edge-v4"))
	r.until(t, "without a pool the Node's address names no block", lacksBlock(three))
}

func TestOwnBlocksSurviveAnEtcdRestart(t *testing.T) {
	dir := t.TempDir()
	e := startEtcd(t, calicotest.EtcdOptions{Dir: dir})
	seed(t, e.Cluster())
	listen := strings.TrimPrefix(e.Endpoint(), "http://")
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	must(t, e.Cluster().ClaimBlock(t.Context(), "edge-7", cidrOf(101)))
	r.until(t, "a claimed block", ownedBy(cidrOf(101), "edge-7"))
	e.Close()
	r.untilStatus(t, "etcd gone", func(s etcd.Status) bool { return !s.Connected })
	if len(r.last.Blocks) != 2 {
		t.Errorf("blocks %v", r.last.Blocks)
	}
	e = startEtcd(t, calicotest.EtcdOptions{Dir: dir, Listen: listen})
	defer e.Close()
	c := e.Cluster()
	must(t, c.ClaimBlock(t.Context(), "edge-7", cidrOf(102)))
	_, err := c.ReleaseBlock(t.Context(), cidrOf(101))
	must(t, err)
	r.until(t, "what changed since", func(s *calico.Snapshot) bool {
		return ownedBy(cidrOf(102), "edge-7")(s) && lacksBlock(cidrOf(101))(s)
	})
	r.expectSame(t, e)
}

// TestOwnWorkloadsAreFoundAmongMany lists more than a page before, of and after the own ones of a
// namespace, and other namespaces around it.
func TestOwnWorkloadsAreFoundAmongMany(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	const plural = "/calico/resources/v3/projectcalico.org/workloadendpoints/"
	var ops []clientv3.Op
	put := func(key, node string) {
		ops = append(ops, clientv3.OpPut(plural+key,
			fmt.Sprintf(`{"metadata":{},"spec":{"node":%q,"ipNetworks":["10.77.0.1/32"]}}`, node)))
	}
	own := 0
	mine := func(namespace string, n int) {
		for i := range n {
			put(fmt.Sprintf("%s/edge--7-k8s-p%d-eth0", namespace, i), "edge-7")
		}
		own += n
	}
	for i := range pageSize + 7 {
		put(fmt.Sprintf("big/edge--1-k8s-p%d-eth0", i), "edge-1")
		put(fmt.Sprintf("big/edge--77-k8s-p%d-eth0", i), "edge-77")
		put(fmt.Sprintf("huge/a-k8s-p%d-eth0", i), "a")
	}
	mine("big", 2*pageSize+1)
	mine("aaa", 1)
	mine("bigger", 3)
	mine("huge", 1)
	mine("zzz", 2)
	for i := range 40 {
		put(fmt.Sprintf("ns%d/edge--8-k8s-p-eth0", i), "edge-8")
	}
	put("no-namespace", "edge-7")
	put("edge--7-k8s-no-namespace", "edge-7")
	put("zzz/edge--7/x", "edge-7")
	put("zzz/edge--7-k8s-moved-eth0", "edge-9")
	for len(ops) > 0 {
		n := min(100, len(ops))
		_, err := e.Client().Txn(t.Context()).Then(ops[:n]...).Commit()
		must(t, err)
		ops = ops[n:]
	}
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	first := <-r.Snapshots()
	if len(first.WorkloadEndpoints) != own || len(first.Problems) != 0 {
		t.Errorf("%d workloads, want %d; problems %v", len(first.WorkloadEndpoints), own,
			first.Problems)
	}
	// The watch tells of the same ones.
	c := e.Cluster()
	must(t, c.PutRaw(t.Context(), plural+"shop/mine", `{"spec":{"node":"edge-7"}}`))
	must(t, c.PutRaw(t.Context(), plural+"no-namespace-either", `{"spec":{"node":"edge-7"}}`))
	must(t, c.PutRaw(t.Context(), plural+"shop/edge--7-k8s-p-eth0", `{"spec":{"node":"edge-7"}}`))
	last := r.until(t, "a workload that came later", func(s *calico.Snapshot) bool {
		return s.WorkloadEndpoints["shop/edge--7-k8s-p-eth0"].Node == "edge-7"
	})
	if len(last.WorkloadEndpoints) != own+1 || len(last.Problems) != 0 {
		t.Errorf("%d workloads, want %d; problems %v", len(last.WorkloadEndpoints), own+1,
			last.Problems)
	}
	must(t, c.DeleteRaw(t.Context(), plural+"shop/edge--7-k8s-p-eth0"))
	r.until(t, "it is gone", func(s *calico.Snapshot) bool {
		return len(s.WorkloadEndpoints) == own
	})
}

// A pool gets vxlanMode while the agent runs: then routes come from blocks, own ones stay, and what
// is deleted goes.
func TestAllBlocksAreReadForVXLAN(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	c := e.Cluster()
	seed(t, c)
	r := runFor(t, Config{Endpoints: []string{e.Endpoint()}}, calico.Needs{VXLAN: true})
	r.until(t, "the own block", func(s *calico.Snapshot) bool { return len(s.Blocks) == 1 })
	must(t, c.PutRaw(t.Context(), calico.Key{Kind: calico.KindIPPool, Name: "edge-v4"}.String(),
		`{"spec":{"cidr":"10.77.0.0/16","vxlanMode":"Always"}}`))
	r.until(t, "both blocks", func(s *calico.Snapshot) bool { return len(s.Blocks) == 2 })
	var other netip.Prefix
	for cidr := range r.last.Blocks {
		if r.last.Blocks[cidr].Owner.Host == "edge-10" {
			other = cidr
		}
	}
	must(t, c.DeleteRaw(t.Context(), blockKey(other)))
	r.until(t, "the own block again", func(s *calico.Snapshot) bool {
		return len(s.Blocks) == 1 && lacksBlock(other)(s)
	})
}

// Without BGP, or beside it, routes come from all blocks.
func TestAllBlocksAreReadForRoutesFromThem(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	seed(t, e.Cluster())
	for _, needs := range []calico.Needs{{NoBGP: true, Hosts: calico.DefaultHosts},
		{Hosts: calico.DefaultHosts}} {
		r := runFor(t, Config{Endpoints: []string{e.Endpoint()}}, needs)
		r.until(t, "both blocks", func(s *calico.Snapshot) bool { return len(s.Blocks) == 2 })
	}
}
