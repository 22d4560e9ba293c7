package bgp

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/calico"
)

// BenchmarkServices plans for a node that announces 5000 services one by one, as each change of one
// of them has it do.
func BenchmarkServices(b *testing.B) {
	s := &calico.Snapshot{
		Nodes: map[string]calico.Node{"a": {Name: "a", IPv4: pfx("172.30.8.9/24")}},
		BGPConfigurations: map[string]calico.BGPConfiguration{
			"default": {ServiceClusterIPs: []string{"40.0.0.0/8"}},
		},
		Services: map[string]calico.Service{}, Endpoints: map[string]calico.Endpoints{},
	}
	const services = 5000
	for i := range services {
		name := fmt.Sprintf("shop/s%d", i)
		a := netip.AddrFrom4([4]byte{40, byte(i >> 12), byte(i >> 4), byte(i << 4)})
		s.Services[name] = calico.Service{ClusterIPs: []netip.Addr{a},
			ExternalTrafficPolicy: "Local", IPv4: true}
		s.Endpoints[name] = calico.Endpoints{Ready4: true, Here4: true}
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := len(PlanFor("a", s, Options{}).Announcements); n != services+1 { // and the range
			b.Fatalf("%d announcements", n)
		}
	}
}
