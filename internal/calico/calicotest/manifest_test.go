package calicotest

import (
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
)

const sample = `# what calicoctl would take
apiVersion: projectcalico.org/v3
kind: Node
metadata:
  name: edge-8
  labels: {rack: r2}
spec:
  bgp: {ipv4Address: 172.30.8.8/24, asNumber: "1.10"}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: edge-v6}
spec: {cidr: "fd12:0008::/64", natOutgoing: true, allowedUses: [Workload]}
---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false, asNumber: 64512,
  nodeMeshMaxRestartTime: 1m30s, communities: [{name: a, value: "64512:77"}]}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: tor-r2}
spec: {nodeSelector: rack == 'r2', peerIP: "192.0.2.1:1790", asNumber: 64900,
  password: {secretKeyRef: {name: s, key: k}}}
---
# a comment alone is no document
---
apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: no-default}
spec: {importV4: [{cidr: 0.0.0.0/0, matchOperator: Equal, action: Reject},
  {action: Accept, operations: [{setPriority: {value: 3}}]}]}
---
apiVersion: projectcalico.org/v3
kind: ClusterInformation
metadata: {name: default}
spec: {datastoreReady: false}
---
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata: {name: edge--8-k8s-cart--1-eth0, namespace: shop}
spec: {node: edge-8, pod: cart-1, ipNetworks: [10.77.4.7], interfaceName: cali1}
---
apiVersion: projectcalico.org/v3
kind: BlockAffinity
metadata: {name: edge-8-10-77-4-64-26}
spec: {node: edge-8, cidr: 10.77.4.64/26, state: confirmed, deleted: "false"}
`

func TestApplyEveryKind(t *testing.T) {
	c := newCluster(t)
	applied := do[[]string](t)(c.Apply(t.Context(), []byte(sample)))
	want := []string{"Node(edge-8)", "IPPool(edge-v6)", "BGPConfiguration(default)",
		"BGPPeer(tor-r2)", "BGPFilter(no-default)",
		"ClusterInformation(default)", "WorkloadEndpoint(shop/edge--8-k8s-cart--1-eth0)",
		"BlockAffinity(edge-8-10-77-4-64-26)"}
	if !slices.Equal(applied, want) {
		t.Errorf("applied %v", applied)
	}
	s := snapshot(t, c, "edge-8")
	if n := s.Nodes["edge-8"]; n.IPv4 != pfx("172.30.8.8/24") || n.ASNumber != 65546 ||
		n.Labels["rack"] != "r2" {
		t.Errorf("node %+v", n)
	}
	if p := s.IPPools["edge-v6"]; p.CIDR != pfx("fd12:8::/64") || p.BlockSize != 122 {
		t.Errorf("pool %+v", p)
	}
	if s.Affinities[pfx("10.77.4.64/26")] != calico.AffinityConfirmed || !s.DatastoreNotReady ||
		len(s.WorkloadEndpoints) != 1 ||
		s.BGPPeers["tor-r2"].Password.Key != "k" || len(s.BGPFilters["no-default"].ImportV4) != 2 ||
		*s.BGPConfigurations["default"].NodeToNodeMeshEnabled {
		t.Errorf("snapshot %+v", s)
	}
	must(t, c.Delete(t.Context(), "BGPPeer", "tor-r2"))
	if err := c.Delete(t.Context(), "BGPPeer", "tor-r2"); err == nil {
		t.Error("deleted twice")
	}
}

func TestApplyAgainKeepsIdentity(t *testing.T) {
	c := newCluster(t)
	key := calico.Key{Kind: calico.KindNode, Name: "edge-7"}
	var before, after manifest.Resource
	do[int64](t)(c.read(t.Context(), key, &before))
	must(t, c.AddNode(t.Context(), "edge-7", pfx("172.30.8.77/24")))
	do[int64](t)(c.read(t.Context(), key, &after))
	if before.Metadata.UID == "" || before.Metadata.UID != after.Metadata.UID ||
		before.Metadata.CreationTimestamp != after.Metadata.CreationTimestamp {
		t.Errorf("metadata %+v became %+v", before.Metadata, after.Metadata)
	}
}

func TestApplyNamesWhatIsWrongAndWritesNothing(t *testing.T) {
	c := newCluster(t)
	good := "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: good}\nspec: {}\n---\n"
	for _, tc := range []struct{ name, yaml, want string }{
		{"unknown kind", "apiVersion: projectcalico.org/v3\nkind: " +
			"NetworkPolicy\nmetadata: {name: x}", `document 2: kind "NetworkPolicy"`},
		{"unknown field", "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: " +
			"x}\nspec: {peerIp: 1.2.3.4}", `BGPPeer(x): spec: unknown field "peerIp"`},
		{"unknown field deeper", "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: " +
			"x}\nspec: {bgp: {as: 1}}", `Node(x): spec: unknown field "bgp.as"`},
		{"unknown metadata", "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: " +
			"x, label: {}}", `unknown field "metadata.label"`},
		{"field twice", "apiVersion: projectcalico.org/v3\nkind: Node\nkind: " +
			"Node\nmetadata: {name: x}", `"kind" already set`},
		{"bad value", "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: " +
			"x}\nspec: {cidr: 10.0.0.0/33}", `IPPool(x): spec.cidr: "10.0.0.0/33"`},
		{"bad AS number", "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: " +
			"x}\nspec: {asNumber: 1.2.3}", `"1.2.3" is not an AS number`},
		{"no name", "apiVersion: projectcalico.org/v3\nkind: Node\nspec: {}", "metadata.name"},
		{"namespace where none belongs",
			"apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: x, namespace: y}",
			"metadata.namespace"},
		{"other API", "apiVersion: v1\nkind: Node\nmetadata: {name: x}", `apiVersion is "v1"`},
		{"no YAML", "{", "document 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := c.Apply(t.Context(), []byte(good+tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
			if _, ok := snapshot(t, c, "").Nodes["good"]; ok {
				t.Error("the document before it was written")
			}
		})
	}
	if _, err := c.Apply(t.Context(), []byte("# nothing\n---\n")); err == nil {
		t.Error("nothing was applied without an error")
	}
}
