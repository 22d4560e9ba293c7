package etcd

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testlog"
)

// Blocks of other nodes are no part of a snapshot with BGP. Who asks about one is told all the
// same.
func TestOwners(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	put := func(key, value string) {
		t.Helper()
		must(t, e.Cluster().PutRaw(t.Context(), key, value))
	}
	one, two, three, four := cidrOf(1), cidrOf(2), cidrOf(3), cidrOf(4)
	put(blockKey(one), blockOf(one, "edge-9", "edge-8", ""))
	put(affinityKey("edge-9", one), `{"state":"pending"}`)
	put(affinityKey("edge-7", one), `{"state":"confirmed"}`) // stale, and no answer
	put(blockKey(two), blockOf(two, "edge-9", "edge-9", ""))
	put(blockKey(three), `garbage`)
	s, err := New(Config{Endpoints: []string{e.Endpoint()}}, "edge-7", calico.Needs{},
		testlog.New(t))
	must(t, err)
	found, err := s.Owners(t.Context(), []netip.Prefix{one, two, three, four})
	must(t, err)
	var got []string
	for _, o := range found {
		got = append(got, fmt.Sprint(o.Block.CIDR, o.Block.Owner.Host, o.Affinity,
			o.Block.Allocations[0].Node))
	}
	want := fmt.Sprint([]string{fmt.Sprint(one, "edge-9", calico.AffinityPending, "edge-8"),
		fmt.Sprint(two, "edge-9", "", "edge-9")})
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	s, err = New(Config{Endpoints: []string{"http://127.0.0.1:1"}}, "edge-7", calico.Needs{},
		testlog.New(t))
	must(t, err)
	if _, err := s.Owners(t.Context(), []netip.Prefix{one}); err == nil {
		t.Error("no error without etcd")
	}
}
