package etcd

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
)

// ranges is how many ranges of keys etcd has read in this process.
func ranges(t *testing.T) float64 {
	t.Helper()
	all, err := prometheus.DefaultGatherer.Gather()
	must(t, err)
	for _, f := range all {
		if f.GetName() == "etcd_mvcc_range_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("etcd counts no ranges")
	return 0
}

// All nodes are read, by as many requests as there are kinds, however many nodes there are.
func TestReadCluster(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{Dir: t.TempDir()})
	defer e.Close()
	c := e.Cluster()
	must(t, c.AddPool(t.Context(), "pods", pfx("10.0.0.0/8"), 26))
	add := func(i int) {
		name := fmt.Sprintf("edge-%d", i)
		must(t, c.AddNode(t.Context(), name,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 16)))
		must(t, c.ClaimBlock(t.Context(), name,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26)))
		_, err := c.Attach(t.Context(), name, fmt.Sprintf("w%d", i), "")
		must(t, err)
	}
	read := func() (*calico.Cluster, float64) {
		before := ranges(t)
		got, err := ReadCluster(t.Context(), Config{Endpoints: []string{e.Endpoint()}})
		must(t, err)
		return got, ranges(t) - before
	}
	last := 0
	for _, n := range []int{3, 50} {
		for ; last < n; last++ {
			add(last)
		}
		got, requests := read()
		if len(got.Snapshot.Nodes) != n || len(got.Snapshot.Blocks) != n ||
			len(got.Affinities) != n || len(got.Endpoints) != n || len(got.Snapshot.IPPools) != 1 ||
			got.Snapshot.Revision == 0 || len(got.Snapshot.Problems) > 0 {
			t.Errorf("%d nodes: %d, %d blocks, %d affinities, %d endpoints, %v", n,
				len(got.Snapshot.Nodes), len(got.Snapshot.Blocks), len(got.Affinities),
				len(got.Endpoints), got.Snapshot.Problems)
		}
		if want := float64(len(calico.ClusterPrefixes())); requests != want {
			t.Errorf("%d nodes: %v requests, want %v", n, requests, want)
		}
	}
	for _, key := range []string{"/calico/ipam/v2/host/edge-1/ipv4/block/nonsense",
		"/calico/resources/v3/projectcalico.org/workloadendpoints/shop/bad"} {
		must(t, c.PutRaw(t.Context(), key, "["))
	}
	got, _ := read()
	if len(got.Snapshot.Problems) != 2 {
		t.Errorf("bad items: %v", got.Snapshot.Problems)
	}
}
