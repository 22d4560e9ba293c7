package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
)

func TestParsePeerIP(t *testing.T) {
	for _, tc := range []struct {
		text string
		addr string // "" where it is refused
		port uint16
	}{
		{"192.0.2.1", "192.0.2.1", 0},
		{"192.0.2.1:1790", "192.0.2.1", 1790},
		{"fd00::1", "fd00::1", 0},
		{"[fd00::1]:1790", "fd00::1", 1790},
		{"::ffff:192.0.2.1", "192.0.2.1", 0},
		{"fd00:0:0::1", "fd00::1", 0},
		{"[fd00::1]", "", 0},
		{"fd00::1:1790", "fd00::1:1790", 0}, // an address: only brackets make a port
		{"192.0.2.1:0", "", 0},
		{"192.0.2.1:65536", "", 0},
		{"192.0.2.1:", "", 0},
		{"192.0.2.1/32", "", 0},
		{"192.0.2", "", 0},
		{"[192.0.2.1]:179", "", 0},
		{"fe80::1%eth0", "", 0},
		{"0.0.0.0", "", 0},
		{"224.0.0.1", "", 0},
		{"::", "", 0},
		{"tor.example.net", "", 0},
		{" 192.0.2.1", "", 0},
	} {
		addr, port, err := parsePeerIP(tc.text)
		if tc.addr == "" {
			if err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%q: got %v, %v, want an error that quotes it", tc.text, addr, err)
			}
			continue
		}
		if err != nil || addr != ip(tc.addr) || port != tc.port {
			t.Errorf("%q: got %v %d, %v, want %s %d", tc.text, addr, port, err, tc.addr, tc.port)
		}
	}
}

