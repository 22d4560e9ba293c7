package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
)

// What takes the place of a route and is of no use itself, because of a loop, still takes the
// earlier one away.

// inOrder waits until n has all that f sent before.
func (n *node) inOrder(f *far, as ...uint32) {
	n.t.Helper()
	f.announce("10.99.0.0/26", "192.0.2.99", as...)
	eventually(n.t, "a last prefix", true, func() bool {
		return slices.Contains(n.hops("10.99.0.0/26"), "192.0.2.99")
	})
	f.withdraw("10.99.0.0/26")
	n.wantHops("10.99.0.0/26")
}

// RFC 4271 §3.1, §9.1.2: a route with our AS in its AS_PATH is not used, and the peer's earlier one
// is replaced by it all the same. Of one that replaces nothing nobody hears.
func TestLoopedRouteReplacesTheEarlierOne(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.150", 65001)
	n.farPeer("127.0.0.151", 65002)
	n.farPeer("127.0.0.152", 64512)
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(t, n)
	a := dialFar(t, n, "127.0.0.150", 65001, 90, true, gracefulCap(false))
	b := dialFar(t, n, "127.0.0.151", 65002, 90, true, gracefulCap(false))
	watching := dialFar(t, n, "127.0.0.152", 64512, 90, true, gracefulCap(false))
	a.announce("10.1.0.0/26", "192.0.2.1", 65001, 64600)
	b.announce("10.1.0.0/26", "192.0.2.2", 65002, 64600)
	n.wantHops("10.1.0.0/26", "192.0.2.1", "192.0.2.2")
	eventually(t, "passed on", true, func() bool {
		return watching.routes()[pfx("10.1.0.0/26")] != ""
	})
	a.announce("10.1.0.0/26", "192.0.2.1", 65001, 64512, 64600)
	n.wantHops("10.1.0.0/26", "192.0.2.2")
	b.announce("10.1.0.0/26", "192.0.2.2", 65002, 64512, 64600)
	n.wantHops("10.1.0.0/26")
	eventually(t, "gone", "", func() string { return watching.routes()[pfx("10.1.0.0/26")] })
	// all that went before has been received and passed on by then
	last := func(prefix string) (heard int) {
		a.announce(prefix, "192.0.2.99", 65001)
		n.wantHops(prefix, "192.0.2.99")
		eventually(t, prefix, true, func() bool { return watching.routes()[pfx(prefix)] != "" })
		return watching.count()
	}

	// Again, and for the first time: it was not there.
	heard, seen := last("10.99.1.0/26"), n.seen[pfx("10.1.0.0/26")]
	a.announce("10.1.0.0/26", "192.0.2.1", 65001, 64512, 64601)
	a.announce("10.2.0.0/26", "192.0.2.1", 65001, 64512)
	if got := last("10.99.2.0/26") - heard; got != 1 {
		t.Errorf("%d UPDATEs passed on, not that of the last prefix alone", got)
	}
	n.locked(func() {
		if n.seen[pfx("10.1.0.0/26")] != seen || n.seen[pfx("10.2.0.0/26")] != 0 {
			t.Errorf("handed on what is not there: %v", n.seen)
		}
	})

	// Policies that are applied anew (soft reset in) do not bring it back; the peer itself does.
	if err := n.SetUsable(t.Context(), usableBut(addr("192.0.2.77"))); err != nil {
		t.Fatal(err)
	}
	n.inOrder(a, 65001)
	n.wantHops("10.1.0.0/26")
	a.announce("10.1.0.0/26", "192.0.2.1", 65001, 64600)
	n.wantHops("10.1.0.0/26", "192.0.2.1")
}

// RFC 4456 §8: the same for a route that we originated and a reflector sends back.
func TestOwnRouteReflectedReplacesTheEarlierOne(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.150", 64512)
	set(t, n)
	a := dialFar(t, n, "127.0.0.150", 64512, 90, true, gracefulCap(false))
	a.announce("10.1.0.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	attrs := append(pathAttributes("192.0.2.1", 100),
		packet.NewPathAttributeOriginatorId(n.addr.String()),
		packet.NewPathAttributeClusterList([]string{"9.9.9.9"}))
	a.send(packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{ipv4(0, "10.1.0.0/26")}))
	n.wantHops("10.1.0.0/26")
	a.announce("10.1.0.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
}

