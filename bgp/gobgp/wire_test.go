package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

// RFC 4456 §8: what is reflected says where it comes from and by which cluster it went; what is not
// reflected says neither. The cluster ID changes while sessions are up.
func TestOnlyReflectedRoutesSayWhereTheyComeFrom(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	for i, as := range []uint32{64512, 64512, 65001} {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 110+i), as)
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	a := dialFar(t, n, "127.0.0.110", 64512, 90, true, gracefulCap(false))
	b := dialFar(t, n, "127.0.0.111", 64512, 90, true, gracefulCap(false))
	outside := dialFar(t, n, "127.0.0.112", 65001, 90, true, gracefulCap(false))
	a.announce("10.1.0.0/26", "192.0.2.1")
	outside.announce("10.2.0.0/26", "192.0.2.2", 65001)
	says := func(what, prefix, want string) {
		t.Helper()
		eventually(t, what+": "+prefix, want, func() string { return b.reflection(prefix) })
	}
	says("no reflector", "10.9.9.0/26", "- -")
	says("no reflector", "10.2.0.0/26", "- -")
	says("no reflector", "10.1.0.0/26", "not there")
	since := n.farState("127.0.0.111").Since

	reflects := func(id string) {
		t.Helper()
		n.plan.Policies.Reflects, n.plan.Policies.ClusterID = id != "", n.addr
		if id != "" && id != "router ID" {
			n.plan.Policies.ClusterID = addr(id)
		}
		n.plan.Peers = slices.Clone(n.plan.Peers)
		n.plan.Peers[0].Client, n.plan.Peers[1].Client = id != "", id != ""
		set(t, n)
	}
	for _, c := range []struct{ id, clusters string }{
		{"244.0.0.1", "[244.0.0.1]"}, {"244.0.0.2", "[244.0.0.2]"},
		{"router ID", "[" + n.addr.String() + "]"}, {"", ""}, {"244.0.0.3", "[244.0.0.3]"},
	} {
		reflects(c.id)
		want := "9.9.9.110 " + c.clusters
		if c.id == "" {
			want = "not there"
		}
		says("cluster "+c.id, "10.1.0.0/26", want)
		says("cluster "+c.id, "10.9.9.0/26", "- -")
		says("cluster "+c.id, "10.2.0.0/26", "- -")
	}
	if s := n.farState("127.0.0.111").Since; !s.Equal(since) {
		t.Error("the session was reset")
	}

	// A peer that is added now knows the cluster ID from the start.
	n.farPeer("127.0.0.113", 64512)
	n.plan.Peers[3].Client = true
	set(t, n)
	late := dialFar(t, n, "127.0.0.113", 64512, 90, true, gracefulCap(false))
	eventually(t, "a late peer", "9.9.9.110 [244.0.0.3]", func() string {
		return late.reflection("10.1.0.0/26")
	})
}

// RFC 4271 §5.1.5, RFC 7606 §7.5, §7.9, §7.10: what only iBGP peers may say of a route is discarded
// when another says it. An eBGP peer that could say how much its routes are preferred here would
// decide for us.
func TestOutsideDoesNotSayWhatIsPreferred(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.120", 65001)
	n.farPeer("127.0.0.121", 64512)
	n.farPeer("127.0.0.122", 64512)
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	outside := dialFar(t, n, "127.0.0.120", 65001, 90, true, gracefulCap(false))
	inside := dialFar(t, n, "127.0.0.121", 64512, 90, true, gracefulCap(false))
	watching := dialFar(t, n, "127.0.0.122", 64512, 90, true, gracefulCap(false))

	attrs := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP),
		packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{
			packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{65001}),
		}),
		packet.NewPathAttributeNextHop("192.0.2.1"),
		packet.NewPathAttributeLocalPref(5000),
		packet.NewPathAttributeOriginatorId("9.9.9.9"),
		packet.NewPathAttributeClusterList([]string{"9.9.9.9"}),
	}
	outside.send(packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{
		ipv4(0, "10.1.0.0/26"),
	}))
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	eventually(t, "passed on", "- -", func() string { return watching.reflection("10.1.0.0/26") })
	inside.announcePref("10.1.0.0/26", "192.0.2.2", 200)
	n.wantHops("10.1.0.0/26", "192.0.2.2")
}