func TestBGPPeers(t *testing.T) {
	const tor = "192.0.2.1"
	v6 := node("a", func(n *calico.Node) { n.IPv6 = pfx("fd77::9/64") })
	for _, tc := range []struct {
		name     string
		self     string
		s        *calico.Snapshot
		want     string
		problems string
	}{
		{"global", "a",
			cluster(meshOff, peered(bgpPeer{Name: "tor", PeerIP: tor, ASNumber: 64900})),
			"192.0.2.1/64900 A global", ""},
		{"global, node without addresses", "d",
			cluster(meshOff, peered(bgpPeer{Name: "tor", PeerIP: tor, ASNumber: 64900})), "", ""},
		{"this node's", "a",
			cluster(meshOff, peered(bgpPeer{Name: "tor", Node: "a", PeerIP: tor, ASNumber: 64900})),
			"192.0.2.1/64900 A node", ""},
		{"another node's", "b",
			cluster(meshOff, peered(bgpPeer{Name: "tor", Node: "a", PeerIP: tor, ASNumber: 64900})),
			"", ""},
		{"port given", "a",
			cluster(meshOff, peered(bgpPeer{Name: "tor", PeerIP: tor + ":1790", ASNumber: 64900})),
			"192.0.2.1:1790/64900 A global", ""},
		{"other routers listen on 179 whatever our port", "a",
			cluster(configured(bgpConfig{ListenPort: 1180, NodeToNodeMeshEnabled: new(bool)}),
				peered(bgpPeer{Name: "tor", PeerIP: tor, ASNumber: 64900})),
			"192.0.2.1/64900 A global", ""},
		{"port of a Calico node is inferred", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "b", Node: "a", PeerIP: "172.30.8.10", ASNumber: 64512})),
			"b:1179/64512 A node", ""},
		{"port of a Calico node with another AS is not", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "b", Node: "a", PeerIP: "172.30.8.10", ASNumber: 64513})),
			"b/64513 A node", ""},
		{"port given beats the inferred", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "b", Node: "a", PeerIP: "172.30.8.10:1180", ASNumber: 64512})),
			"b:1180/64512 A node", ""},
		{"a Calico node waits by string order", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "c", Node: "a", PeerIP: "172.30.9.20", ASNumber: 64801})),
			"c/64801 P node", ""},
		{"another speaker at a Calico node's address is dialled", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.9.20:1790", ASNumber: 64900})),
			"c:1790/64900 A node", ""},
		{"and one of another AS", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.9.20", ASNumber: 64900})),
			"c/64900 A node", ""},
		{"but not the node with a local AS", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.9.20", ASNumber: 64900},
					bgpPeer{Name: "y", Node: "c", PeerIP: "172.30.8.9", ASNumber: 64512,
						LocalASNumber: 64900, ReversePeering: "Manual"})),
			"c/64900 P node", ""},
		{"and waited for where BIRD waits", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", PeerIP: "172.30.9.20:1790", ASNumber: 64900})),
			"c:1790/64900 P global", ""},
		{"IPv6", "a",
			cluster(meshOff, v6,
				peered(bgpPeer{Name: "tor", PeerIP: "[fd77::1]:1790", ASNumber: 64900})),
			"fd77::1:1790/64900 A global", ""},
		{"global IPv6 on a node without", "a",
			cluster(meshOff, peered(bgpPeer{Name: "tor", PeerIP: "fd77::1", ASNumber: 64900})), "",
			""},
		{"this node's IPv6 on a node without", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "tor", Node: "a", PeerIP: "fd77::1", ASNumber: 64900})),
			"",
			"BGPPeer(tor): no session to fd77::1: Node(a) has no IPv6 address"},

		{"one bad peer costs only itself", "a", cluster(meshOff, peered(
			bgpPeer{Name: "bad", PeerIP: tor},
			bgpPeer{Name: "good", PeerIP: "192.0.2.2", ASNumber: 64900},
			bgpPeer{Name: "ugly", PeerIP: "tor", ASNumber: 1},
		)), "192.0.2.2/64900 A global",
			"BGPPeer(bad): no session to 192.0.2.1: asNumber is missing, which peerIP needs\n" +
				`BGPPeer(ugly): peerIP "tor" is not the address of a router, or address:port, or ` +
				`[IPv6 address]:port`},
		{"no labels of a profile", "a", cluster(meshOff, peered(
			bgpPeer{Name: "w", ASNumber: 1,
				LocalWorkloadSelector: "has(x/pcns.team) || app == 'pcns.example.com/team'"})),
			"", ""},
		{"labels of a profile", "a", cluster(meshOff, peered(
			bgpPeer{Name: "w", LocalWorkloadSelector: "app == 'x' && pcns.example.com/team == 'a'",
				ASNumber: 1})), "",
			"BGPPeer(w): localWorkloadSelector: the label pcns.example.com/team would come from " +
				"a profile, and profiles are not read"},
		{"two labels of profiles, one named", "a", cluster(meshOff, peered(
			bgpPeer{Name: "w", LocalWorkloadSelector: "has(pcsa.one) || has(pcns.two)",
				ASNumber: 1})), "",
			"BGPPeer(w): localWorkloadSelector: the label pcsa.one would come from a profile, " +
				"and profiles are not read"},
		{"the broadcast address", "a", cluster(meshOff, peered(
			bgpPeer{Name: "all", PeerIP: "255.255.255.255", ASNumber: 1})), "",
			`BGPPeer(all): peerIP "255.255.255.255" is not the address of a router, or ` +
				`address:port, or [IPv6 address]:port`},
		{"contradictions", "a", cluster(meshOff, peered(
			bgpPeer{Name: "n", Node: "a", NodeSelector: "all()", PeerIP: tor, ASNumber: 64900},
			bgpPeer{Name: "p", PeerIP: tor, PeerSelector: "has(rr)"}, bgpPeer{Name: "q"},
			bgpPeer{Name: "v", LocalWorkloadSelector: "all()", PeerIP: tor, ASNumber: 1},
			bgpPeer{Name: "w", LocalWorkloadSelector: "all()"},
		)), "",
			"BGPPeer(n): both node and nodeSelector are given\nBGPPeer(p): both peerIP and " +
				"peerSelector are given\n" +
				"BGPPeer(q): neither peerIP nor peerSelector nor localWorkloadSelector is given\n" +
				"BGPPeer(v): localWorkloadSelector is given beside peerIP or peerSelector\n" +
				"BGPPeer(w): asNumber is missing, which localWorkloadSelector needs"},
		{"bad selectors cost only their BGPPeer", "a", cluster(meshOff, peered(
			bgpPeer{Name: "n", NodeSelector: "rack", PeerIP: tor, ASNumber: 64900},
			bgpPeer{Name: "p", PeerSelector: "(all()"},
			bgpPeer{Name: "good", NodeSelector: "role == 'leaf'", PeerIP: tor, ASNumber: 64900},
			bgpPeer{Name: "w", LocalWorkloadSelector: "=", ASNumber: 1},
		)), "192.0.2.1/64900 A node",
			"BGPPeer(n): nodeSelector: selector \"rack\", position 5: an operator is expected " +
				"behind a label: ==, !=, in, not in, contains, starts with, ends with\n" +
				"BGPPeer(p): peerSelector: selector \"(all()\", position 7: ) is expected\n" +
				"BGPPeer(w): localWorkloadSelector: selector \"=\", position 1: a label is " +
				"expected, or has(), all(), ( or !"},

		{"global before mesh", "a",
			cluster(peered(bgpPeer{Name: "x", PeerIP: "172.30.8.10", ASNumber: 64512})),
			"b:1179/64512 A global, c/64801 P mesh",
			"Node(b): the node-to-node mesh session to 172.30.8.10 is ignored: BGPPeer(x) asks " +
				"for it too and global goes before node-to-node mesh"},
		{"mesh before node", "a",
			cluster(peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10:1180",
				ASNumber: 64513})),
			"b:1179/64512 A mesh, b:1180/64513 A node, c/64801 P mesh", ""},
		{"where the node listens goes before global", "a",
			cluster(peered(bgpPeer{Name: "x", PeerIP: "172.30.8.10:179", ASNumber: 64512})),
			"b/64512 A global, b:1179/64512 A mesh, c/64801 P mesh", ""},
		{"where the node listens goes before names", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", PeerIP: "172.30.8.10:1180", ASNumber: 64512},
					bgpPeer{Name: "y", PeerIP: "172.30.8.10", ASNumber: 64512})),
			"b:1179/64512 A global, b:1180/64512 A global", ""},
		{"where nobody listens, of the first scope", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10:1180", ASNumber: 64512},
					bgpPeer{Name: "y", PeerIP: "172.30.8.10:1181", ASNumber: 64512})),
			"b:1180/64512 A node, b:1181/64512 A global", ""},
		{"global before node", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "a", Node: "a", PeerIP: tor, ASNumber: 1},
					bgpPeer{Name: "z", PeerIP: tor, ASNumber: 2})),
			"192.0.2.1/2 A global",
			"BGPPeer(a): the node specific session to 192.0.2.1 is ignored: BGPPeer(z) asks for " +
				"it too in another way, and global goes before node specific"},
		{"first by name", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "z", PeerIP: tor, ASNumber: 2},
					bgpPeer{Name: "y", PeerIP: tor, ASNumber: 1})),
			"192.0.2.1/1 A global",
			"BGPPeer(z): the global session to 192.0.2.1 is ignored: BGPPeer(y) asks for it too " +
				"in another way, and comes first"},
		{"one address on two ports is two sessions", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "y", PeerIP: tor, ASNumber: 1},
					bgpPeer{Name: "z", PeerIP: tor + ":1790", ASNumber: 1})),
			"192.0.2.1/1 A global, 192.0.2.1:1790/1 A global", ""},
		{"one of them wanted twice", "a", cluster(meshOff, peered(
			bgpPeer{Name: "x", PeerIP: tor + ":1790", ASNumber: 2},
			bgpPeer{Name: "y", PeerIP: tor, ASNumber: 1},
			bgpPeer{Name: "z", PeerIP: tor + ":1790", ASNumber: 1},
		)), "192.0.2.1/1 A global, 192.0.2.1:1790/2 A global",
			"BGPPeer(z): the global session to 192.0.2.1 port 1790 is ignored: BGPPeer(x) asks " +
				"for it too in another way, and comes first"},
		{"where the peer dials ports do not matter", "a",
			cluster(peered(bgpPeer{Name: "x", PeerIP: "172.30.9.20:1790", ASNumber: 64801})),
			"b:1179/64512 A mesh, c:1790/64801 P global",
			"Node(c): the node-to-node mesh session to 172.30.9.20 is ignored: BGPPeer(x) asks " +
				"for it too and global goes before node-to-node mesh"},
		{"and two BGPPeers want the same", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", PeerIP: "172.30.9.20:1790", ASNumber: 64801},
					bgpPeer{Name: "y", PeerIP: "172.30.9.20", ASNumber: 64801})),
			"c/64801 P global", ""},
		{"where the node listens goes first, also where it is waited for", "a",
			cluster(meshOff, listening("c", 1790),
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.9.20:179", ASNumber: 64513},
					bgpPeer{Name: "y", Node: "a", PeerIP: "172.30.9.20", ASNumber: 64801})),
			"c:1790/64801 P node",
			"BGPPeer(x): the node specific session to 172.30.9.20 is ignored: BGPPeer(y) asks " +
				"for it too in another way, and comes first"},
		{"the same peer twice is no problem", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "y", PeerIP: tor, ASNumber: 1},
					bgpPeer{Name: "z", Node: "a", PeerIP: tor + ":179", ASNumber: 1})),
			"192.0.2.1/1 A global", ""},

		{"own address is filtered", "b",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "b", PeerIP: "172.30.8.10", ASNumber: 64512})),
			"", "BGPPeer(x): no session to peerIP 172.30.8.10: it is this node's own address"},
		{"reverse of a node's peer", "b",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10", ASNumber: 64512})),
			"a/64512 P node", ""},
		{"reverse needs the node", "b",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "gone", PeerIP: "172.30.8.10", ASNumber: 64512})),
			"", ""},
		{"reverse needs our AS", "b",
			cluster(meshOff, peered(bgpPeer{Name: "x", PeerIP: "172.30.8.10", ASNumber: 64513})),
			"", ""},
		{"reverse with our port", "b",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10:1179", ASNumber: 64512})),
			"a/64512 P node", ""},
		{"reverse with our port, where the cluster has another", "b",
			cluster(configured(bgpConfig{NodeToNodeMeshEnabled: new(bool), ListenPort: 1180}),
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10:1179", ASNumber: 64512})),
			"a:1180/64512 P node", ""},
		{"reverse, whatever the address looks like", "b",
			cluster(meshOff, v6, node("b", func(n *calico.Node) { n.IPv6 = pfx("fd77::a/64") }),
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "FD77:0::000A", ASNumber: 64512})),
			"a/64512 A node", ""},
		{"reverse needs our port, where one is given", "b",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10:179", ASNumber: 64512})),
			"", ""},
		// As its peer dials a port where nobody listens, it does not wait for that one.
		{"reverse with a port, where none is given", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "c", PeerIP: "172.30.8.9:1790", ASNumber: 64512})),
			"c/64801 A node", ""},
		{"reverse with the port that is not given", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "c", PeerIP: "172.30.8.9:179", ASNumber: 64512})),
			"c/64801 P node", ""},
		{"reverse without an AS, which is the cluster's", "b",
			cluster(meshOff, peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10"})),
			"a/64512 P node", ""},
		{"reverse without an AS, which is not ours", "c",
			cluster(meshOff, peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.9.20"})),
			"", ""},
		{"reverse switched off", "b",
			cluster(meshOff,
				peered(bgpPeer{
					Name: "x", PeerIP: "172.30.8.10", ASNumber: 64512, ReversePeering: "Manual",
				})),
			"", ""},
		{"both directions given", "a",
			cluster(meshOff,
				peered(bgpPeer{Name: "x", Node: "a", PeerIP: "172.30.8.10", ASNumber: 64512},
					bgpPeer{Name: "y", Node: "b", PeerIP: "172.30.8.9", ASNumber: 64512})),
			"b:1179/64512 A node", ""},
	} {
		peers, problems := Peers(tc.self, tc.s)
		if got := briefs(peers); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
		if got := problemsText(problems); got != tc.problems {
			t.Errorf("%s: problems\n got %s\nwant %s", tc.name, got, tc.problems)
		}
	}
}

