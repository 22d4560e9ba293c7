package bgp

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

const normalPref = 2147482623 // 2147483647 - 1024

func pools(all ...calico.IPPool) snapshotEdit {
	return func(s *calico.Snapshot) {
		for _, p := range all {
			s.IPPools[p.Name] = p
		}
	}
}

func owns(blocks ...string) snapshotEdit {
	return affine(calico.AffinityConfirmed, blocks...)
}

func released(blocks ...string) snapshotEdit {
	return affine(calico.AffinityPendingDeletion, blocks...)
}

func affine(state calico.AffinityState, blocks ...string) snapshotEdit {
	return func(s *calico.Snapshot) {
		for _, b := range blocks {
			s.Affinities[pfx(b)] = state
		}
	}
}

func runs(node string, addrs ...string) snapshotEdit {
	return func(s *calico.Snapshot) {
		for _, a := range addrs {
			name := "ns/" + a
			s.WorkloadEndpoints[name] = calico.WorkloadEndpoint{
				Node: node, IPNetworks: []netip.Prefix{route.HostPrefix(ip(a))},
			}
		}
	}
}

func TestAnnouncements(t *testing.T) {
	pool := pools(calico.IPPool{Name: "p", CIDR: pfx("10.1.0.0/16")},
		calico.IPPool{Name: "p6", CIDR: pfx("fd00:1::/64")})
	off := pools(calico.IPPool{Name: "off", CIDR: pfx("10.1.0.0/24"), DisableBGPExport: true})
	v6 := node("a", func(n *calico.Node) { n.IPv6 = pfx("fd77::9/64") })
	vxlan := node("a", func(n *calico.Node) { n.IPv4VXLANTunnelAddr = ip("10.1.9.9") })
	inside := func(s *calico.Snapshot) {
		meshOff(s)
		peered(bgpPeer{Name: "in", PeerIP: "172.30.8.10", ASNumber: 64512})(s)
	}
	tor := peered(bgpPeer{Name: "x", PeerIP: "192.0.2.1", ASNumber: 64900})
	for _, tc := range []struct {
		name     string
		s        *calico.Snapshot
		o        Options
		want     string // "prefix via next hop"
		withheld string // "prefix reason"
	}{
		{"nothing", cluster(pool), Options{}, "", ""},
		{"own block", cluster(pool, owns("10.1.0.64/26")), Options{},
			"10.1.0.64/26 via 172.30.8.9", ""},
		{"own block outside all pools", cluster(owns("10.1.0.64/26")), Options{},
			"10.1.0.64/26 via 172.30.8.9", ""},
		{"own block in a disabled pool",
			cluster(pools(calico.IPPool{Name: "p", CIDR: pfx("10.1.0.0/16"), Disabled: true}),
				owns("10.1.0.64/26")),
			Options{}, "10.1.0.64/26 via 172.30.8.9", ""},
		{"own block in a pool with disableBGPExport", cluster(off, owns("10.1.0.64/26")), Options{},
			"", "10.1.0.64/26 inside pool 10.1.0.0/24, which has disableBGPExport"},
		{"nested pool with disableBGPExport",
			cluster(pool, off, owns("10.1.0.64/26", "10.1.1.64/26")), Options{},
			"10.1.1.64/26 via 172.30.8.9",
			"10.1.0.64/26 inside pool 10.1.0.0/24, which has disableBGPExport"},
		{"workload inside own block", cluster(pool, owns("10.1.0.64/26"), runs("a", "10.1.0.65")),
			Options{}, "10.1.0.64/26 via 172.30.8.9", ""},
		{"borrowed address", cluster(pool, owns("10.1.0.64/26"), runs("a", "10.1.3.4")), Options{},
			"10.1.0.64/26 via 172.30.8.9, 10.1.3.4/32 via 172.30.8.9", ""},
		{"address in a disabled pool",
			cluster(pools(calico.IPPool{Name: "p", CIDR: pfx("10.1.0.0/16"), Disabled: true}),
				runs("a", "10.1.3.4")),
			Options{}, "10.1.3.4/32 via 172.30.8.9", ""},
		{"address outside all pools", cluster(pool, runs("a", "10.2.3.4")), Options{}, "",
			"10.2.3.4/32 WorkloadEndpoint(ns/10.2.3.4): outside all pools"},
		{"address in a pool with disableBGPExport", cluster(pool, off, runs("a", "10.1.0.4")),
			Options{}, "",
			"10.1.0.4/32 WorkloadEndpoint(ns/10.1.0.4): inside pool 10.1.0.0/24, which has " +
				"disableBGPExport"},
		{"another node's workload", cluster(pool, runs("b", "10.1.3.4")), Options{}, "", ""},
		{"/32 block without its workload", cluster(pool, owns("10.1.3.4/32")), Options{}, "",
			"10.1.3.4/32 own block of one address, which no workload here has"},
		// a block needs no pool
		{"/32 block with its workload", cluster(owns("10.1.3.4/32"), runs("a", "10.1.3.4")),
			Options{}, "10.1.3.4/32 via 172.30.8.9", ""},
		{"stale affinity", cluster(pool, owns("10.1.0.64/26"), func(s *calico.Snapshot) {
			s.Blocks[pfx("10.1.0.64/26")] = calico.Block{
				CIDR: pfx("10.1.0.64/26"), Owner: calico.Owner{Host: "b"},
			}
		}), Options{}, "", "10.1.0.64/26 affinity is stale: the block belongs to node b"},
		{"a block being released, and a workload in it",
			cluster(pool, owns("10.1.0.64/26"), runs("a", "10.1.0.65"), released("10.1.0.64/26")),
			Options{}, "10.1.0.64/26 via 172.30.8.9, 10.1.0.65/32 via 172.30.8.9", ""},
		{"a block being released outside all pools",
			cluster(owns("10.1.0.64/26"), released("10.1.0.64/26")), Options{}, "",
			"10.1.0.64/26 outside all pools"},
		{"a /32 block being released",
			cluster(pool, runs("a", "10.1.3.4"), released("10.1.3.4/32", "10.1.3.5/32")), Options{},
			"10.1.3.4/32 via 172.30.8.9",
			"10.1.3.5/32 own block of one address, which no workload here has"},
		{"a block being released that another node has",
			cluster(pool, released("10.1.0.64/26"), func(s *calico.Snapshot) {
				s.Blocks[pfx("10.1.0.64/26")] = calico.Block{
					CIDR: pfx("10.1.0.64/26"), Owner: calico.Owner{Host: "b"},
				}
			}), Options{}, "", "10.1.0.64/26 affinity is stale: the block belongs to node b"},
		{"tunnel address in a foreign block",
			cluster(pool,
				node("a", func(n *calico.Node) { n.IPv4IPIPTunnelAddr = ip("10.1.9.9") })),
			Options{}, "10.1.9.9/32 via 172.30.8.9", ""},
		{"the same where Felix programs IPIP",
			cluster(pool,
				configured(bgpConfig{
					NodeToNodeMeshEnabled: new(bool), ProgramClusterRoutes: "Disabled",
				}),
				node("a", func(n *calico.Node) { n.IPv4IPIPTunnelAddr = ip("10.1.9.9") })),
			Options{}, "",
			"10.1.9.9/32 ipipTunnelAddress of Node(a): leads to the tunnel tunl0: " +
				"not for iBGP peers"},
		{"VXLAN's", cluster(pool, inside, vxlan), Options{}, "",
			"10.1.9.9/32 vxlanTunnelAddress of Node(a): leads to the tunnel vxlan.calico: " +
				"not for iBGP peers"},
		{"VXLAN's, in a block of its own", cluster(pool, inside, vxlan, owns("10.1.9.9/32")),
			Options{}, "",
			"10.1.9.9/32 vxlanTunnelAddress of Node(a): leads to the tunnel vxlan.calico: " +
				"not for iBGP peers"},
		{"VXLAN's, in a block of the node", cluster(pool, inside, vxlan, owns("10.1.9.0/26")),
			Options{}, "10.1.9.0/26 via 172.30.8.9", ""},
		{"VXLAN's outside all pools", cluster(inside, vxlan), Options{}, "",
			"10.1.9.9/32 vxlanTunnelAddress of Node(a): outside all pools"},
		{"VXLAN's, beside a router outside", cluster(pool, inside, vxlan, tor), Options{},
			"10.1.9.9/32 via 172.30.8.9", ""},
		{"VXLAN's, beside a router outside in the other family",
			cluster(pool, inside, v6, vxlan,
				peered(bgpPeer{Name: "x", PeerIP: "fd77::1", ASNumber: 64900})),
			Options{}, "",
			"10.1.9.9/32 vxlanTunnelAddress of Node(a): leads to the tunnel vxlan.calico: " +
				"not for iBGP peers"},
		{"VXLAN's, beside a node of another AS", cluster(pool, vxlan), Options{},
			"10.1.9.9/32 via 172.30.8.9", ""},
		{"VXLAN's, let out by a filter",
			cluster(pool, meshOff, vxlan,
				peered(bgpPeer{
					Name: "x", PeerIP: "172.30.8.10", ASNumber: 64512, Filters: []string{"f"},
				}),
				filtered(calico.BGPFilter{Name: "f",
					ExportV4: []filterRule{{Interface: "vxlan.calico", Action: "Accept"}}})),
			Options{}, "10.1.9.9/32 via 172.30.8.9", ""},
		{"WireGuard's",
			cluster(pool, inside, v6,
				node("a", func(n *calico.Node) {
					n.WireguardIPv4, n.WireguardIPv6 = ip("10.1.9.9"), ip("fd00:1::9")
				})),
			Options{}, "",
			"10.1.9.9/32 wireguardTunnelAddress of Node(a): leads to the tunnel wireguard.cali: " +
				"not for iBGP peers, fd00:1::9/128 wireguardV6TunnelAddress of Node(a): leads to " +
				"the tunnel wg-v6.cali: not for iBGP peers"},
		{"both families",
			cluster(pool, v6, owns("10.1.0.64/26", "fd00:1::40/122"), runs("a", "fd00:1::99")),
			Options{},
			"10.1.0.64/26 via 172.30.8.9, fd00:1::40/122 via fd77::9, fd00:1::99/128 via fd77::9",
			""},
		{"a family that the node has no address of",
			cluster(pool, owns("10.1.0.64/26", "fd00:1::40/122")), Options{},
			"10.1.0.64/26 via 172.30.8.9", "fd00:1::40/122 this node has no IPv6 BGP address"},
		{"next hop by option", cluster(pool, v6, owns("10.1.0.64/26", "fd00:1::40/122")),
			Options{NextHop4: ip("192.0.2.9")},
			"10.1.0.64/26 via 192.0.2.9, fd00:1::40/122 via fd77::9", ""},
		{"next hop by option, IPv6", cluster(pool, v6, owns("10.1.0.64/26", "fd00:1::40/122")),
			Options{NextHop6: ip("2001:db8::9")},
			"10.1.0.64/26 via 172.30.8.9, fd00:1::40/122 via 2001:db8::9", ""},
		{"next hop by option for a family without address", cluster(pool, owns("fd00:1::40/122")),
			Options{NextHop6: ip("2001:db8::9")}, "",
			"fd00:1::40/122 this node has no IPv6 BGP address"},
	} {
		plan := PlanFor("a", tc.s, tc.o)
		var got, withheld []string
		for _, a := range plan.Announcements {
			got = append(got, fmt.Sprintf("%s via %s", a.Prefix, a.NextHop))
			if a.LocalPref != normalPref {
				t.Errorf("%s: %s has LOCAL_PREF %d", tc.name, a.Prefix, a.LocalPref)
			}
		}
		for _, w := range plan.Withheld {
			withheld = append(withheld, fmt.Sprintf("%s %s", w.Prefix, w.Reason))
		}
		if g := strings.Join(got, ", "); g != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, g, tc.want)
		}
		if w := strings.Join(withheld, ", "); w != tc.withheld {
			t.Errorf("%s: withheld\n got %s\nwant %s", tc.name, w, tc.withheld)
		}
		if len(plan.Problems) > 0 || plan.Waiting != "" {
			t.Errorf("%s: waiting %q, problems %v", tc.name, plan.Waiting, plan.Problems)
		}
	}
}

