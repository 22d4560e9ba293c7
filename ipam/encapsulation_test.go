package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

var allTunnels = []route.Encap{route.IPIP, route.VXLAN}

// encapCluster has nodes written "name address/length", each with all tunnel addresses.
func encapCluster(nodes []string, pools ...calico.IPPool) *calico.Snapshot {
	s := snapshot()
	clear(s.Nodes)
	for _, text := range nodes {
		f := strings.Fields(text)
		n := calico.Node{Name: f[0], IPv4: pfx(f[1]), IPv4IPIPTunnelAddr: ip("10.9.0.1"),
			IPv4VXLANTunnelAddr: ip("10.9.0.2"), IPv6VXLANTunnelAddr: ip("fd09::2")}
		if len(f) > 2 {
			n.IPv6 = pfx(f[2])
		}
		s.Nodes[n.Name] = n
	}
	for _, p := range pools {
		s.IPPools[p.Name] = p
	}
	return s
}

func ipipPool(name, cidr string, mode calico.EncapMode) calico.IPPool {
	return calico.IPPool{Name: name, CIDR: pfx(cidr), IPIPMode: mode}
}

func vxlanPool(name, cidr string, mode calico.EncapMode) calico.IPPool {
	return calico.IPPool{Name: name, CIDR: pfx(cidr), VXLANMode: mode}
}

func leavesText(l route.Leaving) string {
	switch {
	case l.Refused:
		return "refused"
	case l.Encap == route.Plain:
		return "plain"
	}
	return fmt.Sprintf("%s %s>%s", l.Encap, l.From, l.To)
}

// TestLeaves has three nodes in two subnets, whose prefix lengths differ: what is near is each
// node's own opinion.
func TestLeaves(t *testing.T) {
	nodes := []string{"a 192.0.2.5/24 fd77::5/64", "b 192.0.2.130/25 fd77::130/64",
		"c 198.51.100.7/32 fd78::7/64"}
	s := encapCluster(nodes,
		ipipPool("always", "10.1.0.0/16", calico.EncapAlways),
		ipipPool("cross", "10.2.0.0/16", calico.EncapCrossSubnet),
		ipipPool("never", "10.3.0.0/16", calico.EncapNever),
		ipipPool("inside", "10.1.128.0/17", calico.EncapNever),
		vxlanPool("vxlan", "10.4.0.0/16", calico.EncapAlways),
		vxlanPool("vcross", "fd04::/48", calico.EncapCrossSubnet),
		ipipPool("six", "fd05::/48", calico.EncapAlways),
		calico.IPPool{Name: "both", CIDR: pfx("10.5.0.0/16"), IPIPMode: calico.EncapAlways,
			VXLANMode: calico.EncapAlways})
	for _, tc := range []struct{ self, dest, nextHop, want string }{
		{"a", "10.1.0.64/26", "192.0.2.130", "IPIP 192.0.2.5>192.0.2.130"},
		{"a", "10.1.0.64/26", "192.0.2.99", "refused"}, // no Node
		{"a", "10.2.0.64/26", "192.0.2.99", "plain"},   // but in my subnet
		{"a", "10.2.0.64/26", "192.0.2.130", "plain"},  // the asymmetric pair
		{"b", "10.2.0.0/26", "192.0.2.5", "IPIP 192.0.2.130>192.0.2.5"},
		{"a", "10.2.0.64/26", "198.51.100.7", "IPIP 192.0.2.5>198.51.100.7"},
		{"c", "10.2.0.64/26", "192.0.2.5", "IPIP 198.51.100.7>192.0.2.5"},
		{"a", "10.2.0.64/26", "203.0.113.1", "refused"},
		{"a", "10.3.0.64/26", "192.0.2.130", "plain"},
		{"a", "10.1.128.64/26", "192.0.2.130", "plain"}, // the longer pool decides
		{"a", "10.0.0.0/8", "192.0.2.130", "plain"},     // it lies in no pool
		{"a", "10.4.0.64/26", "192.0.2.130", "VXLAN 192.0.2.5>192.0.2.130"},
		{"a", "10.5.0.64/26", "192.0.2.130", "VXLAN 192.0.2.5>192.0.2.130"},
		{"a", "fd04::40/122", "fd77::130", "plain"},
		{"a", "fd04::40/122", "fd78::7", "VXLAN fd77::5>fd78::7"},
		{"a", "fd05::40/122", "fd78::7", "plain"},
	} {
		e, _ := Encapsulation(tc.self, allTunnels, false, s)
		l := e.Leaves(e.PoolOf(pfx(tc.dest)), ip(tc.nextHop))
		if got := leavesText(l); got != tc.want || l.Reason() == "" {
			t.Errorf("%s to %s by %s: got %s (%s), want %s", tc.self, tc.dest, tc.nextHop, got,
				l.Reason(), tc.want)
		}
	}
}

