package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
)

// A policy that becomes stricter takes back one route, and nobody hears of anything else.
func TestStricterPolicyTouchesOnlyItsRoutes(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.74", 64512)
	n.farPeer("127.0.0.75", 65002)
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	source := dialFar(t, n, "127.0.0.74", 64512, 90, true, gracefulCap(false))
	sink := dialFar(t, n, "127.0.0.75", 65002, 90, true, gracefulCap(false))
	for i := range 20 {
		source.announce(fmt.Sprintf("10.1.%d.0/26", i), "192.0.2.74")
	}
	eventually(t, "passed on", 20, func() int { return len(sink.received()) })
	before := sink.count()
	n.locked(func() { clear(n.seen) })
	n.plan.Policies.NoExport = []netip.Prefix{pfx("10.1.7.0/24")}
	set(t, n)
	eventually(t, "taken back", 19, func() int { return len(sink.received()) })
	n.plan.Policies.NoExport = nil
	set(t, n)
	eventually(t, "given again", 20, func() int { return len(sink.received()) })
	if c := sink.count() - before; c != 2 {
		t.Errorf("%d UPDATEs for one withdrawal and one announcement", c)
	}
	n.locked(func() {
		delete(n.seen, pfx("10.1.7.0/26"))
		if len(n.seen) > 0 {
			t.Errorf("the sink was handed %v", n.seen)
		}
	})
}

// acrossTheBorder has a node pass on what an eBGP peer sends, to another one outside and to an iBGP
// peer inside.
func acrossTheBorder(t *testing.T) (source, outside, inside *far) {
	n := newLab(t).node(64512)
	n.farPeer("127.0.0.76", 65001)
	n.farPeer("127.0.0.77", 65002)
	n.farPeer("127.0.0.78", 64512)
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	return dialFar(t, n, "127.0.0.76", 65001, 90, true, gracefulCap(false)),
		dialFar(t, n, "127.0.0.77", 65002, 90, true, gracefulCap(false)),
		dialFar(t, n, "127.0.0.78", 64512, 90, true, gracefulCap(false))
}

// What the eBGP peer sees: NEXT_HOP is our end of the session for learned routes, the announced one
// for our own; no LOCAL_PREF, AS_PATH ours first. NO_EXPORT keeps a route in the AS, which is more
// than this node (RFC 1997).
func TestWellKnownCommunities(t *testing.T) {
	source, outside, inside := acrossTheBorder(t)
	for i, community := range []uint32{
		65535<<16 | 65281, 65535<<16 | 65282, 65535<<16 | 65283, 65001<<16 | 65281,
	} {
		source.send(packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{
			packet.NewPathAttributeOrigin(0),
			packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{
				packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{65001}),
			}),
			packet.NewPathAttributeNextHop("127.0.0.76"),
			packet.NewPathAttributeCommunities([]uint32{community}),
		}, []*packet.IPAddrPrefix{ipv4(0, fmt.Sprintf("10.1.%d.0/26", i))}))
	}
	text := func(f *far) func() string { return func() string { return fmt.Sprint(f.received()) } }
	eventually(t, "passed on inside", "[10.1.0.0/26 10.1.2.0/26 10.1.3.0/26]", text(inside))
	eventually(t, "passed on outside", "[10.1.3.0/26]", text(outside))
}

func TestNextHopsTowardsExternalPeers(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node(64512), l.node(64512), l.node(65002)
	connect(a, b)
	connect(b, c)
	b.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	a.announce("10.1.0.0/26", "192.0.2.1")
	b.announce("10.2.0.0/26", "192.0.2.2")
	set(t, a, b, c)
	c.wantHops("10.1.0.0/26", b.addr.String())
	c.wantHops("10.2.0.0/26", "192.0.2.2")
	c.locked(func() {
		if p := c.sets[pfx("10.2.0.0/26")][0]; !p.External || p.LocalPref != 100 {
			t.Errorf("path %+v", p)
		}
	})
}