// Of pools with one CIDR the first name counts, and the other is named.
func TestPoolsWithOneCIDR(t *testing.T) {
	pool := func(name string, off bool) calico.IPPool {
		return calico.IPPool{Name: name, CIDR: pfx("10.1.0.0/24"), DisableBGPExport: off}
	}
	plan := PlanFor("a", cluster(pools(pool("off", true), pool("on", false)),
		owns("10.1.0.64/26")), Options{})
	want := "IPPool(on): 10.1.0.0/24 is the CIDR of IPPool(off), too, which alone counts"
	if got := problemsText(plan.Problems); got != want || len(plan.Announcements) > 0 {
		t.Errorf("%q, announced %v; want %q", got, plan.Announcements, want)
	}
}

// Blocks and service addresses are static routes in BIRD. What has a route in the kernel because it
// lives here is not: addresses of workloads, a block of one address among them, and of tunnels.
func TestWhatIsStatic(t *testing.T) {
	p := PlanFor("a", cluster(pools(calico.IPPool{Name: "p", CIDR: pfx("10.1.0.0/16")}),
		owns("10.1.0.64/26", "10.1.2.7/32"), runs("a", "10.1.3.3", "10.1.2.7"),
		node("a", func(n *calico.Node) { n.IPv4IPIPTunnelAddr = ip("10.1.9.9") }),
		configured(bgpConfig{ServiceClusterIPs: []string{"10.96.0.0/16"}}),
		func(s *calico.Snapshot) {
			s.Services = map[string]calico.Service{"shop/s": {IPv4: true,
				ClusterIPs: []netip.Addr{ip("10.96.0.1")}, ExternalTrafficPolicy: "Local"}}
			s.Endpoints = map[string]calico.Endpoints{"shop/s": {Ready4: true, Here4: true}}
		}), Options{})
	got := map[bool][]netip.Prefix{}
	for _, a := range p.Announcements {
		got[a.Static] = append(got[a.Static], a.Prefix)
	}
	const static = "[10.1.0.64/26 10.96.0.0/16 10.96.0.1/32]"
	const others = "[10.1.2.7/32 10.1.3.3/32 10.1.9.9/32]"
	if fmt.Sprint(got[true]) != static || fmt.Sprint(got[false]) != others {
		t.Errorf("static %v, want %s; others %v, want %s", got[true], static, got[false], others)
	}
}

