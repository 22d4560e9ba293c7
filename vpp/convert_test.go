package vpp

import (
	"bufio"
	"bytes"
	"net/netip"
	"testing"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/codec"
	"pgregory.net/rapid"

	"vpp-route-agent/internal/route"
)

var twoLinks = &links{
	list: []route.Interface{{Name: "host-eth0", Index: 1, Up: true},
		{Name: "loop0", Index: 5, Up: true}},
	byIndex: map[uint32]string{1: "host-eth0", 5: "loop0"},
}

// anyRoute draws a route as the reconciler may put it.
func anyRoute(t *rapid.T) route.Route {
	six := rapid.Bool().Draw(t, "six")
	r := route.Route{Key: route.Key{Table: rapid.Uint32().Draw(t, "table"),
		Prefix: anyPrefix(t, six)}}
	if r.Kind = rapid.SampledFrom([]route.Kind{route.Via, route.Via, route.Drop, route.Unreachable,
		route.Prohibit}).Draw(t, "kind"); r.Kind != route.Via {
		if r.Kind != route.Drop {
			r.Table = 0
		}
		return r
	}
	var paths []route.Path
	for range rapid.IntRange(1, 8).Draw(t, "paths") {
		p := route.Path{Weight: rapid.Byte().Draw(t, "weight"),
			Preference: rapid.ByteMax(3).Draw(t, "preference")}
		how := rapid.IntRange(0, 2).Draw(t, "how")
		if how != 1 {
			p.NextHop = rapid.Custom(func(t *rapid.T) netip.Addr {
				return anyPrefix(t, rapid.Bool().Draw(t, "six")).Addr()
			}).
				Filter(func(a netip.Addr) bool {
					return !a.IsUnspecified() && a != r.Prefix.Addr()
				}).Draw(t, "next hop")
		}
		if how != 2 {
			p.Interface = rapid.SampledFrom([]string{"host-eth0", "loop0"}).Draw(t, "interface")
		} else {
			p.Table = rapid.Uint32().Draw(t, "next hop table")
			if p.Table != r.Table && rapid.Bool().Draw(t, "look-up") {
				p.NextHop = netip.IPv4Unspecified()
				if six {
					p.NextHop = netip.IPv6Unspecified()
				}
			}
		}
		paths = append(paths, p)
	}
	r.Paths = route.CanonicalPaths(paths)
	return r
}

func anyPrefix(t *rapid.T, six bool) netip.Prefix {
	n := 4
	if six {
		n = 16
	}
	a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "address"))
	p, ok := route.Normalize(netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")))
	if !ok { // a mapped IPv4 prefix that is too short
		return netip.MustParsePrefix("2001:db8::/32")
	}
	return p
}

// What is encoded, carried over the wire and decoded is the route that was put.
func TestRoutesSurviveTheTranslation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRoute(t)
		out, err := encodeRoute(want, 22, nil, twoLinks.index)
		if err != nil {
			t.Fatalf("encode %s: %v", want, err)
		}
		b, err := codec.EncodeMsg(&ip.IPRouteAddDelV2{IsAdd: true, Route: out}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var in ip.IPRouteAddDelV2
		if err := codec.DecodeMsg(b, &in); err != nil {
			t.Fatal(err)
		}
		got, err := decodeRoute(in.Route, twoLinks.name)
		if err != nil {
			t.Fatalf("decode %s: %v", want, err)
		}
		if !got.SameForwarding(want) {
			t.Fatalf("put  %#v\nread %#v", want, got)
		}
	})
}

func TestEncodeRefuses(t *testing.T) {
	p := netip.MustParsePrefix("10.0.0.0/8")
	next := netip.MustParseAddr("10.1.1.1")
	many := make([]route.Path, 256)
	for i := range many {
		many[i] = route.Path{NextHop: next, Weight: 1}
		next = next.Next()
	}
	for name, r := range map[string]route.Route{
		"no prefix":         {Paths: many[:1]},
		"no path":           {Key: route.Key{Prefix: p}},
		"too many paths":    {Key: route.Key{Prefix: p}, Paths: many},
		"a path to nowhere": {Key: route.Key{Prefix: p}, Paths: []route.Path{{Weight: 1}}},
		"a look-up in its own table": {Key: route.Key{Prefix: p},
			Paths: []route.Path{{NextHop: netip.IPv4Unspecified(), Weight: 1}}},
		"an unknown interface": {Key: route.Key{Prefix: p},
			Paths: []route.Path{{Interface: "eth9", Weight: 1}}},
		"an unknown kind": {Key: route.Key{Prefix: p}, Kind: 77},
		"a mapped prefix too wide": {Key: route.Key{Prefix: netip.MustParsePrefix("::ffff:0:0/90")},
			Paths: many[:1]},
	} {
		if out, err := encodeRoute(r, 1, nil, twoLinks.index); err == nil {
			t.Errorf("%s: encoded as %+v", name, out)
		}
	}
	if _, err := encodeRoute(route.Route{Key: route.Key{Prefix: p}, Paths: many[:255]}, 1, nil,
		twoLinks.index); err != nil {
		t.Errorf("255 paths: %v", err)
	}
}

