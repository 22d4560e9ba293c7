package ipam

import (
	"fmt"
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

// publishes adds an address that a host publishes.
func publishes(host, address string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		if s.PeerIPs == nil {
			s.PeerIPs = map[calico.PeerIP]netip.Addr{}
		}
		s.PeerIPs[calico.PeerIP{Host: host, IPv6: ip(address).Is6()}] = ip(address)
	}
}

// nodeAt adds a Calico Node with addresses.
func nodeAt(name string, addresses ...string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		n := calico.Node{Name: name}
		for _, a := range addresses {
			if p := pfx(a); p.Addr().Is4() {
				n.IPv4 = p
			} else {
				n.IPv6 = p
			}
		}
		s.Nodes[name] = n
	}
}

// hostAt gives a Calico Node, new or not, an address in spec.addresses.
func hostAt(name, address string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		n := s.Nodes[name]
		n.Name, n.HostIPv4 = name, ip(address)
		s.Nodes[name] = n
	}
}

func host(name string) calico.Owner { return calico.Owner{Host: name} }

var both = []AddressSource{Published, NodeObject}

func TestRemotes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		sources  []AddressSource
		change   []func(*calico.Snapshot)
		routes   string // "prefix host next hop", one per line
		skipped  string // "prefix: reason"
		problems string
	}{
		{name: "nothing there yet"},
		{name: "block of another host, published address first",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				publishes("b", "172.30.8.8"), nodeAt("b", "192.168.4.8/24")},
			routes: "10.1.0.64/26 via 172.30.8.8"},
		{name: "the Node's address where nothing is published",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				publishes("c", "172.30.8.9"), nodeAt("b", "192.168.4.8/24")},
			routes: "10.1.0.64/26 via 192.168.4.8"},
		{name: "the Node's other address where it has none for BGP",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				block("10.1.0.128/26", host("c")), nodeAt("b", "192.168.4.8/24"),
				hostAt("b", "172.30.8.8"), hostAt("c", "172.30.8.9")},
			routes: "10.1.0.64/26 via 192.168.4.8\n10.1.0.128/26 via 172.30.8.9"},
		{name: "order of the sources", sources: []AddressSource{NodeObject, Published},
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				publishes("b", "172.30.8.8"), nodeAt("b", "192.168.4.8/24")},
			routes: "10.1.0.64/26 via 192.168.4.8"},
		{name: "published addresses alone: a dead host disappears",
			sources: []AddressSource{Published},
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				nodeAt("b", "192.168.4.8/24")},
			skipped: "10.1.0.64/26: host b has no next hop: publishes no IPv4 address"},
		{name: "each family has its own address",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				block("fd00:1::40/122", host("b")), publishes("b", "172.30.8.8"),
				nodeAt("b", "fd77::8/64")},
			routes: "10.1.0.64/26 via 172.30.8.8\nfd00:1::40/122 via fd77::8"},
		{name: "own block", change: []func(*calico.Snapshot){block("10.1.0.0/26", host("me"),
			"10.1.0.1 me"), publishes("me", "172.30.8.7")},
			skipped: "10.1.0.0/26: the block is this node's own"},
		{name: "block with a null affinity: its addresses are still where they are",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", calico.Owner{}, "10.1.0.65 b",
				"10.1.0.66 me", "10.1.0.67"), publishes("b", "172.30.8.8")},
			routes:  "10.1.0.65/32 via 172.30.8.8",
			skipped: "10.1.0.64/26: nobody owns the block"},
		{name: "block of a load balancer",
			change: []func(*calico.Snapshot){block("10.1.0.64/26",
				calico.Owner{Virtual: "load-balancer"}, "10.1.0.65 b"),
				publishes("b", "172.30.8.8")},
			skipped: "10.1.0.64/26: the block belongs to virtual owner load-balancer"},
		{name: "host without any address",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				block("10.1.0.128/26", host("c")), nodeAt("c"), block("10.1.0.192/26", host("d")),
				publishes("d", "172.30.8.9")},
			routes: "10.1.0.192/26 via 172.30.8.9",
			skipped: "10.1.0.64/26: host b has no next hop: publishes no IPv4 address, there is " +
				"no Node(b)\n10.1.0.128/26: host c has no next hop: publishes no IPv4 address, " +
				"Node(c) has no IPv4 address"},
		{name: "address borrowed from a third host's block",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b"), "10.1.0.65 b",
				"10.1.0.66 c", "10.1.0.67"), publishes("b", "172.30.8.8"),
				publishes("c", "172.30.8.9")},
			routes: "10.1.0.64/26 via 172.30.8.8\n10.1.0.66/32 via 172.30.8.9"},
		{name: "address borrowed from our own block",
			change: []func(*calico.Snapshot){block("10.1.0.0/26", host("me"), "10.1.0.2 b"),
				publishes("b", "172.30.8.8")},
			routes:  "10.1.0.2/32 via 172.30.8.8",
			skipped: "10.1.0.0/26: the block is this node's own"},
		{name: "address that we borrowed lives here",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b"), "10.1.0.66 me"),
				publishes("b", "172.30.8.8"), publishes("me", "172.30.8.7")},
			routes: "10.1.0.64/26 via 172.30.8.8"},
		{name: "borrowed by a host without address",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b"), "10.1.0.66 c"),
				publishes("b", "172.30.8.8")},
			routes: "10.1.0.64/26 via 172.30.8.8",
			skipped: "10.1.0.66/32: host c has no next hop: publishes no IPv4 address, there " +
				"is no Node(c)"},
		{name: "block of one address, borrowed",
			change: []func(*calico.Snapshot){block("10.1.0.66/32", host("b"), "10.1.0.66 c"),
				publishes("b", "172.30.8.8"), publishes("c", "172.30.8.9")},
			routes: "10.1.0.66/32 via 172.30.8.9"},
		{name: "of overlapping blocks the longest knows",
			change: []func(*calico.Snapshot){
				block("10.1.0.0/24", host("b"), "10.1.0.66 c"),
				block("10.1.0.64/26", host("c"), "10.1.0.66 b"), publishes("b", "172.30.8.8"),
				publishes("c", "172.30.8.9")},
			routes: "10.1.0.0/24 via 172.30.8.8\n10.1.0.64/26 via 172.30.8.9\n10.1.0.66/32 " +
				"via 172.30.8.8"},
		{name: "of overlapping blocks the longest knows that it lives here",
			change: []func(*calico.Snapshot){
				block("10.1.0.0/24", host("b"), "10.1.0.66 c"),
				block("10.1.0.64/26", host("b"), "10.1.0.66 me"), publishes("b", "172.30.8.8"),
				publishes("c", "172.30.8.9")},
			routes: "10.1.0.0/24 via 172.30.8.8\n10.1.0.64/26 via 172.30.8.8"},
		{name: "IPv6, from spec.addresses and from nowhere", sources: []AddressSource{NodeObject},
			change: []func(*calico.Snapshot){block("fd00:1::40/122", host("b")),
				block("fd00:1::/122", host("c")), nodeAt("c", "192.168.4.8/24"),
				func(s *calico.Snapshot) {
					s.Nodes["b"] = calico.Node{Name: "b", HostIPv6: ip("fd77::9")}
				}},
			routes:  "fd00:1::40/122 via fd77::9",
			skipped: "fd00:1::/122: host c has no next hop: Node(c) has no IPv6 address"},
		{name: "two hosts publish one address: both are named, both routes stay",
			change: []func(*calico.Snapshot){block("10.1.0.64/26", host("b")),
				block("10.1.0.128/26", host("c")), publishes("b", "172.30.8.8"),
				publishes("c", "172.30.8.8")},
			routes: "10.1.0.64/26 via 172.30.8.8\n10.1.0.128/26 via 172.30.8.8",
			problems: "peerip(b): 172.30.8.8 is the address of c too: what is meant for one of " +
				"them goes to another\npeerip(c): 172.30.8.8 is the address of b too: what is " +
				"meant for one of them goes to another"},
		{name: "somebody has our own address",
			change: []func(*calico.Snapshot){publishes("b", "192.168.4.7"),
				nodeAt("me", "192.168.4.7/24")},
			problems: "Node(me): 192.168.4.7 is the address of b too: what is meant for one of " +
				"them goes to another\npeerip(b): 192.168.4.7 is the address of me too: what is " +
				"meant for one of them goes to another"},
		{name: "an address that is not used is in nobody's way",
			change: []func(*calico.Snapshot){publishes("b", "172.30.8.8"),
				nodeAt("b", "192.168.4.8/24"), nodeAt("c", "192.168.4.8/24")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sources := tc.sources
			if sources == nil {
				sources = both
			}
			s := snapshot(tc.change...)
			before := fmt.Sprint(s)
			p := Remotes("me", sources, nil, s, nil)
			if got := listRemotes(p); got != tc.routes {
				t.Errorf("routes:\n%s\nwant:\n%s", got, tc.routes)
			}
			var skipped, problems []string
			for _, x := range p.Skipped {
				skipped = append(skipped, fmt.Sprintf("%s: %s", x.Prefix, x.Reason))
			}
			for _, x := range SharedAddresses(sources, s) {
				problems = append(problems, x.String())
			}
			if got := strings.Join(skipped, "\n"); got != tc.skipped {
				t.Errorf("skipped:\n%s\nwant:\n%s", got, tc.skipped)
			}
			if got := strings.Join(problems, "\n"); got != tc.problems {
				t.Errorf("problems:\n%s\nwant:\n%s", got, tc.problems)
			}
			if fmt.Sprint(s) != before {
				t.Error("the snapshot was changed")
			}
		})
	}
}