// RFC 4456 §8: what went through our cluster already is not reflected, whatever the cluster ID was
// when the session came up; a peer that had the route before receives its withdrawal.
func TestRouteThatWentThroughOurCluster(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	for i := range 3 {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 115+i), 64512)
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	client := dialFar(t, n, "127.0.0.115", 64512, 90, true, gracefulCap(false))
	reflector := dialFar(t, n, "127.0.0.116", 64512, 90, true, gracefulCap(false))
	third := dialFar(t, n, "127.0.0.117", 64512, 90, true, gracefulCap(false))
	n.plan.Policies.Reflects, n.plan.Policies.ClusterID = true, addr("244.0.0.1")
	for i := range n.plan.Peers {
		n.plan.Peers[i].Client = i != 1
	}
	n.plan.Peers[1].Reflector = true
	set(t, n)

	client.announce("10.1.0.0/26", "192.0.2.1")
	eventually(t, "reflected", "9.9.9.115 [244.0.0.1]", func() string {
		return third.reflection("10.1.0.0/26")
	})
	copyOf := func(cluster string) {
		attrs := append(pathAttributes("192.0.2.1", 100),
			packet.NewPathAttributeOriginatorId("9.9.9.115"),
			packet.NewPathAttributeClusterList([]string{cluster}))
		reflector.send(packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{
			ipv4(0, "10.1.0.0/26"),
		}))
	}
	copyOf("244.0.0.1")
	client.withdraw("10.1.0.0/26")
	eventually(t, "of our cluster", "not there", func() string {
		return third.reflection("10.1.0.0/26")
	})
	n.wantHops("10.1.0.0/26", "192.0.2.1") // it is used here all the same, as in BIRD
	n.plan.Peers = slices.Clone(n.plan.Peers)
	n.plan.Peers[1].Client = true // a reflector of another cluster, which is one in Calico
	set(t, n)
	n.wantHops("10.1.0.0/26")
	copyOf("244.0.0.1")
	n.plan.Policies.ClusterID = addr("244.0.0.2")
	set(t, n)
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	n.plan.Policies.ClusterID = addr("244.0.0.1")
	set(t, n)
	n.wantHops("10.1.0.0/26")
	copyOf("244.0.0.9")
	eventually(t, "of another cluster", "9.9.9.115 [244.0.0.1 244.0.0.9]", func() string {
		return third.reflection("10.1.0.0/26")
	})
	reflector.withdraw("10.1.0.0/26")
	eventually(t, "gone", "not there", func() string { return third.reflection("10.1.0.0/26") })
}

// Where the kernel chooses the source of a session, NEXT_HOP of our own routes is what it chose.
func TestNextHopOfTheSession(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.announce("10.1.0.0/26", "192.0.2.1")
	for i, as := range []uint32{64512, 65001, 64512} {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 120+i), as)
	}
	for i := range 2 {
		n.plan.Peers[i].LocalAddress, n.plan.Peers[i].SessionNextHop = netip.Addr{}, true
	}
	set(t, n)
	for i, want := range []string{n.addr.String(), n.addr.String(), "192.0.2.1"} {
		f := dialFar(t, n, fmt.Sprintf("127.0.0.%d", 120+i), n.plan.Peers[i].RemoteAS, 90, true,
			gracefulCap(false))
		path, pref := "[]", "2147482623"
		if n.plan.Peers[i].External() {
			path, pref = "[64512]", "-"
		}
		eventually(t, fmt.Sprintf("peer %d", i),
			fmt.Sprintf("path %s pref %s med - hop %s communities []", path, pref, want),
			func() string { return f.routes()[pfx("10.1.0.0/26")] })
	}
}

