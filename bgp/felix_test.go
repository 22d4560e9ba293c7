package bgp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
)

func felixOf(name string, f calico.FelixConfiguration) snapshotEdit {
	return func(s *calico.Snapshot) {
		f.Name = name
		if s.Felix == nil {
			s.Felix = map[string]felixConfig{}
		}
		s.Felix[name] = f
	}
}

func TestBesideFelix(t *testing.T) {
	mode := func(name, mode string) snapshotEdit {
		return felixOf(name, felixConfig{ProgramClusterRoutes: mode})
	}
	plain := pools(calico.IPPool{
		Name: "plain", CIDR: pfx("10.1.0.0/16"), IPIPMode: calico.EncapNever,
		VXLANMode: calico.EncapNever,
	})
	ipip := pools(calico.IPPool{
		Name: "ipip", CIDR: pfx("10.2.0.0/16"), IPIPMode: calico.EncapAlways,
		VXLANMode: calico.EncapNever,
	})
	vxlan := pools(calico.IPPool{
		Name: "vxlan", CIDR: pfx("10.3.0.0/16"), IPIPMode: calico.EncapNever,
		VXLANMode: calico.EncapCrossSubnet,
	})
	const both = "programClusterRoutes"
	for name, tc := range map[string]struct {
		s    *calico.Snapshot
		want string
	}{
		"nothing said": {cluster(plain, ipip), ""},
		"disabled": {
			cluster(plain, ipip, mode("default", "Disabled")), "",
		},
		"all": {cluster(plain, mode("default", "Enabled")), both},
		// they are Felix' anyhow
		"all, and VXLAN pools alone": {cluster(vxlan, mode("default", "Enabled")), ""},
		"without encapsulation": {
			cluster(plain, mode("default", "EnabledNoEncapOnly")), both,
		},
		"without encapsulation, none of them": {
			cluster(ipip, mode("default", "EnabledNoEncapOnly")), "",
		},
		"IPIP":                        {cluster(ipip, mode("default", "EnabledIPIPOnly")), both},
		"IPIP on Linux is left to it": {cluster(ipip, mode("default", "Enabled")), ""},
		"IPIP, none of them":          {cluster(plain, mode("default", "EnabledIPIPOnly")), ""},
		"no pool":                     {cluster(mode("default", "Enabled")), ""},
		"this node": {
			cluster(plain, mode("node.a", "Enabled"), mode("default", "Disabled")),
			"FelixConfiguration(node.a): " + both,
		},
		"this node not": {
			cluster(plain, mode("node.a", "Disabled"), mode("default", "Enabled")), "",
		},
		"the cluster, beside something else of this node": {
			cluster(plain, mode("default", "Enabled"),
				felixOf("node.a", felixConfig{IPv4NormalRoutePriority: 1024})),
			"FelixConfiguration(default): " + both,
		},
		"an elevated priority of the cluster": {
			cluster(felixOf("default", felixConfig{IPv6ElevatedRoutePriority: 2000}),
				felixOf("node.a", felixConfig{IPv4ElevatedRoutePriority: 100})),
			"FelixConfiguration(default): the elevated route priority 2000 of IPv6",
		},
		"a priority of this node, beside the cluster's of the other family": {
			cluster(felixOf("default", felixConfig{IPv4NormalRoutePriority: 1024}),
				felixOf("node.a", felixConfig{IPv6NormalRoutePriority: 2000})),
			"FelixConfiguration(node.a): the normal route priority of IPv6",
		},
		"a priority of the cluster": {
			cluster(felixOf("default", felixConfig{IPv4NormalRoutePriority: 2000}),
				felixOf("node.a", felixConfig{ProgramClusterRoutes: "Disabled"})),
			"FelixConfiguration(default): the normal route priority of IPv4",
		},
		"a priority that Felix does not know": {
			cluster(configured(bgpConfig{IPv4NormalRoutePriority: 2000}),
				felixOf("node.a", felixConfig{ProgramClusterRoutes: "Disabled"})),
			"FelixConfiguration(default): the normal route priority of IPv4",
		},
		"priorities that differ": {
			cluster(felixOf("default", felixConfig{IPv6NormalRoutePriority: 2000})),
			"of IPv6 is 2000 here and 1024 in",
		},
		"priorities that agree": {cluster(configured(bgpConfig{IPv4NormalRoutePriority: 2000}),
			felixOf("default", felixConfig{IPv4NormalRoutePriority: 2000})), ""},
		"an elevated priority that is none": {
			cluster(felixOf("default", felixConfig{IPv4ElevatedRoutePriority: 1024})),
			"the elevated route priority 1024 of IPv4",
		},
	} {
		got := ""
		o := Options{FelixTunnels: strings.Contains(name, "Linux")}
		for _, p := range PlanFor("a", tc.s, o).Problems {
			if strings.HasPrefix(p.Resource, "FelixConfiguration") {
				got += p.String()
				if !p.Harmless {
					t.Errorf("%s: a sweep waits for %s", name, p)
				}
			}
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// What comes by live migration is announced when it has come, for a while as elevated, also from
// inside an own block.
func TestLiveMigration(t *testing.T) {
	guest := func(s *calico.Snapshot) {
		s.WorkloadEndpoints["vms/guest"] = calico.WorkloadEndpoint{
			Namespace: "vms", Name: "guest", Node: "a", Orchestrator: "openstack", Workload: "vm",
			Endpoint: "port", IPNetworks: []netip.Prefix{pfx("10.1.3.9/32"), pfx("10.1.0.70/32")},
		}
	}
	end := func(host string) calico.MigrationEnd {
		return calico.MigrationEnd{
			Host: host, Orchestrator: "openstack", Workload: "vms/vm", Endpoint: "port",
		}
	}
	moves := func(from, to string) snapshotEdit {
		return func(s *calico.Snapshot) {
			s.LiveMigrations = map[string]calico.LiveMigration{
				"vms/m": {Source: end(from), Target: end(to)},
			}
		}
	}
	pool := pools(calico.IPPool{
		Name: "p", CIDR: pfx("10.1.0.0/16"), IPIPMode: calico.EncapNever,
		VXLANMode: calico.EncapNever,
	})
	block := owns("10.1.0.64/26")
	arrived := Options{Arrived: []netip.Prefix{pfx("10.1.0.70/32"), pfx("10.1.3.9/32")}}
	const own, foreign = "10.1.0.64/26 2147482623", "10.1.3.9/32 2147482623"
	for name, tc := range map[string]struct {
		s    *calico.Snapshot
		o    Options
		want string
	}{
		"before": {
			cluster(pool, block, guest), Options{}, own + ", " + foreign,
		},
		"on its way here": {
			cluster(pool, block, guest, moves("b", "a")), Options{}, own,
		},
		"on its way from here": {
			cluster(pool, block, guest, moves("a", "b")), Options{}, own + ", " + foreign,
		},
		"somebody else's": {
			cluster(pool, block, guest, moves("b", "c")), Options{}, own + ", " + foreign,
		},
		"it has come": {
			cluster(pool, block, guest), arrived,
			own + ", 10.1.0.70/32 2147483135, 10.1.3.9/32 2147483135",
		},
		"with another priority": {
			cluster(pool, guest, felixOf("node.a", felixConfig{IPv4ElevatedRoutePriority: 100})),
			arrived, "10.1.0.70/32 2147483547, 10.1.3.9/32 2147483547",
		},
		"with one that is no better": {
			cluster(pool, block, guest,
				felixOf("default", felixConfig{IPv4ElevatedRoutePriority: 2000})),
			arrived, own + ", " + foreign,
		},
	} {
		p := PlanFor("a", tc.s, tc.o)
		got := []string{}
		for _, a := range p.Announcements {
			got = append(got, fmt.Sprintf("%s %d", a.Prefix, a.LocalPref))
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: %s\nwant %s", name, text, tc.want)
		}
	}
	p := PlanFor("a", cluster(pool, block, guest, moves("b", "a")), Options{})
	want := "[{10.1.0.70/32 WorkloadEndpoint(vms/guest) is on its way here: " +
		"LiveMigration(vms/m)} {10.1.3.9/32 WorkloadEndpoint(vms/guest) is on its way here: " +
		"LiveMigration(vms/m)}]"
	if got := fmt.Sprint(p.Withheld); got != want {
		t.Errorf("withheld %s\nwant %s", got, want)
	}
}
