package gobgp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

func nlri4(bits uint8, ip ...byte) *packet.IPAddrPrefix {
	return &packet.IPAddrPrefix{
		IPAddrPrefixDefault: packet.IPAddrPrefixDefault{Prefix: ip, Length: bits},
	}
}

func nlri6(bits uint8, ip string) *packet.IPv6AddrPrefix {
	return &packet.IPv6AddrPrefix{
		IPAddrPrefix: packet.IPAddrPrefix{
			IPAddrPrefixDefault: packet.IPAddrPrefixDefault{Prefix: net.ParseIP(ip), Length: bits},
		},
	}
}

func TestPrefixOf(t *testing.T) {
	for _, c := range []struct {
		name string
		nlri packet.AddrPrefixInterface
		want string // "" refused
	}{
		{"IPv4", nlri4(26, 10, 1, 0, 0), "10.1.0.0/26"},
		{"IPv6", nlri6(122, "fd00::"), "fd00::/122"},
		{"default route", nlri4(0, 0, 0, 0, 0), "0.0.0.0/0"},
		{"host bits are masked", nlri4(26, 10, 1, 0, 77), "10.1.0.64/26"},
		{"too long", nlri4(33, 10, 1, 0, 0), ""},
		{"no address", nlri4(8), ""},
		{"half an address", nlri4(8, 10, 1), ""},
		{"IPv4-mapped", nlri6(122, "::ffff:10.1.0.0"), ""},
		{"IPv6 in the IPv4 family", nlri4(64, net.ParseIP("fd00::")...), ""},
		{"another kind of NLRI",
			packet.NewLabeledIPAddrPrefix(24, "10.1.0.0", *packet.NewMPLSLabelStack(16)), ""},
		{"none", nil, ""},
	} {
		got, err := prefixOf(c.nlri)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s: %s let through", c.name, got)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}

func TestNextHopOf(t *testing.T) {
	for _, c := range []struct {
		name, prefix string
		hops         []string
		want         string // "" refused
	}{
		{"IPv4", "10.1.0.0/26", []string{"192.0.2.1"}, "192.0.2.1"},
		{"IPv6 for IPv4", "10.1.0.0/26", []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv4-mapped for IPv4", "10.1.0.0/26", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"IPv6", "fd00::/122", []string{"2001:db8::1"}, "2001:db8::1"},
		{"global and link-local", "fd00::/122", []string{"2001:db8::1", "fe80::1"}, "2001:db8::1"},
		{"the other way round", "fd00::/122", []string{"fe80::1", "2001:db8::1"}, "2001:db8::1"},
		{"link-local alone", "fd00::/122", []string{"fe80::1"}, "fe80::1"},
		{"unspecified and link-local", "fd00::/122", []string{"::", "fe80::1"}, "fe80::1"},
		{"link-local twice", "fd00::/122", []string{"fe80::1", "fe80::2"}, "fe80::2"},
		{"IPv4 for IPv6", "fd00::/122", []string{"192.0.2.1"}, ""},
		{"none", "10.1.0.0/26", nil, ""},
		{"unspecified", "10.1.0.0/26", []string{"0.0.0.0"}, ""},
		{"unspecified IPv6", "fd00::/122", []string{"::"}, ""},
		{"multicast", "10.1.0.0/26", []string{"224.0.0.5"}, ""},
	} {
		var hops [2]net.IP
		for i, h := range c.hops {
			hops[i] = net.ParseIP(h)
			if v4 := hops[i].To4(); v4 != nil && h[0] != ':' {
				hops[i] = v4
			}
		}
		got, err := nextHopOf(pfx(c.prefix), hops)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s: %s let through", c.name, got)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
	if got, err := nextHopOf(pfx("10.1.0.0/26"), [2]net.IP{{192, 0, 2}}); err == nil {
		t.Errorf("three bytes: %s let through", got)
	}
	if got, err := nextHopOf(pfx("fd00::/122"), [2]net.IP{net.ParseIP("192.0.2.1")}); err == nil {
		t.Errorf("IPv4-mapped for IPv6: %s let through", got)
	}
}

func TestMPReachCountsBesideNextHop(t *testing.T) {
	next := packet.NewPathAttributeNextHop("192.0.2.1")
	mp := packet.NewPathAttributeMpReachNLRI("2001:db8::1", []packet.AddrPrefixInterface{
		nlri4(26, 10, 1, 0, 0),
	})
	for _, attrs := range [][]packet.PathAttributeInterface{{next, mp}, {mp, next}} {
		if got := attributesOf(attrs).nextHops; got[0].String() != "2001:db8::1" || got[1] != nil {
			t.Errorf("next hops %v", got)
		}
	}
}

// An announcement that goes through GoBGP's form comes back as it was.
func TestPathOfRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := bgp.Announcement{
			Prefix: drawPrefix(t), LocalPref: rapid.Uint32().Draw(t, "local_pref"),
		}
		a.NextHop = rapid.SampledFrom([]netip.Addr{
			addr("192.0.2.1"), addr("2001:db8::1"), addr("127.0.0.1"), addr("fe80::1"),
		}).
			Filter(func(n netip.Addr) bool { return n.Is6() || a.Prefix.Addr().Is4() }).Draw(t,
			"next_hop")
		p, err := pathOf(a)
		if err != nil {
			t.Fatal(err)
		}
		p = native(t, p)
		p.NeighborIp = "192.0.2.200"
		w := pathOfAPI(p)
		prefix, err := prefixOf(w.NLRI)
		if err != nil || prefix != a.Prefix {
			t.Fatalf("prefix %s, %v, want %s", prefix, err, a.Prefix)
		}
		back, err := pathFrom(prefix, w)
		want := bgp.Path{Peer: first("192.0.2.200"), NextHop: a.NextHop, LocalPref: a.LocalPref}
		if err != nil || back != want {
			t.Fatalf("path %+v, %v, want %+v", back, err, want)
		}
	})
}

// native turns the wire form into the form that GoBGP's API shows.
func native(t *rapid.T, p *api.Path) *api.Path {
	n, err := apiutil.GetNativeNlri(p)
	if err != nil {
		t.Fatal(err)
	}
	attrs, err := apiutil.GetNativePathAttributes(p)
	if err != nil {
		t.Fatal(err)
	}
	out := &api.Path{Family: p.Family}
	if out.Nlri, err = apiutil.MarshalNLRI(n); err != nil {
		t.Fatal(err)
	}
	if out.Pattrs, err = apiutil.MarshalPathAttributes(attrs); err != nil {
		t.Fatal(err)
	}
	return out
}

func drawPrefix(t *rapid.T) netip.Prefix {
	if rapid.Bool().Draw(t, "ipv6") {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr"))
		b[0] = 0xfd
		return netip.PrefixFrom(netip.AddrFrom16(b),
			rapid.IntRange(8, 128).Draw(t, "bits")).Masked()
	}
	b := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr"))
	return netip.PrefixFrom(netip.AddrFrom4(b), rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
}

func TestPathOfRefuses(t *testing.T) {
	for name, a := range map[string]bgp.Announcement{
		"host bits":             {Prefix: pfx("10.1.0.1/26"), NextHop: addr("192.0.2.1")},
		"IPv4-mapped prefix":    {Prefix: pfx("::ffff:10.1.0.0/122"), NextHop: addr("2001:db8::1")},
		"no prefix":             {NextHop: addr("192.0.2.1")},
		"no next hop":           {Prefix: pfx("10.1.0.0/26")},
		"unspecified next hop":  {Prefix: pfx("10.1.0.0/26"), NextHop: addr("0.0.0.0")},
		"IPv4-mapped next hop":  {Prefix: pfx("fd00::/122"), NextHop: addr("::ffff:192.0.2.1")},
		"next hop with a zone":  {Prefix: pfx("fd00::/122"), NextHop: addr("fe80::1%eth0")},
		"IPv4 next hop of IPv6": {Prefix: pfx("fd00::/122"), NextHop: addr("192.0.2.1")},
	} {
		if p, err := pathOf(a); err == nil {
			t.Errorf("%s: made %v", name, p)
		}
	}
}

// decodeUpdate is GoBGP's. It panics on an MP_REACH_NLRI of three bytes, which lacks the length of
// the next hop (v3.37, bgp.go, PathAttributeMpReachNLRI.DecodeFromBytes); what is tested here comes
// after it.
func decodeUpdate(body []byte) (u *packet.BGPUpdate, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("GoBGP: %v", p)
		}
	}()
	u = &packet.BGPUpdate{}
	return u, u.DecodeFromBytes(body)
}