// In a session with ADD-PATH a client is sent all paths while this node reflects, and otherwise the
// best alone; each is withdrawn when it goes, when policy lets it out no more, and when it is not
// the best any more. Nothing else is withdrawn, and no session is reset.
func TestSeveralPathsAreSent(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	both := packet.NewCapAddPath([]*packet.CapAddPathTuple{
		packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH),
	})
	var fars []*far
	for i, as := range []uint32{64512, 64512, 64512, 65001, 65002} {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 130+i), as)
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	for i, p := range n.plan.Peers {
		fars = append(fars,
			dialFar(t, n, p.Address.String(), p.RemoteAS, 90, true, gracefulCap(false), both))
		if i == 3 {
			fars[3].update(1, "10.2.0.0/26", "192.0.2.3", 65001)
		}
	}
	eventually(t, "from outside", "192.0.2.3", func() string {
		return fars[2].several("10.2.0.0/26")
	})
	fars[4].update(1, "10.2.0.0/26", "192.0.2.4", 65002)
	for i := range 3 {
		fars[i].announcePath(7, "10.1.0.0/26", fmt.Sprintf("192.0.2.1%d", i))
	}
	n.wantHops("10.1.0.0/26", "192.0.2.10", "192.0.2.11", "192.0.2.12")
	n.wantHops("10.2.0.0/26", "192.0.2.3", "192.0.2.4")
	since := n.farState("127.0.0.132").Since
	reflects := func(yes bool) {
		t.Helper()
		n.plan.Policies.Reflects = yes
		n.plan.Peers = slices.Clone(n.plan.Peers)
		for i := range 3 {
			n.plan.Peers[i].Client = yes
		}
		set(t, n)
	}
	has := func(what, inner, outer string) {
		t.Helper()
		eventually(t, what+": from inside", inner, func() string {
			return fars[2].several("10.1.0.0/26")
		})
		eventually(t, what+": from outside", outer, func() string {
			return fars[2].several("10.2.0.0/26")
		})
		eventually(t, what+": ours", n.addr.String(), func() string {
			return fars[2].several("10.9.9.0/26")
		})
	}
	has("no reflector", "", "192.0.2.3")
	reflects(true)
	has("reflector", "192.0.2.10 192.0.2.11", "192.0.2.3 192.0.2.4")
	late := n.plan.Peers[2]
	late.Address = addr("127.0.0.135")
	n.plan.Peers = append(slices.Clone(n.plan.Peers), late)
	set(t, n)
	fars = append(fars, dialFar(t, n, "127.0.0.135", 64512, 90, true, gracefulCap(false), both))
	eventually(t, "a first dump", "192.0.2.10 192.0.2.11 192.0.2.12", func() string {
		return fars[5].several("10.1.0.0/26")
	})

	fars[0].withdrawPath(7, "10.1.0.0/26")
	has("a path goes", "192.0.2.11", "192.0.2.3 192.0.2.4")
	eventually(t, "also one of a first dump", "192.0.2.11 192.0.2.12", func() string {
		return fars[5].several("10.1.0.0/26")
	})
	fars[0].announcePath(8, "10.1.0.0/26", "192.0.2.10")
	fars[0].announcePath(9, "10.1.0.0/26", "192.0.2.20")
	has("two of one peer", "192.0.2.10 192.0.2.11 192.0.2.20", "192.0.2.3 192.0.2.4")
	fars[0].announcePath(8, "10.1.0.0/26", "192.0.2.30")
	has("one changes", "192.0.2.11 192.0.2.20 192.0.2.30", "192.0.2.3 192.0.2.4")

	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.2.0.0/16"), pfx("10.9.0.0/16")}
	set(t, n)
	has("policy is stricter", "", "192.0.2.3 192.0.2.4")
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	has("policy is as before", "192.0.2.11 192.0.2.20 192.0.2.30", "192.0.2.3 192.0.2.4")

	reflects(false)
	has("no reflector any more", "", "192.0.2.3")
	fars[3].withdrawPath(1, "10.2.0.0/26")
	has("the second is the best", "", "192.0.2.4")
	fars[3].update(1, "10.2.0.0/26", "192.0.2.3", 65001)
	fars[4].withdrawPath(1, "10.2.0.0/26")
	has("and the first again", "", "192.0.2.3")
	fars[0].close()
	reflects(true)
	has("one that is kept for a peer that restarts",
		"192.0.2.11 192.0.2.20 192.0.2.30", "192.0.2.3")
	if s := n.farState("127.0.0.132").Since; !s.Equal(since) {
		t.Error("the session was reset")
	}
	for i, f := range fars {
		f.mu.Lock()
		if f.strayWithdrawals > 0 {
			t.Errorf("peer %d was sent %d withdrawals of what it did not have",
				i, f.strayWithdrawals)
		}
		f.mu.Unlock()
	}
}

