package bgp

import (
	"net/netip"
	"testing"

	"vpp-route-agent/internal/calico"
)

func TestServiceAddress(t *testing.T) {
	here, v4 := true, []string{"IPv4"}
	a := announcing{cluster: []string{"10.96.0.0/12"}, external: []string{"192.0.2.7/32"},
		balanced: []string{"198.51.100.0/24"}, aggregation: "Disabled",
		services: []serviceObject{
			{name: "local", kind: "LoadBalancer", policy: "Local", cluster: []string{"10.96.0.1"},
				ipFamilies: v4,
				ingress:    []string{"198.51.100.1"}},
			{name: "bare", kind: "LoadBalancer", policy: "Local", cluster: []string{"10.96.0.2"},
				ipFamilies: v4,
				ingress:    []string{"198.51.100.2"}},
			{name: "here", kind: "LoadBalancer", policy: "Local", cluster: []string{"10.96.0.3"},
				ipFamilies: v4,
				ingress:    []string{"198.51.100.3"}},
		},
		slices: []sliceObject{
			{"l", "local", "IPv4", []endpointObject{{"elsewhere", &here}}},
			{"h", "here", "IPv4", []endpointObject{{"a", &here}}},
		}}
	excluded := a
	excluded.excluded = true
	etcdOnly := *a.snapshot(t)
	etcdOnly.Services = nil
	for _, tc := range []struct {
		s           *calico.Snapshot
		p, in, want string
	}{
		{a.snapshot(t), "192.168.0.1/32", "invalid Prefix", ""},
		{a.snapshot(t), "10.96.7.7/32", "10.96.0.0/12", ""},
		{a.snapshot(t), "198.51.100.1/32", "198.51.100.0/24",
			"Service(shop/local) has externalTrafficPolicy Local, and no endpoint here"},
		{a.snapshot(t), "198.51.100.2/32", "198.51.100.0/24",
			"Service(shop/bare) has no EndpointSlice"},
		{a.snapshot(t), "198.51.100.3/32", "198.51.100.0/24", ""},
		{a.snapshot(t), "198.51.100.9/32", "198.51.100.0/24", "no Service has it"},
		{excluded.snapshot(t), "10.96.7.7/32", "10.96.0.0/12", "Node(a) has the label " +
			"node.kubernetes.io/exclude-from-external-load-balancers"},
		{&etcdOnly, "198.51.100.3/32", "198.51.100.0/24",
			"addresses of single services are not announced without the Kubernetes API"},
	} {
		in, why := ServiceAddress("a", tc.s, Options{}, pfx(tc.p))
		if in.String() != tc.in || why != tc.want {
			t.Errorf("%s: in %s, %q; want %s, %q", tc.p, in, why, tc.in, tc.want)
		}
		announced := false
		for _, x := range PlanFor("a", tc.s, Options{}).Announcements {
			announced = announced || x.Prefix.Contains(pfx(tc.p).Addr())
		}
		if in != (netip.Prefix{}) && announced != (why == "") {
			t.Errorf("%s is announced: %t, and %q", tc.p, announced, why)
		}
	}
}
