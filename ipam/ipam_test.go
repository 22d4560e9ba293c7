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

func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }
func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func snapshot(change ...func(*calico.Snapshot)) *calico.Snapshot {
	s := &calico.Snapshot{
		Nodes:             map[string]calico.Node{"me": {Name: "me"}, "other": {Name: "other"}},
		IPPools:           map[string]calico.IPPool{},
		Blocks:            map[netip.Prefix]calico.Block{},
		Affinities:        map[netip.Prefix]calico.AffinityState{},
		WorkloadEndpoints: map[string]calico.WorkloadEndpoint{},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func affine(cidr string, state calico.AffinityState) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) { s.Affinities[pfx(cidr)] = state }
}

// block adds a block with allocations written "address node type".
func block(cidr string, owner calico.Owner, allocations ...string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		b := calico.Block{CIDR: pfx(cidr), Owner: owner}
		for _, a := range allocations {
			f := append(strings.Fields(a), "", "")
			b.Allocations = append(b.Allocations, calico.Allocation{Address: ip(f[0]), Node: f[1],
				Type: f[2]})
		}
		s.Blocks[b.CIDR] = b
	}
}

func workload(name, node string, nets ...string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		w := calico.WorkloadEndpoint{Name: name, Node: node}
		for _, n := range nets {
			w.IPNetworks = append(w.IPNetworks, pfx(n))
		}
		s.WorkloadEndpoints[name] = w
	}
}

func floating(name string, addrs ...string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		w := s.WorkloadEndpoints[name]
		for _, a := range addrs {
			w.FloatingIPs = append(w.FloatingIPs, netip.MustParseAddr(a))
		}
		s.WorkloadEndpoints[name] = w
	}
}

// migrating has workload w come to a node by a live migration.
func migrating(migration, w, node string) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		e := s.WorkloadEndpoints[w]
		e.Workload = w
		s.WorkloadEndpoints[w] = e
		if s.LiveMigrations == nil {
			s.LiveMigrations = map[string]calico.LiveMigration{}
		}
		s.LiveMigrations[migration] = calico.LiveMigration{
			Target: calico.MigrationEnd{Host: node, Workload: w}}
	}
}

func me(edit func(*calico.Node)) func(*calico.Snapshot) {
	return func(s *calico.Snapshot) {
		n := s.Nodes["me"]
		edit(&n)
		s.Nodes["me"] = n
	}
}

// TestOwnBlock has every state of an affinity beside every owner of its block.
func TestOwnBlock(t *testing.T) {
	const cidr = "10.1.0.64/26"
	owners := []struct {
		name  string
		block func(*calico.Snapshot)
		stale string // why a confirmed affinity does not count; "" where it does
	}{
		{"no block", func(*calico.Snapshot) {}, ""},
		{"own block", block(cidr, calico.Owner{Host: "me"}), ""},
		{"block of nobody", block(cidr, calico.Owner{}), ""},
		{"block of another node", block(cidr, calico.Owner{Host: "other"}),
			"affinity is stale: the block belongs to node other"},
		{"block of a node whose name begins with ours", block(cidr, calico.Owner{Host: "me2"}),
			"affinity is stale: the block belongs to node me2"},
		{"virtual block", block(cidr, calico.Owner{Virtual: "load-balancer"}),
			"affinity is stale: the block belongs to virtual owner load-balancer"},
		{"virtual block of our name", block(cidr, calico.Owner{Virtual: "me"}),
			"affinity is stale: the block belongs to virtual owner me"},
	}
	states := []struct {
		state  calico.AffinityState
		reason string // "" where the owner decides
	}{
		{calico.AffinityConfirmed, ""},
		{"", ""},
		{calico.AffinityPending, "affinity is pending: the block is being claimed"},
		{calico.AffinityPendingDeletion, ""},
		{"half-done", `affinity has unknown state "half-done"`},
	}
	for _, o := range owners {
		for _, st := range states {
			reason := st.reason
			if reason == "" {
				reason = o.stale
			}
			own, skipped := OwnBlocks("me", snapshot(affine(cidr, st.state), o.block))
			if reason == "" {
				aggregated := Aggregated(own, snapshot(affine(cidr, st.state), o.block))
				released := st.state == calico.AffinityPendingDeletion
				if released != (len(aggregated) == 0) {
					t.Errorf("%s, affinity %q: aggregated %v", o.name, st.state, aggregated)
				}
				if !slices.Equal(own, []netip.Prefix{pfx(cidr)}) || len(skipped) > 0 {
					t.Errorf("%s, affinity %q: got %v, skipped %v, want it to be own", o.name,
						st.state, own, skipped)
				}
				continue
			}
			if len(own) > 0 || !slices.Equal(skipped, []Skipped{{pfx(cidr), reason}}) {
				t.Errorf("%s, affinity %q: got %v, skipped %v, want %q", o.name, st.state, own,
					skipped, reason)
			}
		}
		// Without an affinity a block is not own, whatever it says itself.
		if own, skipped := OwnBlocks("me", snapshot(o.block)); len(own)+len(skipped) > 0 {
			t.Errorf("%s, no affinity: got %v, skipped %v", o.name, own, skipped)
		}
	}
}

