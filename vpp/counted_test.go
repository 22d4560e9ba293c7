package vpp_test

import (
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// VPP counts what it forwards by each entry. Its own ping goes by the entry of a neighbour that
// nobody is, as packets of others would.
func TestCountedRealVPP(t *testing.T) {
	r := startVPP(t)
	v := runAgent(t, vpp.Config{Socket: r.relay.path, StatsSocket: r.path("stats.sock")})
	v.await(t, "VPP", present)
	k := route.Key{Prefix: netip.MustParsePrefix("10.77.0.0/24")}
	put := route.Route{Key: k, Paths: route.CanonicalPaths([]route.Path{
		{NextHop: testLinks[0].V4.Addr().Next(), Interface: testLinks[0].Name}})}
	err := v.Apply(t.Context(), []route.Op{{Route: put}}, func(_ int, err error) {
		check(t, err)
	})
	check(t, err)
	packets, _, ok, err := v.Counted(t.Context(), k)
	if err != nil || !ok || packets != 0 {
		t.Fatalf("before: %d, %t, %v", packets, ok, err)
	}
	r.cli(t, "ping 10.77.0.5 repeat 3 interval 0.01")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		packets, bytes, _, err := v.Counted(t.Context(), k)
		check(t, err)
		if packets == 3 && bytes > 3*20 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after three packets: %d, %d bytes", packets, bytes)
		}
	}
	k.Prefix = netip.MustParsePrefix("10.78.0.0/24")
	if _, _, ok, err := v.Counted(t.Context(), k); ok || err != nil {
		t.Errorf("without an entry: %t, %v", ok, err)
	}
}
