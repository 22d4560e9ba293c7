package route_test

import (
	"net/netip"
	"reflect"
	"testing"

	"vpp-route-agent/internal/route"
)

func TestEncapsulationsAreEqual(t *testing.T) {
	a, b := netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("10.0.0.2/24")
	full := func() *route.Encapsulation {
		return &route.Encapsulation{Own4: a, Own6: a,
			Pools: []route.Pool{{Name: "pods", Prefix: a}},
			Nodes: route.Nodes{
				{Address: b.Addr(), Name: "b", VXLAN: &route.VTEP{MAC: "m"}}},
			Published: map[netip.Addr]string{b.Addr(): "c"}}
	}
	none := (*route.Encapsulation)(nil)
	if !full().Equal(full()) || !none.Equal(nil) || none.Equal(full()) || full().Equal(nil) {
		t.Error("not equal to itself, or equal to none")
	}
	changes := []func(e *route.Encapsulation){
		func(e *route.Encapsulation) { e.Pools[0].CrossSubnet = true },
		func(e *route.Encapsulation) { e.Own4 = b },
		func(e *route.Encapsulation) { e.Own6 = b },
		func(e *route.Encapsulation) {
			e.Nodes[0].VXLAN = &route.VTEP{Problem: "why"}
		},
		func(e *route.Encapsulation) { e.Published = nil },
	}
	if n := reflect.TypeFor[route.Encapsulation]().NumField(); n != len(changes) {
		t.Errorf("%d fields, %d of them compared", n, len(changes))
	}
	for i, change := range changes {
		other := full()
		change(other)
		if full().Equal(other) || other.Equal(full()) {
			t.Errorf("change %d is not seen", i)
		}
	}
}
