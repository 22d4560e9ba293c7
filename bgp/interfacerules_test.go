package bgp

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// TestImportByInterface: where the next hop of a learned route leads out decides, by the longest
// match. Before the data plane has answered, a Reject takes all, and an Accept nothing.
func TestImportByInterface(t *testing.T) {
	known := []route.Outgoing{
		{Prefix: pfx("10.0.0.0/24"), Interface: "eth0"},
		{Prefix: pfx("10.0.0.64/26"), Interface: "eth1"},
		{Prefix: pfx("10.0.0.65/32"), Interface: "eth0"},
		{Prefix: pfx("192.0.2.7/32"), Interface: "eth1"},
	}
	everyHop := []string{"10.0.0.1", "10.0.0.64", "10.0.0.65", "192.0.2.7", "192.0.2.8"}
	for _, tc := range []struct {
		name, pattern string
		outgoing      []route.Outgoing
		rejected      []string // of next hops
	}{
		{"by name", "eth0", known, []string{"10.0.0.1", "10.0.0.65"}},
		{"the longest match", "eth1", known, []string{"10.0.0.64", "192.0.2.7"}},
		{"a pattern", "eth*", known, []string{"10.0.0.1", "10.0.0.64", "10.0.0.65", "192.0.2.7"}},
		{"no such interface", "eth7", known, nil},
		{"no interface at all", "eth*", []route.Outgoing{}, nil},
		{"nothing is known yet", "eth7", nil, everyHop},
	} {
		for _, action := range []string{"Reject", "Accept"} {
			rules := []filterRule{{Interface: tc.pattern, Action: action}}
			if action == "Accept" {
				rules = append(rules, filterRule{Action: "Reject"})
			}
			s := cluster(meshOff, filtered(calico.BGPFilter{Name: "f", ImportV4: rules}),
				peered(bgpPeer{
					Name: "x", PeerIP: "10.0.0.1", ASNumber: 64900, Filters: []string{"f"},
				}))
			plan := PlanFor("a", s, Options{Outgoing: tc.outgoing})
			if len(plan.Peers) != 1 || !AsksInterface(s) ||
				(tc.outgoing == nil) != (len(plan.Problems) > 0) {
				t.Fatalf("%s: %+v", tc.name, plan)
			}
			for _, hop := range everyHop {
				r := Route{Prefix: pfx("10.9.0.0/16"), From: &plan.Peers[0], NextHop: ip(hop)}
				_, v := plan.Policies.Import(r)
				matches := slices.Contains(tc.rejected, hop)
				want := matches == (action == "Accept")
				if tc.outgoing == nil {
					want = false
				}
				if v.Accept != want {
					t.Errorf("%s, %s: next hop %s: %+v", tc.name, action, hop, v)
				}
			}
		}
	}
}

// TestLeavingBy compares with a look at one address after the other, of both families: all of a
// subnet, and some that only shorter prefixes have.
func TestLeavingBy(t *testing.T) {
	v4, v6 := [4]byte{10, 0, 0, 0}, [16]byte{0: 0xfd}
	at := func(six bool, last byte) netip.Addr {
		if six {
			v6[15] = last
			return netip.AddrFrom16(v6)
		}
		v4[3] = last
		return netip.AddrFrom4(v4)
	}
	addresses := []netip.Addr{ip("0.0.0.0"), ip("10.0.1.0"), ip("255.255.255.255"), ip("::"),
		ip("fd00::1:0"), ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ip("::ffff:10.0.0.1")}
	for n := range 256 {
		addresses = append(addresses, at(false, byte(n)), at(true, byte(n)))
	}
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) route.Outgoing {
			a := at(rapid.Bool().Draw(t, "IPv6"), rapid.Byte().Draw(t, "address"))
			bits := a.BitLen() - rapid.IntRange(0, 8).Draw(t, "host bits")
			if rapid.IntRange(0, 3).Draw(t, "short") == 0 {
				bits = rapid.IntRange(0, a.BitLen()).Draw(t, "bits")
			}
			name := rapid.SampledFrom([]string{"a0", "a1", "b0"}).Draw(t, "interface")
			return route.Outgoing{Prefix: netip.PrefixFrom(a, bits).Masked(), Interface: name}
		})
		prefix := func(o route.Outgoing) netip.Prefix { return o.Prefix }
		all := rapid.SliceOfNDistinct(one, 0, 12, prefix).Draw(t, "all")
		got := leavingBy("a*", all)
		for _, a := range addresses {
			longest := route.Outgoing{}
			for _, o := range all {
				longer := longest.Interface == "" || o.Prefix.Bits() > longest.Prefix.Bits()
				if longer && o.Prefix.Contains(a) {
					longest = o
				}
			}
			within := 0
			for _, p := range got {
				if p.Contains(a) {
					within++
				}
			}
			want := 0
			if longest.Interface != "" && longest.Interface != "b0" {
				want = 1
			}
			if within != want {
				t.Fatalf("%s lies in %d of %v, want %d: %v", a, within, got, want, all)
			}
		}
	})
}
