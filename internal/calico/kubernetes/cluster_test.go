package kubernetes

import (
	"fmt"
	"testing"

	"vpp-route-agent/internal/kubernetes"
)

// All nodes are read, by one list of each kind, however many nodes there are; what cannot be read
// is named.
func TestReadCluster(t *testing.T) {
	s := newServer(t)
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	defer client.Close()
	asked := func() (all int) {
		of := []string{"nodes", "pods"}
		for _, k := range kinds {
			of = append(of, v1(k))
		}
		for _, k := range of {
			all += s.Asked("list", k) + s.Asked("get", k) + s.Asked("watch", k)
		}
		return all
	}
	nodes := 2
	for _, n := range []int{2, 60} {
		for ; nodes < n; nodes++ {
			name := fmt.Sprintf("edge-%d", 100+nodes)
			putNode(s, name, fmt.Sprintf("172.30.9.%d/24", nodes))
			claim(s, name, fmt.Sprintf("10.77.%d.0/26", nodes))
			putPod(s, name, fmt.Sprintf("pod-%d", nodes), fmt.Sprintf("10.77.%d.1", nodes))
		}
		before := asked()
		got, err := ReadCluster(t.Context(), client, Config{Group: GroupV1})
		must(t, err)
		if len(got.Snapshot.Nodes) != n || len(got.Snapshot.Blocks) != n ||
			len(got.Affinities) != n || len(got.Endpoints) != n ||
			len(got.Snapshot.BGPPeers) != 1 || len(got.Snapshot.Problems) > 0 {
			t.Errorf("%d nodes: %d, %d blocks, %d affinities, %d endpoints, %v", n,
				len(got.Snapshot.Nodes), len(got.Snapshot.Blocks), len(got.Affinities),
				len(got.Endpoints), got.Snapshot.Problems)
		}
		const lists = 9
		if requests := asked() - before; requests != lists {
			t.Errorf("%d nodes: %d requests, want %d", n, requests, lists)
		}
	}
	put(s, "blockaffinities", "bad", `{"cidr":"nonsense","node":"edge-7"}`)
	got, err := ReadCluster(t.Context(), client, Config{})
	must(t, err)
	if p := got.Snapshot.Problems; len(p) != 1 || p[0].Key != "blockaffinities/bad" {
		t.Errorf("bad items: %v", p)
	}
}