func TestLocalPref(t *testing.T) {
	v6 := node("a", func(n *calico.Node) { n.IPv6 = pfx("fd77::9/64") })
	for _, tc := range []struct {
		v4, v6         int
		want4, want6   uint32
		problemMention string
	}{
		{0, 0, normalPref, normalPref, ""},
		{100, 0, 2147483547, normalPref, ""},
		{0, 2147483646, normalPref, 1, ""},
		{-1, 0, normalPref, normalPref, "ipv4NormalRoutePriority -1"},
		{0, 2147483647, normalPref, normalPref, "ipv6NormalRoutePriority 2147483647"},
	} {
		conf := bgpConfig{IPv4NormalRoutePriority: tc.v4, IPv6NormalRoutePriority: tc.v6}
		felix := felixOf("default", felixConfig{
			IPv4NormalRoutePriority: tc.v4, IPv6NormalRoutePriority: tc.v6,
			IPv4ElevatedRoutePriority: 99,
		})
		plan := PlanFor("a",
			cluster(v6, owns("10.1.0.64/26", "fd00:1::40/122"), configured(conf), felix), Options{})
		if len(plan.Announcements) != 2 || plan.Announcements[0].LocalPref != tc.want4 ||
			plan.Announcements[1].LocalPref != tc.want6 {
			t.Errorf("priorities %d, %d: got %+v, want LOCAL_PREF %d and %d",
				tc.v4, tc.v6, plan.Announcements, tc.want4, tc.want6)
		}
		got := problemsText(plan.Problems)
		if (got == "") != (tc.problemMention == "") || !strings.Contains(got, tc.problemMention) {
			t.Errorf("priorities %d, %d: problems %q, want %q",
				tc.v4, tc.v6, got, tc.problemMention)
		}
	}
}