// Routers outside are asked to avoid what a node announces that is leaving; its iBGP peers hear
// of next hops that stay. No session ends by it.
func TestRoutesPassedOnByANodeThatLeaves(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.94", 64512)
	n.farPeer("127.0.0.95", 64512)
	n.farPeer("127.0.0.96", 65001)
	for i := range 2 {
		n.plan.Peers[i].Client = true
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	n.plan.Policies.Reflects = true
	n.announce("10.9.0.0/26", n.addr.String())
	set(t, n)
	source := dialFar(t, n, "127.0.0.94", 64512, 90, true, gracefulCap(false))
	client := dialFar(t, n, "127.0.0.95", 64512, 90, true, gracefulCap(false))
	outside := dialFar(t, n, "127.0.0.96", 65001, 90, true, gracefulCap(false))
	plain := fmt.Sprintf("path [64512] pref - med - hop %s communities []", n.addr)
	marked := strings.Replace(plain, "[]", "[65535:0]", 1)
	heard := func(f *far, prefix string) func() string {
		return func() string { return f.routes()[pfx(prefix)] }
	}
	source.announce("10.1.0.0/26", "192.0.2.94")
	eventually(t, "outside", plain, heard(outside, "10.1.0.0/26"))
	for i, want := range []string{marked, plain, marked} {
		n.plan.Policies.Leaving = want == marked
		set(t, n)
		eventually(t, "outside, what it has", want, heard(outside, "10.1.0.0/26"))
		fresh := fmt.Sprintf("10.2.%d.0/26", i)
		source.announce(fresh, "192.0.2.94")
		eventually(t, "outside, what is new", want, heard(outside, fresh))
		eventually(t, "a client, what is new",
			"path [] pref 100 med - hop 192.0.2.94 communities []", heard(client, fresh))
		if own := heard(outside, "10.9.0.0/26")(); own != plain {
			t.Errorf("an own route goes out as %q", own)
		}
	}
	for _, f := range []*far{source, client, outside} {
		if sent := f.notification(); sent != "" {
			t.Errorf("a session was ended: %s", sent)
		}
	}
}

// A peer that leaves, or changes so that its session starts anew, hears nothing any more that it
// was not to hear before.
func TestPeerThatLeavesGetsNothing(t *testing.T) {
	for name, leave := range map[string]func(*bgp.Plan){
		"removed":   func(p *bgp.Plan) { p.Peers = p.Peers[:2] },
		"AS change": func(p *bgp.Plan) { p.Peers[2].LocalAS, p.Peers[2].Filters = 65077, nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			n := l.node(64512)
			n.plan.Policies = bgp.Policies{
				ExportPools: []netip.Prefix{pfx("10.0.0.0/8")}, Normal4: 2147482623,
				Filters: map[string]bgp.Filter{"none": {Export4: []bgp.Rule{{Name: "none"}}}},
			}
			n.announce("10.9.0.0/26", n.addr.String())
			n.farPeer("127.0.0.110", 64512)
			n.farPeer("127.0.0.111", 65001)
			n.farPeer("127.0.0.112", 65002)
			n.plan.Peers[2].Filters = []string{"none"}
			set(t, n)
			in := dialFar(t, n, "127.0.0.110", 64512, 90, true, gracefulCap(false))
			dialFar(t, n, "127.0.0.111", 65001, 90, true, gracefulCap(false))
			out := dialFar(t, n, "127.0.0.112", 65002, 90, false, gracefulCap(false))
			for i := range 50 {
				in.announce(fmt.Sprintf("10.8.%d.0/24", i), "127.0.0.110")
			}
			eventually(t, "learned", 50, n.size)
			eventually(t, "session", true, out.hasAll)
			leave(&n.plan)
			set(t, n)
			out.wg.Wait() // the connection has ended
			if heard := out.routes(); len(heard) > 0 {
				t.Errorf("it heard %d prefixes", len(heard))
			}
		})
	}
}