// A router's route has our AS in its path, for which the BGPPeer allows it
// (numAllowedLocalASNumbers). Our own comes before it; when ours goes, the nodes of the mesh must
// hear so.
func TestMeshHearsThatOursIsGone(t *testing.T) {
	both := packet.NewCapAddPath([]*packet.CapAddPathTuple{
		packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH),
	})
	for _, addPath := range []bool{false, true} {
		t.Run(fmt.Sprintf("ADD-PATH %t", addPath), func(t *testing.T) {
			l := newLab(t)
			n := l.node(64512)
			n.farPeer("127.0.0.150", 65001)
			n.plan.Peers[0].AllowLocalAS = 1
			n.farPeer("127.0.0.152", 64512)
			n.announce("10.96.0.0/12", n.addr.String(), func(a *bgp.Announcement) {
				a.Service = true
			})
			set(t, n)
			router := dialFar(t, n, "127.0.0.150", 65001, 90, true, gracefulCap(false))
			caps := []packet.ParameterCapabilityInterface{gracefulCap(false)}
			if addPath {
				caps = append(caps, both)
			}
			mesh := dialFar(t, n, "127.0.0.152", 64512, 90, true, caps...)
			eventually(t, "ours", 1, func() int { return len(mesh.received()) })
			router.announce("10.96.0.0/12", "192.0.2.1", 65001, 64512)
			n.inOrder(router, 65001)
			n.withdraw("10.96.0.0/12")
			set(t, n)
			n.wantHops("10.96.0.0/12", "192.0.2.1")
			eventually(t, "what the mesh has", 0, func() int { return len(mesh.routes()) })
		})
	}
}

// A prefix of which no path is left is forgotten, whatever became of its paths meanwhile: accepted,
// then rejected by policy or for a loop, then withdrawn or gone with the session. Else a peer could
// have us keep something for every prefix that there is, whatever its prefix limit.
func TestNothingIsLeftOfAPrefix(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.153", 65001)
	n.plan.Peers[0].PrefixLimit = 3
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	f := dialFar(t, n, "127.0.0.153", 65001, 90, true)
	table := any(n.applied.server).(interface {
		Destinations(packet.RouteFamily) (loc, adjIn int)
	})
	destinations := func() [2]int {
		loc, adjIn := table.Destinations(packet.RF_IPv4_UC)
		return [2]int{loc, adjIn}
	}
	good := func(p string) { f.announce(p, "192.0.2.1", 65001) }
	// its next hop is our own address
	rejected := func(p string) { f.announce(p, n.addr.String(), 65001) }
	looped := func(p string) { f.announce(p, "192.0.2.1", 65001, 64512) }
	for i, steps := range [][]func(string){
		{}, {good}, {rejected}, {looped},
		{good, rejected}, {good, looped}, {rejected, good}, {looped, good},
		{good, rejected, rejected}, {good, rejected, good}, {good, looped, rejected, good, good},
		{rejected, looped, good, looped},
	} {
		for _, step := range steps {
			step(fmt.Sprintf("10.1.%d.0/26", i))
		}
		f.withdraw(fmt.Sprintf("10.1.%d.0/26", i))
	}
	n.inOrder(f, 65001)
	eventually(t, "destinations, of which one is ours", [2]int{1, 0}, destinations)

	n.withdraw("10.9.9.0/26")
	set(t, n)
	eventually(t, "destinations without ours", [2]int{}, destinations)

	good("10.1.0.0/26")
	good("10.1.1.0/26")
	rejected("10.1.1.0/26")
	good("10.1.2.0/26")
	looped("10.1.2.0/26")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	f.close()
	eventually(t, "destinations when the session is down", [2]int{}, destinations)
}