func TestSpeaker(t *testing.T) {
	noNodes := func(s *calico.Snapshot) { clear(s.Nodes) }
	v6only := node("a", func(n *calico.Node) { n.IPv4, n.IPv6 = netip.Prefix{}, pfx("fd77::9/64") })
	dual := node("a", func(n *calico.Node) { n.IPv6 = pfx("fd77::9/64") })
	for _, tc := range []struct {
		name    string
		self    string
		s       *calico.Snapshot
		o       Options
		want    Speaker
		waiting string
	}{
		{"defaults", "a", cluster(), Options{},
			Speaker{AS: 64512, RouterID: ip("172.30.8.9"), ListenPort: 179}, ""},
		{"own port", "b", cluster(), Options{},
			Speaker{AS: 64512, RouterID: ip("172.30.8.10"), ListenPort: 1179}, ""},
		{"own AS", "c", cluster(), Options{},
			Speaker{AS: 64801, RouterID: ip("172.30.9.20"), ListenPort: 179}, ""},
		{"cluster's AS and port", "a",
			cluster(configured(bgpConfig{ASNumber: 65000, ListenPort: 1180})), Options{},
			Speaker{AS: 65000, RouterID: ip("172.30.8.9"), ListenPort: 1180}, ""},
		{"only the port is taken from the node's configuration", "a",
			cluster(func(s *calico.Snapshot) {
				s.BGPConfigurations["node.a"] = bgpConfig{
					ASNumber: 1, BindMode: "NodeIP", ListenPort: 1181,
				}
			}), Options{}, Speaker{AS: 64512, RouterID: ip("172.30.8.9"), ListenPort: 1181}, ""},
		{"bindMode", "a", cluster(dual, configured(bgpConfig{BindMode: "NodeIP"})), Options{},
			Speaker{AS: 64512, RouterID: ip("172.30.8.9"), ListenPort: 179,
				ListenAddresses: []netip.Addr{ip("172.30.8.9"), ip("fd77::9")}},
			""},
		{"router ID given", "a", cluster(), Options{RouterID: "1.2.3.4"},
			Speaker{AS: 64512, RouterID: ip("1.2.3.4"), ListenPort: 179}, ""},
		{"router ID by hash", "a", cluster(v6only), Options{RouterID: "hash"},
			Speaker{AS: 64512, RouterID: ip("202.151.129.18"), ListenPort: 179}, ""},
		{"no router ID", "a", cluster(v6only), Options{}, Speaker{},
			`waiting for a router ID of Node(a): a node without IPv4 address needs a router ID: ` +
				`a dotted quad or "hash"`},
		{"bad router ID", "a", cluster(), Options{RouterID: "::1"}, Speaker{},
			`waiting for a router ID of Node(a): router ID "::1" is neither a ` +
				`dotted quad nor "hash"`},
		{"no Node", "nobody", cluster(noNodes), Options{}, Speaker{},
			"waiting for Node(nobody) to exist"},
		{"another name", "nobody", cluster(), Options{}, Speaker{},
			"waiting for Node(nobody) to exist; there is Node(a): is --node-name right?"},
		{"the full name", "B.example.org", cluster(), Options{}, Speaker{},
			"waiting for Node(B.example.org) to exist; there is Node(b): is --node-name right?"},
		{"no BGP address", "d", cluster(), Options{}, Speaker{},
			"waiting for Node(d) to have a BGP address"},
	} {
		tc.s.Affinities[pfx("10.1.0.64/26")] = calico.AffinityConfirmed
		plan := PlanFor(tc.self, tc.s, tc.o)
		if !reflect.DeepEqual(plan.Speaker, tc.want) || plan.Waiting != tc.waiting {
			t.Errorf("%s:\n got %+v %q\nwant %+v %q",
				tc.name, plan.Speaker, plan.Waiting, tc.want, tc.waiting)
		}
		waits := plan.Waiting != ""
		if waits && !reflect.DeepEqual(plan, Plan{Waiting: plan.Waiting}) ||
			!waits && plan.Policies.OwnBlocks == nil {
			t.Errorf("%s: a plan that waits is not empty, or one that does not is: %+v",
				tc.name, plan)
		}
	}
}