func TestElsewhere(t *testing.T) {
	s := cluster(meshOff, peered(
		bgpPeer{Name: "here", PeerIP: "192.0.2.1", ASNumber: 64900},
		bgpPeer{Name: "v6", PeerIP: "fd77::1", ASNumber: 64900},
		bgpPeer{Name: "spines", NodeSelector: "role == 'spine'", PeerIP: "fd77::2", ASNumber: 1},
		bgpPeer{Name: "v6-of-this-node", Node: "a", PeerIP: "fd77::3", ASNumber: 64900},
		bgpPeer{Name: "nodes", PeerSelector: "all()"}))
	const want = "BGPPeer(v6): no session to fd77::1: Node(a) has no IPv6 address"
	if got := problemsText(Elsewhere("a", s)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, problems := Peers("a", s); strings.Contains(problemsText(problems), "fd77::1") {
		t.Errorf("it is a problem of the node, too: %s", problemsText(problems))
	}
}

// TestPlanNamesProblemsOfPeers: each once, also those of a filter that two peers name.
func TestPlanNamesProblemsOfPeers(t *testing.T) {
	s := cluster(meshOff,
		filtered(calico.BGPFilter{Name: "f", ExportV4: []calico.BGPFilterRule{
			{CIDR: "10.0.0.0/8", MatchOperator: "Near", Action: "Accept"}}}),
		peered(
			bgpPeer{Name: "bad", PeerIP: "192.0.2.1"},
			bgpPeer{Name: "one", PeerIP: "192.0.2.2", ASNumber: 64900, Filters: []string{"f"}},
			bgpPeer{Name: "two", PeerIP: "192.0.2.3", ASNumber: 64900, Filters: []string{"f"}}))
	got := problemsText(PlanFor("a", s, Options{}).Problems)
	for _, of := range []string{"BGPPeer(bad): ", "BGPFilter(f): "} {
		if strings.Count(got, of) != 1 {
			t.Errorf("%sis not named once:\n%s", of, got)
		}
	}
}

func TestBGPPeerFields(t *testing.T) {
	secret := &calico.SecretKeyRef{Name: "bgp", Key: "tor"}
	full := bgpPeer{
		Name: "x", PeerIP: "172.30.8.10", ASNumber: 64512, LocalASNumber: 64777, Password: secret,
		SourceAddress: "None", NumAllowedLocalASNumbers: 2,
		MaxRestartTime: new(299600 * time.Millisecond), KeepaliveTime: 7 * time.Second,
		TTLSecurity: 3,
	}
	s := cluster(meshOff, peered(full))

	want := Peer{
		Address: ip("172.30.8.10"), Port: 1179, Scope: ScopeGlobal, Source: "BGPPeer(x)",
		CalicoNode: "b", RemoteAS: 64512, LocalAS: 64777,
		Password: secret, RestartTime: 300 * time.Second, KeepaliveTime: 7 * time.Second,
		TTLSecurity: 3, AllowLocalAS: 2,
	}
	if peers, _ := Peers("a", s); len(peers) != 1 || !peers[0].Equal(want) || !peers[0].External() {
		t.Errorf("forward\n got %+v\nwant %+v", peers, want)
	}

	// The other end inherits all but what speaks of the local AS.
	want.Address, want.Port, want.Scope = ip("172.30.8.9"), 179, ScopeNode
	want.CalicoNode, want.LocalAS, want.AllowLocalAS, want.Passive = "a", 64512, 0, true
	if peers, _ := Peers("b", s); len(peers) != 4 || !peers[0].Equal(want) {
		t.Errorf("reverse\n got %+v\nwant %+v", peers, want)
	}

	plain := cluster(meshOff,
		peered(bgpPeer{
			Name: "tor", PeerIP: "192.0.2.1", ASNumber: 64900, SourceAddress: "UseNodeIP",
		}))
	want = Peer{
		Address: ip("192.0.2.1"), Port: 179, Scope: ScopeGlobal, Source: "BGPPeer(tor)",
		RemoteAS: 64900, LocalAS: 64512,
		LocalAddress: ip("172.30.8.9"), RestartTime: 120 * time.Second, Multihop: true,
	}
	if peers, _ := Peers("a", plain); len(peers) != 1 || !peers[0].Equal(want) {
		t.Errorf("defaults\n got %+v\nwant %+v", peers, want)
	}
}

func FuzzParsePeerIP(f *testing.F) {
	for _, text := range []string{
		"192.0.2.1", "192.0.2.1:1790", "fd00::1", "[fd00::1]:1790", "[fd00::1]", "fe80::1%eth0",
		":", "[]:1", "::ffff:1.2.3.4",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		addr, port, err := parsePeerIP(text)
		if err != nil {
			return
		}
		again := addr.String()
		if port != 0 {
			again = netip.AddrPortFrom(addr, port).String()
		}
		if a, p, err := parsePeerIP(again); a != addr || p != port || err != nil {
			t.Fatalf("%q reads as %v %d, and that, written %q, as %v %d %v",
				text, addr, port, again, a, p, err)
		}
	})
}

