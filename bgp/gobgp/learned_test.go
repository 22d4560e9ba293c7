package gobgp

import (
	"log/slog"
	"maps"
	"net/netip"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

func TestEqualPathsAreOneSet(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node(64512), l.node(64512), l.node(64512)
	connect(a, c)
	connect(b, c)
	a.announce("10.1.0.0/26", "192.0.2.1")
	b.announce("10.1.0.0/26", "192.0.2.2")
	a.announce("10.1.0.64/26", "192.0.2.1")
	b.announce("10.1.0.64/26", "192.0.2.2", func(a *bgp.Announcement) { a.LocalPref-- })
	set(t, a, b, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1", "192.0.2.2")
	c.wantHops("10.1.0.64/26", "192.0.2.1") // the other one is worse
	a.withdraw("10.1.0.0/26")
	a.withdraw("10.1.0.64/26")
	set(t, a)
	c.wantHops("10.1.0.0/26", "192.0.2.2")
	c.wantHops("10.1.0.64/26", "192.0.2.2")
	b.plan.Peers = nil
	set(t, b)
	c.wantHops("10.1.0.0/26")
	c.wantHops("10.1.0.64/26")
}

// Our own announcement of a prefix is better than any remote one; taking it back lets the remote
// one through again.
func TestOwnAnnouncementHidesTheRemoteOne(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	a.announce("10.1.0.0/26", "192.0.2.1")
	set(t, a, b)
	b.wantHops("10.1.0.0/26", "192.0.2.1")
	b.announce("10.1.0.0/26", b.addr.String())
	set(t, b)
	b.wantHops("10.1.0.0/26")
	b.withdraw("10.1.0.0/26")
	set(t, b)
	b.wantHops("10.1.0.0/26", "192.0.2.1")
}

// A dead best must not hide a live second.
func TestRejectedNextHopLetsTheSecondThrough(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node(64512), l.node(64512), l.node(64512)
	connect(a, c)
	connect(b, c)
	a.announce("10.1.0.0/26", "192.0.2.1")
	b.announce("10.1.0.0/26", "192.0.2.2", func(a *bgp.Announcement) { a.LocalPref = 100 })
	c.announce("10.9.0.0/26", "192.0.2.9") // own routes are not concerned, whatever their next hop
	set(t, a, b, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	reject := func(addrs ...netip.Addr) {
		t.Helper()
		if err := c.SetUsable(t.Context(), usableBut(addrs...)); err != nil {
			t.Fatal(err)
		}
	}
	reject(addr("192.0.2.9"), addr("192.0.2.1"), addr("192.0.2.1"), addr("2001:db8::7"))
	c.wantHops("10.1.0.0/26", "192.0.2.2")
	set(t, c) // another Set keeps the rejection
	c.wantHops("10.1.0.0/26", "192.0.2.2")
	a.wantHops("10.9.0.0/26", "192.0.2.9")
	reject()
	c.wantHops("10.1.0.0/26", "192.0.2.1")
}

// What leads back to ourselves is rejected (a reflector that returns our own route under another
// name, an operator's mistake).
func TestOwnNextHopIsRejected(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512), l.node(64512)
	connect(a, b)
	a.announce("10.1.0.0/26", b.addr.String())
	a.announce("10.1.1.0/26", a.addr.String())
	set(t, a, b)
	b.wantHops("10.1.1.0/26", a.addr.String())
	if h := b.hops("10.1.0.0/26"); h != nil {
		t.Errorf("learned a route via itself: %v", h)
	}
}

// With ADD-PATH, as BIRD sends it, the paths of one session are as good as those of several.
func TestSeveralPathsFromOnePeer(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.95", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.95", 64512, 90, true, gracefulCap(false),
		packet.NewCapAddPath([]*packet.CapAddPathTuple{
			packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH),
		}))
	f.announcePath(1, "10.3.0.0/26", "192.0.2.1")
	n.wantHops("10.3.0.0/26", "192.0.2.1")
	f.announcePath(2, "10.3.0.0/26", "192.0.2.2")
	n.wantHops("10.3.0.0/26", "192.0.2.1", "192.0.2.2")
	f.announcePath(1, "10.3.0.0/26", "192.0.2.3") // replaces its own only
	n.wantHops("10.3.0.0/26", "192.0.2.2", "192.0.2.3")
	f.withdrawPath(1, "10.3.0.0/26")
	n.wantHops("10.3.0.0/26", "192.0.2.2")
	f.withdrawPath(2, "10.3.0.0/26")
	n.wantHops("10.3.0.0/26")
	f.endOfRIB()
	eventually(t, "End-of-RIB", true, func() bool { return n.farState("127.0.0.95").EndOfRIB })
}

