package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

type (
	bgpPeer         = calico.BGPPeer
	bgpConfig       = calico.BGPConfiguration
	felixConfig     = calico.FelixConfiguration
	filterRule      = calico.BGPFilterRule
	filterOperation = calico.BGPFilterOperation
	lengthRange     = calico.PrefixLengthRange
	snapshotEdit    = func(*calico.Snapshot)
)

func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }
func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// cluster is the one of Calico's own test vectors: a, b, c are leaves, d has no BGP address, r and
// s are route reflectors. b listens on 1179, c has an AS of its own.
func cluster(change ...snapshotEdit) *calico.Snapshot {
	s := &calico.Snapshot{
		Nodes: map[string]calico.Node{
			"a": {
				Name: "a", Labels: map[string]string{"role": "leaf", "rack": "r1"},
				IPv4: pfx("172.30.8.9/24"),
			},
			"b": {
				Name: "b", Labels: map[string]string{"role": "leaf", "rack": "r1"},
				IPv4: pfx("172.30.8.10/24"),
			},
			"c": {
				Name: "c", Labels: map[string]string{"role": "leaf", "rack": "r2"},
				IPv4: pfx("172.30.9.20/24"), ASNumber: 64801,
			},
			"d": {Name: "d", Labels: map[string]string{"role": "leaf"}},
			"r": {
				Name: "r", Labels: map[string]string{"role": "rr"}, IPv4: pfx("172.30.8.100/24"),
				RouteReflectorClusterID: "0.0.0.7",
			},
			"s": {
				Name: "s", Labels: map[string]string{"role": "rr"}, IPv4: pfx("172.30.9.100/24"),
				RouteReflectorClusterID: "0.0.0.7",
			},
		},
		IPPools:           map[string]calico.IPPool{},
		Blocks:            map[netip.Prefix]calico.Block{},
		Affinities:        map[netip.Prefix]calico.AffinityState{},
		BGPConfigurations: map[string]bgpConfig{"node.b": {Name: "node.b", ListenPort: 1179}},
		BGPPeers:          map[string]bgpPeer{},
		WorkloadEndpoints: map[string]calico.WorkloadEndpoint{},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func meshOff(s *calico.Snapshot) {
	off := false
	s.BGPConfigurations["default"] = bgpConfig{NodeToNodeMeshEnabled: &off}
}

func configured(c calico.BGPConfiguration) snapshotEdit {
	return func(s *calico.Snapshot) { s.BGPConfigurations["default"] = c }
}

func listening(node string, port uint16) snapshotEdit {
	name := "node." + node
	return func(s *calico.Snapshot) {
		s.BGPConfigurations[name] = bgpConfig{Name: name, ListenPort: port}
	}
}

func peered(peers ...calico.BGPPeer) snapshotEdit {
	return func(s *calico.Snapshot) {
		for _, p := range peers {
			s.BGPPeers[p.Name] = p
		}
	}
}

func node(name string, edit func(*calico.Node)) snapshotEdit {
	return func(s *calico.Snapshot) {
		n := s.Nodes[name]
		n.Name = name
		edit(&n)
		s.Nodes[name] = n
	}
}

// brief writes a peer as the vectors do, "b:1179/64512 A mesh": node or address, port, AS, A dials
// or P waits, C a reflector's client, scope.
func brief(p Peer) string {
	name := p.CalicoNode
	if name == "" {
		name = p.Address.String()
	}
	if p.Port != 179 {
		name = fmt.Sprintf("%s:%d", name, p.Port)
	}
	dial := "A"
	if p.Passive {
		dial = "P"
	}
	if p.Client {
		dial += "C"
	}
	scope := map[Scope]string{ScopeMesh: "mesh", ScopeGlobal: "global", ScopeNode: "node",
		ScopeLocalWorkload: "workload"}[p.Scope]
	return fmt.Sprintf("%s/%d %s %s", name, p.RemoteAS, dial, scope)
}

func briefs(peers []Peer) string {
	var all []string
	for _, p := range peers {
		all = append(all, brief(p))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func problemsText(all []calico.Problem) string {
	var lines []string
	for _, p := range all {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// TestPeersVectors are the vectors observed on confd. Where both ends of a BGPPeer session would
// dial there, ours is the one that the string comparison names.
func TestPeersVectors(t *testing.T) {
	for _, tc := range []struct {
		name string
		s    *calico.Snapshot
		want map[string]string
	}{
		{"V1 mesh only", cluster(), map[string]string{
			"a": "b:1179/64512 A mesh, c/64801 P mesh",
			"b": "a/64512 P mesh, c/64801 P mesh",
			// the global AS, not c's own as confd has it since 3.32
			"c": "a/64512 A mesh, b:1179/64512 A mesh",
			"d": "", "r": "", "s": "",
		}},
		{"V2 mesh, leaves to reflectors",
			cluster(peered(bgpPeer{Name: "x", NodeSelector: "role == 'leaf'",
				PeerSelector: "role == 'rr'"})),
			map[string]string{
				"a": "b:1179/64512 A mesh, c/64801 P mesh, r/64512 A node, s/64512 P node",
				"b": "a/64512 P mesh, c/64801 P mesh, r/64512 P node, s/64512 P node",
				// eBGP to r and s
				"c": "a/64512 A mesh, b:1179/64512 A mesh, r/64512 A node, s/64512 A node",
				"r": "a/64512 PC node, b:1179/64512 AC node, c/64801 P node",
				"s": "a/64512 AC node, b:1179/64512 AC node, c/64801 P node",
				"d": "",
			}},
		{"V3 reflectors among themselves too", cluster(peered(
			bgpPeer{Name: "x", NodeSelector: "role == 'leaf'", PeerSelector: "role == 'rr'"},
			bgpPeer{Name: "y", NodeSelector: "role == 'rr'", PeerSelector: "role == 'rr'"},
		)), map[string]string{
			"a": "b:1179/64512 A mesh, c/64801 P mesh, r/64512 A node, s/64512 P node",
			// one cluster: no clients
			"r": "a/64512 PC node, b:1179/64512 AC node, c/64801 P node, s/64512 P node",
			"s": "a/64512 AC node, b:1179/64512 AC node, c/64801 P node, r/64512 A node",
		}},
		{"V4 mesh off, global peer b",
			cluster(meshOff, peered(bgpPeer{Name: "x", PeerIP: "172.30.8.10", ASNumber: 64512})),
			map[string]string{
				"a": "b:1179/64512 A global",
				"c": "b:1179/64512 A global",
				"r": "b:1179/64512 AC global",
				"s": "b:1179/64512 AC global",
				"b": "a/64512 P node, c/64801 P node, r/64512 P node, s/64512 P node",
				"d": "",
			}},
		{"V5 mesh, global peer r",
			cluster(peered(bgpPeer{Name: "x", PeerIP: "172.30.8.100", ASNumber: 64512})),
			map[string]string{
				"a": "b:1179/64512 A mesh, c/64801 P mesh, r/64512 A global",
				"b": "a/64512 P mesh, c/64801 P mesh, r/64512 P global",
				"c": "a/64512 A mesh, b:1179/64512 A mesh, r/64512 A global",
				"s": "r/64512 AC global", // by address: its cluster is not known
				"r": "a/64512 PC node, b:1179/64512 AC node, c/64801 P node, s/64512 P node",
				"d": "",
			}},
		{"V6 IPv6 mesh", cluster(
			node("a", func(n *calico.Node) { n.IPv4, n.IPv6 = netip.Prefix{}, pfx("fd77::9/64") }),
			node("b", func(n *calico.Node) { n.IPv4, n.IPv6 = netip.Prefix{}, pfx("fd77::10/64") }),
		), map[string]string{
			"a": "b:1179/64512 A mesh",
			"b": "a/64512 P mesh",
			"c": "",
		}},
		{"both families are a session each", cluster(meshOff,
			node("a", func(n *calico.Node) { n.IPv6 = pfx("fd77::9/64") }),
			node("b", func(n *calico.Node) { n.IPv6 = pfx("fd77::10/64") }),
			configured(bgpConfig{}),
		), map[string]string{
			"a": "b:1179/64512 A mesh, b:1179/64512 A mesh, c/64801 P mesh",
			"c": "a/64512 A mesh, b:1179/64512 A mesh",
		}},
	} {
		for self, want := range tc.want {
			peers, problems := Peers(self, tc.s)
			if got := briefs(peers); got != want {
				t.Errorf("%s: node %s\n got %s\nwant %s", tc.name, self, got, want)
			}
			if len(problems) > 0 {
				t.Errorf("%s: node %s: %v", tc.name, self, problems)
			}
		}
	}
}

func TestMesh(t *testing.T) {
	secret := &calico.SecretKeyRef{Name: "bgp", Key: "mesh"}
	for _, tc := range []struct {
		name     string
		self     string
		s        *calico.Snapshot
		want     string
		problems string
	}{
		{"off", "a", cluster(meshOff), "", ""},
		{"own cluster ID leaves it", "a",
			cluster(node("a", func(n *calico.Node) { n.RouteReflectorClusterID = "1.0.0.1" })), "",
			""},
		{"global AS", "a", cluster(configured(bgpConfig{ASNumber: 65000})),
			"b:1179/65000 A mesh, c/64801 P mesh", ""},
		{"node with AS of its own expects the global AS of others", "c",
			cluster(configured(bgpConfig{ASNumber: 65000})),
			"a/65000 A mesh, b:1179/65000 A mesh", ""},
		{"global listen port, node's own first", "a",
			cluster(configured(bgpConfig{ListenPort: 1180})),
			"b:1179/64512 A mesh, c:1180/64801 P mesh", ""},
		{"own listen port does not matter for peers", "b", cluster(),
			"a/64512 P mesh, c/64801 P mesh", ""},
		{"node that has our address", "a",
			cluster(node("z", func(n *calico.Node) { n.IPv4 = pfx("172.30.8.9/32") })),
			"b:1179/64512 A mesh, c/64801 P mesh",
			"Node(z): has the address 172.30.8.9 of this node, a: no session"},
		{"two nodes share an address", "a",
			cluster(node("z", func(n *calico.Node) { n.IPv4 = pfx("172.30.9.20/32") })),
			"b:1179/64512 A mesh, c/64801 P mesh",
			"Node(z): the node-to-node mesh session to 172.30.9.20 is ignored: Node(c) asks for " +
				"it too having the same address, and comes first"},
		{"node without Node resource", "nobody", cluster(), "", ""},
		{"restart time out of range", "a",
			cluster(configured(bgpConfig{NodeMeshMaxRestartTime: new(3 * time.Hour)})),
			"b:1179/64512 A mesh, c/64801 P mesh",
			"BGPConfiguration(default): nodeMeshMaxRestartTime is 3h0m0s, which the protocol " +
				"cannot carry: 1h8m15s is used"},
	} {
		peers, problems := Peers(tc.self, tc.s)
		if got := briefs(peers); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
		if got := problemsText(problems); got != tc.problems {
			t.Errorf("%s: problems\n got %s\nwant %s", tc.name, got, tc.problems)
		}
	}

	peers, _ := Peers("a",
		cluster(configured(bgpConfig{
			NodeMeshPassword: secret, NodeMeshMaxRestartTime: new(90400 * time.Millisecond),
		})))
	want := Peer{
		Address: ip("172.30.9.20"), Port: 179, Scope: ScopeMesh, Source: "Node(c)", CalicoNode: "c",
		RemoteAS: 64801, LocalAS: 64512,
		LocalAddress: ip("172.30.8.9"), Passive: true, Password: secret,
		RestartTime: 90 * time.Second, Multihop: true,
	}
	if len(peers) != 2 || !peers[1].Equal(want) {
		t.Errorf("session of the mesh\n got %+v\nwant %+v", peers, want)
	}
	if peers[0].Multihop || peers[0].External() {
		t.Errorf("iBGP session of the mesh is multihop or external: %+v", peers[0])
	}
}

func TestDials(t *testing.T) {
	for _, tc := range []struct {
		own, peer string
		want      bool
	}{
		{"10.0.0.9", "10.0.0.10", true}, // numbers would say no
		{"10.0.0.10", "10.0.0.9", false},
		{"10.0.0.2", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.10", false}, // a prefix is less
		{"9.0.0.1", "10.0.0.1", true},
		{"fd00::9", "fd00::10", true},
		{"fd00::a", "fd00::9", true},
		{"fd00:0:0:0::1", "fd00::1:1", false}, // both in their short form
	} {
		if got := dials(ip(tc.own), ip(tc.peer)); got != tc.want {
			t.Errorf("dials(%s, %s) = %v, want %v", tc.own, tc.peer, got, tc.want)
		}
	}
}

// Of Nodes with one address, the one with the peer's AS says which port to dial.
func TestPortOfNodesThatShareAnAddress(t *testing.T) {
	shared := netip.MustParsePrefix("192.168.4.9/24")
	s := &calico.Snapshot{
		Nodes: map[string]calico.Node{"b": {IPv4: shared, ASNumber: 64600},
			"c": {IPv4: shared, ASNumber: 64700}},
		BGPConfigurations: map[string]calico.BGPConfiguration{
			"node.b": {ListenPort: 1178}, "node.c": {ListenPort: 1179}},
	}
	p := NewPlanner(s).of("a")
	for as, want := range map[uint32]uint16{64600: 1178, 64700: 1179, 64800: defaultPort} {
		if got := p.portOf(shared.Addr(), as); got != want {
			t.Errorf("AS %d: port %d, want %d", as, got, want)
		}
	}
}