// TestFurtherSessions: one session of an address is known by the address alone, so that a session
// to another port changes nothing about it.
func TestFurtherSessions(t *testing.T) {
	const tor = "192.0.2.1"
	to := func(name string, port int) calico.BGPPeer {
		return bgpPeer{Name: name, PeerIP: fmt.Sprint(tor, ":", port), ASNumber: 1}
	}
	global := to("z", 1790)
	node := to("a", 179)
	node.Node = "a"
	for _, tc := range []struct {
		name  string
		peers []calico.BGPPeer
		want  string
	}{
		{"alone on another port", []bgpPeer{to("y", 1790)}, "192.0.2.1"},
		{"BGP's own port first", []bgpPeer{to("x", 1792), to("y", 1790), to("z", 179)},
			"192.0.2.1, 192.0.2.1 port 1790, 192.0.2.1 port 1792"},
		{"then by name", []bgpPeer{to("x", 1792), to("y", 1790)},
			"192.0.2.1, 192.0.2.1 port 1790"},
		{"the scope before the port", []bgpPeer{global, node},
			"192.0.2.1, 192.0.2.1 port 179"},
	} {
		peers, problems := Peers("a", cluster(meshOff, peered(tc.peers...)))
		var names []string
		for _, p := range peers {
			names = append(names, p.ID().String())
		}
		if got := strings.Join(names, ", "); got != tc.want || len(problems) > 0 {
			t.Errorf("%s: %s, want %s; %v", tc.name, got, tc.want, problems)
		}
	}
	toNode := bgpPeer{Name: "x", PeerIP: "172.30.8.10:179", ASNumber: 64512}
	peers, _ := Peers("a", cluster(peered(toNode)))
	first := peers[0]
	if first.Scope != ScopeMesh || first.ID() != (PeerID{Address: first.Address}) {
		t.Errorf("%+v: the session to where the node listens is not the first", first)
	}
}

func TestPeerID(t *testing.T) {
	for _, id := range []PeerID{
		{}, {Address: ip("192.0.2.1")}, {ip("192.0.2.1"), 1790}, {ip("fd00::1"), 179},
	} {
		text, err := id.MarshalText()
		var back PeerID
		if err = errors.Join(err, back.UnmarshalText(text)); err != nil || back != id {
			t.Errorf("%q is read as %v, %v", text, back, err)
		}
	}
	for _, text := range []string{
		"x", "192.0.2.1 port", "192.0.2.1 port x", "192.0.2.1 port 0", "192.0.2.1 port 65536",
		" port 179",
	} {
		if err := new(PeerID).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as a peer", text)
		}
	}
}
