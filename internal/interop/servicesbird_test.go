package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

const (
	servicesKind = "services"
	slicesKind   = "endpointslices.discovery.k8s.io"
)

// serviceRanges have an aggregate of each kind and family, and a single external address. Addresses
// of the cluster are announced with a community.
const serviceRanges = `nodeToNodeMeshEnabled: false,
	serviceClusterIPs: [{cidr: 10.96.0.0/16}, {cidr: "fd96::/112"}],
	serviceExternalIPs: [{cidr: 192.0.2.0/25}, {cidr: 198.51.100.7/32}],
	serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}, {cidr: "2001:db8:1::/64"}],
	prefixAdvertisements: [{cidr: 10.96.0.0/16, communities: ["64512:96"]},
		{cidr: "fd96::/112", communities: ["64512:97"]},
		{cidr: 10.96.0.10/32, communities: ["64512:10"]}]`

// TestServicesOneByOneAtBIRD has a node announce single service addresses by what is in the
// Kubernetes API, and looks at exactly what a BIRD outside has in both families: aggregates and
// single addresses with their communities, and withdrawals when the last endpoint goes.
func TestServicesOneByOneAtBIRD(t *testing.T) {
	t.Parallel()
	l := newLab(t, "servicesbird")
	ns, err := l.Machine("api", pfx("10.0.0.251/24"))
	check(t, err)
	api, err := l.ServeKubernetes(ns, addr("10.0.0.251"))
	check(t, err)
	t.Cleanup(func() { check(t, api.Close()) })
	api.Install("discovery.k8s.io/v1", "endpointslices")
	us := l.agentNode(t, "us", "10.0.0.2/24", "fd00::2/64")
	check(t, l.Data.AddNode(t.Context(), "other", pfx("10.0.0.3/24")))
	l.apply(t, testcluster.Resource("BGPConfiguration", "default", serviceRanges)+
		testcluster.Peer("tor4", "10.0.0.1", torAS, "")+
		testcluster.Peer("tor6", "fd00::1", torAS, ""))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))

	// endpoints are those of a family on a node; ready: they count
	endpoints := func(service, family, node string, ready bool) {
		address := map[string]string{"IPv4": "10.1.0.1", "IPv6": "fd01::1"}[family]
		api.PutObject(slicesKind, fmt.Appendf(nil, `{"metadata":{"namespace":"shop","name":"%s-%s",
			"labels":{"kubernetes.io/service-name":%q}},"addressType":%q,"endpoints":[{"addresses":
			[%q],"nodeName":%q,"conditions":{"ready":%t}}]}`, service, strings.ToLower(family),
			service, family, address, node, ready))
	}
	service := func(name, spec, status string) {
		api.PutObject(servicesKind, fmt.Appendf(nil, `{"metadata":{"namespace":"shop","name":%q},
			"spec":{%s},"status":{%s}}`, name, spec, status))
	}
	// two with the same load balancer's address
	for _, name := range []string{"web", "web2"} {
		last := map[string]string{"web": "10", "web2": "11"}[name]
		service(name, fmt.Sprintf(`"type":"LoadBalancer","clusterIP":"10.96.0.%s","clusterIPs":
			["10.96.0.%s","fd96::%s"],"ipFamilies":["IPv4","IPv6"],"externalIPs":["192.0.2.7",
			"203.0.113.99"],"externalTrafficPolicy":"Local"`, last, last, last),
			`"loadBalancer":{"ingress":[{"ip":"203.0.113.9"},{"ip":"2001:db8:1::9"}]}`)
	}
	service("everywhere", `"type":"NodePort","clusterIP":"10.96.0.20","clusterIPs":["10.96.0.20"],
		"ipFamilies":["IPv4"],"externalIPs":["198.51.100.7"],"externalTrafficPolicy":"Cluster"`, ``)
	service("inside", `"type":"ClusterIP","clusterIP":"10.96.0.30","clusterIPs":["10.96.0.30"],
		"ipFamilies":["IPv4"]`, ``)
	endpoints("everywhere", "IPv4", "other", false)
	endpoints("inside", "IPv4", "us", true)
	endpoints("web", "IPv4", "other", true)
	endpoints("web2", "IPv4", "other", true)

	tor := l.bird2Router(t, "tor", "10.0.0.1/24", fmt.Sprintf(`
template bgp Agent {
  local as %d;
  connect delay time 1; connect retry time 2; error wait time 1, 2;
}
protocol bgp Us4 from Agent { neighbor 10.0.0.2 as 64512; ipv4 { import all; export none; }; }
protocol bgp Us6 from Agent { neighbor fd00::2 as 64512; ipv6 { import all; export none; }; }
`, torAS))
	check(t, tor.NS.AddAddress("eth0", pfx("fd00::1/64")))
	us.start(t)
	us.awaitPeers(t, "10.0.0.1", "fd00::1")
	since := us.sessionsOf(t, "10.0.0.1", "fd00::1")

	always := map[string][]string{
		"Us4": {"10.1.0.0/26", "10.96.0.0/16 (64512,96)", "10.96.0.20/32 (64512,96)",
			"192.0.2.0/25", "198.51.100.7/32", "203.0.113.0/24"},
		"Us6": {"fd96::/112 (64512,97)", "2001:db8:1::/64"},
	}
	sees := func(what string, more map[string][]string) {
		t.Helper()
		for protocol, least := range always {
			want := slices.Sorted(slices.Values(slices.Concat(least, more[protocol])))
			await(t, "BIRD sees "+what, func(ctx context.Context) error {
				routes, err := tor.Routes(ctx, "protocol "+protocol)
				var got []string
				for _, r := range routes {
					got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s", r.Prefix,
						r.Communities)))
				}
				slices.Sort(got)
				if err != nil {
					return err
				}
				return same("RIB of tor by "+protocol, got, want)
			})
		}
	}
	// of a service with an endpoint here: all its addresses that are allowed
	web := map[string][]string{
		"Us4": {"10.96.0.10/32 (64512,96) (64512,10)", "192.0.2.7/32", "203.0.113.9/32"},
		"Us6": {"fd96::10/128 (64512,97)", "2001:db8:1::9/128"},
	}
	web2 := map[string][]string{
		"Us4": {"10.96.0.11/32 (64512,96)", "192.0.2.7/32", "203.0.113.9/32"},
		"Us6": {"fd96::11/128 (64512,97)", "2001:db8:1::9/128"},
	}
	both := map[string][]string{"Us4": append([]string{web2["Us4"][0]}, web["Us4"]...),
		"Us6": append([]string{web2["Us6"][0]}, web["Us6"]...)}
	sees("what every node announces", nil)
	endpoints("web", "IPv4", "us", true)
	sees("a Local service with an endpoint here", web)
	endpoints("web2", "IPv6", "us", true)
	sees("two that share addresses", both)
	endpoints("web", "IPv4", "us", false)
	sees("that the other one still has the shared ones", web2)
	endpoints("web2", "IPv6", "other", true)
	sees("nothing of both once the last endpoint has gone", nil)
	endpoints("web", "IPv4", "us", true)
	sees("it again", web)
	api.DeleteObject(servicesKind, "shop/web")
	sees("nothing of a service that is gone", nil)
	us.sameSessions(t, since)
}