func TestPoolWaitsForOwnAddresses(t *testing.T) {
	s := encapCluster([]string{"me 192.0.2.5/24", "b 198.51.100.7/24"},
		ipipPool("p", "10.1.0.0/16", calico.EncapCrossSubnet),
		vxlanPool("q", "10.2.0.0/16", calico.EncapAlways),
		vxlanPool("r", "fd02::/48", calico.EncapAlways))
	full := s.Nodes["me"]
	noIPIP := func(n *calico.Node) { n.IPv4IPIPTunnelAddr = netip.Addr{} }
	for name, tc := range map[string]struct {
		edit func(*calico.Node)
		dest string
		want string // in the reason; "": it leaves
	}{
		"all there": {func(*calico.Node) {}, "10.1.0.0/26", ""},
		"no address": {func(n *calico.Node) { n.IPv4 = netip.Prefix{} }, "10.1.0.0/26",
			"spec.bgp.ipv4Address"},
		"no IPIP": {noIPIP, "10.1.0.0/26", "spec.bgp.ipv4IPIPTunnelAddr"},
		"no VXLAN": {func(n *calico.Node) { n.IPv4VXLANTunnelAddr = netip.Addr{} }, "10.2.0.0/26",
			"spec.ipv4VXLANTunnelAddr"},
		"no IPv6":                  {func(*calico.Node) {}, "fd02::/122", "spec.bgp.ipv6Address"},
		"VXLAN does not need IPIP": {noIPIP, "10.2.0.0/26", ""},
	} {
		n := full
		tc.edit(&n)
		s.Nodes["me"] = n
		e, _ := Encapsulation("me", allTunnels, false, s)
		l := e.Leaves(e.PoolOf(pfx(tc.dest)), ip("198.51.100.7"))
		if l.Refused != (tc.want != "") || !strings.Contains(l.Reason(), tc.want) {
			t.Errorf("%s: got %s, %q, want %q", name, leavesText(l), l.Reason(), tc.want)
		}
	}

	delete(s.Nodes, "me") // without BGP the agent goes on
	e, _ := Encapsulation("me", allTunnels, false, s)
	if got := e.PoolOf(pfx("10.1.0.0/26")).Waits; !strings.Contains(got, "Node(me)") {
		t.Errorf("no Node: %q", got)
	}
}

