package vpp

import (
	"net/netip"
	"slices"
	"testing"
)

// Of an entry with several sources the one that forwards counts.
func TestDeadPathsAreRead(t *testing.T) {
	const routes = `ipv4-VRF:0, fib_index:0, flow hash:[src dst ] epoch:0 flags:none locks:[API:1, ]
10.3.0.0/26 fib:0 index:12 locks:2
  API refs:1 src-flags:added,
    path-list:[17] locks:2 flags:shared, uPRF-list:14 len:1 itfs:[2, ]
      path:[19] pl-index:17 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:drop,
        10.0.0.2 if_index:2
        unresolved
  vpp-route-agent refs:1 src-flags:added,contributing,active,
    path-list:[18] locks:2 flags:shared, uPRF-list:13 len:1 itfs:[1, ]
      path:[20] pl-index:18 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:resolved,
        10.0.0.2 host-eth0
      path:[21] pl-index:18 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:drop,
        10.0.0.9 if_index:1
        unresolved
      path:[22] pl-index:18 ip4 weight=1 pref=0 attached-nexthop: 
        10.0.0.3 if_index:3
      path:[23] pl-index:18 ip4 weight=1 pref=0 attached:  oper-flags:drop, cfg-flags:glean,
        if_index:0
      path:[24] pl-index:18 ip4 weight=1 pref=0 special:  cfg-flags:drop,

 forwarding:   unicast-ip4-chain
`
	want := []bool{false, true, false, true, false}
	if got := deadPaths(routes, netip.MustParsePrefix("10.3.0.0/26")); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := deadPaths(routes, netip.MustParsePrefix("10.3.0.0/27")); got != nil {
		t.Errorf("of an entry that is not shown: %v", got)
	}
}
