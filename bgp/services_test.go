package bgp

import (
	"fmt"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/calico"
)

// What confd announces of services without a Kubernetes API: ranges, from every node, and nothing
// of a single service.
func TestServices(t *testing.T) {
	const whole = "BGPConfiguration(default): ranges of service addresses are announced as a " +
		"whole; addresses of single services are not: that needs the Kubernetes API"
	const badX = "\n" +
		`BGPConfiguration(default): serviceLoadBalancerIPs: cidr "x" is not a prefix`
	all := bgpConfig{
		ServiceClusterIPs:      []string{"10.96.0.0/12", "fd96::/108"},
		ServiceExternalIPs:     []string{"192.0.2.64/27", "192.0.2.7/32"},
		ServiceLoadBalancerIPs: []string{"192.0.2.128/25", "192.0.2.8/32", "x"},
	}
	v6 := node("a", func(n *calico.Node) { n.IPv6 = pfx("fd77::9/64") })
	unlabelled := func(value string) snapshotEdit {
		return node("a", func(n *calico.Node) {
			n.Labels = map[string]string{excludedFromServices: value}
		})
	}
	for _, tc := range []struct {
		name                      string
		s                         *calico.Snapshot
		o                         Options
		want, withheld, kept, say string
	}{
		{"none", cluster(), Options{}, "[]", "[]", "[]", ""},
		{"all three", cluster(v6, configured(all)), Options{},
			"[10.96.0.0/12 192.0.2.64/27 192.0.2.128/25 fd96::/108]", "[]",
			"[10.96.0.0/12 192.0.2.64/27 192.0.2.128/25 fd96::/108]",
			"BGPConfiguration(default): nothing of 192.0.2.7/32, 192.0.2.8/32 is announced: that " +
				"needs the Kubernetes API\n" + whole + badX},
		{"a family that the node does not have",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"fd96::/108"}})), Options{},
			"[]", "[{fd96::/108 this node has no IPv6 BGP address}]", "[fd96::/108]", whole},
		{"one cluster address",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.10/32"}})), Options{},
			"[10.96.0.10/32]", "[]", "[10.96.0.10/32]", whole},
		{"CALICO_ADVERTISE_CLUSTER_IPS goes before",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.0/12"}})),
			Options{ClusterIPs: pfx("10.97.0.0/16")},
			"[10.97.0.0/16]", "[]", "[10.97.0.0/16]", whole},
		{"load balancers one by one",
			cluster(configured(bgpConfig{ServiceLoadBalancerIPs: []string{"192.0.2.128/25"},
				ServiceLoadBalancerAggregation: "Disabled"})),
			Options{},
			"[]", "[]", "[]",
			"BGPConfiguration(default): nothing of 192.0.2.128/25 is announced: that needs the " +
				"Kubernetes API\n" + whole},
		{"a node that is excluded", cluster(configured(all), unlabelled("true")), Options{}, "[]",
			"[]", "[10.96.0.0/12 192.0.2.64/27 192.0.2.128/25 fd96::/108]",
			"BGPConfiguration(default): service addresses are not announced: " +
				"Node(a) has the label " + excludedFromServices + badX},
		{"nothing that is a prefix",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.0"},
				ServiceExternalIPs: []string{"10.96.0.0/33"}})),
			Options{},
			"[]", "[]", "[]",
			`BGPConfiguration(default): serviceClusterIPs: cidr "10.96.0.0" is not a prefix` +
				"\n" +
				`BGPConfiguration(default): serviceExternalIPs: cidr ` +
				`"10.96.0.0/33" is not a prefix`},
		{"an empty one is none, and no mistake",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.0/12", ""}})),
			Options{}, "[10.96.0.0/12]", "[]", "[10.96.0.0/12]", whole},
		{"a replaced one does not matter",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"x"}})),
			Options{ClusterIPs: pfx("10.97.0.0/16")},
			"[10.97.0.0/16]", "[]", "[10.97.0.0/16]", whole},
		{"neither one by one nor not",
			cluster(configured(bgpConfig{ServiceLoadBalancerIPs: []string{"192.0.2.128/25"},
				ServiceLoadBalancerAggregation: "Off"})),
			Options{},
			"[192.0.2.128/25]", "[]", "[192.0.2.128/25]",
			whole + "\n" +
				`BGPConfiguration(default): serviceLoadBalancerAggregation "Off" is neither ` +
				`Enabled nor Disabled: it counts as Enabled`},
		{"a label that says no",
			cluster(configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.0/12"}}),
				unlabelled("false")),
			Options{},
			"[10.96.0.0/12]", "[]", "[10.96.0.0/12]", whole},
		{"inside a pool with disableBGPExport",
			cluster(pools(calico.IPPool{
				Name: "off", CIDR: pfx("10.96.0.0/11"), DisableBGPExport: true,
			}),
				configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.0/12"}})), Options{},
			"[]", "[{10.96.0.0/12 inside pool 10.96.0.0/11, which has disableBGPExport}]",
			"[10.96.0.0/12]", whole},
		{"an own block",
			cluster(owns("10.96.0.0/26"),
				configured(bgpConfig{ServiceExternalIPs: []string{"10.96.0.0/26"}})),
			Options{},
			"[10.96.0.0/26 block]", "[]", "[10.96.0.0/26]", whole},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := PlanFor("a", tc.s, tc.o)
			got := []string{}
			for _, a := range p.Announcements {
				if text := a.Prefix.String(); a.Service {
					got = append(got, text)
				} else {
					got = append(got, text+" block")
				}
			}
			if fmt.Sprint(got) != tc.want || fmt.Sprint(p.Withheld) != tc.withheld ||
				fmt.Sprint(p.NotProgrammed) != tc.kept || problemsText(p.Problems) != tc.say {
				t.Errorf("announced %v, withheld %v, kept out %v, says %q\nwant %s, %s, %s, %q",
					got, p.Withheld, p.NotProgrammed, problemsText(p.Problems),
					tc.want, tc.withheld, tc.kept, tc.say)
			}
			for _, problem := range p.Problems {
				if !problem.Harmless {
					t.Errorf("a sweep waits for %s", problem)
				}
			}
		})
	}
}

// Routes to services that others announce are passed on, those of single ones too.
func TestServicesArePassedOn(t *testing.T) {
	p := Policies{
		Services:  []netip.Prefix{pfx("10.96.0.0/12")},
		NoExport:  []netip.Prefix{pfx("10.99.0.0/16")},
		OwnBlocks: []netip.Prefix{pfx("10.98.0.0/26")},
	}
	in, out := ibgp("172.30.8.1"), ebgp("172.30.9.2", func(p *Peer) { p.RemoteAS = 65002 })
	for prefix, want := range map[string]string{
		"10.96.0.0/12":   "inside service addresses 10.96.0.0/12",
		"10.100.0.10/32": "inside service addresses 10.96.0.0/12",
		"10.99.0.10/32":  "inside pool 10.99.0.0/16, which has disableBGPExport",
		"10.98.0.10/32":  "inside own block 10.98.0.0/26, which is announced as a whole",
		"10.0.0.0/8":     "outside all pools",
	} {
		v := p.Export(Route{Prefix: pfx(prefix), From: &in}, out)
		if v.Reason != want || v.Accept != (want == "inside service addresses 10.96.0.0/12") {
			t.Errorf("%s: %+v, want %s", prefix, v, want)
		}
	}
}