func TestTunnelAddressesAreBehindTheirDevices(t *testing.T) {
	s := snapshot(me(func(n *calico.Node) {
		n.IPv6VXLANTunnelAddr, n.WireguardIPv6 = ip("fd00::2"), ip("fd00::3")
	}),
		block("10.1.3.0/26", calico.Owner{Host: "other"},
			"10.1.3.1 me ipipTunnelAddress", "10.1.3.2 me vxlanTunnelAddress",
			"10.1.3.3 me wireguardTunnelAddress"))
	hosts, _ := Hosts("me", nil, s)
	var got []string
	for _, h := range hosts {
		got = append(got, h.Interface)
	}
	want := []string{"tunl0", "vxlan.calico", "wireguard.cali", "vxlan-v6.calico", "wg-v6.cali"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBlockWithANodesAddressIsNotTaken(t *testing.T) {
	s := snapshot(affine("192.168.4.0/24", calico.AffinityConfirmed),
		affine("fd77::/122", calico.AffinityConfirmed),
		affine("10.1.0.0/26", calico.AffinityConfirmed))
	s.Nodes["other"] = calico.Node{Name: "other", IPv4: netip.MustParsePrefix("192.168.4.3/24"),
		IPv6: netip.MustParsePrefix("fd77::7/64")}
	for _, name := range []string{"z", "y"} { // of several nodes the first is named
		s.Nodes[name] = calico.Node{Name: name, IPv4: netip.MustParsePrefix("192.168.4.4/24")}
	}
	own, skipped := OwnBlocks("me", s)
	want := []Skipped{
		{pfx("192.168.4.0/24"), "the block contains 192.168.4.3, the BGP address of Node(other)"},
		{pfx("fd77::/122"), "the block contains fd77::7, the BGP address of Node(other)"},
	}
	if !slices.Equal(own, []netip.Prefix{pfx("10.1.0.0/26")}) || !slices.Equal(skipped, want) {
		t.Errorf("own %v, skipped %v", own, skipped)
	}
}

func TestNamedBlocks(t *testing.T) {
	mine, other := calico.Owner{Host: "me"}, calico.Owner{Host: "other"}
	s := snapshot(block("10.1.2.0/26", mine), block("10.1.1.0/26", mine),
		block("10.1.3.0/26", other), block("10.1.4.0/26", calico.Owner{}),
		block("192.0.2.0/26", mine),
		affine("10.1.3.0/26", calico.AffinityConfirmed))
	s.Nodes["other"] = calico.Node{Name: "other", IPv4: netip.MustParsePrefix("192.0.2.3/24")}
	for range 10 {
		if got, want := fmt.Sprint(NamedBlocks("me", s)), "[10.1.1.0/26 10.1.2.0/26]"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestOwnBlocksAreSorted(t *testing.T) {
	s := snapshot(
		affine("fd00:1::40/122", calico.AffinityConfirmed), affine("10.1.0.192/26", ""),
		affine("10.1.0.0/26", calico.AffinityConfirmed),
		affine("10.0.9.0/26", calico.AffinityPending),
		affine("10.0.8.0/26", calico.AffinityPending),
	)
	own, skipped := OwnBlocks("me", s)
	if got, want := fmt.Sprint(own), "[10.1.0.0/26 10.1.0.192/26 fd00:1::40/122]"; got != want {
		t.Errorf("own: got %s, want %s", got, want)
	}
	if len(skipped) != 2 || skipped[0].Prefix != pfx("10.0.8.0/26") {
		t.Errorf("skipped: got %v", skipped)
	}
}

func TestNeedsDrop(t *testing.T) {
	for cidr, want := range map[string]bool{"10.1.0.64/26": true, "10.1.0.64/31": true,
		"10.1.0.64/32": false, "fd00::40/122": true, "fd00::40/128": false, "fd00::40/127": true} {
		if got := NeedsDrop(pfx(cidr)); got != want {
			t.Errorf("NeedsDrop(%s) = %v", cidr, got)
		}
	}
}

func TestHosts(t *testing.T) {
	own := func(s *calico.Snapshot) {
		affine("10.1.0.64/26", calico.AffinityConfirmed)(s)
		affine("10.1.9.9/32", calico.AffinityConfirmed)(s)
	}
	for _, tc := range []struct {
		name    string
		s       *calico.Snapshot
		want    string // "prefix block source", block "-" for a borrowed address
		skipped string
	}{
		{"nothing", snapshot(own), "", ""},
		{"workload in own block", snapshot(own, workload("w", "me", "10.1.0.65/32")),
			"10.1.0.65/32 10.1.0.64/26 WorkloadEndpoint(w)", ""},
		{"workload with a borrowed address", snapshot(own, workload("w", "me", "10.1.3.4/32"),
			block("10.1.3.0/26", calico.Owner{Host: "other"}, "10.1.3.4 me")),
			"10.1.3.4/32 - WorkloadEndpoint(w)", ""},
		{"workload of another node", snapshot(own, workload("w", "other", "10.1.0.65/32")), "", ""},
		{"workload that moved here before its allocation did",
			snapshot(own, workload("w", "me", "10.1.3.4/32"),
				block("10.1.3.0/26", calico.Owner{Host: "other"}, "10.1.3.4 other")),
			"10.1.3.4/32 - WorkloadEndpoint(w)", ""},
		{"workload that moved away", snapshot(own, workload("w", "other", "10.1.0.65/32"),
			block("10.1.0.64/26", calico.Owner{Host: "me"}, "10.1.0.65 other")), "", ""},
		{"workload in a block of nobody", snapshot(workload("w", "me", "10.1.0.65/32"),
			block("10.1.0.64/26", calico.Owner{}, "10.1.0.65 me")),
			"10.1.0.65/32 - WorkloadEndpoint(w)", ""},
		{"workload in a block being released",
			snapshot(affine("10.1.0.64/26", calico.AffinityPendingDeletion),
				workload("w", "me", "10.1.0.65/32")),
			"10.1.0.65/32 10.1.0.64/26 WorkloadEndpoint(w)", ""},
		{"workload in a block with a stale affinity",
			snapshot(affine("10.1.0.64/26", calico.AffinityConfirmed),
				block("10.1.0.64/26", calico.Owner{Host: "other"}),
				workload("w", "me", "10.1.0.65/32")),
			"10.1.0.65/32 - WorkloadEndpoint(w)", ""},
		{"every network of a workload",
			snapshot(own, workload("w", "me", "10.1.0.65/32", "fd00::1/128", "10.1.3.4/32")),
			"10.1.0.65/32 10.1.0.64/26 WorkloadEndpoint(w); 10.1.3.4/32 - WorkloadEndpoint(w); " +
				"fd00::1/128 - WorkloadEndpoint(w)", ""},
		{"floating IPs", snapshot(own, workload("w", "me", "10.1.0.65/32"),
			floating("w", "10.1.0.70", "192.0.2.7")),
			"10.1.0.65/32 10.1.0.64/26 WorkloadEndpoint(w)",
			"10.1.0.70/32 floating IP of WorkloadEndpoint(w): these are not announced; " +
				"192.0.2.7/32 floating IP of WorkloadEndpoint(w): these are not announced"},
		{"skipped ones in order", snapshot(workload("w", "me"), workload("v", "me"),
			floating("w", "10.1.0.80"), floating("v", "10.1.0.90")), "",
			"10.1.0.80/32 floating IP of WorkloadEndpoint(w): these are not announced; " +
				"10.1.0.90/32 floating IP of WorkloadEndpoint(v): these are not announced"},
		{"a migration to this node", snapshot(own, workload("w", "me", "10.1.0.65/32"),
			workload("v", "me", "10.1.0.66/32"), workload("u", "other", "10.1.0.67/32"),
			migrating("m2", "w", "me"), migrating("m1", "w", "me"), migrating("m3", "u", "other")),
			"10.1.0.66/32 10.1.0.64/26 WorkloadEndpoint(v)", "10.1.0.65/32 WorkloadEndpoint(w) " +
				"is on its way here: LiveMigration(m1)"},
		{"floating IPs of another node", snapshot(own, workload("w", "other", "10.1.3.4/32"),
			floating("w", "10.1.0.70")), "", ""},
		{"a network that is no address", snapshot(own, workload("w", "me", "10.1.3.0/24")), "",
			"10.1.3.0/24 ipNetworks of WorkloadEndpoint(w) is not a single address"},
		{"two workloads with one address", snapshot(workload("v", "me", "10.1.3.4/32"),
			workload("u", "me", "10.1.3.4/32")), "10.1.3.4/32 - WorkloadEndpoint(u)", ""},
		{"block of one address", snapshot(own, workload("w", "me", "10.1.9.9/32")),
			"10.1.9.9/32 10.1.9.9/32 WorkloadEndpoint(w)", ""},
		{"allocation without a workload",
			snapshot(own, block("10.1.3.0/26", calico.Owner{Host: "other"}, "10.1.3.4 me")), "",
			""},

		{"tunnel addresses of the Node", snapshot(me(func(n *calico.Node) {
			n.IPv4IPIPTunnelAddr, n.IPv4VXLANTunnelAddr, n.IPv6VXLANTunnelAddr = ip("10.1.5.1"),
				ip("10.1.5.2"), ip("fd00::2")
			n.WireguardIPv4, n.WireguardIPv6 = ip("10.1.5.3"), ip("fd00::3")
		})), "10.1.5.1/32 - ipipTunnelAddress of Node(me); 10.1.5.2/32 - vxlanTunnelAddress of " +
			"Node(me); 10.1.5.3/32 - wireguardTunnelAddress of Node(me); " +
			"fd00::2/128 - vxlanV6TunnelAddress of Node(me); fd00::3/128 - " +
			"wireguardV6TunnelAddress of Node(me)", ""},
		{"tunnel address inside own block", snapshot(own, me(func(n *calico.Node) {
			n.IPv4IPIPTunnelAddr = ip("10.1.0.64")
		})), "10.1.0.64/32 10.1.0.64/26 ipipTunnelAddress of Node(me)", ""},
		{"tunnel addresses as allocated",
			snapshot(block("10.1.3.0/26", calico.Owner{Host: "other"},
				"10.1.3.1 me ipipTunnelAddress", "10.1.3.2 me vxlanTunnelAddress",
				"10.1.3.3 me wireguardTunnelAddress",
				"10.1.3.4 other ipipTunnelAddress", "10.1.3.5 me LoadBalancer")),
			"10.1.3.1/32 - ipipTunnelAddress of Node(me); 10.1.3.2/32 - vxlanTunnelAddress of " +
				"Node(me); 10.1.3.3/32 - wireguardTunnelAddress of Node(me)", ""},
		{"IPv6 tunnel addresses as allocated",
			snapshot(block("fd00::/122", calico.Owner{}, "fd00::1 me vxlanV6TunnelAddress",
				"fd00::2 me wireguardV6TunnelAddress")),
			"fd00::1/128 - vxlanV6TunnelAddress of Node(me); fd00::2/128 - " +
				"wireguardV6TunnelAddress of Node(me)", ""},
		{"tunnel address named and allocated", snapshot(me(func(n *calico.Node) {
			n.IPv4IPIPTunnelAddr = ip("10.1.3.1")
		}), block("10.1.3.0/26", calico.Owner{Host: "other"}, "10.1.3.1 me ipipTunnelAddress")),
			"10.1.3.1/32 - ipipTunnelAddress of Node(me)", ""},
		{"tunnel address that IPAM gave to another node", snapshot(me(func(n *calico.Node) {
			n.IPv4IPIPTunnelAddr = ip("10.1.3.1")
		}), block("10.1.3.0/26", calico.Owner{Host: "other"}, "10.1.3.1 other")),
			"", "10.1.3.1/32 ipipTunnelAddress of Node(me) is allocated to node other"},
		{"tunnel address with an allocation of no node", snapshot(me(func(n *calico.Node) {
			n.IPv4IPIPTunnelAddr = ip("10.1.3.1")
		}), block("10.1.3.0/26", calico.Owner{Host: "other"}, "10.1.3.1")),
			"10.1.3.1/32 - ipipTunnelAddress of Node(me)", ""},
		{"another node's tunnel address", snapshot(func(s *calico.Snapshot) {
			s.Nodes["other"] = calico.Node{IPv4IPIPTunnelAddr: ip("10.1.3.1")}
		}), "", ""},
	} {
		blocks, _ := OwnBlocks("me", tc.s)
		hosts, skipped := Hosts("me", blocks, tc.s)
		var got, gotSkipped []string
		for _, h := range hosts {
			block := "-"
			if !h.Borrowed() {
				block = h.Block.String()
			}
			got = append(got, fmt.Sprintf("%s %s %s", h.Prefix, block, h.Source))
		}
		for _, s := range skipped {
			gotSkipped = append(gotSkipped, fmt.Sprintf("%s %s", s.Prefix, s.Reason))
		}
		if g := strings.Join(got, "; "); g != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, g, tc.want)
		}
		if g := strings.Join(gotSkipped, "; "); g != tc.skipped {
			t.Errorf("%s: skipped\n got %s\nwant %s", tc.name, g, tc.skipped)
		}
	}
}

func TestPools(t *testing.T) {
	s := snapshot(func(s *calico.Snapshot) {
		for name, cidr := range map[string]string{"b": "10.1.0.0/16", "a": "10.1.0.0/16",
			"c": "10.1.4.0/24", "z": "10.0.0.0/8", "six": "fd00::/64"} {
			s.IPPools[name] = calico.IPPool{Name: name, CIDR: pfx(cidr)}
		}
	})
	all := Pools(s)
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "z a c six" {
		t.Errorf("pools that count: got %s, want z a c six", got)
	}
}

// TestAnyOrder checks on drawn data that answers depend neither on the order of maps nor change
// their input, and that a host is said to be in the own block that covers it.
func TestAnyOrder(t *testing.T) {
	blocks := []string{"10.1.0.0/26", "10.1.0.64/26", "10.1.0.64/30", "10.1.0.65/32", "fd00::/122"}
	addrs := []string{"10.1.0.1", "10.1.0.65", "10.1.0.66", "10.1.0.100", "fd00::1", "fd00:1::1"}
	nodes := rapid.SampledFrom([]string{"me", "other", ""})
	rapid.Check(t, func(t *rapid.T) {
		s := snapshot()
		for _, b := range blocks {
			if rapid.Bool().Draw(t, "affine") {
				affine(b, rapid.SampledFrom([]calico.AffinityState{"", calico.AffinityConfirmed,
					calico.AffinityPending}).Draw(t, "state"))(s)
			}
			var allocations []string
			for _, a := range addrs {
				if pfx(b).Contains(ip(a)) && rapid.Bool().Draw(t, "allocated") {
					allocations = append(allocations,
						strings.TrimSpace(a+" "+nodes.Draw(t, "node")+
							rapid.SampledFrom([]string{"", " ipipTunnelAddress",
								" vxlanTunnelAddress"}).Draw(t, "type")))
				}
			}
			block(b, calico.Owner{Host: nodes.Draw(t, "owner")}, allocations...)(s)
		}
		for i, a := range addrs {
			if rapid.Bool().Draw(t, "runs") {
				workload(fmt.Sprintf("w%d", i%3), nodes.Draw(t, "runs on"),
					route.HostPrefix(ip(a)).String())(s)
			}
		}
		s.Nodes["me"] = calico.Node{Name: "me",
			IPv4IPIPTunnelAddr: ip(rapid.SampledFrom(addrs[:4]).Draw(t, "tunnel"))}

		copied := *s
		copied.Blocks, copied.Affinities = maps.Clone(s.Blocks), maps.Clone(s.Affinities)
		copied.WorkloadEndpoints, copied.Nodes = maps.Clone(s.WorkloadEndpoints),
			maps.Clone(s.Nodes)
		for k, b := range copied.Blocks {
			b.Allocations = slices.Clone(b.Allocations)
			copied.Blocks[k] = b
		}

		type answer struct {
			own             []netip.Prefix
			hosts           []Host
			notOwn, notHere []Skipped
		}
		ask := func(s *calico.Snapshot) (a answer) {
			a.own, a.notOwn = OwnBlocks("me", s)
			a.hosts, a.notHere = Hosts("me", a.own, s)
			return a
		}
		first := ask(s)
		for range 5 {
			if again := ask(&copied); !reflect.DeepEqual(again, first) {
				t.Fatalf("another answer to the same question:\n%+v\n%+v", first, again)
			}
		}
		if !reflect.DeepEqual(*s, copied) {
			t.Fatal("the snapshot was changed")
		}
		for i, h := range first.hosts {
			if i > 0 && route.ComparePrefixes(first.hosts[i-1].Prefix, h.Prefix) >= 0 {
				t.Fatalf("hosts are not sorted or not unique: %v", first.hosts)
			}
			covered := slices.ContainsFunc(first.own, func(b netip.Prefix) bool {
				return b.Contains(h.Prefix.Addr())
			})
			if covered == h.Borrowed() || covered && (!h.Block.Contains(h.Prefix.Addr()) ||
				!slices.Contains(first.own, h.Block)) {
				t.Fatalf("%+v with own blocks %v", h, first.own)
			}
		}
	})
}
