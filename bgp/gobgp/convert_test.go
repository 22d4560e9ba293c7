package gobgp

import (
	"fmt"
	"net/netip"
	"testing"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

func message(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func nlri(prefix string, bits uint32) *anypb.Any {
	return message(&api.IPAddressPrefix{Prefix: prefix, PrefixLen: bits})
}

func TestPrefixOf(t *testing.T) {
	for _, c := range []struct {
		name   string
		family *api.Family
		nlri   *anypb.Any
		want   string // "" refused
	}{
		{"IPv4", ipv4Unicast, nlri("10.1.0.0", 26), "10.1.0.0/26"},
		{"IPv6", ipv6Unicast, nlri("fd00::", 122), "fd00::/122"},
		{"default route", ipv4Unicast, nlri("0.0.0.0", 0), "0.0.0.0/0"},
		{"host bits are masked", ipv4Unicast, nlri("10.1.0.77", 26), "10.1.0.64/26"},
		{"too long", ipv4Unicast, nlri("10.1.0.0", 33), ""},
		{"no address", ipv4Unicast, nlri("ten", 8), ""},
		{"empty", ipv4Unicast, nlri("", 0), ""},
		{"IPv4-mapped", ipv6Unicast, nlri("::ffff:10.1.0.0", 122), ""},
		{"IPv4-mapped as GoBGP prints it", ipv6Unicast, nlri("10.1.0.0", 24), ""},
		{"IPv6 in the IPv4 family", ipv4Unicast, nlri("fd00::", 64), ""},
		{"another kind of NLRI", ipv4Unicast, message(&api.LabeledIPAddressPrefix{Prefix: "10.1.0.0", PrefixLen: 24}), ""},
		{"an unknown kind", ipv4Unicast, &anypb.Any{TypeUrl: "type.googleapis.com/nope"}, ""},
		{"broken bytes", ipv4Unicast, &anypb.Any{TypeUrl: nlri("10.1.0.0", 26).TypeUrl, Value: []byte{0xff}}, ""},
	} {
		got, err := prefixOf(&api.Path{Family: c.family, Nlri: c.nlri})
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
		{"zone is dropped", "fd00::/122", []string{"fe80::1%eth0"}, "fe80::1"},
		{"IPv4 for IPv6", "fd00::/122", []string{"192.0.2.1"}, ""},
		{"IPv4-mapped for IPv6", "fd00::/122", []string{"::ffff:192.0.2.1"}, ""},
		{"none", "10.1.0.0/26", nil, ""},
		{"unspecified", "10.1.0.0/26", []string{"0.0.0.0"}, ""},
		{"unspecified IPv6", "fd00::/122", []string{"::"}, ""},
		{"multicast", "10.1.0.0/26", []string{"224.0.0.5"}, ""},
		{"a nil address as GoBGP prints it", "10.1.0.0/26", []string{"<nil>"}, ""},
	} {
		got, err := nextHopOf(pfx(c.prefix), c.hops)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s: %s let through", c.name, got)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
}

func TestMPReachCountsBesideNextHop(t *testing.T) {
	next := message(&api.NextHopAttribute{NextHop: "192.0.2.1"})
	mp := message(&api.MpReachNLRIAttribute{Family: ipv4Unicast, NextHops: []string{"2001:db8::1"}})
	for _, attrs := range [][]*anypb.Any{{next, mp}, {mp, next}} {
		if got := attributesOf(&api.Path{Pattrs: attrs}).nextHops; len(got) != 1 || got[0] != "2001:db8::1" {
			t.Errorf("next hops %v", got)
		}
	}
}

// An announcement that goes through GoBGP's form comes back as it was.
func TestPathOfRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := bgp.Announcement{Prefix: drawPrefix(t), LocalPref: rapid.Uint32().Draw(t, "local_pref")}
		a.NextHop = rapid.SampledFrom([]netip.Addr{addr("192.0.2.1"), addr("2001:db8::1"), addr("127.0.0.1"), addr("fe80::1")}).
			Filter(func(n netip.Addr) bool { return n.Is6() || a.Prefix.Addr().Is4() }).Draw(t, "next_hop")
		p, err := pathOf(a)
		if err != nil {
			t.Fatal(err)
		}
		p = native(t, p)
		p.NeighborIp = "192.0.2.200"
		prefix, err := prefixOf(p)
		if err != nil || prefix != a.Prefix {
			t.Fatalf("prefix %s, %v, want %s", prefix, err, a.Prefix)
		}
		back, err := pathFrom(prefix, p)
		want := bgp.Path{Peer: addr("192.0.2.200"), NextHop: a.NextHop, LocalPref: a.LocalPref}
		if err != nil || back != want {
			t.Fatalf("path %+v, %v, want %+v", back, err, want)
		}
	})
}

// native turns the wire form into the form of watch events.
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
		return netip.PrefixFrom(netip.AddrFrom16(b), rapid.IntRange(8, 128).Draw(t, "bits")).Masked()
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

// decodeUpdate is GoBGP's. It panics on an MP_REACH_NLRI of three bytes, which lacks the length of the next hop (v3.37, bgp.go,
// PathAttributeMpReachNLRI.DecodeFromBytes); what is tested here comes after it.
func decodeUpdate(body []byte) (u *packet.BGPUpdate, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("GoBGP: %v", p)
		}
	}()
	u = &packet.BGPUpdate{}
	return u, u.DecodeFromBytes(body)
}

// Whatever an UPDATE holds: the conversion of what GoBGP makes of it does not panic, and lets through only what can be a route.
func FuzzEvent(f *testing.F) {
	seed := func(attrs ...packet.PathAttributeInterface) {
		m := packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{packet.NewIPAddrPrefix(26, "10.1.0.0")})
		b, err := m.Body.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	v6 := packet.NewPathAttributeMpReachNLRI("2001:db8::1", []packet.AddrPrefixInterface{packet.NewIPv6AddrPrefix(122, "fd00::")})
	seed(packet.NewPathAttributeOrigin(0), packet.NewPathAttributeNextHop("192.0.2.1"), packet.NewPathAttributeLocalPref(7))
	seed(packet.NewPathAttributeOrigin(0), v6)
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := decodeUpdate(body)
		if err != nil {
			return
		}
		var nlris []packet.AddrPrefixInterface
		for _, n := range u.NLRI {
			nlris = append(nlris, n)
		}
		for _, a := range u.PathAttributes {
			if mp, ok := a.(*packet.PathAttributeMpReachNLRI); ok {
				nlris = append(nlris, mp.Value...)
			}
		}
		attrs, err := apiutil.MarshalPathAttributes(u.PathAttributes)
		if err != nil {
			return
		}
		for _, n := range nlris {
			any, err := apiutil.MarshalNLRI(n)
			if err != nil {
				continue
			}
			p := &api.Path{Nlri: any, Pattrs: attrs, NeighborIp: "192.0.2.200", Family: apiutil.ToApiFamily(n.AFI(), n.SAFI())}
			prefix, err := prefixOf(p)
			if err != nil {
				continue
			}
			if prefix != prefix.Masked() || prefix.Addr().Is4In6() {
				t.Fatalf("prefix %s let through", prefix)
			}
			if path, err := pathFrom(prefix, p); err == nil && (!path.NextHop.IsValid() || path.NextHop.Is4In6() || path.NextHop.IsUnspecified()) {
				t.Fatalf("next hop %s let through", path.NextHop)
			}
		}
	})
}