// Whatever an UPDATE holds: the conversion of what GoBGP makes of it does not panic, lets through
// only what can be a route, and says of what comes over GoBGP's API the same as of what comes
// without it.
func FuzzEvent(f *testing.F) {
	seed := func(attrs ...packet.PathAttributeInterface) {
		m := packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{
			packet.NewIPAddrPrefix(26, "10.1.0.0"),
		})
		b, err := m.Body.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	v6 := packet.NewPathAttributeMpReachNLRI("2001:db8::1", []packet.AddrPrefixInterface{
		packet.NewIPv6AddrPrefix(122, "fd00::"),
	})
	seed(packet.NewPathAttributeOrigin(0), packet.NewPathAttributeNextHop("192.0.2.1"),
		packet.NewPathAttributeLocalPref(7))
	seed(packet.NewPathAttributeOrigin(0), v6)
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := decodeUpdate(body)
		if err != nil {
			return
		}
		for _, w := range pathsOf(u) {
			prefix, err := prefixOf(w.NLRI)
			if err == nil && (prefix != prefix.Masked() || prefix.Addr().Is4In6()) {
				t.Fatalf("prefix %s let through", prefix)
			}
			path, pathErr := pathFrom(prefix, w)
			if err == nil && pathErr == nil &&
				(!path.NextHop.IsValid() || path.NextHop.Is4In6() || path.NextHop.IsUnspecified()) {
				t.Fatalf("next hop %s let through", path.NextHop)
			}
			api, ok := overAPI(w)
			if !ok {
				continue
			}
			apiPrefix, apiErr := prefixOf(api.NLRI)
			if apiPrefix != prefix || (apiErr == nil) != (err == nil) {
				t.Fatalf("prefix %s (%v), over the API %s (%v)", prefix, err, apiPrefix, apiErr)
			}
			apiPath, apiErr := pathFrom(prefix, api)
			if err == nil && (apiPath != path || (apiErr == nil) != (pathErr == nil)) {
				t.Fatalf("path %+v (%v), over the API %+v (%v)", path, pathErr, apiPath, apiErr)
			}
		}
	})
}

