package manifest

import (
	"crypto/sha1"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// forms is one item of a cluster as calicoctl and as kubectl print it.
type forms struct{ calicoctl, kubectl string }

const (
	coreHead = "apiVersion: v1\nkind: "
	crdHead  = "apiVersion: crd.projectcalico.org/v1\nkind: "
)

// same is a resource that looks alike in both.
func same(text string) forms { return forms{head + text, crdHead + text} }

// drawCluster draws a cluster of some nodes, pools, peers, blocks and pods.
func drawCluster(t *rapid.T) []forms {
	all := []forms{
		same("IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.1.0.0/16, blockSize: 26}\n"),
		same("BGPFilter\nmetadata: {name: f}\nspec: {exportV4: [{action: Reject}]}\n"),
		same("BGPConfiguration\nmetadata: {name: default}\nspec: {asNumber: " +
			fmt.Sprint(rapid.IntRange(1, 65000).Draw(t, "AS of the cluster")) + "}\n"),
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		as, rack := 64512+i, rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")
		all = append(all, forms{
			fmt.Sprintf("%sNode\nmetadata: {name: n%d, labels: {rack: %s}}\nspec: {bgp: {"+
				"ipv4Address: 192.0.2.%d/24, asNumber: %d, ipv4IPIPTunnelAddr: 10.1.%d.1}, "+
				"addresses: [{address: 192.0.2.%d/24, type: CalicoNodeIP}]}\n", head, i, rack, i+1,
				as, i, i+1),
			fmt.Sprintf("%sNode\nmetadata: {name: n%d, labels: {rack: %s}, annotations: {"+
				"projectcalico.org/IPv4Address: 192.0.2.%d/24, projectcalico.org/ASNumber: '%d', "+
				"projectcalico.org/IPv4IPIPTunnelAddr: 10.1.%d.1}}\n", coreHead, i, rack, i+1, as,
				i),
		}, same(fmt.Sprintf("BGPPeer\nmetadata: {name: p%d}\nspec: {peerIP: 198.51.100.%d, "+
			"asNumber: 65001, nodeSelector: rack == 'r1'}\n", i, i+1)))
		state := rapid.SampledFrom([]string{"confirmed", "pending"}).Draw(t, "state")
		deleted := rapid.SampledFrom([]string{"'true'", "'false'"}).Draw(t, "deleted")
		all = append(all, same(fmt.Sprintf("BlockAffinity\nmetadata: {name: a%d}\nspec: {node: "+
			"n%d, cidr: 10.1.%d.0/26, state: %s, deleted: %s}\n", i, i, i, state, deleted)))
		for j := range rapid.IntRange(0, 3).Draw(t, "pods") {
			pod := fmt.Sprintf("web%d%d", i, j)
			veth := fmt.Sprintf("cali%x", sha1.Sum([]byte("shop."+pod)))[:15]
			all = append(all, forms{
				fmt.Sprintf("%sWorkloadEndpoint\nmetadata: {name: n%d-k8s-%s-eth0, namespace: "+
					"shop, labels: {projectcalico.org/namespace: shop, projectcalico.org/"+
					"orchestrator: k8s, app: web}}\nspec: {node: n%d, orchestrator: k8s, pod: %s, "+
					"endpoint: eth0, ipNetworks: [10.1.%d.%d/32], interfaceName: %s}\n", head, i,
					pod, i, pod, i, 8+j, veth),
				fmt.Sprintf("%sPod\nmetadata: {name: %s, namespace: shop, labels: {app: web}}\n"+
					"spec: {nodeName: n%d}\nstatus: {podIP: 10.1.%d.%d}\n", coreHead, pod, i, i,
					8+j),
			})
		}
	}
	return rapid.Permutation(all).Draw(t, "order")
}

// A cluster is the same in both datastores, in whatever order its items come.
func TestBothFormsGiveOneSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster := drawCluster(t)
		var calicoctl, kubectl []string
		for _, item := range cluster {
			calicoctl = append(calicoctl, item.calicoctl)
			kubectl = append(kubectl, item.kubectl)
		}
		snapshot := func(docs []string) any {
			all, remarks, err := ReadKnown([]byte(strings.Join(docs, "---\n")))
			if err != nil || remarks != nil {
				t.Fatal(err, remarks)
			}
			s, err := all.Snapshot("n0", false)
			if err != nil || len(s.Nodes) == 0 || len(s.Problems) > 0 {
				t.Fatal(err, s)
			}
			return *s
		}
		want := snapshot(calicoctl)
		if got := snapshot(rapid.Permutation(kubectl).Draw(t, "again")); !reflect.DeepEqual(got,
			want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}