// Extended communities that are not transitive stay in the AS (RFC 4360 §6).
func TestExtendedCommunitiesThatStayInside(t *testing.T) {
	source, outside, inside := acrossTheBorder(t)
	const leaves, stays, unknown = "0002fde800000001", "4002fde800000001", "7f01020304050607"
	const specific6 = "02" + "20010db8000000000000000000000001" + "0001"
	const leaves6, stays6 = "00" + specific6, "40" + specific6
	const four, six = packet.BGP_ATTR_TYPE_EXTENDED_COMMUNITIES,
		packet.BGP_ATTR_TYPE_IP6_EXTENDED_COMMUNITIES
	for i, c := range []struct {
		kind            packet.BGPAttrType
		inside, outside string // the attribute
	}{
		{four, "c01018" + leaves + stays + unknown, "c01008" + leaves},
		{four, "e01010" + leaves + stays, "e01008" + leaves}, // Partial
		{four, "c01008" + stays, ""},
		{six, "c01928" + leaves6 + stays6, "c01914" + leaves6},
		{six, "c01914" + stays6, ""},
	} {
		prefix := fmt.Sprintf("10.1.%d.0/26", i)
		source.raw(nil, hexBytes("40010100 400206 0201 0000fde9 400304 7f00004c"+c.inside),
			hexBytes(fmt.Sprintf("1a 0a01%02x00", i)))
		has := func(f *far) func() string {
			return func() string {
				if !slices.Contains(f.received(), pfx(prefix)) {
					return "not there"
				}
				return f.sent(prefix, c.kind)
			}
		}
		eventually(t, "inside", c.inside, has(inside))
		eventually(t, "outside", c.outside, has(outside))
	}
}

// AIGP and the attribute of BGP-LS are optional and not transitive. Nobody here acts on them, so
// they end here (RFC 4271 §5, RFC 7311 §3.1), as with BIRD.
func TestAttributesThatEndHere(t *testing.T) {
	source, outside, inside := acrossTheBorder(t)
	for i, c := range []struct {
		kind      packet.BGPAttrType
		attribute string
	}{
		{packet.BGP_ATTR_TYPE_AIGP, "801a0b 01000b0000000000000001"},
		{packet.BGP_ATTR_TYPE_LS, "801d05 0401000101"},
	} {
		prefix := fmt.Sprintf("10.1.%d.0/26", i)
		source.raw(nil, hexBytes("40010100 400206 0201 0000fde9 400304 7f00004c"+c.attribute),
			hexBytes(fmt.Sprintf("1a 0a01%02x00", i)))
		for name, f := range map[string]*far{"inside": inside, "outside": outside} {
			eventually(t, name, "it has "+prefix+" with ", func() string {
				if !slices.Contains(f.received(), pfx(prefix)) {
					return "not there"
				}
				return "it has " + prefix + " with " + f.sent(prefix, c.kind)
			})
		}
	}
}

// An AS_SET is one place in the path, which any of its ASes has: so BIRD's masks see it
// (nest/a-path.c, as_path_match).
func TestFilterByPathWithASet(t *testing.T) {
	for name, c := range map[string]struct {
		begins []uint32
		passes bool
	}{
		"one of the set":         {[]uint32{65001, 65102}, false},
		"two of the set":         {[]uint32{65001, 65101, 65102}, true},
		"one that is not in it":  {[]uint32{65001, 65103}, true},
		"what is in front of it": {[]uint32{65001}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLab(t).node(64512)
			n.farPeer("127.0.0.76", 65001)
			n.plan.Peers[0].Filters = []string{"f"}
			n.plan.Policies.Filters = map[string]bgp.Filter{"f": {
				Import4: []bgp.Rule{{Name: "f", Match: bgp.Match{ASPath: c.begins}}},
			}}
			set(t, n)
			source := dialFar(t, n, "127.0.0.76", 65001, 90, true, gracefulCap(false))
			for i, path := range []string{
				"4002100201 0000fde9 0102 0000fe4d 0000fe4e", "40020602010000fde8",
			} {
				source.raw(nil, hexBytes("40010100"+path+"400304 7f00004c"),
					hexBytes(fmt.Sprintf("1a 0a01%02x00", i)))
			}
			want := "[10.1.1.0/26]"
			if c.passes {
				want = "[10.1.0.0/26 10.1.1.0/26]"
			}
			eventually(t, "learned", want, n.prefixes)
		})
	}
}
