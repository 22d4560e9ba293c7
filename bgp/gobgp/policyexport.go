package gobgp

import (
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// exporter writes the export policy. It carries out what marks say.
type exporter struct {
	statements
	policy
}

func (e *exporter) build() {
	e.ownNextHop()
	e.add("own", &api.Conditions{
		RouteType: api.Conditions_ROUTE_TYPE_LOCAL, LargeCommunitySet: e.noLarge("unmarked", anyMark),
	}, accept())
	e.gate()
	e.add("not-passed-on", &api.Conditions{CommunitySet: e.communities("no-advertise", bgp.NoAdvertise)}, reject())
	if set, ok := e.peers("outside", e.outside, false); ok {
		c := &api.Conditions{CommunitySet: e.communities("no-export", bgp.NoExport, bgp.NoExportSubconfed), NeighborSet: set}
		e.add("not-outside", c, reject())
	}
	e.nextHops()
	e.leave()
	var numbered []netip.Addr
	for _, k := range e.classes {
		if k.number != 0 {
			e.class(k)
			numbered = append(numbered, k.members...)
		}
	}
	if set, ok := e.peers("numbered", numbered, true); ok {
		e.add("rejected", &api.Conditions{NeighborSet: set, LargeCommunitySet: e.large("rejected", markRejected.pattern())}, reject())
	}
	if set, ok := e.peers("outside-or-numbered", slices.Concat(e.outside, numbered), true); ok {
		only := e.large("outside-only", markOutsideOnly.pattern())
		e.add("outside-only", &api.Conditions{NeighborSet: set, LargeCommunitySet: only}, reject())
	}
	for _, a := range e.pass.Advertisements {
		m := e.numbers.advertisement(a)
		var ops []bgp.Operation
		for _, c := range a.Communities {
			ops = append(ops, bgp.Operation{Add: &c})
		}
		c := &api.Conditions{LargeCommunitySet: e.large("advertisement "+m.String(), m.pattern())}
		e.add("advertisement", c, append(actionsOf(ops), removeMarks(m.String()))...) // entries may have the same communities
	}
	e.add("unmark", &api.Conditions{LargeCommunitySet: e.large("marked", anyMark)}, removeMarks(anyMark))
}

// gate keeps what iBGP peers say from iBGP peers (RFC 4271 §9.2.1), except what may be reflected. GoBGP takes all of them for clients from the start,
// since it could not change that in a session that is up.
func (e *exporter) gate() {
	internal := api.Conditions_ROUTE_TYPE_INTERNAL
	toInside := func(name string, c *api.Conditions) {
		set, _ := e.peers("outside", e.outside, true)
		c.NeighborSet = set
		e.add(name, c, reject())
	}
	toInside("from-inside", &api.Conditions{
		RouteType: internal, LargeCommunitySet: e.noLarge("not-reflected", markFromClient.pattern(), markFromNonClient.pattern()),
	})
	// Of a class with a number its own marks say it.
	var plain []netip.Addr
	for _, k := range e.classes {
		if k.number == 0 {
			plain = slices.DeleteFunc(slices.Clone(k.members), func(a netip.Addr) bool { return !slices.Contains(e.unserved, a) })
		}
	}
	if set, ok := e.peers("unserved", plain, false); ok && e.pass.Reflects {
		e.add("from-non-client", &api.Conditions{
			RouteType: internal, NeighborSet: set, LargeCommunitySet: e.noLarge("not-from-client", markFromClient.pattern()),
		}, reject())
	}
}

// ownNextHop gives our own routes the local address of the session as next hop, where the announcement cannot know it.
func (e *exporter) ownNextHop() {
	var addrs []netip.Addr
	for _, p := range e.peerList {
		if p.SessionNextHop {
			addrs = append(addrs, p.Address)
		}
	}
	if set, ok := e.peers("session-next-hop", addrs, false); ok {
		c := &api.Conditions{NeighborSet: set, RouteType: api.Conditions_ROUTE_TYPE_LOCAL}
		e.add("session-next-hop", c, &api.Actions{Nexthop: &api.NexthopAction{Self: true}})
	}
}

var learnedTypes = []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_INTERNAL, api.Conditions_ROUTE_TYPE_EXTERNAL}

// nextHops overrides the next hop of learned routes: BIRD leaves it alone towards iBGP peers and takes its own address towards eBGP peers.
func (e *exporter) nextHops() {
	var self, keep []netip.Addr
	for _, p := range e.peerList {
		switch {
		case p.NextHop == bgp.NextHopSelf && !p.External():
			self = append(self, p.Address)
		case p.NextHop == bgp.NextHopKeep && p.External():
			keep = append(keep, p.Address)
		}
	}
	for _, typ := range learnedTypes {
		if set, ok := e.peers("next-hop-self", self, false); ok {
			e.add("next-hop-self", &api.Conditions{NeighborSet: set, RouteType: typ}, &api.Actions{Nexthop: &api.NexthopAction{Self: true}})
		}
		if set, ok := e.peers("next-hop-keep", keep, false); ok {
			e.add("next-hop-keep", &api.Conditions{NeighborSet: set, RouteType: typ}, &api.Actions{Nexthop: &api.NexthopAction{Unchanged: true}})
		}
	}
}

// leave has eBGP peers avoid routes of others that go with their session. Our own say so themselves.
func (e *exporter) leave() {
	if !e.pass.Leaving {
		return
	}
	if set, ok := e.peers("outside", e.outside, false); ok {
		for _, typ := range learnedTypes {
			e.add("leaving", &api.Conditions{NeighborSet: set, RouteType: typ}, actionsOf([]bgp.Operation{{Add: &bgp.GracefulShutdown}})...)
		}
	}
}

// class carries out the verdicts of a class.
func (e *exporter) class(k class) {
	set, ok := e.peers("class", k.members, false)
	if !ok {
		return
	}
	to := func(name string, m mark) *api.Conditions {
		return &api.Conditions{NeighborSet: set, LargeCommunitySet: e.large(name+" "+m.String(), m.pattern())}
	}
	e.add("class-rejected", to("rejected", mark{k.number, 0}), reject())
	done := map[mark]bool{}
	for _, r := range e.pass.Rules(k.peer, false) {
		m := e.numbers.verdict(k.number, true, r.Operations)
		if !r.Accept || done[m] {
			continue
		}
		done[m] = true
		c := to("accepted", m)
		last := removeMarks(anyMark)
		last.RouteAction = api.RouteAction_ACCEPT
		e.add("class-accepted", c, append(actionsOf(r.Operations), last)...)
	}
}
