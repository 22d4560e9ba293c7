package vpp

import (
	"maps"
	"testing"
)

// Of an entry with several sources the one that forwards counts.
func TestDeadInterfacesAreRead(t *testing.T) {
	const routes = `10.3.0.0/26 fib:0 index:12 locks:2
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

 forwarding:   unicast-ip4-chain
`
	if got := deadInterfaces(routes); !maps.Equal(got, map[uint32]bool{1: true}) {
		t.Errorf("%v", got)
	}
}