func TestChooseRouterID(t *testing.T) {
	for name, want := range map[string]string{
		"edge-7": "181.145.158.206", // as sha256sum prints it
		"edge-3": "204.133.115.143", // of a first byte above 223 (here 236) 32 is taken
	} {
		if id, err := ChooseRouterID("hash", name, netip.Addr{}); err != nil || id != ip(want) {
			t.Errorf("hash of %s: %v, %v, want %s", name, id, err, want)
		}
	}
	if _, err := ChooseRouterID("0.0.0.0", "a", ip("10.0.0.1")); err == nil {
		t.Error("0.0.0.0 is taken as router ID")
	}
}

// A reflector without a cluster ID of its own, to which BIRD gives 0.0.0.0, has its router ID.
func TestClusterID(t *testing.T) {
	for id, want := range map[string]string{
		"": "172.30.8.9", "0.0.0.0": "172.30.8.9", "244.0.0.1": "244.0.0.1",
	} {
		c := cluster(func(s *calico.Snapshot) {
			n := s.Nodes["a"]
			n.RouteReflectorClusterID = id
			s.Nodes["a"] = n
		})
		p := PlanFor("a", c, Options{}).Policies
		if p.ClusterID != ip(want) || p.Reflects != (id != "") {
			t.Errorf("routeReflectorClusterID %q: cluster ID %s, reflects %t", id, p.ClusterID,
				p.Reflects)
		}
	}
}

