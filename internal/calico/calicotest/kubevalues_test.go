package calicotest

import (
	"fmt"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

const testGroup = "crd.projectcalico.org/v1"

// newKubeCluster is newCluster in the Kubernetes datastore.
func newKubeCluster(t *testing.T) (*Cluster, *kubetest.Server) {
	t.Helper()
	t.Attr("part", "Kubernetes API, a stand-in")
	s := kubetest.NewServer(t)
	s.Install(testGroup, Plurals...)
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	c := NewKubernetesCluster(client, testGroup)
	t.Cleanup(func() { must(t, c.Close()) })
	must(t, c.AddNode(t.Context(), "edge-7", pfx("172.30.8.7/24"), pfx("fd77::7/64")))
	must(t, c.AddNode(t.Context(), "edge-9", pfx("172.30.8.9/24")))
	must(t, c.AddPool(t.Context(), "small", pfx("10.77.4.0/27"), 30))
	return c, s
}

// The same verbs leave the same in both datastores, and say the same.
func TestBothDatastoresAreWrittenAlike(t *testing.T) {
	here, s := newKubeCluster(t)
	there := newCluster(t)
	const more = `
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: tor}
spec: {peerIP: 192.0.2.1, asNumber: %d%s}
`
	text := func(w Workload, err error) string {
		return fmt.Sprintf("%s %s %s %s %t %s %v", w.Name, w.Node, w.Address, w.Block, w.Borrowed,
			w.Interface, err)
	}
	applied := func(c *Cluster, asn int, rest string) string {
		names, err := c.Apply(t.Context(), fmt.Appendf(nil, more, asn, rest))
		return fmt.Sprint(names, err)
	}
	for _, step := range []struct {
		name string
		do   func(c *Cluster) string
	}{
		{"attach", func(c *Cluster) string {
			return text(c.Attach(t.Context(), "edge-7", "shop/web-0", ""))
		}},
		{"attach it again", func(c *Cluster) string {
			return text(c.Attach(t.Context(), "edge-7", "shop/web-0", ""))
		}},
		{"attach another", func(c *Cluster) string {
			return text(c.Attach(t.Context(), "edge-7", "db", "10.77.4.3"))
		}},
		{"borrow", func(c *Cluster) string {
			return text(c.Borrow(t.Context(), "edge-9", "late", "edge-7"))
		}},
		{"a full block", func(c *Cluster) string {
			return text(c.Attach(t.Context(), "edge-7", "fourth", "")) +
				text(c.Attach(t.Context(), "edge-7", "fifth", ""))
		}},
		{"apply", func(c *Cluster) string { return applied(c, 65000, `, nodeSelector: "all()"`) }},
		{"apply with less", func(c *Cluster) string { return applied(c, 65001, "") }},
		{"a Node again", func(c *Cluster) string {
			return fmt.Sprint(c.AddNode(t.Context(), "edge-7", pfx("172.30.8.17/24")))
		}},
		{"claim a block of another", func(c *Cluster) string {
			return fmt.Sprint(c.ClaimBlock(t.Context(), "edge-9", pfx("10.77.4.0/30")) != nil)
		}},
		{"release", func(c *Cluster) string { return text(c.Release(t.Context(), "late")) }},
		{"release what is not there", func(c *Cluster) string {
			return text(c.Release(t.Context(), "late"))
		}},
		{"release a block in use", func(c *Cluster) string {
			owner, err := c.ReleaseBlock(t.Context(), pfx("10.77.4.0/30"))
			return fmt.Sprint(owner, err)
		}},
		{"delete", func(c *Cluster) string {
			return fmt.Sprint(c.Delete(t.Context(), "BGPPeer", "tor"),
				c.Delete(t.Context(), "BGPPeer", "tor"))
		}},
		{"delete a Node", func(c *Cluster) string {
			return fmt.Sprint(c.Delete(t.Context(), "Node", "edge-9"))
		}},
	} {
		if got, want := step.do(here), step.do(there); got != want {
			t.Errorf("%s\nin Kubernetes %s\nin etcd       %s", step.name, got, want)
		}
		got, want := snapshot(t, here, "edge-7"), snapshot(t, there, "edge-7")
		for _, s := range []*calico.Snapshot{got, want} { // only its own pods are read
			s.Revision, s.WorkloadEndpoints = 0, nil
		}
		for what, of := range map[string]func(*calico.Snapshot) string{
			"blocks":     func(s *calico.Snapshot) string { return fmt.Sprint(s.Blocks) },
			"affinities": func(s *calico.Snapshot) string { return fmt.Sprint(s.Affinities) },
			"peers":      func(s *calico.Snapshot) string { return fmt.Sprint(s.BGPPeers) },
			"pools":      func(s *calico.Snapshot) string { return fmt.Sprint(s.IPPools) },
			"nodes": func(s *calico.Snapshot) (all string) {
				for _, name := range []string{"edge-7", "edge-9"} {
					all += fmt.Sprint(s.Nodes[name].IPv4, s.Nodes[name].IPv6)
				}
				return all
			},
		} {
			if g, w := of(got), of(want); g != w {
				t.Errorf("%s: %s\nin Kubernetes %s\nin etcd       %s", step.name, what, g, w)
			}
		}
	}
	if _, err := here.Move(t.Context(), "db", "edge-9"); err == nil ||
		!strings.Contains(err.Error(), "a Pod does not move") {
		t.Errorf("a Pod moves: %v", err)
	}
	if n := len(s.Objects("pods")); n != 4 {
		t.Errorf("%d pods", n)
	}
}
