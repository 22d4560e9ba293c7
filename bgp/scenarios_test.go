package bgp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

// detail writes what is not the default of a peer behind its brief.
func detail(p Peer) string {
	s := brief(p)
	add := func(when bool, format string, args ...any) {
		if when {
			s += " " + fmt.Sprintf(format, args...)
		}
	}
	add(p.LocalAS != 64512, "local-as %d", p.LocalAS)
	add(p.Password != nil, "password")
	add(p.RestartTime != defaultRestartTime, "restart %s", p.RestartTime)
	add(p.KeepaliveTime != 0, "keepalive %s", p.KeepaliveTime)
	add(p.TTLSecurity != 0, "ttl %d", p.TTLSecurity)
	add(p.Multihop, "multihop")
	add(p.AllowLocalAS != 0, "allow %d", p.AllowLocalAS)
	add(!p.LocalAddress.IsValid(), "any-source")
	add(p.NextHop != "", "next-hop %s", p.NextHop)
	add(p.ReachableBy.IsValid(), "via %s", p.ReachableBy)
	add(len(p.Filters) > 0, "filters %s", strings.Join(p.Filters, "+"))
	add(p.Reflector, "rr")
	return s
}

func details(peers []Peer) string {
	var all []string
	for _, p := range peers {
		all = append(all, detail(p))
	}
	return strings.Join(all, ", ")
}

func endpoint(name, node string, labels map[string]string, nets ...string) snapshotEdit {
	return func(s *calico.Snapshot) {
		w := calico.WorkloadEndpoint{Namespace: "ns", Name: name, Node: node, Labels: labels}
		for _, n := range nets {
			w.IPNetworks = append(w.IPNetworks, pfx(n))
		}
		s.WorkloadEndpoints["ns/"+name] = w
	}
}