func listRemotes(p RemotePlan) string {
	var lines []string
	for _, r := range p.Routes {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

// genRemotes draws a cluster of disjoint blocks in which hosts come and go, own nothing or lack
// addresses.
func genRemotes(t *rapid.T) *calico.Snapshot {
	s := snapshot()
	s.Nodes, s.PeerIPs = map[string]calico.Node{}, map[calico.PeerIP]netip.Addr{}
	hosts := []string{"me", "b", "c", "d", "e"}
	for i, h := range hosts {
		if rapid.Bool().Draw(t, "published "+h) {
			publishes(h, fmt.Sprintf("172.30.8.%d", i))(s)
		}
		if rapid.Bool().Draw(t, "node "+h) {
			nodeAt(h, fmt.Sprintf("192.168.4.%d/24", i))(s)
		}
	}
	owner := rapid.SampledFrom(append(hosts, ""))
	for i := range rapid.IntRange(0, 6).Draw(t, "blocks") {
		b := calico.Block{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(8 * i)}),
			29), Owner: host(owner.Draw(t, "owner"))}
		if rapid.IntRange(0, 9).Draw(t, "virtual") == 0 {
			b.Owner = calico.Owner{Virtual: "load-balancer"}
		}
		for a := b.CIDR.Addr(); b.CIDR.Contains(a); a = a.Next() {
			if rapid.Bool().Draw(t, "allocated") {
				b.Allocations = append(b.Allocations,
					calico.Allocation{Address: a, Node: owner.Draw(t, "node")})
			}
		}
		s.Blocks[b.CIDR] = b
	}
	return s
}