// A legal but odd UPDATE does no harm to the session, and none of it becomes a route that cannot be
// one.
func TestOddUpdates(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.96", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.96", 64512, 90, true, gracefulCap(false))
	base := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(nil),
		packet.NewPathAttributeLocalPref(100),
	}
	mp := func(prefix, hop, linkLocal string) {
		p := pfx(prefix)
		var nlri packet.AddrPrefixInterface = packet.NewIPAddrPrefix(uint8(p.Bits()),
			p.Addr().String())
		if p.Addr().Is6() {
			nlri = packet.NewIPv6AddrPrefix(uint8(p.Bits()), p.Addr().String())
		}
		attr := packet.NewPathAttributeMpReachNLRI(hop, []packet.AddrPrefixInterface{nlri})
		if linkLocal != "" {
			attr.LinkLocalNexthop = addr(linkLocal).AsSlice()
		}
		f.send(packet.NewBGPUpdateMessage(nil, append(base[:3:3], attr), nil))
	}
	// unspecified
	f.announce("10.3.0.0/26", "0.0.0.0")
	// multicast
	f.announce("10.3.1.0/26", "224.0.0.5")
	// nobody
	f.announce("10.3.2.0/26", "255.255.255.255")
	// RFC 8950
	mp("10.3.3.0/26", "2001:db8::1", "")
	// as a pair
	mp("10.3.4.0/26", "2001:db8::1", "fe80::1")
	// NEXT_HOP missing
	f.raw(nil, []byte{0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 5, 4, 0, 0, 0, 100}, []byte{26, 10, 3, 5, 0})
	// host bits
	f.raw(nil, []byte{0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 1, 0x40, 5, 4, 0, 0, 0,
		100},
		[]byte{20, 10, 3, 255})
	// unknown attribute
	f.raw(nil, []byte{0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 1, 0x40, 5, 4, 0, 0, 0, 100,
		0xc0, 99, 1, 7},
		[]byte{26, 10, 3, 6, 0})
	f.announce("10.3.9.0/26", "192.0.2.9")
	n.wantHops("10.3.9.0/26", "192.0.2.9")
	n.wantHops("10.3.3.0/26", "2001:db8::1")
	n.wantHops("10.3.4.0/26", "2001:db8::1")
	n.wantHops("10.3.240.0/20", "192.0.2.1")
	n.wantHops("10.3.6.0/26", "192.0.2.1")
	for _, p := range []string{"10.3.0.0/26", "10.3.1.0/26", "10.3.5.0/26"} {
		if h := n.hops(p); h != nil {
			t.Errorf("%s learned via %v", p, h)
		}
	}
	if s := n.farState("127.0.0.96"); !s.Established {
		t.Errorf("the session went down: %+v", s)
	}
}

// One UPDATE of a peer on an IPv6 session: global and link-local next hop (RFC 2545 §3).
func TestIPv6NextHops(t *testing.T) {
	l := newLab(t)
	n, f := l.farOverIPv6()
	send := func(prefix, hop, linkLocal string) {
		p := pfx(prefix)
		attr := packet.NewPathAttributeMpReachNLRI(hop, []packet.AddrPrefixInterface{
			packet.NewIPv6AddrPrefix(uint8(p.Bits()), p.Addr().String()),
		})
		if linkLocal != "" {
			attr.LinkLocalNexthop = addr(linkLocal).AsSlice()
		}
		f.send(packet.NewBGPUpdateMessage(nil, []packet.PathAttributeInterface{
			packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(nil),
			packet.NewPathAttributeLocalPref(100), attr,
		}, nil))
	}
	send("fd00:1::/122", "2001:db8::1", "")
	send("fd00:2::/122", "2001:db8::2", "fe80::2")
	send("fd00:3::/122", "fe80::3", "")
	send("fd00:4::/122", "::", "fe80::4")
	send("fd00:5::/122", "::", "")
	send("fd00:6::/122", "::ffff:192.0.2.6", "")
	send("::ffff:10.0.0.0/120", "2001:db8::1", "")
	for _, was := range []string{"2001:db8::8", "::", "2001:db8::8", "ff02::8"} {
		send("fd00:8::/122", was, "")
		if was == "2001:db8::8" {
			n.wantHops("fd00:8::/122", was)
		}
		eventually(t, was+" in the RIB", was == "2001:db8::8", func() bool {
			known, err := n.PathsOf(t.Context(), []netip.Prefix{pfx("fd00:8::/122")})
			return err == nil && len(known) == 1 && len(known[0].Received) == 1
		})
	}
	send("fd00:9::/122", "2001:db8::9", "")
	n.wantHops("fd00:9::/122", "2001:db8::9")
	n.wantHops("fd00:1::/122", "2001:db8::1")
	n.wantHops("fd00:2::/122", "2001:db8::2")
	n.wantHops("fd00:3::/122", "fe80::3")
	n.wantHops("fd00:4::/122")
	n.wantHops("fd00:5::/122")
	n.wantHops("fd00:6::/122")
	if c := n.size(); c != 4 {
		t.Errorf("%d prefixes, want 4", c)
	}
	if d := n.Counters().Dropped; d != 2 {
		t.Errorf("%d paths dropped, want 2: IPv4-mapped next hop, IPv4-mapped prefix", d)
	}
}

// What is counted of the sets is what is in them: a session that goes down looks through them only
// where its peer has paths there.
func TestPathsInSetsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLearned(slog.New(slog.DiscardHandler), nil, newSessions(), false)
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			var set []bgp.Path
			for i := range rapid.IntRange(0, 4).Draw(t, "paths") {
				set = append(set, bgp.Path{
					NextHop: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}),
					Peer:    meshPeer(rapid.IntRange(0, 2).Draw(t, "peer")),
				})
			}
			l.keep(blockOf(rapid.IntRange(0, 3).Draw(t, "prefix")), set)
		}
		want := map[bgp.PeerID]int{}
		for _, set := range l.sets {
			for _, p := range set {
				want[p.Peer]++
			}
		}
		if !maps.Equal(l.inSets, want) {
			t.Fatalf("counted %v, there are %v", l.inSets, want)
		}
	})
}

// A session of a mesh goes down on a node that has 200 000 prefixes by two routers.
func BenchmarkMeshSessionDown(b *testing.B) {
	l := newLearned(slog.New(slog.DiscardHandler), nil, newSessions(), false)
	for i := range 200_000 {
		l.keep(blockOf(i), []bgp.Path{
			{NextHop: addr("192.0.2.1"), Peer: meshPeer(1)},
			{NextHop: addr("192.0.2.2"), Peer: meshPeer(2)},
		})
	}
	for b.Loop() {
		l.mark(meshPeer(3), true)
	}
}

func meshPeer(i int) bgp.PeerID {
	return bgp.PeerID{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
}

func blockOf(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}