// TestScenarios: each line is one cluster seen from one node. The mesh is off where it does not
// matter. Expected peers are by address.
func TestScenarios(t *testing.T) {
	const tor = "192.0.2.1"

	v6 := func(s *calico.Snapshot) {
		for name, a := range map[string]string{
			"a": "fd77::9/64", "b": "fd77::10/64", "r": "fd77::100/64",
		} {
			node(name, func(n *calico.Node) { n.IPv6 = pfx(a) })(s)
		}
	}
	v4off := func(name string) snapshotEdit {
		return node(name, func(n *calico.Node) { n.IPv4 = netip.Prefix{} })
	}
	clusterID := func(name, id string) snapshotEdit {
		return node(name, func(n *calico.Node) { n.RouteReflectorClusterID = id })
	}
	label := func(name, key, value string) snapshotEdit {
		return node(name, func(n *calico.Node) { n.Labels = map[string]string{key: value} })
	}
	secret := &calico.SecretKeyRef{Name: "bgp", Key: "tor"}
	bgpd := map[string]string{"app": "bgpd"}

	for _, tc := range []struct {
		name   string
		self   string
		change []snapshotEdit
		peers  []bgpPeer
		want   string
	}{
		// nodeSelector, peerSelector
		{"nodeSelector that matches us", "a", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r1'", PeerIP: tor, ASNumber: 64900}},
			"192.0.2.1/64900 A node multihop"},
		{"nodeSelector that does not", "c", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r1'", PeerIP: tor, ASNumber: 64900}}, ""},
		{"nodeSelector and a node without labels", "a",
			[]snapshotEdit{node("a", func(n *calico.Node) { n.Labels = nil })},
			[]bgpPeer{{NodeSelector: "!has(rack)", PeerIP: tor, ASNumber: 64900}},
			"192.0.2.1/64900 A node multihop"},
		{"nodeSelector all() is node specific", "a", nil,
			[]bgpPeer{{NodeSelector: "all()", PeerIP: tor, ASNumber: 64900}},
			"192.0.2.1/64900 A node multihop"},
		{"nodeSelector on a node without the family", "a", nil,
			[]bgpPeer{{NodeSelector: "all()", PeerIP: "fd77::1", ASNumber: 64900}}, ""},
		{"peerSelector alone is global", "a", nil, []bgpPeer{{PeerSelector: "rack == 'r2'"}},
			"c/64801 P global multihop"},
		{"peerSelector is met from the other end", "c", nil,
			[]bgpPeer{{PeerSelector: "rack == 'r2'"}},
			"a/64512 A node local-as 64801 multihop, b:1179/64512 A node local-as 64801 " +
				"multihop, r/64512 A node local-as 64801 multihop rr, s/64512 A node local-as " +
				"64801 multihop rr"},
		{"peerSelector matches ourselves: no session", "c", nil,
			[]bgpPeer{{Node: "c", PeerSelector: "rack == 'r2'"}}, ""},
		{"peerSelector leaves out nodes without address", "a", nil,
			[]bgpPeer{{Node: "a", PeerSelector: "role == 'leaf'"}},
			"b:1179/64512 A node, c/64801 P node multihop"},
		{"peerSelector in both families, where both have them", "a", []snapshotEdit{v6},
			[]bgpPeer{{Node: "a", PeerSelector: "rack == 'r1' || role == 'rr'"}},
			"b:1179/64512 A node, r/64512 A node rr, s/64512 P node rr, b:1179/64512 A node, " +
				"r/64512 A node rr"},
		{"peerSelector to nodes with IPv6 alone", "a", []snapshotEdit{v6, v4off("b")},
			[]bgpPeer{{Node: "a", PeerSelector: "rack == 'r1'"}}, "b:1179/64512 A node"},
		{"peerSelector that matches nobody", "a", nil,
			[]bgpPeer{{PeerSelector: "rack == 'r9'"}}, ""},
		{"local AS and allowed AS are for peerIP only", "a", nil,
			[]bgpPeer{{Node: "a", PeerSelector: "rack == 'r2'", LocalASNumber: 64777,
				NumAllowedLocalASNumbers: 3}},
			"c/64801 P node multihop"},
		{"peerSelector with the cluster's AS and port", "a",
			[]snapshotEdit{configured(bgpConfig{
				NodeToNodeMeshEnabled: new(bool), ASNumber: 65000, ListenPort: 1180,
			})},
			[]bgpPeer{{Node: "a", PeerSelector: "role == 'leaf'"}},
			"b:1179/65000 A node local-as 65000, c:1180/64801 P node local-as 65000 multihop"},

		// reverse
		{"reverse of node and peerSelector", "c", nil,
			[]bgpPeer{{Node: "a", PeerSelector: "rack == 'r2'"}},
			"a/64512 A node local-as 64801 multihop"},
		{"reverse of two selectors", "b", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r2'", PeerSelector: "rack == 'r1'"}},
			"c/64801 P node multihop"},
		{"reverse of a selector, switched off", "b", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r2'", PeerSelector: "rack == 'r1'",
				ReversePeering: "Manual"}},
			""},
		{"forward with Manual", "c", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r2'", PeerSelector: "rack == 'r1'",
				ReversePeering: "Manual"}},
			"a/64512 A node local-as 64801 multihop, b:1179/64512 A node local-as 64801 multihop"},
		{"reverse of nodeSelector and peerIP", "b", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r2'", PeerIP: "172.30.8.10", ASNumber: 64512}},
			"c/64801 P node multihop"},
		{"reverse of peerIP in its own family only", "b", []snapshotEdit{v6},
			[]bgpPeer{{Node: "a", PeerIP: "fd77::10", ASNumber: 64512}}, "a/64512 P node"},
		{"reverse inherits what is not about the local AS", "b", nil,
			[]bgpPeer{{Node: "a", PeerIP: "172.30.8.10", ASNumber: 64512, LocalASNumber: 64777,
				NumAllowedLocalASNumbers: 2, Password: secret, TTLSecurity: 1,
				MaxRestartTime: new(time.Minute),
				KeepaliveTime:  5 * time.Second, SourceAddress: "None", NextHopMode: "Self",
				Filters: []string{"f", "g"}}},
			"a/64512 P node password restart 1m0s keepalive 5s ttl 1 any-source next-hop " +
				"Self filters f+g"},
		{"both ends select each other: one session", "a", nil,
			[]bgpPeer{{NodeSelector: "rack == 'r1'", PeerSelector: "rack == 'r1'"}},
			"b:1179/64512 A node"},

		// reflectors
		{"reflectors of two clusters are clients of each other", "r",
			[]snapshotEdit{clusterID("s", "0.0.0.8")}, []bgpPeer{{PeerSelector: "role == 'rr'"}},
			"a/64512 PC node, b:1179/64512 AC node, c/64801 P node multihop, s/64512 PC global rr"},
		{"a reflector by peerIP from outside the cluster", "a", nil,
			[]bgpPeer{{Node: "a", PeerIP: "172.30.8.100", ASNumber: 64512}}, "r/64512 A node rr"},
		{"a reflector's router in another AS is no client", "r", nil,
			[]bgpPeer{{Node: "r", PeerIP: tor, ASNumber: 64900}},
			"192.0.2.1/64900 A node multihop"},
		{"a reflector's router in its AS is one", "r", nil,
			[]bgpPeer{{Node: "r", PeerIP: tor, ASNumber: 64512}}, "192.0.2.1/64512 AC node"},
		{"the local AS of the session decides", "r", nil,
			[]bgpPeer{{Node: "r", PeerIP: tor, ASNumber: 64900, LocalASNumber: 64900}},
			"192.0.2.1/64900 AC node local-as 64900"},
		{"no cluster ID, no clients", "a", nil,
			[]bgpPeer{{Node: "a", PeerIP: tor, ASNumber: 64512}}, "192.0.2.1/64512 A node"},
		{"a reflector has no mesh, others have none with it", "a",
			[]snapshotEdit{configured(bgpConfig{}), clusterID("b", "1.1.1.1")}, nil,
			"c/64801 P mesh multihop"},
		{"reflection in IPv6", "r", []snapshotEdit{v6, v4off("r")},
			[]bgpPeer{{NodeSelector: "role == 'leaf'", PeerSelector: "role == 'rr'"}},
			"a/64512 PC node, b:1179/64512 AC node"},
		{"mesh and reflectors side by side, as while migrating", "a",
			[]snapshotEdit{configured(bgpConfig{})},
			[]bgpPeer{{NodeSelector: "!has(x)", PeerSelector: "role == 'rr'"}},
			"b:1179/64512 A mesh, r/64512 A node rr, c/64801 P mesh multihop, s/64512 P node rr"},

		// precedence
		{"global before node, by selectors", "a", nil,
			[]bgpPeer{{Name: "z", PeerSelector: "rack == 'r2'", TTLSecurity: 1},
				{Name: "y", Node: "a", PeerSelector: "rack == 'r2'", TTLSecurity: 2}},
			"c/64801 P global ttl 1"},
		{"global before the reverse of another", "c", nil,
			[]bgpPeer{{Name: "z", PeerIP: "172.30.8.9", ASNumber: 64512, TTLSecurity: 1,
				ReversePeering: "Manual"},
				{Name: "y", Node: "a", PeerIP: "172.30.9.20", ASNumber: 64801, TTLSecurity: 2}},
			"a/64512 A global local-as 64801 ttl 1"},
		{"forward before reverse", "a", nil,
			[]bgpPeer{{Name: "z", Node: "a", PeerIP: "172.30.8.10", ASNumber: 64512,
				TTLSecurity: 1},
				{Name: "y", Node: "b", PeerIP: "172.30.8.9", ASNumber: 64512, TTLSecurity: 2}},
			"b:1179/64512 A node ttl 1"},
		{"mesh before node by selectors", "a", []snapshotEdit{configured(bgpConfig{})},
			[]bgpPeer{{NodeSelector: "all()", PeerSelector: "rack == 'r2'", TTLSecurity: 2}},
			"b:1179/64512 A mesh, c/64801 P mesh multihop"},
		{"workload before mesh", "a",
			[]snapshotEdit{configured(bgpConfig{}), endpoint("w", "a", bgpd, "172.30.8.10/32")},
			[]bgpPeer{{LocalWorkloadSelector: "has(app)", ASNumber: 64999}},
			"b/64999 P workload multihop any-source, c/64801 P mesh multihop"},
		{"global before workload", "a", []snapshotEdit{endpoint("w", "a", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{Name: "w", LocalWorkloadSelector: "has(app)", ASNumber: 64999},
				{Name: "z", PeerIP: "10.1.0.5", ASNumber: 64900}},
			"10.1.0.5/64900 A global multihop"},

		// fields
		{"local AS makes eBGP of iBGP", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, LocalASNumber: 64777}},
			"192.0.2.1/64512 A global local-as 64777 multihop"},
		{"local AS makes iBGP of eBGP", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900, LocalASNumber: 64900}},
			"192.0.2.1/64900 A global local-as 64900"},
		{"four-octet AS", "a", nil, []bgpPeer{{PeerIP: tor, ASNumber: 4200000001}},
			"192.0.2.1/4200000001 A global multihop"},
		{"TTL security instead of multihop", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900, TTLSecurity: 255}},
			"192.0.2.1/64900 A global ttl 255"},
		{"restart time is rounded", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512,
				MaxRestartTime: new(90500 * time.Millisecond)}},
			"192.0.2.1/64512 A global restart 1m31s"},
		{"no restart time", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, MaxRestartTime: new(time.Duration(0))}},
			"192.0.2.1/64512 A global restart 0s"},
		{"next to no restart time", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, MaxRestartTime: new(time.Millisecond)}},
			"192.0.2.1/64512 A global restart 0s"},
		{"keepalive time", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, KeepaliveTime: 20 * time.Second}},
			"192.0.2.1/64512 A global keepalive 20s"},
		{"allowed AS numbers", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900, NumAllowedLocalASNumbers: 2}},
			"192.0.2.1/64900 A global multihop allow 2"},
		{"no source address", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, SourceAddress: "None"}},
			"192.0.2.1/64512 A global any-source"},
		{"password and filters", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, Password: secret,
				Filters: []string{"z", "a"}}},
			"192.0.2.1/64512 A global password filters z+a"},
		{"next hop kept", "a", nil, []bgpPeer{{PeerIP: tor, ASNumber: 64512, NextHopMode: "Keep"}},
			"192.0.2.1/64512 A global next-hop Keep"},
		{"next hop Auto goes before the old field", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900, NextHopMode: "Auto",
				KeepOriginalNextHop: true}},
			"192.0.2.1/64900 A global multihop"},
		{"next hop Self goes before the old field", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900, NextHopMode: "Self",
				KeepOriginalNextHop: true}},
			"192.0.2.1/64900 A global multihop next-hop Self"},
		{"the old field towards eBGP", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900, KeepOriginalNextHop: true}},
			"192.0.2.1/64900 A global multihop next-hop Keep"},
		{"the old field towards iBGP", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, KeepOriginalNextHop: true}},
			"192.0.2.1/64512 A global"},
		{"the old field towards eBGP by local AS", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64512, LocalASNumber: 64777,
				KeepOriginalNextHop: true}},
			"192.0.2.1/64512 A global local-as 64777 multihop next-hop Keep"},
		{"gateway", "a", nil, []bgpPeer{{PeerIP: tor, ASNumber: 64900, ReachableBy: "172.30.8.1"}},
			"192.0.2.1/64900 A global multihop via 172.30.8.1"},
		{"gateway to each node of its family", "a", []snapshotEdit{v6},
			[]bgpPeer{{Node: "a", PeerSelector: "role == 'rr'", ReachableBy: "172.30.8.1"}},
			"r/64512 A node via 172.30.8.1 rr, s/64512 P node via 172.30.8.1 rr, " +
				"r/64512 A node rr"},
		{"gateway to a node of the mesh", "a", []snapshotEdit{configured(bgpConfig{})},
			[]bgpPeer{{Node: "a", PeerIP: "172.30.8.10", ASNumber: 64512,
				ReachableBy: "172.30.8.1"}},
			"b:1179/64512 A mesh via 172.30.8.1, c/64801 P mesh multihop"},
		{"gateway of a session to another port, where the peer dials", "a",
			[]snapshotEdit{listening("c", 1790)},
			[]bgpPeer{{Node: "a", PeerIP: "172.30.9.20", ASNumber: 64801},
				{Node: "a", PeerIP: "172.30.9.20:179", ASNumber: 64801,
					ReachableBy: "172.30.8.1"}},
			"c:1790/64801 P node multihop via 172.30.8.1"},
		{"gateway of a session that another one replaces", "a", nil,
			[]bgpPeer{{PeerIP: tor, ASNumber: 64900},
				{PeerIP: tor, ASNumber: 64900, ReachableBy: "172.30.8.1"},
				{Node: "a", PeerIP: tor, ASNumber: 64900, ReachableBy: "172.30.8.1"}},
			"192.0.2.1/64900 A global multihop"},
		{"a gateway that is the peer", "a", nil,
			[]bgpPeer{{PeerIP: "172.30.8.1", ASNumber: 64900, ReachableBy: "172.30.8.1"}},
			"172.30.8.1/64900 A global multihop"},
		{"several routers", "a", nil,
			[]bgpPeer{{Name: "x", PeerIP: "192.0.2.2", ASNumber: 64900},
				{Name: "y", PeerIP: tor, ASNumber: 64901},
				{Name: "z", PeerIP: "fd77::1", ASNumber: 64900}},
			"192.0.2.1/64901 A global multihop, 192.0.2.2/64900 A global multihop"},

		// local workloads
		{"workloads with the labels, first address of each family", "a",
			[]snapshotEdit{v6,
				endpoint("w", "a", bgpd, "10.1.0.5/32", "fd10::5/128", "10.1.0.6/32",
					"fd10::6/128"),
				endpoint("x", "a", map[string]string{"app": "web"}, "10.1.0.7/32")},
			[]bgpPeer{{LocalWorkloadSelector: "app == 'bgpd'", ASNumber: 64999}},
			"10.1.0.5/64999 P workload multihop any-source, fd10::5/64999 P workload " +
				"multihop any-source"},
		{"workloads of other nodes are theirs", "a",
			[]snapshotEdit{endpoint("w", "b", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64999}}, ""},
		{"workloads on selected nodes", "a",
			[]snapshotEdit{endpoint("w", "a", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{Name: "x", LocalWorkloadSelector: "all()", ASNumber: 1,
				NodeSelector: "rack == 'r2'"},
				{
					Name: "y", LocalWorkloadSelector: "all()", ASNumber: 64999,
					NodeSelector: "rack == 'r1'",
				}},
			"10.1.0.5/64999 P workload multihop any-source"},
		{"workloads on a named node", "a", []snapshotEdit{endpoint("w", "a", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64999, Node: "b"}}, ""},
		{"workloads: of a BGPPeer the AS numbers and filters count, no more", "a",
			[]snapshotEdit{endpoint("w", "a", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64512, LocalASNumber: 64777,
				Password: secret, Filters: []string{"f"}, MaxRestartTime: new(time.Minute),
				KeepaliveTime: 5 * time.Second, TTLSecurity: 1, NextHopMode: "Keep",
				KeepOriginalNextHop: true, SourceAddress: "None", ReachableBy: "10.1.0.6",
				NumAllowedLocalASNumbers: 3}},
			"10.1.0.5/64512 P workload local-as 64777 multihop any-source filters f"},
		{"a workload of a family that the node has not", "a",
			[]snapshotEdit{endpoint("w", "a", bgpd, "fd10::5/128")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64999}}, ""},
		{"a workload with a network and no address", "a",
			[]snapshotEdit{endpoint("w", "a", bgpd, "10.1.0.0/24")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64999}}, ""},
		{"a workload of a reflector in its AS", "r",
			[]snapshotEdit{endpoint("w", "r", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64512}},
			"10.1.0.5/64512 PC workload any-source"},
		{"a workload of a reflector in another AS", "r",
			[]snapshotEdit{endpoint("w", "r", bgpd, "10.1.0.5/32")},
			[]bgpPeer{{LocalWorkloadSelector: "all()", ASNumber: 64999}},
			"10.1.0.5/64999 P workload multihop any-source"},

		// changes of labels
		{"a label makes a spine", "a", []snapshotEdit{label("b", "role", "spine")},
			[]bgpPeer{{NodeSelector: "role == 'leaf'", PeerSelector: "role == 'spine'"}},
			"b:1179/64512 A node"},
		{"and the spine knows all its leaves", "b", []snapshotEdit{label("b", "role", "spine")},
			[]bgpPeer{{NodeSelector: "role == 'leaf'", PeerSelector: "role == 'spine'"}},
			"a/64512 P node, c/64801 P node multihop"},
	} {
		s := cluster(append([]snapshotEdit{meshOff}, tc.change...)...)
		for i, p := range tc.peers {
			if p.Name == "" {
				p.Name = fmt.Sprintf("p%d", i)
			}
			s.BGPPeers[p.Name] = p
		}
		peers, _ := Peers(tc.self, s)
		if got := details(peers); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// What a BGPPeer says and nobody can do is named, and the session runs without it.
func TestFieldsThatCannotBeUsed(t *testing.T) {
	for _, tc := range []struct {
		peer    calico.BGPPeer
		want    string
		problem string
	}{
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, NextHopMode: "self"},
			"192.0.2.1/64512 A global",
			`nextHopMode "self" is none of Auto, Self, Keep: Auto is used`},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, SourceAddress: "172.30.8.9"},
			"192.0.2.1/64512 A global",
			`sourceAddress "172.30.8.9" is neither UseNodeIP nor None: UseNodeIP is used`},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, ReversePeering: "manual"},
			"192.0.2.1/64512 A global",
			`reversePeering "manual" is neither Auto nor Manual: Auto is used`},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, ReachableBy: "gateway"},
			"192.0.2.1/64512 A global",
			`reachableBy "gateway" is not the address of a gateway: the session runs ` +
				`without the route`},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, ReachableBy: "127.0.0.1"},
			"192.0.2.1/64512 A global",
			`reachableBy "127.0.0.1" is not the address of a gateway: the session runs ` +
				`without the route`},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, ReachableBy: "fd77::1"},
			"192.0.2.1/64512 A global",
			"reachableBy fd77::1 is of another family than peerIP 192.0.2.1: the session runs " +
				"without the route"},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, NumAllowedLocalASNumbers: 1000},
			"192.0.2.1/64512 A global allow 255",
			"numAllowedLocalASNumbers 1000 is not in 0…255: 255 is used"},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, NumAllowedLocalASNumbers: -1},
			"192.0.2.1/64512 A global", "numAllowedLocalASNumbers -1 is not in 0…255: 0 is used"},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, KeepaliveTime: 24 * time.Hour},
			"192.0.2.1/64512 A global",
			"keepaliveTime 24h0m0s is not in 0…6h4m5s: a third of the hold time is used"},
		{bgpPeer{PeerIP: "192.0.2.1", ASNumber: 64512, MaxRestartTime: new(2 * time.Hour)},
			"192.0.2.1/64512 A global restart 1h8m15s",
			"maxRestartTime is 2h0m0s, which the protocol cannot carry: 1h8m15s is used"},
		{bgpPeer{PeerSelector: "rack == 'r2'", ASNumber: 64801}, "c/64801 P global multihop",
			"asNumber is ignored: with peerSelector it is each node's own"},
	} {
		tc.peer.Name = "x"
		peers, problems := Peers("a", cluster(meshOff, peered(tc.peer)))
		if got := details(peers); got != tc.want {
			t.Errorf("%+v:\n got %s\nwant %s", tc.peer, got, tc.want)
		}
		if got, want := problemsText(problems), "BGPPeer(x): "+tc.problem; got != want {
			t.Errorf("problems\n got %s\nwant %s", got, want)
		}
	}
}