// whereTo says address by address, without any routes, which host a packet of ours should go to;
// "": none, or it is for us.
func whereTo(a netip.Addr, s *calico.Snapshot) string {
	for _, b := range s.Blocks {
		if !b.CIDR.Contains(a) || b.Owner.Virtual != "" {
			continue
		}
		for _, al := range b.Allocations {
			if al.Address == a && al.Node != "" && al.Node != "me" &&
				addressIn(s, al.Node).IsValid() {
				return al.Node
			}
		}
		if b.Owner.Host != "me" && addressIn(s, b.Owner.Host).IsValid() {
			return b.Owner.Host
		}
	}
	return ""
}

func addressIn(s *calico.Snapshot, host string) netip.Addr {
	if a, ok := s.PeerIPs[calico.PeerIP{Host: host}]; ok {
		return a
	}
	return s.Nodes[host].IPv4.Addr()
}

func TestRemotesLeadEveryPacketToWhereItsAddressIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genRemotes(t)
		p := Remotes("me", both, nil, s, nil)
		routes := map[netip.Prefix]netip.Addr{}
		for _, r := range p.Routes {
			if _, twice := routes[r.Prefix]; twice || r.Origin != route.Etcd ||
				r.Paths[0].NextHop == addressIn(s, "me") {
				t.Fatalf("route %+v", r)
			}
			routes[r.Prefix] = r.Paths[0].NextHop
		}
		for a := ip("10.1.0.0"); a != ip("10.1.0.56"); a = a.Next() {
			var got netip.Addr
			for bits := 0; bits <= 32; bits++ { // the longest match
				if r, ok := routes[netip.PrefixFrom(a, bits).Masked()]; ok {
					got = r
				}
			}
			want := whereTo(a, s)
			if want == "" && got.IsValid() || want != "" && got != addressIn(s, want) {
				t.Fatalf("%s goes to %s, want host %q", a, got, want)
			}
		}
		skipped := map[netip.Prefix]bool{}
		for _, x := range p.Skipped {
			if x.Reason == "" {
				t.Fatalf("%s is skipped without a reason", x.Prefix)
			}
			skipped[x.Prefix] = true
		}
		for cidr := range s.Blocks {
			if _, ok := routes[cidr]; ok == skipped[cidr] {
				t.Fatalf("block %s: route %v, skipped %v", cidr, ok, skipped[cidr])
			}
		}
		if !slices.IsSortedFunc(p.Routes, func(a, b route.Route) int {
			return route.CompareKeys(a.Key, b.Key)
		}) {
			t.Fatalf("not sorted: %v", p.Routes)
		}
		again := *s
		again.Blocks = maps.Clone(s.Blocks)
		for _, last := range [][]route.Route{nil, p.Routes,
			Remotes("me", both, nil, genRemotes(t), nil).Routes} {
			if !reflect.DeepEqual(Remotes("me", both, nil, &again, last), p) {
				t.Fatalf("the same data gave another plan, after %v", last)
			}
		}
	})
}