func TestPoolWaitsForFelix(t *testing.T) {
	const ipip, vxlan, vxlan6 = "10.1.0.0/26", "10.2.0.0/26", "fd02::/122"
	for name, tc := range map[string]struct {
		all, own calico.FelixConfiguration
		waits    map[string]string
	}{
		"on": {all: calico.FelixConfiguration{IPIPEnabled: new(true), VXLANEnabled: new(true)}},
		"off": {all: calico.FelixConfiguration{IPIPEnabled: new(false)}, waits: map[string]string{
			ipip: "ipipEnabled of the FelixConfiguration is false"}},
		"of this node": {all: calico.FelixConfiguration{VXLANEnabled: new(true)},
			own: calico.FelixConfiguration{VXLANEnabled: new(false)}, waits: map[string]string{
				vxlan: "vxlanEnabled of the FelixConfiguration is false"}},
	} {
		s := encapCluster([]string{"me 192.0.2.5/24 fd77::5/64", "b 198.51.100.7/24 fd78::7/64"},
			ipipPool("p", "10.1.0.0/16", calico.EncapAlways),
			vxlanPool("q", "10.2.0.0/16", calico.EncapAlways),
			vxlanPool("r", "fd02::/48", calico.EncapAlways))
		s.Felix = map[string]calico.FelixConfiguration{"default": tc.all, "node.me": tc.own}
		e, problems := Encapsulation("me", allTunnels, false, s)
		for _, dest := range []string{ipip, vxlan, vxlan6} {
			if got := e.PoolOf(pfx(dest)).Waits; got != tc.waits[dest] {
				t.Errorf("%s, %s: %q, want %q", name, dest, got, tc.waits[dest])
			}
		}
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// On Linux tunnels are Felix'. It has the routes of VXLAN pools, and those of IPIP pools as
// programClusterRoutes says.
func TestPoolsThatAreLeftToFelix(t *testing.T) {
	s := encapCluster([]string{"me 192.0.2.5/24", "b 198.51.100.7/24"},
		ipipPool("i", "10.1.0.0/16", calico.EncapCrossSubnet),
		vxlanPool("v", "10.2.0.0/16", calico.EncapAlways),
		ipipPool("never", "10.3.0.0/16", calico.EncapNever))
	me := s.Nodes["me"]
	me.IPv4VXLANTunnelAddr = netip.Addr{} // Felix' to mind
	s.Nodes["me"] = me
	for mode, want := range map[string]string{"Disabled": "v", "Enabled": "i v"} {
		s.Felix = map[string]calico.FelixConfiguration{"default": {ProgramClusterRoutes: mode}}
		e, problems := Encapsulation("me", allTunnels, true, s)
		var left, named []string
		for _, p := range e.Pools {
			if p.Felix {
				left = append(left, p.Name)
			}
			if l := e.Leaves(&p, ip("198.51.100.7")); p.Felix != l.Refused {
				t.Errorf("%s: IPPool(%s): %+v", mode, p.Name, l)
			}
		}
		for _, p := range problems {
			name, _ := strings.CutPrefix(p.Resource, "IPPool(")
			named = append(named, strings.TrimSuffix(name, ")"))
			if !p.Harmless {
				t.Errorf("%s: %s costs something", mode, p)
			}
		}
		if got := strings.Join(left, " "); got != want || strings.Join(named, " ") != want {
			t.Errorf("%s: left %q, named %q, want %q", mode, got, named, want)
		}
		if e, _ := Encapsulation("me", allTunnels, false, s); e.Pools[0].Felix || e.Pools[1].Felix {
			t.Errorf("%s: VPP's are left to Felix", mode)
		}
	}
}

func TestEncapsulationProblems(t *testing.T) {
	text := func(tunnels []route.Encap, nodes []string, pools ...calico.IPPool) string {
		_, problems := Encapsulation("a", tunnels, false, encapCluster(nodes, pools...))
		var all []string
		for _, p := range problems {
			all = append(all, fmt.Sprintf("%s harmless %v", p, p.Harmless))
		}
		return strings.Join(all, "\n")
	}
	pool := ipipPool("p", "10.1.0.0/16", calico.EncapAlways)
	shared := []string{"a 192.0.2.5/24", "b 192.0.2.6/24", "c 192.0.2.6/24", "d 192.0.2.5/24"}
	for _, tc := range []struct{ got, want string }{
		{text(allTunnels, shared[:2], pool), ""},
		{text(nil, shared[:2], pool), "IPPool(p): ipipMode Always is not supported yet: its " +
			"routes are programmed without encapsulation harmless true"},
		{text(allTunnels, shared[:2], ipipPool("p", "fd01::/48", calico.EncapCrossSubnet)),
			"IPPool(p): ipipMode CrossSubnet is for IPv4 alone: its routes are programmed " +
				"without encapsulation harmless true"},
		{text(allTunnels, shared), ""}, // nothing encapsulates
		{text(allTunnels, shared, pool), "Node(c): 192.0.2.6 is the address of Node(b), too: it " +
			"has no tunnel of its own harmless false\n" +
			"Node(d): 192.0.2.5 is the address of this node, too: it has no tunnel of its own " +
			"harmless false"},
	} {
		if tc.got != tc.want {
			t.Errorf("got\n%s\nwant\n%s", tc.got, tc.want)
		}
	}
}

// calicoctl takes no second pool with a CIDR, but kubectl and etcdctl do.
func TestPoolsWithOneCIDR(t *testing.T) {
	s := encapCluster([]string{"a 192.0.2.5/24"},
		ipipPool("b", "10.1.0.0/16", calico.EncapNever),
		vxlanPool("a", "10.1.0.0/16", calico.EncapNever),
		ipipPool("c", "10.2.0.0/16", calico.EncapNever))
	_, got := Encapsulation("a", allTunnels, false, s)
	want := []calico.Problem{{Resource: "IPPool(b)",
		Err: "10.1.0.0/16 is the CIDR of IPPool(a), too, which alone counts"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v instead of %+v", got, want)
	}
}

// Of hosts that publish one address the first by name has it: two plans of the same data are equal.
func TestHostsThatPublishOneAddress(t *testing.T) {
	for range 20 {
		s := encapCluster([]string{"a 192.0.2.5/24"},
			ipipPool("p", "10.1.0.0/16", calico.EncapAlways))
		s.PeerIPs = map[calico.PeerIP]netip.Addr{}
		for _, host := range []string{"d", "b", "c"} {
			s.PeerIPs[calico.PeerIP{Host: host}] = ip("192.0.2.9")
		}
		e, _ := Encapsulation("a", allTunnels, false, s)
		if host := e.Published[ip("192.0.2.9")]; host != "b" {
			t.Errorf("%s publishes it", host)
		}
	}
}

// Of Nodes with one address the first by name has it, in whatever order they are looked at.
func TestNodesThatShareAnAddress(t *testing.T) {
	nodes := []string{"a 192.0.2.5/24", "d 192.0.2.6/24", "b 192.0.2.6/24", "c 192.0.2.6/24"}
	for range 20 {
		e, problems := Encapsulation("a", allTunnels, false,
			encapCluster(nodes, ipipPool("p", "10.1.0.0/16", calico.EncapAlways)))
		if first := e.Nodes[0].Name; first != "b" || len(e.Nodes) != 1 {
			t.Errorf("%s has the address", first)
		}
		if len(problems) != 2 || problems[0].Name() != "Node(c)" ||
			problems[1].Name() != "Node(d)" || !strings.Contains(problems[1].Err, "Node(b), too") {
			t.Errorf("%v", problems)
		}
	}
}

// A Node without a VTEP is a problem in the address families that have a VXLAN pool. Of several
// with one address the first by name has it then, too.
func TestNodesWithoutVTEPs(t *testing.T) {
	for cidr, field := range map[string]string{
		"10.1.0.0/16": "4VXLANTunnelAddr", "fd01::/48": "6VXLANTunnelAddr"} {
		s := encapCluster([]string{"a 192.0.2.5/24 fd77::5/64", "c 192.0.2.6/24 fd77::7/64",
			"b 192.0.2.6/24 fd77::6/64"}, vxlanPool("p", cidr, calico.EncapAlways))
		withoutVTEPs(s, "b", "c")
		e, problems := Encapsulation("a", allTunnels, false, s)
		for _, n := range e.Nodes {
			vxlan := n.Address.Is4() == pfx(cidr).Addr().Is4()
			if vxlan != (n.VXLAN != nil) || n.Address.Is4() && n.Name != "b" {
				t.Errorf("%s: %+v", cidr, n)
			}
		}
		for _, p := range problems {
			if !strings.Contains(p.Err, field) && p.Name() != "Node(c)" {
				t.Errorf("%s: %s", cidr, p)
			}
		}
		if len(e.Nodes) != 3 || len(problems) != 3 {
			t.Errorf("%s: %+v, %v", cidr, e.Nodes, problems)
		}
	}
}

// withoutVTEPs takes the VXLAN tunnel addresses of nodes out.
func withoutVTEPs(s *calico.Snapshot, nodes ...string) {
	for _, name := range nodes {
		n := s.Nodes[name]
		n.IPv4VXLANTunnelAddr, n.IPv6VXLANTunnelAddr = netip.Addr{}, netip.Addr{}
		s.Nodes[name] = n
	}
}

// A Node that VXLAN packets cannot be sent to leaves its address to another one that has it.
func TestNodeWithAVTEPGoesFirst(t *testing.T) {
	nodes := []string{"a 192.0.2.5/24", "b 192.0.2.6/24", "c 192.0.2.6/24", "d 192.0.2.6/24"}
	shares := func(name, with string) string {
		return "Node(" + name + "): 192.0.2.6 is the address of Node(" + with + "), too: " +
			"it has no tunnel of its own"
	}
	for _, tc := range []struct {
		pool     calico.IPPool
		first    string
		problems []string
	}{
		{vxlanPool("p", "10.1.0.0/16", calico.EncapAlways), "c", []string{shares("b", "c"),
			"Node(b): spec.ipv4VXLANTunnelAddr of Node(b) is missing: it has no tunnel of its own",
			shares("d", "c")}},
		{ipipPool("p", "10.1.0.0/16", calico.EncapAlways), "b",
			[]string{shares("c", "b"), shares("d", "b")}},
	} {
		s := encapCluster(nodes, tc.pool)
		withoutVTEPs(s, "b")
		e, problems := Encapsulation("a", allTunnels, false, s)
		var got []string
		for _, p := range problems {
			got = append(got, p.String())
		}
		if len(e.Nodes) != 1 || e.Nodes[0].Name != tc.first || !slices.Equal(got, tc.problems) {
			t.Errorf("%v has the address\n%q\nwant %s\n%q", e.Nodes, got, tc.first, tc.problems)
		}
	}
}
