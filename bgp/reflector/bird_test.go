package reflector

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// What would become of BIRD's routes. Nodes are 10.0.0.1 to 10.0.0.4; of the routes the first of a
// prefix is the one that BIRD forwards by.
func TestBirdChange(t *testing.T) {
	for _, tc := range []struct {
		name, routes       string // prefix, gateway, peer
		ended, unreflected string
		want               string
	}{
		{"all stay", "a 1 1, a 1 2, b 2 2, b 2 1", "", "", "2 stay, 0 changed, 2 copies"},
		{"one peer goes", "a 1 1, a 1 2, b 2 2, b 2 1", "1", "", "2 stay, 0 changed, 1 copies"},
		{"a route goes", "a 1 1, b 2 2, b 2 1", "1", "", "missing a; 1 stay, 0 changed, 1 copies"},
		{"another gateway", "a 1 1, a 3 2", "1", "", "changed a; 1 stay, 1 changed, 1 copies"},
		{"the present gateway is among others", "a 1 1, a 3 2, a 1 3", "1", "",
			"1 stay, 0 changed, 2 copies"},
		{"ADD-PATH brings one peer's route twice", "a 1 1, a 1 2, a 1 2", "1", "",
			"1 stay, 0 changed, 1 copies"},
		{"what is reflected goes, what is the peer's own stays", "a 1 1, b 2 1", "", "1",
			"missing b; 1 stay, 0 changed, 1 copies"},
		{"by a router it is not known whose it is", "a 99 1, b 99 1", "", "1",
			"2 stay, 0 changed, 1 copies"},
		{"of routers nothing counts", "a 99 99", "", "", "0 stay, 0 changed, 0 copies"},
		{"nor do they keep a route", "a 1 1, a 1 99", "1", "",
			"missing a; 0 stay, 0 changed, 0 copies"},
	} {
		var nodes []testNode
		for i := range 4 {
			nodes = append(nodes, numbered(i))
		}
		w := worldOf(objectsOf(nodes), nil)
		var s calico.NodeStatus
		names, seen := map[string]string{"10.1.0.0/26": "a", "10.1.1.0/26": "b"}, map[string]bool{}
		for _, r := range strings.Split(tc.routes, ", ") {
			var prefix, gateway, peer string
			fmt.Sscan(r, &prefix, &gateway, &peer)
			s.Routes = append(s.Routes, calico.NodeStatusRoute{
				Prefix: prefixOf(int(prefix[0] - 'a')), Gateway: "10.0.0." + gateway,
				Peer: netip.MustParseAddr("10.0.0." + peer), FIB: !seen[prefix],
			})
			seen[prefix] = true
		}
		left := Left{peers: map[bgp.PeerID]peerLeft{}}
		for _, l := range []struct {
			peers string
			left  peerLeft
		}{{tc.unreflected, peerLeft{}}, {tc.ended, peerLeft{ended: true}}} {
			for _, p := range strings.Fields(l.peers) {
				left.peers[bgp.PeerID{Address: netip.MustParseAddr("10.0.0." + p)}] = l.left
			}
		}
		c := w.birdChange(s, left)
		got := fmt.Sprintf("%d stay, %d changed, %d copies", c.Prefixes, c.Changed, c.FewestCopies)
		for _, e := range c.Examples {
			what := "changed "
			if c.Missing > 0 {
				what = "missing "
			}
			got = what + names[e] + "; " + got
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Of a node with both families an answer needs both: calico-node leaves one out for which BIRD has
// no socket.
func TestBIRDOfTwoFamilies(t *testing.T) {
	var nodes []testNode
	for i := range 2 {
		n := numbered(i)
		n.v6 = fmt.Sprintf("fd00::%d/64", i+1)
		nodes = append(nodes, n)
	}
	w := worldOf(objectsOf(nodes), map[string]string{"n0001": "bird"})
	whole := w.answersOf("n0001", 1)[0]
	six := calico.NodeStatusRoute{Prefix: netip.MustParsePrefix("fd01::/64")}
	whole.Routes = append(whole.Routes, six)
	half := whole
	half.Peers = half.Peers[:1] // of IPv4
	for _, tc := range []struct {
		answers []calico.NodeStatus
		heard   bool
		mute    bool
	}{
		{nil, false, false},
		{[]calico.NodeStatus{whole}, false, false},
		{[]calico.NodeStatus{whole, whole}, true, false},
		{[]calico.NodeStatus{half, whole}, false, false},
		{[]calico.NodeStatus{whole, half}, false, true},
	} {
		w.Birds = map[string]Bird{"n0001": {Answers: tc.answers}}
		if _, heard := w.heard("n0001"); heard != tc.heard || w.isMute("n0001") != tc.mute {
			t.Errorf("%d answers: heard %t, mute %t", len(tc.answers), heard, w.isMute("n0001"))
		}
	}
}