// What VPP makes of some routes on its own.
func TestDecodeVPPsForms(t *testing.T) {
	drop := fib_types.FibPath{SwIfIndex: noInterface, Type: fib_types.FIB_API_PATH_TYPE_DROP,
		Weight: 1}
	viaLoop := fib_types.FibPath{SwIfIndex: 5, Weight: 1}
	viaLoop.Nh.Address = encodeAddress(netip.MustParseAddr("10.0.0.7")).Un
	gone := viaLoop
	gone.SwIfIndex = 9
	local := fib_types.FibPath{SwIfIndex: 5, Type: fib_types.FIB_API_PATH_TYPE_LOCAL}
	for _, c := range []struct {
		name   string
		prefix string
		paths  []fib_types.FibPath
		want   string
	}{
		{"a host on an interface has itself as next hop", "10.0.0.7/32",
			[]fib_types.FibPath{viaLoop}, "10.0.0.7/32 via loop0"},
		{"another prefix keeps its next hop", "10.9.0.0/24", []fib_types.FibPath{viaLoop},
			"10.9.0.0/24 via 10.0.0.7 loop0"},
		{"host bits are masked", "10.9.0.9/24", []fib_types.FibPath{viaLoop},
			"10.9.0.0/24 via 10.0.0.7 loop0"},
		{"a path that became a drop is not a path", "10.9.0.0/24",
			[]fib_types.FibPath{drop, viaLoop}, "10.9.0.0/24 via 10.0.0.7 loop0"},
		{"drops alone are a drop", "10.9.0.0/24", []fib_types.FibPath{drop, drop},
			"10.9.0.0/24 drop"},
		{"an interface that is gone has no real name", "10.9.0.0/24", []fib_types.FibPath{gone},
			"10.9.0.0/24 via 10.0.0.7 deleted interface 9"},
		{"a kind that we never write equals nothing we want", "10.9.0.0/24",
			[]fib_types.FibPath{local}, "10.9.0.0/24 via "},
		{"zero weight is one", "10.9.0.0/24", []fib_types.FibPath{{SwIfIndex: 5}},
			"10.9.0.0/24 via loop0"},
	} {
		r, err := decodeRoute(ip.IPRouteV2{Prefix: encodePrefix(netip.MustParsePrefix(c.prefix)),
			Paths: c.paths}, twoLinks.name)
		if err != nil || r.String() != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, r, err, c.want)
		}
	}
}

// FuzzDecode feeds foreign bytes to everything that reads from the socket.
func FuzzDecode(f *testing.F) {
	r, err := encodeRoute(route.Route{
		Key: route.Key{Prefix: netip.MustParsePrefix("10.0.0.0/8")},
		Paths: []route.Path{{NextHop: netip.MustParseAddr("10.1.1.1"), Interface: "loop0",
			Weight: 3}},
	}, 1, nil, twoLinks.index)
	if err != nil {
		f.Fatal(err)
	}
	details, err := codec.EncodeMsg(&ip.IPRouteV2Details{Route: r}, 77)
	if err != nil {
		f.Fatal(err)
	}
	frame := append(make([]byte, headerLen), details...)
	frame[10], frame[11] = byte(len(details)>>8), byte(len(details))
	f.Add(frame)
	f.Add(frame[:len(frame)-1])
	f.Add(append(frame, frame...))
	f.Add([]byte{8: 0xff, 0xff, 0xff, 0xff, 16: 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(b), 4096)
		for {
			msg, err := readMessage(in)
			if err != nil {
				return
			}
			var d ip.IPRouteV2Details
			if codec.DecodeMsg(msg, &d) != nil {
				continue
			}
			r, err := decodeRoute(d.Route, twoLinks.name)
			if err != nil {
				continue
			}
			// What could be read can be compared: masked, canonical. What is in an IPv6 table stays
			// IPv6.
			six := d.Route.Prefix.Address.Af == ip_types.ADDRESS_IP6
			if r.Prefix != r.Prefix.Masked() || r.Prefix.Addr().Is4() == six {
				t.Errorf("prefix %s of %+v", r.Prefix, d.Route.Prefix)
			}
			if again := route.CanonicalPaths(r.Paths); !r.SameForwarding(route.Route{Key: r.Key,
				Kind: r.Kind, Paths: again}) {
				t.Errorf("paths of %s are not canonical", r)
			}
		}
	})
}

// VPP keeps host bits as they come and shows them to everybody.
func TestHostBitsAreNotSent(t *testing.T) {
	r := route.Route{Key: route.Key{Prefix: netip.MustParsePrefix("10.9.0.77/24")},
		Kind: route.Drop}
	out, err := encodeRoute(r, 1, nil, twoLinks.index)
	if got := out.Prefix.String(); err != nil || got != "10.9.0.0/24" {
		t.Errorf("sent as %s, %v", got, err)
	}
}