func TestPoolThatWouldEncapsulateIsNamed(t *testing.T) {
	s := cluster(pools(
		calico.IPPool{Name: "plain", CIDR: pfx("10.1.0.0/16"), IPIPMode: calico.EncapNever},
		calico.IPPool{Name: "tunnel", CIDR: pfx("10.2.0.0/16"), IPIPMode: calico.EncapCrossSubnet,
			VXLANMode: calico.EncapNever}))
	want := "IPPool(tunnel): ipipMode CrossSubnet is not supported yet: its routes are " +
		"programmed without encapsulation"
	if got := problemsText(PlanFor("r", s, Options{}).Problems); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestBadBindModeIsNamed(t *testing.T) {
	for mode, want := range map[string]string{
		"": "", "None": "", "NodeIP": "",
		"nodeIP": `BGPConfiguration(default): bindMode "nodeIP" is neither NodeIP nor ` +
			`None: None is used`,
	} {
		plan := PlanFor("a", cluster(configured(bgpConfig{BindMode: mode})), Options{})
		if got := problemsText(plan.Problems); got != want {
			t.Errorf("%q: problems %q, want %q", mode, got, want)
		}
	}
}

func TestLogLevel(t *testing.T) {
	for _, tc := range []struct {
		name, cluster, node string
		want                slog.Level
		problem             string
	}{
		{"nothing said", "", "", slog.LevelInfo, ""},
		{"the cluster's", "Debug", "", slog.LevelDebug, ""},
		{"the node's goes before it", "Debug", "Warning", slog.LevelWarn, ""},
		{"the node's alone", "", "Error", slog.LevelError, ""},
		{"nothing is less than errors", "None", "", slog.LevelError, ""},
		{"no severity", "loud", "", slog.LevelInfo,
			`BGPConfiguration(default): logSeverityScreen "loud" is no severity: Info is used`},
		{"no severity at the node", "Error", "mute", slog.LevelInfo,
			`BGPConfiguration(node.a): logSeverityScreen "mute" is no severity: Info is used`},
		{"in any case", "dEBUG", "", slog.LevelDebug, ""},
	} {
		s := cluster(configured(bgpConfig{LogSeverityScreen: tc.cluster}))
		s.BGPConfigurations["node.a"] = bgpConfig{LogSeverityScreen: tc.node}
		s.BGPConfigurations["node.b"] = bgpConfig{LogSeverityScreen: "Fatal"}
		if got := LogLevel("a", s); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
		if got := problemsText(PlanFor("a", s, Options{}).Problems); got != tc.problem {
			t.Errorf("%s: problems %q, want %q", tc.name, got, tc.problem)
		}
	}
}

// anyCluster draws a cluster of few names, addresses and prefixes, so that they collide.
func anyCluster(t *rapid.T) func() *calico.Snapshot {
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	addrs := rapid.SampledFrom([]string{
		"", "10.0.0.9", "10.0.0.10", "10.0.0.1", "10.0.0.100", "9.0.0.1",
	})
	addrs6 := rapid.SampledFrom([]string{"", "fd77::9", "fd77::10", "fd77::a"})
	blocks := rapid.SampledFrom([]string{
		"10.1.0.0/26", "10.1.0.64/26", "10.1.1.0/26", "10.1.2.5/32", "fd00:1::40/122",
	})
	hosts := rapid.SampledFrom([]string{
		"10.1.0.1", "10.1.0.65", "10.1.2.5", "10.2.0.1", "fd00:1::41", "fd00:1::99",
	})
	poolCIDRs := rapid.SampledFrom([]string{
		"10.1.0.0/16", "10.1.0.0/24", "10.2.0.0/16", "fd00:1::/64",
	})
	states := rapid.SampledFrom([]calico.AffinityState{
		"", calico.AffinityConfirmed, calico.AffinityPending, calico.AffinityPendingDeletion,
	})
	prefix := func(addr string) netip.Prefix {
		if addr == "" {
			return netip.Prefix{}
		}
		return route.HostPrefix(ip(addr))
	}

	s := cluster()
	s.Nodes = map[string]calico.Node{}
	for _, name := range rapid.SliceOfNDistinct(names, 0, 4, rapid.ID[string]).Draw(t, "nodes") {
		s.Nodes[name] = calico.Node{
			Name: name, IPv4: prefix(addrs.Draw(t, "v4")), IPv6: prefix(addrs6.Draw(t, "v6")),
			Labels: rapid.SampledFrom([]map[string]string{nil, {"role": "leaf"},
				{"role": "rr"}}).Draw(t, "labels"),
			ASNumber: rapid.SampledFrom([]uint32{0, 0, 64801}).Draw(t, "as"),
			RouteReflectorClusterID: rapid.SampledFrom([]string{"", "", "0.0.0.7"}).Draw(t,
				"cluster"),
		}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "peers") {
		p := anyBGPPeer(t)
		p.Name = fmt.Sprintf("p%d", i)
		s.BGPPeers[p.Name] = p
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "pools") {
		name := fmt.Sprintf("pool%d", i)
		s.IPPools[name] = calico.IPPool{
			Name: name, CIDR: pfx(poolCIDRs.Draw(t, "cidr")),
			DisableBGPExport: rapid.Bool().Draw(t, "noExport"),
		}
	}
	for _, b := range rapid.SliceOfN(blocks, 0, 4).Draw(t, "affinities") {
		s.Affinities[pfx(b)] = states.Draw(t, "state")
	}
	for _, b := range rapid.SliceOfN(blocks, 0, 4).Draw(t, "blocks") {
		s.Blocks[pfx(b)] = calico.Block{CIDR: pfx(b),
			Owner: calico.Owner{
				Host: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "owner"),
			},
			Allocations: []calico.Allocation{
				{
					Address: pfx(b).Addr(), Node: names.Draw(t, "allocated"),
					Type: "vxlanTunnelAddress",
				},
			}}
	}
	for _, h := range rapid.SliceOfN(hosts, 0, 4).Draw(t, "hosts") {
		runs("a", h)(s)
	}
	// Copies differ in the order in which their maps were filled; maps are read in an order of
	// chance anyway.
	return func() *calico.Snapshot {
		c := *s
		c.Nodes, c.BGPPeers = backwards(s.Nodes), backwards(s.BGPPeers)
		c.IPPools, c.WorkloadEndpoints = backwards(s.IPPools), backwards(s.WorkloadEndpoints)
		c.Affinities, c.Blocks = maps.Clone(s.Affinities), maps.Clone(s.Blocks)
		for k, b := range c.Blocks {
			b.Allocations = slices.Clone(b.Allocations)
			c.Blocks[k] = b
		}
		return &c
	}
}