// RFC 4271 §4.3: an UPDATE that withdraws and announces one prefix announces it. What it only
// withdraws is gone.
func TestWithdrawnAndAnnouncedInOneUpdate(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.125", 64512)
	n.farPeer("127.0.0.126", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.125", 64512, 90, true, gracefulCap(false))
	both := packet.NewCapAddPath([]*packet.CapAddPathTuple{
		packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH),
	})
	several := dialFar(t, n, "127.0.0.126", 64512, 90, true, gracefulCap(false), both)

	f.announce("10.1.0.0/26", "192.0.2.1")
	f.announce("10.1.1.0/26", "192.0.2.1")
	n.wantHops("10.1.1.0/26", "192.0.2.1")
	f.send(packet.NewBGPUpdateMessage([]*packet.IPAddrPrefix{ipv4(0, "10.1.0.0/26"),
		ipv4(0, "10.1.1.0/26")},
		pathAttributes("192.0.2.2", 100), []*packet.IPAddrPrefix{ipv4(0, "10.1.0.0/26")}))
	n.wantHops("10.1.1.0/26")
	n.wantHops("10.1.0.0/26", "192.0.2.2")
	n.locked(func() {
		if slices.ContainsFunc(n.all, func(set []bgp.Path) bool { return len(set) == 0 }) &&
			n.seen[pfx("10.1.0.0/26")] != 2 {
			t.Errorf("10.1.0.0/26 was handed on %d times", n.seen[pfx("10.1.0.0/26")])
		}
	})

	// With ADD-PATH two identifiers are two routes (RFC 7911 §3).
	several.announcePath(1, "10.2.0.0/26", "192.0.2.1")
	several.announcePath(2, "10.2.0.0/26", "192.0.2.2")
	n.wantHops("10.2.0.0/26", "192.0.2.1", "192.0.2.2")
	several.send(
		packet.NewBGPUpdateMessage([]*packet.IPAddrPrefix{ipv4(1, "10.2.0.0/26"),
			ipv4(2, "10.2.0.0/26")},
			pathAttributes("192.0.2.3", 100), []*packet.IPAddrPrefix{ipv4(2, "10.2.0.0/26")}))
	n.wantHops("10.2.0.0/26", "192.0.2.3")
}

// The same in MP_UNREACH_NLRI and MP_REACH_NLRI, in either order.
func TestWithdrawnAndAnnouncedInOneUpdateIPv6(t *testing.T) {
	l := newLab(t)
	n, f := l.farOverIPv6()
	six := func(prefix string) packet.AddrPrefixInterface {
		return packet.NewIPv6AddrPrefix(uint8(pfx(prefix).Bits()), pfx(prefix).Addr().String())
	}
	send := func(hop string, withdraws ...string) {
		attrs := []packet.PathAttributeInterface{
			packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(nil),
			packet.NewPathAttributeLocalPref(100),
			packet.NewPathAttributeMpReachNLRI(hop, []packet.AddrPrefixInterface{
				six("fd00:1::/122"),
			}),
		}
		var gone []packet.AddrPrefixInterface
		for _, w := range withdraws {
			gone = append(gone, six(w))
		}
		if len(gone) > 0 {
			attrs = append(attrs, packet.NewPathAttributeMpUnreachNLRI(gone))
		}
		f.send(packet.NewBGPUpdateMessage(nil, attrs, nil))
	}
	send("2001:db8::1")
	n.wantHops("fd00:1::/122", "2001:db8::1")
	send("2001:db8::2", "fd00:1::/122", "fd00:2::/122")
	n.wantHops("fd00:1::/122", "2001:db8::2")
	time.Sleep(200 * time.Millisecond) // a withdrawal would come now
	n.wantHops("fd00:1::/122", "2001:db8::2")
}

