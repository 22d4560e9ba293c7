package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vpp-route-agent/internal/audit"
	"vpp-route-agent/internal/calico/calicotest"
)

// rangesOfEtcd is how often the servers of this process have been asked for keys.
func rangesOfEtcd(t *testing.T) (n float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), "mvcc_range_total") { // its older name says debugging
			return f.Metric[0].GetCounter().GetValue()
		}
	}
	t.Fatal("etcd does not count ranges")
	return 0
}

// Each kind is listed once, and nothing is asked about a single node.
func TestAuditOfAClusterAsksNothingForEachNode(t *testing.T) {
	asked := map[int]float64{}
	for _, nodes := range []int{3, 300} {
		e := startEtcd(t)
		c := calicotest.NewCluster(e.Client())
		err := c.AddPool(t.Context(), "pods", netip.MustParsePrefix("10.1.0.0/16"), 26)
		for i := range nodes {
			a := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
			if err == nil {
				err = c.AddNode(t.Context(), fmt.Sprintf("n%d", i), netip.PrefixFrom(a, 16))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("ETCD_ENDPOINTS", e.Endpoint())
		before := rangesOfEtcd(t)
		root := newCommand()
		var out bytes.Buffer
		root.SetArgs([]string{"audit", "--cluster", "--ignore", "nothing-published"})
		root.SetOut(&out)
		root.SetErr(&out)
		if err := root.Execute(); err != nil ||
			!strings.HasPrefix(out.String(), fmt.Sprintf("%d nodes", nodes)) {
			t.Fatalf("%v: %s", err, out.String())
		}
		asked[nodes] = rangesOfEtcd(t) - before
	}
	if asked[3] == 0 || asked[300] != asked[3] {
		t.Errorf("requests by the number of nodes: %v", asked)
	}
}

// What is found once alone changed while it was read.
func TestInBoth(t *testing.T) {
	found := func(k audit.Kind, item, text string) audit.Finding {
		return audit.Finding{Kind: k, Item: item, Text: text}
	}
	first := []audit.Finding{found(audit.OrphanBlock, "10.1.0.0/26", "2 addresses"),
		found(audit.Drift, "a", "1 route"), found(audit.OrphanBlock, "10.1.1.0/26", "")}
	second := []audit.Finding{found(audit.OrphanBlock, "10.1.0.0/26", "3 addresses"),
		found(audit.NotApplied, "a", ""), found(audit.OrphanBlock, "10.1.2.0/26", "")}
	var got []string
	for _, f := range inBoth(first, second) {
		got = append(got, string(f.Kind)+" "+f.Item+" "+f.Text)
	}
	if !slices.Equal(got, []string{"orphan-block 10.1.0.0/26 3 addresses"}) {
		t.Error(got)
	}
}
