package gobgp

import (
	"fmt"
	"strings"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

const (
	// next hop 192.0.2.2, once 192.0.2.1 was known
	goodHead = "40010100 400200 400304c0000202 40050400000064"
	reach6   = "800e 26 0002 01 10 20010db8000000000000000000000002 00" + net6
	sixHead  = "40010100 400200 40050400000064"
	// net6 is fd00:1::/122.
	net6 = "7a fd000001 00000000 00000000 00000000"
)

// revised are UPDATEs about 10.1.0.0/26, of which the peer announced a path before, and what RFC
// 7606 and its like have become of them.
var revised = []struct {
	name   string
	attrs  string
	result string // "taken", "withdrawn", "ignored" or the NOTIFICATION that ends the session
	sent   string // what a neighbour gets of the attribute in question, if the path is taken
}{
	{"NEXT_HOP of 16 bytes",
		"40010100 400200 400310 20010db8000000000000000000000002 40050400000064", "withdrawn", ""},
	{"NEXT_HOP without a byte", "40010100 400200 400300 40050400000064", "withdrawn", ""},
	{"NEXT_HOP 0.0.0.0", "40010100 400200 40030400000000 40050400000064", "withdrawn", ""},
	{"NEXT_HOP 224.0.0.1", "40010100 400200 400304e0000001 40050400000064", "withdrawn", ""},
	{"ORIGIN 3", "40010103 400200 400304c0000202 40050400000064", "withdrawn", ""},
	{"ORIGIN of two bytes", "4001020000 400200 400304c0000202 40050400000064", "withdrawn", ""},
	{"ORIGIN as optional", "c0010100 400200 400304c0000202 40050400000064", "withdrawn", ""},
	{"no ORIGIN", "400200 400304c0000202 40050400000064", "withdrawn", ""},
	{"AS_PATH with an empty segment",
		"40010100 4002020200 400304c0000202 40050400000064", "withdrawn", ""},
	{"AS_PATH of unknown type",
		"40010100 4002060501000fde80 400304c0000202 40050400000064", "withdrawn", ""},
	{"AS_PATH of a confederation",
		"40010100 40020603010000fde8 400304c0000202 40050400000064", "withdrawn", ""},
	{"AS_PATH that overruns itself",
		"40010100 40020602020000fde8 400304c0000202 40050400000064", "withdrawn", ""},
	{"AS_PATH with AS 0",
		"40010100 400206020100000000 400304c0000202 40050400000064", "withdrawn", ""},
	{"AS_PATH of two octets",
		"40010100 4002040201fde8 400304c0000202 40050400000064", "withdrawn", ""},
	{"MED of three bytes", goodHead + "800403000001", "withdrawn", ""},
	{"MED as transitive", goodHead + "c0040400000001", "withdrawn", ""},
	{"MED as partial", goodHead + "a0040400000001", "withdrawn", ""},
	{"LOCAL_PREF of three bytes", "40010100 400200 400304c0000202 400503000064", "withdrawn", ""},
	{"ATOMIC_AGGREGATE of one byte", goodHead + "40060100", "taken", ""},
	{"AGGREGATOR of two octets", goodHead + "c00706fde8c0000207", "taken", ""},
	{"AGGREGATOR with AS 0", goodHead + "c0070800000000c0000207", "taken", ""},
	{"COMMUNITIES without any", goodHead + "c00800", "withdrawn", ""},
	{"COMMUNITIES of five bytes", goodHead + "c008050000000000", "withdrawn", ""},
	{"COMMUNITIES as partial", goodHead + "e00804fde80001", "taken", "e00804fde80001"},
	{"ORIGINATOR_ID of three bytes", goodHead + "800903c00002", "withdrawn", ""},
	{"CLUSTER_LIST without any", goodHead + "800a00", "withdrawn", ""},
	{"CLUSTER_LIST of five bytes", goodHead + "800a05c000020701", "withdrawn", ""},
	{"EXTENDED COMMUNITIES without any", goodHead + "c01000", "withdrawn", ""},
	{"EXTENDED COMMUNITIES of nine bytes",
		goodHead + "c01009 0002fde8000000 0100", "withdrawn", ""},
	{"extended community of unknown type",
		goodHead + "c01008 3f01020304050607", "taken", "c010083f01020304050607"},
	{"extended community of VPLS with a preference",
		goodHead + "c01008 800a130205dc0064", "taken", "c01008800a130205dc0064"},
	{"opaque extended community",
		goodHead + "c01008 0306010203040506", "taken", "c010080306010203040506"},
	{"link bandwidth, transitive",
		goodHead + "c01008 0004fde849989680", "taken", "c010080004fde849989680"},
	{"IPv6 communities without any", goodHead + "c01900", "withdrawn", ""},
	{"IPv6 communities of eight bytes", goodHead + "c01908 0002fde800000001", "withdrawn", ""},
	{"IPv6 community of unknown type", goodHead + "c01914 3f010102030405060708090a0b0c0d0e0f101112",
		"taken", "c019143f010102030405060708090a0b0c0d0e0f101112"},
	{"IPv6 route target", goodHead + "c01914 000220010db80000000000000000000000010001",
		"taken", "c01914000220010db80000000000000000000000010001"},
	{"IPv6 community for a flow", goodHead + "c01914 800b20010db80000000000000000000000010001",
		"taken", "c01914800b20010db80000000000000000000000010001"},
	{"LARGE_COMMUNITY without any", goodHead + "c02000", "withdrawn", ""},
	{"LARGE_COMMUNITY of eleven bytes",
		goodHead + "c0200b 0000fde80000000100 0000", "withdrawn", ""},
	{"PMSI_TUNNEL", goodHead + "c01605 0000000000", "taken", ""},
	{"tunnel cut short", goodHead + "c01707 000f0003 0d0200", "taken", ""},
	{"SR policy", goodHead + "c01708 000f00040d020000", "taken", "c01708000f00040d020000"},
	{"two tunnels", goodHead + "c01710 0008000404020000 0008000404020000", "taken", ""},
	{"OTC of three bytes", goodHead + "c02303 00fde8", "withdrawn", ""},
	{"OTC", goodHead + "c02304 0000fde8", "taken", "e023040000fde8"},
	{"Prefix-SID cut short", goodHead + "c02802 0100", "taken", ""},
	{"Prefix-SID with a short label index", goodHead + "c02806 010003000000", "taken", ""},
	{"Prefix-SID with a label index",
		goodHead + "c0280a 01000700000000000064", "taken", "c0280a01000700000000000064"},
	{"Prefix-SID with an unknown TLV", goodHead + "c02805 6300020102", "taken", "c028056300020102"},
	// RFC 4271 §5: partial
	{"unknown attribute", goodHead + "c06303 010203", "taken", "e06303010203"},
	{"unknown attribute, partial", goodHead + "e06303 010203", "taken", "e06303010203"},
	{"unknown attribute, not transitive", goodHead + "806303 010203", "taken", ""},
	{"unknown attribute with a long length", goodHead + "d0630003 010203", "taken",
		"f0630003010203"},
	{"unknown well-known attribute", goodHead + "406303 010203", "3/2", ""},
	{"two ORIGINs", goodHead + "40010102", "taken", ""},
	{"two MP_UNREACH_NLRI", goodHead + "800f03000201 800f03000201", "3/1", ""},
	{"attribute that overruns the others", goodHead + "c008ff00", "withdrawn", ""},
	{"two bytes too many", goodHead + "c008", "withdrawn", ""},
	{"extended length without its bytes", goodHead + "d00800", "withdrawn", ""},
	{"MP_REACH_NLRI of a family that was not negotiated",
		goodHead + "800e 0c 0001 02 04 c0000202 00 10 0a02", "taken", ""},
	{"MP_UNREACH_NLRI of a family that was not negotiated",
		goodHead + "800f 06 0019 41 000100", "taken", ""},
	{"MP_REACH_NLRI of IPv4 with next hop 192.0.2.2",
		sixHead + "800e 0e 0001 01 04 c0000202 00 1a 0a010000", "taken", ""},
	{"MP_REACH_NLRI of IPv4 with next hop 224.0.0.1",
		goodHead + "800e 0d 0001 01 04 e0000001 00 18 0a0200", "withdrawn", ""},
	{"MP_REACH_NLRI that ends after its family", goodHead + "800e03 000101", "3/9", ""},
	{"MP_REACH_NLRI with a next hop of 3 bytes",
		goodHead + "800e 08 0001 01 03 c00002 00", "3/9", ""},
	{"MP_REACH_NLRI with a next hop that overruns it",
		goodHead + "800e 08 0001 01 04 c00002 00", "3/9", ""},
	{"MP_REACH_NLRI with a prefix of 33 bits",
		goodHead + "800e 0f 0001 01 04 c0000202 00 21 0a02000000", "3/9", ""},
	{"MP_REACH_NLRI with a prefix cut short",
		goodHead + "800e 0b 0001 01 04 c0000202 00 1a 0a", "3/9", ""},
	{"MP_UNREACH_NLRI cut short", goodHead + "800f02 0001", "3/9", ""},
	{"MP_UNREACH_NLRI with a prefix cut short", goodHead + "800f05 000101 1a0a", "3/9", ""},
}

// Each comes from a peer of its own. No neighbour gets what it would end its session for, and the
// sender's session ends only where nobody can say which routes are meant.
func TestRevisedErrorHandling(t *testing.T) {
	l := newLab(t)
	var peers []string
	for i := range revised {
		peers = append(peers, fmt.Sprintf("127.0.%d.%d", 1+i/200, 10+i%200))
	}
	n, to := l.reflecting(append(peers, "127.0.0.79"))
	for i, c := range revised {
		const prefix, nlri = "10.1.0.0/26", "1a 0a010000"
		from := dialFar(t, n, peers[i], 64512, 90, true)
		from.announce(prefix, "192.0.2.1")
		n.wantHops(prefix, "192.0.2.1")
		eventually(t, "reflected", true, func() bool {
			return strings.Contains(to.routes()[pfx(prefix)], "hop 192.0.2.1 ")
		})
		if strings.Contains(c.attrs, nlri) {
			from.raw(nil, hexBytes(c.attrs), nil)
		} else {
			from.raw(nil, hexBytes(c.attrs), hexBytes(nlri))
		}
		switch c.result {
		case "taken":
			n.wantHops(prefix, "192.0.2.2")
			eventually(t, c.name+": reflected", true, func() bool {
				return strings.Contains(to.routes()[pfx(prefix)], "hop 192.0.2.2 ")
			})
			if got := to.besides(prefix); got != c.sent {
				t.Errorf("%s: the neighbour gets %q, not %q", c.name, got, c.sent)
			}
		case "withdrawn":
			eventually(t, c.name+": next hops here", "[]", func() string {
				return fmt.Sprint(n.hops(prefix))
			})
			eventually(t, c.name+": reflected", "", func() string {
				return to.routes()[pfx(prefix)]
			})
		default:
			eventually(t, c.name+": NOTIFICATION", c.result, from.notification)
		}
		// the NOTIFICATION is out before the session is down
		eventually(t, c.name+": established", !strings.Contains(c.result, "/"), func() bool {
			return n.farState(peers[i]).Established
		})
		from.close()
		n.wantHops(prefix)
		eventually(t, c.name+": withdrawn in the end", "", func() string {
			return to.routes()[pfx(prefix)]
		})
	}
	if c := n.Counters(); c.Panicked != 0 {
		t.Errorf("counted %+v", c)
	}
	if got := to.notification(); got != "" {
		t.Errorf("the neighbour was sent %s", got)
	}
}

// A route of IPv4 whose next hop is of IPv6 is used here, and passed on to nobody: no peer has the
// capability (RFC 8950 §4), and FRR ends its session where the address is link-local. What the peer
// had is withdrawn where an old speaker looks for it.
func TestIPv4RouteViaIPv6IsNotPassedOn(t *testing.T) {
	l := newLab(t)
	n, to := l.reflecting([]string{"127.0.0.80", "127.0.0.81"})
	from := dialFar(t, n, "127.0.0.80", 64512, 90, true)
	for i, hop := range []string{
		"20010db8000000000000000000000002", "fe800000000000000000000000000001",
	} {
		const prefix = "10.1.0.0/26"
		from.announce(prefix, "192.0.2.1")
		eventually(t, "reflected", true, func() bool { return to.routes()[pfx(prefix)] != "" })
		from.raw(nil, hexBytes(sixHead+"800e 1a 0001 01 10"+hop+"00 1a 0a010000"), nil)
		eventually(t, hop+" is reflected", "", func() string { return to.routes()[pfx(prefix)] })
		if c := n.Counters(); c.Unsendable != i+1 {
			t.Errorf("counted %+v", c)
		}
	}
	if s := n.farState("127.0.0.80"); !s.Established || to.notification() != "" {
		t.Errorf("%+v; the neighbour was sent %s", s, to.notification())
	}
}

// besides returns the attributes that f has of a prefix besides those that every reflected route
// has.
func (f *far) besides(prefix string) string {
	usual := []packet.BGPAttrType{1, 2, 3, 5, 9, 10}
	var others []packet.BGPAttrType
	for kind := range packet.BGPAttrType(255) {
		others = append(others, kind)
		for _, u := range usual {
			if kind == u {
				others = others[:len(others)-1]
			}
		}
	}
	return f.sent(prefix, others...)
}

// What is wrong with an UPDATE that names no route may have hidden those that it was to name: the
// session ends (RFC 7606 §5.2). What is left of one from which all was discarded is no End-of-RIB.
func TestUpdateWithoutRoutes(t *testing.T) {
	l := newLab(t)
	cases := []struct{ name, withdrawn, attrs, nlri, want string }{
		{"an attribute swallows the rest", "", "40010100 4002 ff", "", "3/5"},
		{"malformed, and only withdrawn routes",
			"1a 0a010000", "40010100 400200 c00800", "", "3/9"},
		{"malformed MP_REACH_NLRI of no route",
			"", sixHead + "c00800 800e 15 0002 01 10 20010db8000000000000000000000002 00", "",
			"3/9"},
		{"prefix of 33 bits", "", goodHead, "21 0a01000000", "3/10"},
		{"prefix cut short", "", goodHead, "1a 0a01", "3/10"},
		{"withdrawn prefix cut short", "1a 0a01", "", "", "3/10"},
		{"a family that was not negotiated", "", "800f 03 0019 46", "", ""},
		{"a malformed attribute that is discarded", "", "40060100", "", ""},
		{"an attribute that cannot be decoded", "", "c02807 05000406010000", "", ""},
	}
	n := l.unset(64512)
	for i := range cases {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 80+i), 64512)
	}
	set(t, n)
	for i, c := range cases {
		local := fmt.Sprintf("127.0.0.%d", 80+i)
		f := dialFar(t, n, local, 64512, 90, true, gracefulCap(false))
		f.announce("10.1.0.0/26", "192.0.2.1")
		n.wantHops("10.1.0.0/26", "192.0.2.1")
		f.raw(hexBytes(c.withdrawn), hexBytes(c.attrs), hexBytes(c.nlri))
		if c.want != "" {
			eventually(t, c.name+": NOTIFICATION", c.want, f.notification)
			n.wantHops("10.1.0.0/26")
			continue
		}
		f.announce("10.1.1.0/26", "192.0.2.1") // comes after
		n.wantHops("10.1.1.0/26", "192.0.2.1")
		if s := n.farState(local); s.EndOfRIB || !s.Established {
			t.Errorf("%s: %+v", c.name, s)
		}
		f.endOfRIB()
		eventually(t, c.name+": End-of-RIB", true, func() bool {
			return n.farState(local).EndOfRIB
		})
		f.withdraw("10.1.0.0/26")
		f.withdraw("10.1.1.0/26")
		n.wantHops("10.1.1.0/26")
	}
}

