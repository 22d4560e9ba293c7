package fib

import (
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/route"
)

func TestSelect(t *testing.T) {
	bgp := func(hops ...string) Candidate {
		return Candidate{Origin: route.BGP, Paths: via(hops...)}
	}
	facts := Facts{
		Facts: node("a"),
		Resolutions: map[NextHop]route.Resolution{
			hop("10.9.0.5"):  {Prefix: pfx("0.0.0.0/0"), Usable: true},
			hop("10.9.0.6"):  {Prefix: pfx("10.9.0.0/24"), Ours: true},
			hop("10.9.0.7"):  {},
			hop("10.9.0.8"):  {Prefix: pfx("0.0.0.0/0")},
			hop("fd09::5"):   {Prefix: pfx("fd09::/32"), Usable: true},
			hop("10.9.0.10"): {Prefix: pfx("10.8.0.0/13"), Usable: true},
		},
	}
	cover := func(route.Key) (netip.Prefix, bool) { return pfx("10.1.0.0/16"), true }
	tests := []struct {
		name       string
		key        string
		candidates []Candidate
		facts      func(*Facts)
		want       string // "" : none
		reason     string // part of
	}{
		{
			name: "connected next hop becomes attached", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2")}, want: "10.1.0.64/26 via 10.0.0.2 eth0",
		},
		{
			name: "multipath over two interfaces", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.1.2", "10.0.0.2")},
			want:       "10.1.0.64/26 via 10.0.0.2 eth0, 10.0.1.2 eth1",
		},
		{
			name: "other next hops stay recursive", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.5")}, want: "10.1.0.64/26 via 10.9.0.5",
		},
		{
			name: "IPv6", key: "fd10::/64",
			candidates: []Candidate{bgp("fd00::2"), {Origin: route.Etcd, Paths: via("fd09::5")}},
			want:       "fd10::/64 via fd00::2 eth0",
		},
		{name: "of BGP's next hops only the nearest", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2", "10.0.1.2", "10.9.0.5")},
			want:       "10.1.0.64/26 via 10.0.0.2 eth0, 10.0.1.2 eth1",
			reason:     "10.9.0.5 is behind a gateway"},
		{
			name: "all that are behind gateways are equally far", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.5", "10.9.0.10")},
			want:       "10.1.0.64/26 via 10.9.0.5, 10.9.0.10",
		},
		{name: "those behind gateways when the near one is unusable", key: "10.0.0.2/32",
			candidates: []Candidate{bgp("10.0.0.2", "10.9.0.5")},
			want:       "10.0.0.2/32 via 10.9.0.5", reason: "own next hop 10.0.0.2"},
		{name: "external configuration means all of its next hops", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.External, Paths: via("10.0.0.2", "10.9.0.5")}},
			want:       "10.1.0.64/26 via 10.0.0.2 eth0, 10.9.0.5"},
		{
			name: "unusable path is left out and named", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2", "10.9.0.7")},
			want:       "10.1.0.64/26 via 10.0.0.2 eth0", reason: "no route to next hop 10.9.0.7",
		},
		{
			name: "next hop through our own route", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.6")}, reason: "through our own route 10.9.0.0/24",
		},
		{name: "next hop that a route we want covers", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.5")},
			facts: func(f *Facts) {
				f.Covered = map[NextHop]Cover{hop("10.9.0.5"): {Prefix: pfx("10.9.0.0/24")}}
			}, reason: "through our own route 10.9.0.0/24"},
		{name: "next hop that an attached external route carries", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.5")},
			facts: func(f *Facts) {
				f.Covered = map[NextHop]Cover{
					hop("10.9.0.5"): {Prefix: pfx("10.9.0.0/24"), Carries: true},
				}
			}, want: "10.1.0.64/26 via 10.9.0.5"},
		{name: "connected next hop that an attached route of ours carries", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts: func(f *Facts) {
				f.Covered = map[NextHop]Cover{
					hop("10.0.0.2"): {Prefix: pfx("10.0.0.2/32"), Carries: true},
				}
			}, want: "10.1.0.64/26 via 10.0.0.2"},
		{name: "a gateway is a neighbour, whatever covers it", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.Own, Paths: via("10.0.0.2")}},
			facts: func(f *Facts) {
				f.Covered = map[NextHop]Cover{
					hop("10.0.0.2"): {Prefix: pfx("10.0.0.2/32"), Carries: true},
				}
			}, want: "10.1.0.64/26 via 10.0.0.2 eth0"},
		{name: "connected next hop that a shorter route of ours covers", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts: func(f *Facts) {
				f.Covered = map[NextHop]Cover{
					hop("10.0.0.2"): {Prefix: pfx("10.0.0.0/16"), Carries: true},
				}
			}, want: "10.1.0.64/26 via 10.0.0.2 eth0"},
		{
			name: "next hop whose match drops", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.8")}, reason: "0.0.0.0/0, which does not forward",
		},
		{
			name: "next hop not looked up", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.9.0.9")}, reason: "not been looked up",
		},
		{
			name: "nothing is programmed while one of the next hops is not looked up",
			key:  "10.1.0.64/26", candidates: []Candidate{bgp("10.0.0.2", "10.9.0.9")},
			reason: "10.9.0.9 has not been looked up",
		},
		{
			name: "link-local next hop without interface", key: "fd10::/64",
			candidates: []Candidate{bgp("fe80::2")},
			reason:     "link-local and came without an interface",
		},
		{
			name: "link-local next hop with interface", key: "fd10::/64",
			candidates: []Candidate{{Origin: route.External,
				Paths: []route.Path{{NextHop: addr("fe80::2"), Interface: "eth0", Weight: 1}}}},
			want: "fd10::/64 via fe80::2 eth0",
		},
		{
			name: "own address as next hop", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.1")}, reason: "10.0.0.1 is an address of this node",
		},
		{
			name: "unspecified next hop", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("0.0.0.0")}, reason: "not a unicast address",
		},
		{
			name: "no path", key: "10.1.0.64/26", candidates: []Candidate{{Origin: route.BGP}},
			reason: "no path",
		},
		{name: "no candidate", key: "10.1.0.64/26"},
		{
			name: "interface that does not exist", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.External,
				Paths: []route.Path{{Interface: "eth9", Weight: 1}}}},
			reason: "no interface eth9",
		},
		{name: "interface down", key: "10.1.0.64/26", candidates: []Candidate{bgp("10.0.1.2")},
			facts: func(f *Facts) {
				f.Interfaces = node("a").Interfaces
				f.Interfaces[1].Up = false
			},
			reason: "10.0.1.2 has not been looked up"},

		{
			name: "lower distance wins", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2"), {Origin: route.Own, Kind: route.Drop}},
			want:       "10.1.0.64/26 drop",
		},
		{name: "distances are configurable", key: "10.1.0.64/26",
			candidates: []Candidate{bgp("10.0.0.2"), {Origin: route.External, Kind: route.Drop}},
			facts: func(f *Facts) {
				f.Distances = map[route.Origin]uint8{route.External: 200}
			}, want: "10.1.0.64/26 via 10.0.0.2 eth0"},
		{name: "equal distance: own, external, BGP, etcd", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.Etcd, Paths: via("10.0.1.2")}, bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Distances = map[route.Origin]uint8{route.Etcd: 20} },
			want:       "10.1.0.64/26 via 10.0.0.2 eth0"},
		{
			name: "the next origin takes over when the best is unusable", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.External, Paths: via("10.9.0.7")},
				bgp("10.0.0.2")},
			want: "10.1.0.64/26 via 10.0.0.2 eth0",
		},
		{
			name: "but not while the best is being looked up", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.External, Paths: via("10.9.0.9")},
				bgp("10.0.0.2")},
			reason: "not been looked up",
		},
		{name: "no etcd route under a BGP cover", key: "10.1.0.65/32",
			candidates: []Candidate{{Origin: route.Etcd, Paths: via("10.0.1.2")}},
			facts:      func(f *Facts) { f.BGPCover = cover },
			reason:     "BGP covers it with 10.1.0.0/16"},
		{name: "a backup route gives way to a BGP cover", key: "10.1.0.65/32",
			candidates: []Candidate{{Origin: route.External, Paths: via("10.0.1.2")}},
			facts: func(f *Facts) {
				f.BGPCover, f.Distances = cover, map[route.Origin]uint8{route.External: 200}
			},
			reason: "BGP covers it with 10.1.0.0/16"},
		{name: "an overriding route does not", key: "10.1.0.65/32",
			candidates: []Candidate{{Origin: route.External, Paths: via("10.0.1.2")}},
			facts:      func(f *Facts) { f.BGPCover = cover },
			want:       "10.1.0.65/32 via 10.0.1.2 eth1"},
		{name: "no external route inside an own block", key: "10.1.0.65/32",
			candidates: []Candidate{{Origin: route.External, Paths: via("10.0.1.2")}},
			facts:      func(f *Facts) { f.OwnCover = cover },
			reason:     "it lies in 10.1.0.0/16, a block of this node"},
		{name: "but another origin's", key: "10.1.0.65/32",
			candidates: []Candidate{{Origin: route.Etcd, Paths: via("10.0.1.2")}},
			facts:      func(f *Facts) { f.OwnCover = cover },
			want:       "10.1.0.65/32 via 10.0.1.2 eth1"},
		{name: "a cover does not concern BGP", key: "10.1.0.65/32",
			candidates: []Candidate{bgp("10.0.1.2")},
			facts:      func(f *Facts) { f.BGPCover = cover },
			want:       "10.1.0.65/32 via 10.0.1.2 eth1"},

		{
			name: "default route through a connected ToR", key: "0.0.0.0/0",
			candidates: []Candidate{bgp("10.0.0.254")}, want: "0.0.0.0/0 via 10.0.0.254 eth0",
		},
		{
			name: "guard: own next hop, attached", key: "10.0.0.2/32",
			candidates: []Candidate{bgp("10.0.0.2")},
			reason:     "longest match for its own next hop 10.0.0.2, now reached by 10.0.0.0/24",
		},
		{
			name: "guard: own next hop, recursive", key: "10.9.0.0/24",
			candidates: []Candidate{bgp("10.9.0.5")},
			reason:     "longest match for its own next hop 10.9.0.5, now reached by 0.0.0.0/0",
		},
		{
			name: "guard: shorter cover of its own next hop", key: "10.0.0.0/8",
			candidates: []Candidate{bgp("10.9.0.10")}, want: "10.0.0.0/8 via 10.9.0.10",
		},
		{
			name: "guard: a good path remains", key: "10.9.0.0/24",
			candidates: []Candidate{bgp("10.9.0.5", "10.0.0.2")},
			want:       "10.9.0.0/24 via 10.0.0.2 eth0", reason: "own next hop",
		},
		{
			name: "guard: connected subnet", key: "10.0.1.0/24",
			candidates: []Candidate{bgp("10.0.0.2")}, reason: "the connected subnet of eth1",
		},
		{
			name: "guard: part of a connected subnet with our address", key: "10.0.1.0/26",
			candidates: []Candidate{bgp("10.0.0.2")},
			reason:     "10.0.1.1, this node's address on eth1",
		},
		{
			name: "guard: part of a connected subnet without it", key: "10.0.1.64/26",
			candidates: []Candidate{bgp("10.0.0.2")}, want: "10.0.1.64/26 via 10.0.0.2 eth0",
		},
		{
			name: "guard: cover of a connected subnet", key: "10.0.0.0/16",
			candidates: []Candidate{bgp("10.0.0.2")}, want: "10.0.0.0/16 via 10.0.0.2 eth0",
		},
		{
			name: "guard: aggregate of loopbacks", key: "10.200.0.0/24",
			candidates: []Candidate{bgp("10.0.0.2")}, want: "10.200.0.0/24 via 10.0.0.2 eth0",
		},
		{
			name: "guard: our loopback", key: "10.200.0.1/32",
			candidates: []Candidate{bgp("10.0.0.2")}, reason: "connected subnet of loop0",
		},
		{name: "guard: own address behind the data plane", key: "10.9.0.0/24",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Own = []netip.Addr{addr("10.9.0.7")} },
			reason:     "10.9.0.7, this node's address"},
		{name: "guard: what leads to an own address is not known yet", key: "10.50.0.0/24",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Own = []netip.Addr{addr("10.50.0.9")} },
			reason:     "it covers 10.50.0.9, and what leads there now has not"},
		{name: "guard: a host route need not wait for that", key: "10.50.0.9/32",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Own = []netip.Addr{addr("10.50.0.9")} },
			reason:     "10.50.0.9, this node's address"},
		{name: "guard: default beside an own address", key: "0.0.0.0/0",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Own = []netip.Addr{addr("10.50.0.9")} },
			want:       "0.0.0.0/0 via 10.0.0.2 eth0"},
		{name: "guard: connected peer", key: "10.0.0.7/32",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Peers = []netip.Addr{addr("10.0.0.7")} },
			reason:     "10.0.0.7, the address of a peer"},
		{name: "guard: peer behind a default route", key: "10.9.0.0/24",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Peers = []netip.Addr{addr("10.9.0.5")} },
			reason:     "10.9.0.5, the address of a peer"},
		{name: "guard: ToR's default beside that", key: "0.0.0.0/0",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Peers = []netip.Addr{addr("10.9.0.5")} },
			want:       "0.0.0.0/0 via 10.0.0.2 eth0"},
		{name: "guard: shorter than the peer's route", key: "10.0.0.0/12",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Peers = []netip.Addr{addr("10.9.0.10")} },
			want:       "10.0.0.0/12 via 10.0.0.2 eth0"},
		{name: "guard: peer that nothing else leads to", key: "10.9.0.0/24",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Peers = []netip.Addr{addr("10.9.0.7")} },
			want:       "10.9.0.0/24 via 10.0.0.2 eth0"},
		{name: "guard: host route of any peer", key: "10.9.0.7/32",
			candidates: []Candidate{bgp("10.0.0.2")},
			facts:      func(f *Facts) { f.Peers = []netip.Addr{addr("10.9.0.7")} },
			reason:     "10.9.0.7, the address of a peer"},
		{name: "guard: own drop may contain an own tunnel address", key: "10.1.0.64/26",
			candidates: []Candidate{{Origin: route.Own, Kind: route.Drop}},
			facts:      func(f *Facts) { f.Own = []netip.Addr{addr("10.1.0.65")} },
			want:       "10.1.0.64/26 drop"},
		{name: "guard: other tables have other addresses", key: "10.0.0.1/32",
			candidates: []Candidate{bgp("10.0.1.2")},
			facts: func(f *Facts) {
				f.Interfaces = node("a").Interfaces
				f.Interfaces[0].Table = 7
			}, want: "10.0.0.1/32 via 10.0.1.2 eth1"},
		{
			name: "reserved: 0/8", key: "0.1.0.0/16", candidates: []Candidate{bgp("10.0.0.2")},
			reason: "0.0.0.0/8",
		},
		{
			name: "reserved: 127/8", key: "127.0.0.1/32", candidates: []Candidate{bgp("10.0.0.2")},
			reason: "127.0.0.0/8",
		},
		{
			name: "reserved: 169.254/16", key: "169.254.169.254/32",
			candidates: []Candidate{bgp("10.0.0.2")}, reason: "169.254.0.0/16",
		},
		{
			name: "reserved: multicast", key: "239.0.0.0/8",
			candidates: []Candidate{bgp("10.0.0.2")}, reason: "224.0.0.0/3",
		},
		{
			name: "reserved: broadcast", key: "255.255.255.255/32",
			candidates: []Candidate{bgp("10.0.0.2")}, reason: "224.0.0.0/3",
		},
		{
			name: "reserved: ::1", key: "::1/128", candidates: []Candidate{bgp("fd00::2")},
			reason: "::1/128",
		},
		{
			name: "reserved: fe80::/10", key: "fe90::/16", candidates: []Candidate{bgp("fd00::2")},
			reason: "fe80::/10",
		},
		{
			name: "reserved: ff00::/8", key: "ff02::/16", candidates: []Candidate{bgp("fd00::2")},
			reason: "ff00::/8",
		},
		{
			name: "reserved also for our own", key: "127.0.0.0/26",
			candidates: []Candidate{{Origin: route.Own, Kind: route.Drop}}, reason: "127.0.0.0/8",
		},
		{
			name: "128/1 is not reserved", key: "128.0.0.0/1",
			candidates: []Candidate{bgp("10.0.0.2")}, want: "128.0.0.0/1 via 10.0.0.2 eth0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := facts
			if tt.facts != nil {
				tt.facts(&f)
			}
			r, why := Select(key(tt.key), tt.candidates, f)
			got := ""
			if r.Prefix.IsValid() {
				got = r.String()
			}
			if got != tt.want {
				t.Errorf("route %q, want %q (reason %q)", got, tt.want, why)
			}
			if (tt.reason == "") != (why == Reason{}) ||
				!strings.Contains(why.String(), tt.reason) {
				t.Errorf("reason %q, want %q", why, tt.reason)
			}
		})
	}
}

func TestEveryReasonHasAText(t *testing.T) {
	for w := noPaths; w <= noFacts; w++ {
		if (Reason{what: w}).String() == "" {
			t.Errorf("reason %d is silent", w)
		}
	}
}