// pathsOf makes paths of an UPDATE as GoBGP does (internal/pkg/table/table_manager.go,
// ProcessMessage): of an MP_REACH_NLRI each gets one of its own, which has the first next hop only.
// A family that the session has not been opened for does not come so far (bgp/validate.go); GoBGP
// would panic on some of those.
func pathsOf(u *packet.BGPUpdate) (out []server.Watched) {
	from := addr("192.0.2.200")
	var attrs []packet.PathAttributeInterface
	var reach *packet.PathAttributeMpReachNLRI
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *packet.PathAttributeMpReachNLRI:
			family := packet.AfiSafiToRouteFamily(a.AFI, a.SAFI)
			if family == packet.RF_IPv4_UC || family == packet.RF_IPv6_UC {
				reach = a
			}
		case *packet.PathAttributeMpUnreachNLRI:
		default:
			attrs = append(attrs, a)
		}
	}
	for _, n := range u.NLRI {
		out = append(out, server.Watched{
			Peer: netip.AddrPortFrom(from, 0), NLRI: n, Attributes: attrs,
		})
	}
	if reach != nil {
		for _, n := range reach.Value {
			own := packet.NewPathAttributeMpReachNLRI(reach.Nexthop.String(),
				[]packet.AddrPrefixInterface{n})
			out = append(out, server.Watched{
				Peer: netip.AddrPortFrom(from, 0), NLRI: n,
				Attributes: append(slices.Clone(attrs), own),
			})
		}
	}
	return out
}

// overAPI is what is left of a path when it went through GoBGP's API, if that takes it.
func overAPI(w server.Watched) (server.Watched, bool) {
	n, err := apiutil.MarshalNLRI(w.NLRI)
	if err != nil {
		return server.Watched{}, false
	}
	attrs, err := apiutil.MarshalPathAttributes(w.Attributes)
	if err != nil {
		return server.Watched{}, false
	}
	return pathOfAPI(&api.Path{
		Nlri: n, Pattrs: attrs, Family: apiutil.ToApiFamily(w.NLRI.AFI(), w.NLRI.SAFI()),
		NeighborIp: w.Peer.Addr().String(),
	}), true
}
