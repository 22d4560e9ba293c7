package calico

import (
	"fmt"
	"testing"
)

// serviceStore is a store with one Service, whose snapshot has been taken.
func serviceStore(v Service, aggregation string) *Store {
	s := NewStore("edge-7")
	v.Namespace, v.Name, v.IPv4 = "shop", "web", true
	s.Set("bgpconfigurations/default", Item{
		Key: Key{Kind: KindBGPConfiguration, Name: "default"},
		Value: BGPConfiguration{Name: "default", ServiceClusterIPs: []string{"10.96.0.0/12"},
			ServiceLoadBalancerAggregation: aggregation}})
	s.Set("services/shop/web", Item{
		Key: Key{Kind: KindService, Namespace: "shop", Name: "web"}, Value: v})
	s.Snapshot(1)
	return s
}

func setSlice(s *Store, name, service string, e Endpoints) {
	s.Set("endpointslices/shop/"+name, Item{
		Key:   Key{Kind: KindEndpointSlice, Namespace: "shop", Name: name},
		Value: EndpointSlice{Service: "shop/" + service, Endpoints: e}})
}

// All slices of a service count together, whatever comes and goes in which order.
func TestSlicesAreJoined(t *testing.T) {
	s := serviceStore(Service{ExternalTrafficPolicy: "Local"}, "")
	is := func(want string) {
		t.Helper()
		if got := fmt.Sprint(s.Snapshot(2).Endpoints); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	is("map[]")
	setSlice(s, "web-1", "web", Endpoints{Ready4: true})
	is("map[shop/web:{true false false false}]")
	setSlice(s, "web-2", "web", Endpoints{Ready6: true, Here6: true})
	is("map[shop/web:{true false true true}]")
	before := s.Snapshot(3)
	setSlice(s, "web-2", "other", Endpoints{Ready4: true, Here4: true})
	is("map[shop/other:{true true false false} shop/web:{true false false false}]")
	s.Delete("endpointslices/shop/web-1")
	is("map[shop/other:{true true false false}]")
	s.BeginList()
	s.EndList("endpointslices/")
	is("map[]")
	if len(before.Endpoints) != 1 || len(s.slicesOf) != 0 || len(s.now.slices) != 0 {
		t.Errorf("%+v, and left are %+v, %+v", before.Endpoints, s.slicesOf, s.now.slices)
	}
}

// What endpoints come and go is a change only where it counts.
func TestEndpointsThatMakeNoDifference(t *testing.T) {
	local := Service{ExternalTrafficPolicy: "Local"}
	plain := Service{}
	shared := Service{ExternalTrafficPolicy: "Cluster", LoadBalancer: true}
	none, there, here := Endpoints{}, Endpoints{Ready4: true}, Endpoints{Ready4: true, Here4: true}
	for i, tc := range []struct {
		of          Service
		aggregation string
		from, to    Endpoints
		want        bool
	}{
		{local, "", none, there, false},
		{local, "", there, here, true},
		{local, "", here, none, true},
		{local, "", none, Endpoints{Ready6: true, Here6: true}, false},
		{local, "Disabled", none, there, false},
		{plain, "", none, here, false},
		{plain, "Enabled", here, none, false},
		{plain, "Disabled", none, there, true},
		{plain, "Disabled", there, here, false},
		{shared, "", there, none, false},
		{shared, "Disabled", there, none, true},
	} {
		s := serviceStore(tc.of, tc.aggregation)
		setSlice(s, "web-1", "web", tc.from)
		s.Snapshot(2)
		setSlice(s, "web-1", "web", tc.to)
		if s.Changed() != tc.want {
			t.Errorf("%d: changed is %t", i, s.Changed())
		}
		// it is known nevertheless, for when it counts
		if got := s.Snapshot(3).Endpoints["shop/web"]; got != tc.to {
			t.Errorf("%d: %+v", i, got)
		}
	}
	for _, tc := range []struct {
		of   Service
		want bool
	}{{plain, false}, {local, false}, {shared, true}} {
		s := serviceStore(tc.of, "")
		setSlice(s, "web-1", "web", none)
		if s.Changed() != tc.want {
			t.Errorf("the first slice of %+v: changed is %t", tc.of, s.Changed())
		}
		s.Snapshot(2)
		setSlice(s, "web-2", "unknown", here)
		if s.Changed() {
			t.Error("a slice of an unknown service is a change")
		}
	}
}

func TestServicesAreNotRead(t *testing.T) {
	if s := NewStore("edge-7").Snapshot(1); s.Services != nil {
		t.Error("services are known that nobody has read")
	}
}
