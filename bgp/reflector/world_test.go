package reflector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

var start = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// testNode is a Node as a test describes it.
type testNode struct {
	name, zone  string
	age         int // hours before start
	v4, v6      string
	as          int
	clusterID   string
	labels      map[string]string
	annotations map[string]string
	kubernetes  string // its name there
}

// object is the Node as libcalico stores it.
func (n testNode) object() Object {
	labels := map[string]string{"topology.kubernetes.io/zone": n.zone}
	if n.zone == "" {
		labels = map[string]string{}
	}
	for k, v := range n.labels {
		labels[k] = v
	}
	type bgpSpec struct {
		AS        int    `json:"asNumber,omitempty"`
		V4        string `json:"ipv4Address,omitempty"`
		V6        string `json:"ipv6Address,omitempty"`
		ClusterID string `json:"routeReflectorClusterID,omitempty"`
	}
	type meta struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Created     string            `json:"creationTimestamp"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	value, err := json.Marshal(map[string]any{
		"kind": "Node", "apiVersion": "projectcalico.org/v3",
		"metadata": meta{
			Name: n.name, UID: "6f0a8a1e-0000-4000-8000-000000000000",
			Created: stamp(start.Add(-time.Duration(n.age) * time.Hour)),
			Labels:  labels, Annotations: n.annotations,
		},
		"spec": map[string]any{
			"bgp": bgpSpec{n.as, n.v4, n.v6, n.clusterID}, "orchRefs": orchRefs(n.kubernetes),
		},
		// as calico-node writes it; nothing here asks for it
		"status": map[string]any{"wireguardPublicKey": ""},
	})
	if err != nil {
		panic(err)
	}
	return Object{Key: nodeKey(n.name), Value: value, Revision: 10}
}

func orchRefs(kubernetes string) []map[string]string {
	if kubernetes == "" {
		return nil
	}
	return []map[string]string{{"nodeName": kubernetes, "orchestrator": "k8s"}}
}

// numbered is node i of a cluster, with an IPv4 address.
func numbered(i int) testNode {
	return testNode{
		name: fmt.Sprintf("n%04d", i), v4: fmt.Sprintf("10.0.%d.%d/16", i/200, i%200+1),
		age: 1000,
	}
}

// worldOf is a quiet world, in which each node has an agent whose data plane is VPP, or else as
// named: "none", or "bird" for no agent.
func worldOf(objects []Object, dataplanes map[string]string) *World {
	w := Read(objects)
	w.Now, w.Connected, w.Version = start, start.Add(-time.Hour), "v1"
	for _, n := range w.names {
		if dataplanes[n] != "bird" {
			w.Agents[n] = Agent{Status: Status{
				Format: StatusFormat, Version: "v1", Dataplane: cmp.Or(dataplanes[n], "vpp"),
			}}
		}
	}
	return w
}

func configuration(spec string) Object {
	return Object{
		Key: confKey, Revision: 9,
		Value: []byte(`{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3",` +
			`"metadata":{"name":"default","uid":"0b","creationTimestamp":"2026-01-05T08:00:00Z"},` +
			`"spec":` + spec + `}`),
	}
}

func bgpPeer(name, spec string) Object {
	return Object{
		Key: calico.Key{Kind: calico.KindBGPPeer, Name: name}, Revision: 8,
		Value: []byte(`{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"` +
			name + `","uid":"1c","creationTimestamp":"2026-01-05T08:01:00Z"},"spec":` + spec + `}`),
	}
}

// A node that peers with workloads of its own has the digest that a controller computes, which does
// not read workloads.
func TestADigestIsWithoutWorkloads(t *testing.T) {
	objects := []Object{
		testNode{name: "edge-7", v4: "10.0.0.7/24"}.object(),
		testNode{name: "edge-8", v4: "10.0.0.8/24"}.object(),
		bgpPeer("pods", `{"nodeSelector":"all()","localWorkloadSelector":"all()",`+
			`"asNumber":65001}`),
	}
	store := calico.NewStore("edge-7")
	for _, o := range objects {
		store.Put(o.Key.String(), o.Value)
	}
	store.Put("/calico/resources/v3/projectcalico.org/workloadendpoints/default/"+
		"edge--7-k8s-router-eth0", []byte(`{"kind":"WorkloadEndpoint","metadata":{"name":`+
		`"edge--7-k8s-router-eth0","namespace":"default","labels":{"app":"router"}},`+
		`"spec":{"node":"edge-7","ipNetworks":["10.1.0.5/32"]}}`))
	s := store.Snapshot(1)
	if peers, problems := bgp.Peers("edge-7", s); len(peers) != 2 || len(problems) > 0 {
		t.Fatalf("%d peers, problems %v: want one with a node and one with a workload",
			len(peers), problems)
	}
	if got, want := Digest("edge-7", s), Read(objects).digest("edge-7"); got != want {
		t.Errorf("the agent says %s, the controller computes %s", got, want)
	}
}

// What is computed for one node does not grow with the cluster, once the mesh is off. Allocated
// bytes measure it.
func TestWorkForOneNode(t *testing.T) {
	const small, large = 50, 400
	for _, tc := range []struct {
		name string
		do   func(*World) // for all nodes
	}{
		{"digests", func(w *World) {
			for _, n := range w.names {
				w.digest(n)
			}
		}},
		{"what is in the way", func(w *World) {
			d := &decider{World: w, rules: mustParse(t, Config{})}
			d.obstaclesTo(mustChoose(t, w, Config{Max: 3}))
		}},
		{"answers of BIRD", func(w *World) {
			s := Question{Cover: "n0000"}.suppose(w.snapshot)
			for _, n := range w.names {
				s.left(n)
			}
		}},
		{"adoption", func(w *World) {
			for k, m := range w.metadata {
				if m.Annotations = nil; k.Kind == calico.KindNode { // a person's
					w.metadata[k] = m
				}
			}
			mustAdopt(t, w, Goal{})
		}},
	} {
		perNode := func(nodes int) uint64 {
			w := reflected(t, nodes, 3, nil)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tc.do(w)
			runtime.ReadMemStats(&after)
			return (after.TotalAlloc - before.TotalAlloc) / uint64(nodes)
		}
		if few, many := perNode(small), perNode(large); many > 2*few {
			t.Errorf("%s: %d bytes for each of %d nodes, %d for each of %d", tc.name, few, small,
				many, large)
		}
	}
}
