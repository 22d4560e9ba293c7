package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

const toTor = "9.0.0.1/32 via 192.168.4.254"

// withTor is a cluster with a router that is reached through a gateway, or directly ("").
func withTor(gateway string) *calico.Snapshot {
	c := cluster()
	c.BGPPeers = map[string]calico.BGPPeer{
		"tor": {PeerIP: "9.0.0.1", ASNumber: 64900, ReachableBy: gateway},
	}
	return c
}

func TestFormerPeers(t *testing.T) {
	with := PlanFor("a", withTor("192.168.4.254"), bgp.Options{}, Facts{})
	without := PlanFor("a", cluster(), bgp.Options{}, Facts{PeerRoutes: hostRoutes(with)})
	up := []bgp.PeerState{{ID: bgp.PeerID{Address: addr("8.0.0.1")}},
		{ID: bgp.PeerID{Address: addr("9.0.0.1")}}, {ID: bgp.PeerID{Address: addr("9.0.0.2")}},
		{ID: bgp.PeerID{Address: addr("192.168.4.3")}}}
	other := []bgp.PeerState{{ID: bgp.PeerID{Address: addr("9.0.0.2")}}}
	type step struct {
		at     int // seconds
		plan   Plan
		speaks []bgp.PeerState
		kept   bool
	}
	for name, steps := range map[string][]step{
		"planned, and not configured yet": {{0, with, nil, true}, {60, with, nil, true}},
		"for as long as the speaker has the peer": {{0, with, up, true}, {1, without, up, true},
			{60, without, up, true}, {61, without, nil, true}, {65, without, nil, true},
			{66, without, nil, false}},
		"the peer comes back": {{0, with, nil, true}, {0, without, nil, true},
			{4, with, nil, true}, {5, with, up, true}, {6, without, nil, true},
			{10, without, nil, true}, {11, without, nil, false}},
		"the speaker has it again": {{0, with, up, true}, {1, without, nil, true},
			{2, without, up, true}, {10, without, nil, true}, {15, without, nil, false}},
		"another peer is no reason": {{0, with, nil, true}, {0, without, nil, true},
			{5, without, other, false}},
	} {
		service := route.Route{Key: route.Key{Prefix: pfx("10.96.0.1/32")}, Origin: route.Own}
		var fp formerPeers
		for i, s := range steps {
			s.plan.Own = append(slices.Clone(s.plan.Own), service) // which is not for a peer
			got := fp.step(time.Unix(int64(s.at), 0), s.plan,
				func() []bgp.PeerState { return s.speaks })
			want := "[]"
			if s.kept {
				want = "[" + toTor + "]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s, step %d: %v, want %s", name, i, got, want)
			}
		}
	}
}

// The speaker may take a second to answer, and is asked only where a peer is gone.
func TestFormerPeersAskTheSpeakerOnce(t *testing.T) {
	both := withTor("192.168.4.254")
	both.BGPPeers["tor-2"] = calico.BGPPeer{PeerIP: "9.0.0.2", ASNumber: 64900,
		ReachableBy: "192.168.4.254"}
	with := PlanFor("a", both, bgp.Options{}, Facts{})
	without := PlanFor("a", cluster(), bgp.Options{}, Facts{PeerRoutes: hostRoutes(with)})
	for want, plan := range []Plan{with, without} {
		var fp formerPeers
		fp.step(time.Unix(0, 0), with, nil)
		asked := 0
		routes := fp.step(time.Unix(1, 0), plan, func() []bgp.PeerState {
			asked++
			return []bgp.PeerState{{ID: bgp.PeerID{Address: addr("9.0.0.2")}}}
		})
		if len(routes) != 2 || asked != want {
			t.Errorf("asked %d times, want %d; routes %v", asked, want, routes)
		}
	}
}

// hostRoutes are the own routes of p that are no drops.
func hostRoutes(p Plan) (routes []route.Route) {
	for _, r := range p.Own {
		if r.Kind != route.Drop {
			routes = append(routes, r)
		}
	}
	return routes
}

func TestPlanKeepsRoutesToFormerPeersOnly(t *testing.T) {
	former := Facts{PeerRoutes: hostRoutes(
		PlanFor("a", withTor("192.168.4.254"), bgp.Options{}, Facts{}))}
	for name, c := range map[string]struct {
		s    *calico.Snapshot
		want string
	}{
		"the peer is deleted": {cluster(), "[" + toTor + "]"},
		"it has no gateway":   {withTor(""), "[]"},
		"its gateway changes": {withTor("192.168.4.253"), "[9.0.0.1/32 via 192.168.4.253]"},
		"it is as it was":     {withTor("192.168.4.254"), "[" + toTor + "]"},
		"the node is unknown": {&calico.Snapshot{}, "[" + toTor + "]"},
	} {
		if got := fmt.Sprint(hostRoutes(PlanFor("a", c.s, bgp.Options{}, former))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The route is deleted when the speaker has ended the session, not beside it.
func TestRouteToAFormerPeerOutlivesItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- withTor("192.168.4.254")
		time.Sleep(time.Second)
		n.take()
		n.snapshots <- cluster()
		n.expect(t, time.Minute) // this speaker goes on
		n.speaker.setStates()
		n.expect(t, 4*time.Second)
		n.expect(t, 3*time.Second, "delete 9.0.0.1/32")
	})
}