// IPv6 routes that are malformed are withdrawn as those of IPv4 are. One whose next hop is a
// link-local address elsewhere is not passed on, and replaces what was.
func TestRevisedErrorHandlingIPv6(t *testing.T) {
	l := newLab(t)
	n, f := l.farOverIPv6()
	const prefix = "fd00:1::/122"
	for _, c := range []struct{ name, attrs string }{
		{"ORIGIN 3", "40010103 400200 40050400000064" + reach6},
		{"communities without any", sixHead + "c00800" + reach6},
		{"an attribute that overruns the others", sixHead + reach6 + "c008ff"},
		{"MP_REACH_NLRI as well-known", sixHead + "4" + reach6[1:]},
		{"MP_REACH_NLRI as partial", sixHead + "a" + reach6[1:]},
		{"withdrawn", "800f 14 0002 01" + net6},
		{"MP_UNREACH_NLRI as transitive", "c00f 14 0002 01" + net6},
	} {
		f.raw(nil, hexBytes(sixHead+reach6), nil)
		n.wantHops(prefix, "2001:db8::2")
		f.raw(nil, hexBytes(c.attrs), nil)
		eventually(t, c.name+": next hops", "[]", func() string {
			return fmt.Sprint(n.hops(prefix))
		})
	}
	f.raw(nil, hexBytes("40010100 400200 40030400000000 40050400000064"+reach6), nil)
	n.wantHops(prefix, "2001:db8::2") // NEXT_HOP says nothing here (RFC 4760 §3)

	for _, hop := range []string{"2001:db8::1", "fe80::1"} {
		n.announce("fd00:2::/122", hop)
		set(t, n)
		eventually(t, "next hop of what is announced", strings.TrimPrefix(hop, "fe80::1"),
			func() string { return f.hop6("fd00:2::/122") })
	}
	if c := n.Counters(); c.Unsendable != 1 {
		t.Errorf("counted %+v", c)
	}
	if s := n.farState("::1"); !s.Established {
		t.Errorf("%+v", s)
	}
	f.raw(nil, hexBytes(sixHead+"800e 09 0002 01 04 c0000202 00"), nil)
	eventually(t, "NOTIFICATION for a next hop of 4 bytes", "3/9", f.notification)
	n.wantHops(prefix)
}

// One message can have routes of IPv4 by NEXT_HOP and by MP_REACH_NLRI. Each keeps its own next
// hop.
func TestTwoNextHopsInOneMessage(t *testing.T) {
	l := newLab(t)
	n, to := l.reflecting([]string{"127.0.0.80", "127.0.0.81"})
	from := dialFar(t, n, "127.0.0.80", 64512, 90, true)
	reach := "800e 0e 0001 01 04 c0000203 00 1a 0a020000"
	from.raw(nil, hexBytes(goodHead+reach), hexBytes("1a 0a010000"))
	n.wantHops("10.1.0.0/26", "192.0.2.2")
	n.wantHops("10.2.0.0/26", "192.0.2.3")
	for prefix, hop := range map[string]string{
		"10.1.0.0/26": " 192.0.2.2 ", "10.2.0.0/26": " 192.0.2.3 ",
	} {
		eventually(t, prefix+" reflected", true, func() bool {
			return strings.Contains(to.routes()[pfx(prefix)], hop)
		})
	}
}
