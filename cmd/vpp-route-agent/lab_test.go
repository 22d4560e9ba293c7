package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// runLab runs one lab command against the etcd that the environment names, with text on standard
// input.
func runLab(stdin string, args ...string) (string, error) {
	root := newCommand()
	root.SetArgs(append([]string{"lab"}, args...))
	var out bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.Execute()
	return out.String(), err
}

// startEtcd runs one until the test ends.
func startEtcd(t *testing.T) *calicotest.Etcd {
	t.Helper()
	t.Attr("part", "etcd 3.6.16, embedded server")
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestLabTellsWhatItDid(t *testing.T) {
	etcd := startEtcd(t)
	t.Setenv("ETCD_ENDPOINTS", etcd.Endpoint())
	const pool = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: " +
		"{cidr: 10.1.0.0/16}\n"
	const node = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: NAME}\nspec: {}\n"
	for _, step := range []struct{ stdin, args, want string }{
		{pool + "---\n" + strings.ReplaceAll(node, "NAME", "n1") + "---\n" +
			strings.ReplaceAll(node, "NAME", "n2"), "apply -f -", "applied IPPool(p)\napplied " +
			"Node(n1)\napplied Node(n2)\n"},
		{"", "attach n1 web 10.1.0.7",
			"attached default/web: 10.1.0.7 on n1 (block 10.1.0.0/26)\n"},
		{"", "attach n2 db 10.1.0.8", "attached default/db: 10.1.0.8 on n2 (block 10.1.0.0/26, " +
			"borrowed)\n"},
		{"", "move db n1", "moved default/db: 10.1.0.8 on n1 (block 10.1.0.0/26)\n"},
		{"", "claim-block n2 10.1.0.70/26", "10.1.0.64/26 is a block of n2\n"},
		{"", "release web", "released default/web: 10.1.0.7 on n1 (block 10.1.0.0/26)\n"},
		{"", "release-block 10.1.0.0/26", "10.1.0.0/26 is no longer a block of n1\n"},
		{"", "delete Node n1", "deleted Node(n1)\n"},
	} {
		if out, err := runLab(step.stdin, strings.Fields(step.args)...); err != nil ||
			out != step.want {
			t.Fatalf("lab %s: %v\n%s\nwant\n%s", step.args, err, out, step.want)
		}
	}
	out, err := runLab("", "borrow", "n2", "cache", "n2")
	if err == nil {
		t.Errorf("a node borrowed from itself: %s", out)
	}
	out, err = runLab("", "attach", "n2", "cache", "-o", "json")
	var w calicotest.Workload
	if err != nil || json.Unmarshal([]byte(out), &w) != nil ||
		w.Address != netip.MustParseAddr("10.1.0.64") || w.Node != "n2" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLabCalledWronglyIsAUsageError(t *testing.T) {
	t.Setenv("ETCD_ENDPOINTS", "http://127.0.0.1:1") // nobody is asked
	for _, args := range []string{
		"apply", "apply -f /nowhere/file", "attach n1", "move web", "borrow n1 web", "release",
		"release-block nonsense", "claim-block n1 nonsense",
		"attach n1 web -o xml", "delete Node",
	} {
		if _, err := runLab("", strings.Fields(args)...); !errors.As(err, &usageError{}) {
			t.Errorf("lab %s: %v", args, err)
		}
	}
}

// With the settings of a calico-node the same goes to the Kubernetes API.
func TestLabWritesToKubernetes(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	s := kubetest.NewServer(t)
	s.Install("crd.projectcalico.org/v1", calicotest.Plurals...)
	t.Setenv("DATASTORE_TYPE", "kubernetes")
	t.Setenv("KUBECONFIG", s.Kubeconfig())
	const resources = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: p}
spec: {cidr: 10.1.0.0/16}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: n1}
spec: {}
`
	for _, step := range []struct{ stdin, args, want string }{
		{resources, "apply -f -", "applied IPPool(p)\napplied Node(n1)\n"},
		{"", "attach n1 web 10.1.0.7",
			"attached default/web: 10.1.0.7 on n1 (block 10.1.0.0/26)\n"},
		{"", "release web", "released default/web: 10.1.0.7 on n1 (block 10.1.0.0/26)\n"},
		{"", "release-block 10.1.0.0/26", "10.1.0.0/26 is no longer a block of n1\n"},
		{"", "delete IPPool p", "deleted IPPool(p)\n"},
	} {
		out, err := runLab(step.stdin, strings.Fields(step.args)...)
		if err != nil || out != step.want {
			t.Errorf("%s\ngot  %s%v\nwant %s", step.args, out, err, step.want)
		}
	}
	if left := len(s.Objects("ippools.crd.projectcalico.org")) + len(s.Objects("pods")); left > 0 {
		t.Errorf("%d objects are left", left)
	}
}
