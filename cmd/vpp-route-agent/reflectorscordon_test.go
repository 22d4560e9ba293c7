package main

import (
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// TestCordonInKubernetes: only on request, by the name that Kubernetes has, and nobody else's is
// undone.
func TestCordonInKubernetes(t *testing.T) {
	t.Attr("part", "etcd 3.6.16, embedded server")
	t.Attr("part", "Kubernetes API, a stand-in")
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	for i, name := range []string{"edge-5", "edge-6"} {
		err := e.Cluster().AddNode(t.Context(), name,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(5 + i)}), 24))
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = e.Cluster().Apply(t.Context(), []byte(`
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: edge-5}
spec: {bgp: {ipv4Address: 10.0.0.5/24}, orchRefs: [{nodeName: edge-5.k8s, orchestrator: k8s}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := kubetest.NewServer(t)
	s.Put("edge-5.k8s")
	s.Put("edge-6", kubetest.Cordon)
	t.Setenv("ETCD_ENDPOINTS", e.Endpoint())
	t.Setenv("KUBECONFIG", s.Kubeconfig())
	for _, tc := range []struct {
		args, says string
		cordoned   bool // edge-5.k8s
	}{
		{"cordon edge-5", "edge-5 is cordoned: by hand\n", false},
		{"uncordon edge-5 --kubernetes", "Node edge-5.k8s in Kubernetes stays as it is: it is " +
			"not cordoned", false},
		{"cordon edge-5 --kubernetes --reason disk", "edge-5 is cordoned: disk\n" +
			"Node edge-5.k8s in Kubernetes is cordoned\n", true},
		{"uncordon edge-5", "edge-5 is not cordoned\n", true},
		{"uncordon edge-5 --kubernetes", "edge-5 is not cordoned\n" +
			"Node edge-5.k8s in Kubernetes is not cordoned\n", false},
		{"cordon edge-6 --kubernetes", "Node edge-6 in Kubernetes is cordoned\n", false},
		{"uncordon edge-6 --kubernetes", "stays as it is: somebody else has cordoned it", false},
		{"cordon edge-5 --kubeconfig x", "--kubeconfig goes with --kubernetes", false},
		{"cordon edge-5 --kubernetes --kubeconfig /no/such/file", "/no/such/file", false},
	} {
		out := &strings.Builder{}
		c := newCommand()
		c.SetOut(out)
		c.SetErr(out)
		c.SetArgs(append([]string{"reflectors"}, strings.Fields(tc.args)...))
		if err := c.ExecuteContext(t.Context()); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: %s", tc.args, out)
		}
		if got := s.Node("edge-5.k8s").Spec.Unschedulable; got != tc.cordoned {
			t.Errorf("%s: cordoned %t", tc.args, got)
		}
		if !s.Node("edge-6").Spec.Unschedulable {
			t.Errorf("%s: somebody else's cordon is undone", tc.args)
		}
	}
}

// A kubeconfig that cannot be used ends the controller at once, with a sentence.
func TestControllerKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := kubernetesNodes("/no/such/file", nil)
	if err == nil || err.Error() != "--kubeconfig: open /no/such/file: no such file or directory" {
		t.Errorf("a file that does not exist: %v", err)
	}
	for _, none := range []string{"", "off"} {
		if nodes, err := kubernetesNodes(none, nil); nodes != nil || err != nil {
			t.Errorf("%q: %v, %v", none, nodes, err)
		}
	}
}