func anyBGPPeer(t *rapid.T) calico.BGPPeer {
	// the last one is none
	selectors := rapid.SampledFrom([]string{"all()", "role == 'leaf'", "!has(role)", "role"})
	p := bgpPeer{
		ASNumber:       rapid.SampledFrom([]uint32{0, 64512, 64801}).Draw(t, "peerAS"),
		Filters:        rapid.SampledFrom([][]string{nil, nil, {"f"}}).Draw(t, "filters"),
		ReversePeering: rapid.SampledFrom([]string{"", "Manual"}).Draw(t, "reverse"),
		TTLSecurity:    rapid.SampledFrom([]uint8{0, 1}).Draw(t, "ttl"),
		ReachableBy:    rapid.SampledFrom([]string{"", "10.0.0.254", "bad"}).Draw(t, "gateway"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "nodes") {
	case 1:
		p.Node = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node")
	case 2:
		p.NodeSelector = selectors.Draw(t, "nodeSelector")
	}
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		p.LocalWorkloadSelector = selectors.Draw(t, "localWorkloadSelector")
	case 1:
		p.PeerSelector = selectors.Draw(t, "peerSelector")
	default:
		p.PeerIP = rapid.SampledFrom([]string{"10.0.0.9", "10.0.0.10", "10.0.0.10:1790",
			"192.0.2.1", "fd77::9", "bad"}).Draw(t, "peerIP")
	}
	return p
}

func backwards[V any](m map[string]V) map[string]V {
	out := map[string]V{}
	keys := slices.Sorted(maps.Keys(m))
	slices.Reverse(keys)
	for _, k := range keys {
		out[k] = m[k]
	}
	return out
}

func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster := anyCluster(t)
		s, untouched := cluster(), cluster()
		o := Options{RouterID: "hash"}
		plan := PlanFor("a", s, o)
		for range 5 {
			if again := PlanFor("a", cluster(), o); !reflect.DeepEqual(again, plan) {
				t.Fatalf("the same data gives another plan:\n%+v\n%+v", plan, again)
			}
		}
		if !reflect.DeepEqual(s, untouched) {
			t.Fatal("the snapshot was changed")
		}

		self := s.Nodes["a"]
		if !slices.IsSortedFunc(plan.Peers, func(x, y Peer) int { return x.ID().Compare(y.ID()) }) {
			t.Fatalf("peers are not sorted: %+v", plan.Peers)
		}
		for i, p := range plan.Peers {
			if i > 0 && p.ID() == plan.Peers[i-1].ID() {
				t.Fatalf("two sessions to %s", p.ID())
			}
			sameAddress := i > 0 && p.Address == plan.Peers[i-1].Address
			if p.Further != sameAddress {
				t.Fatalf("%s, further: %t", p.ID(), p.Further)
			}
			for _, o := range plan.Peers[:i] {
				if p.Address == o.Address && (p.Port == o.Port || p.Passive || o.Passive) {
					t.Fatalf("%s and %s cannot be told apart", p.ID(), o.ID())
				}
			}
			if p.Address == self.IPv4.Addr() || p.Address == self.IPv6.Addr() || p.RemoteAS == 0 ||
				p.Port == 0 || p.RestartTime == 0 {
				t.Fatalf("session to ourselves or incomplete: %+v", p)
			}
			if p.LocalAddress.IsValid() && familyOf(p.Address) != familyOf(p.LocalAddress) ||
				p.ReachableBy.IsValid() && familyOf(p.Address) != familyOf(p.ReachableBy) {
				t.Fatalf("session between families: %+v", p)
			}
			if p.Client && (self.RouteReflectorClusterID == "" || p.External()) {
				t.Fatalf("a client of a node that is no reflector, or in another AS: %+v", p)
			}
		}
		if !slices.IsSortedFunc(plan.Announcements, func(x, y Announcement) int {
			return route.ComparePrefixes(x.Prefix, y.Prefix)
		}) {
			t.Fatalf("announcements are not sorted: %+v", plan.Announcements)
		}
		for i, a := range plan.Announcements {
			if i > 0 && a.Prefix == plan.Announcements[i-1].Prefix {
				t.Fatalf("%s is announced twice", a.Prefix)
			}
			// What Calico's filter would not let a learned route do, our own does not either.
			if v := plan.Policies.Common(Route{Prefix: a.Prefix, From: &Peer{}}); !v.Accept {
				t.Fatalf("%s is announced although it is %s", a.Prefix, v.Reason)
			}
			if slices.ContainsFunc(plan.Withheld, func(w Withheld) bool {
				return w.Prefix == a.Prefix && strings.Contains(w.Reason, "pool")
			}) {
				t.Fatalf("%s is announced and withheld", a.Prefix)
			}
		}
	})
}