// Whatever is announced, withdrawn and configured, and in which order, a client with ADD-PATH has
// of each prefix what bgp.Policies let out: no less, and nothing that is gone.
func TestSeveralPathsAgreeWithTheEvaluator(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	both := packet.NewCapAddPath([]*packet.CapAddPathTuple{
		packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH),
	})
	for i := range 4 {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 140+i), 64512)
	}
	set(t, n)
	var fars []*far
	for _, p := range n.plan.Peers {
		fars = append(fars,
			dialFar(t, n, p.Address.String(), 64512, 90, true, gracefulCap(false), both))
	}
	client := fars[3]
	pools := []netip.Prefix{pfx("10.0.0.0/10"), pfx("10.128.0.0/10")}
	prefixes := []netip.Prefix{
		pfx("10.1.0.0/26"), pfx("10.1.0.64/26"), pfx("10.128.1.0/24"), pfx("10.192.0.0/24"),
	}
	type name struct {
		from   int
		id     uint32
		prefix netip.Prefix
	}
	here := map[name]string{} // next hops
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			path := name{
				rapid.IntRange(0, 2).Draw(rt, "from"),
				rapid.SampledFrom([]uint32{1, 2}).Draw(rt, "id"),
				rapid.SampledFrom(prefixes).Draw(rt, "prefix"),
			}
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				fars[path.from].withdrawPath(path.id, path.prefix.String())
				delete(here, path)
			case 1:
				n.plan.Policies.ExportPools = rapid.SliceOfNDistinct(rapid.SampledFrom(pools), 0,
					len(pools), rapid.ID).Draw(rt, "pools")
				n.plan.Policies.Reflects = rapid.IntRange(0, 3).Draw(rt, "reflects") > 0
				n.plan.Peers = slices.Clone(n.plan.Peers)
				for i := range n.plan.Peers {
					n.plan.Peers[i].Client = n.plan.Policies.Reflects
				}
				if err := n.Set(t.Context(), n.plan); err != nil {
					rt.Fatal(err)
				}
			default:
				here[path] = fmt.Sprintf("192.0.%d.%d",
					path.from, rapid.IntRange(1, 3).Draw(rt, "hop"))
				fars[path.from].announcePath(path.id, path.prefix.String(), here[path])
			}
		}
		hops := map[netip.Prefix][]string{}
		for path, hop := range here {
			r := bgp.Route{Prefix: path.prefix, From: &n.plan.Peers[path.from]}
			if n.plan.Policies.Export(r, n.plan.Peers[3]).Accept {
				hops[path.prefix] = append(hops[path.prefix], hop)
			}
		}
		want := map[netip.Prefix]string{}
		for p, list := range hops {
			slices.Sort(list)
			want[p] = strings.Join(list, " ")
		}
		agree(rt, fmt.Sprintf("of %v with %+v the client has", here, n.plan.Policies), want,
			func() map[netip.Prefix]string {
				got := map[netip.Prefix]string{}
				for _, p := range prefixes {
					if hops := client.several(p.String()); hops != "" {
						got[p] = hops
					}
				}
				return got
			})
	})
	client.mu.Lock()
	defer client.mu.Unlock()
	if client.strayWithdrawals > 0 {
		t.Errorf("%d withdrawals of what the client did not have", client.strayWithdrawals)
	}
}
