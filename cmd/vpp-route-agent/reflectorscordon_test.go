package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vpp-route-agent/internal/kubernetes/kubetest"
)

// TestCordonInKubernetes: only on request, by the name that Kubernetes has, and nobody else's is
// undone.
func TestCordonInKubernetes(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	e := startEtcd(t)
	for i, name := range []string{"edge-5", "edge-6"} {
		err := e.Cluster().AddNode(t.Context(), name,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(5 + i)}), 24))
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := e.Cluster().Apply(t.Context(), []byte(`
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

// TestKubernetesInCommands: status and migrate let Nodes of Kubernetes count, if they are told to,
// and go on without while it is away.
func TestKubernetesInCommands(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	e := startEtcd(t)
	s := kubetest.NewServer(t)
	var resources strings.Builder
	for i := range 5 {
		id := ""
		if i == 0 {
			id = ", routeReflectorClusterID: 224.0.0.1"
		}
		fmt.Fprintf(&resources, `---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: edge-%d}
spec: {bgp: {ipv4Address: 10.0.0.%d/24%s}, orchRefs: [{nodeName: k8s-%d, orchestrator: k8s}]}
`, i, i+1, id, i)
		s.Put(fmt.Sprintf("k8s-%d", i))
	}
	if _, err := e.Cluster().Apply(t.Context(), []byte(resources.String())); err != nil {
		t.Fatal(err)
	}
	longAgo := func(n *corev1.Node) {
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	s.Put("k8s-0", kubetest.NotReady, longAgo)
	s.Put("k8s-1", kubetest.Cordon)
	t.Setenv("ETCD_ENDPOINTS", e.Endpoint())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("bird: true"), 0o600); err != nil {
		t.Fatal(err)
	}
	const dryRun = "migrate --to reflectors --dry-run"
	const cordoned, notReady = "its Kubernetes Node is cordoned",
		"its Kubernetes Node has not been ready for 1h"
	for _, tc := range []struct {
		args, says, not string
		away            bool
	}{
		{"set -f " + rules, "goal: observe", "", false},
		{dryRun, "edge-1", cordoned, false},
		{dryRun + " --kubeconfig FILE", cordoned, "warning", false},
		{dryRun + " --kubeconfig off", "edge-1", cordoned, false},
		{"status", "edge-0", notReady, false},
		{"status --kubeconfig FILE", notReady, "warning", false},
		{"status --kubeconfig FILE", "warning: Nodes of Kubernetes do not count: the Kubernetes " +
			"API at ", notReady, true},
		{"status --kubeconfig /no/such/file", "--kubeconfig: open /no/such/file", "Goal", false},
		{"migrate --to reflectors -o json", "-o json goes with --dry-run", "goal", false},
	} {
		s.Refuse(0)
		if tc.away {
			s.Refuse(http.StatusServiceUnavailable)
		}
		args := strings.ReplaceAll(tc.args, "FILE", s.Kubeconfig())
		out := &strings.Builder{}
		c := newCommand()
		c.SetOut(out)
		c.SetErr(out)
		c.SetArgs(append([]string{"reflectors"}, strings.Fields(args)...))
		if err := c.ExecuteContext(t.Context()); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), tc.says) ||
			tc.not != "" && strings.Contains(out.String(), tc.not) {
			t.Errorf("%s: want %q and not %q: %s", tc.args, tc.says, tc.not, out)
		}
	}
}

// A kubeconfig that cannot be used ends the controller at once, with a sentence.
func TestControllerKubeconfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := kubernetesNodes(nil, "/no/such/file", nil)
	if err == nil || err.Error() != "--kubeconfig: open /no/such/file: no such file or directory" {
		t.Errorf("a file that does not exist: %v", err)
	}
	for _, none := range []string{"", "off"} {
		if nodes, err := kubernetesNodes(nil, none, nil); nodes != nil || err != nil {
			t.Errorf("%q: %v, %v", none, nodes, err)
		}
	}
}