// TestOneBadPeer: a BGPPeer that cannot be followed costs only itself: all other sessions are what
// they are without it.
func TestOneBadPeer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)()
		without, _ := Peers("a", s)

		bad := anyBGPPeer(t)
		bad.Name = rapid.SampledFrom([]string{"a first one", "p1a", "z last one"}).Draw(t, "name")
		switch rapid.IntRange(0, 4).Draw(t, "how") {
		case 0:
			bad.NodeSelector = "role =="
		case 1:
			bad.PeerIP, bad.PeerSelector, bad.LocalWorkloadSelector = "", "(", ""
		case 2:
			bad.PeerIP, bad.PeerSelector = "10.0.0.9", "all()"
		case 3:
			bad.PeerIP, bad.PeerSelector, bad.ASNumber = "10.0.0.9", "", 0
			bad.Node, bad.NodeSelector = "a", "" // a problem of the nodes that it is for
		case 4:
			bad.PeerIP, bad.PeerSelector, bad.LocalWorkloadSelector = "", "", ""
		}
		s.BGPPeers[bad.Name] = bad
		with, problems := Peers("a", s)
		if !reflect.DeepEqual(with, without) {
			t.Fatalf("with %+v\ngot  %s\nwant %s", bad, briefs(with), briefs(without))
		}
		if !strings.Contains(problemsText(problems), "BGPPeer("+bad.Name+"): ") {
			t.Fatalf("nothing is said about %+v: %v", bad, problems)
		}
	})
}

// TestMeshMeets checks the two ends of every mesh session against each other: both are there, agree
// on AS numbers and one of them dials.
func TestMeshMeets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster()
		s.Nodes = map[string]calico.Node{}
		octets := rapid.SliceOfNDistinct(rapid.ByteRange(1, 254), 2, 6, rapid.ID[byte]).Draw(t,
			"addresses")
		for i, o := range octets {
			name := fmt.Sprintf("n%d", i)
			n := calico.Node{
				Name: name, IPv4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, o}), 24),
			}
			n.ASNumber = rapid.SampledFrom([]uint32{0, 64801}).Draw(t, "as")
			if rapid.Bool().Draw(t, "v6") {
				n.IPv6 = pfx(fmt.Sprintf("fd77::%x/64", o))
			}
			s.Nodes[name] = n
		}
		plans := map[string]Plan{}
		for name := range s.Nodes {
			plans[name] = PlanFor(name, s, Options{})
		}
		for name, plan := range plans {
			for _, p := range plan.Peers {
				far := plans[p.CalicoNode]
				i := slices.IndexFunc(far.Peers, func(q Peer) bool {
					return q.Address == p.LocalAddress
				})
				if i < 0 {
					t.Fatalf("%s peers with %s, which does not peer back", name, p.Address)
				}
				q := far.Peers[i]
				if q.CalicoNode != name || p.Passive == q.Passive || p.RemoteAS != q.LocalAS ||
					p.LocalAS != q.RemoteAS || p.Port != far.Speaker.ListenPort {
					t.Fatalf("the ends do not meet:\n%+v\n%+v", p, q)
				}
			}
		}
	})
}

func TestPrefixLimitsGoByClass(t *testing.T) {
	s := snapshotForLimits()
	p := PlanFor("a", s, Options{PrefixLimits: map[Scope]uint32{ScopeGlobal: 100}})
	got := map[Scope]uint32{}
	for _, peer := range p.Peers {
		got[peer.Scope] = peer.PrefixLimit
	}
	if len(p.Peers) != 2 || got[ScopeGlobal] != 100 || got[ScopeMesh] != 0 {
		t.Errorf("peers %+v", p.Peers)
	}
}

// snapshotForLimits has a mesh peer and a global one.
func snapshotForLimits() *calico.Snapshot {
	return &calico.Snapshot{
		Nodes: map[string]calico.Node{
			"a": {Name: "a", IPv4: netip.MustParsePrefix("192.0.2.1/24")},
			"b": {Name: "b", IPv4: netip.MustParsePrefix("192.0.2.2/24")},
		},
		BGPPeers: map[string]bgpPeer{"tor": {Name: "tor", PeerIP: "192.0.2.99", ASNumber: 65001}},
	}
}
