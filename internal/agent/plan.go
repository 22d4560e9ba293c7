// Package agent turns each snapshot of Calico's data into a Plan, applies the plan to the speaker
// and the FIB engine, decides when stale routes may be swept, and answers operators (admin API,
// metrics, health). Packages bgp and ipam decide about peers and own prefixes; cmd provides the
// adapters. docs/design.md describes the loop and its state machines.
package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// Plan is everything that follows from the datastore. Slices are sorted: equal plans are equal
// values.
type Plan struct {
	BGP bgp.Plan
	// Own are this node's own routes: a drop for each own block, so that packets to its unused
	// addresses do not loop over a default route; and a host route to each peer with a gateway of
	// its own (BGPPeer reachableBy), so that no learned route captures the path to it. With
	// ServicesVia also one for each announced address of a service.
	Own []route.Route
	// Deferred are own blocks and addresses of services that are not announced yet because their
	// route is not acknowledged.
	Deferred []netip.Prefix
	// OwnAddresses and PeerAddresses are what no learned route may capture.
	OwnAddresses, PeerAddresses []netip.Addr
	// Encapsulation says how packets to other nodes leave; nil: all of them plain. Tunnels are what
	// it needs in the data plane.
	Encapsulation *route.Encapsulation
	Tunnels       []route.Object
	// Overlay are the routes to other nodes in VXLAN pools.
	Overlay ipam.RemotePlan
	// CannotRead says why others send what the data plane cannot read; "": they do not.
	CannotRead string
}

// Facts is what Plan must know besides the datastore.
type Facts struct {
	// Programmed are the own routes that the data plane has acknowledged.
	Programmed map[route.Key]bool
	// Announced are the prefixes that the speaker originates now: false for addresses of services,
	// which have no drop route and are listed only with ServicesVia.
	Announced map[netip.Prefix]bool
	// NoDataplane: there is none, or it has been absent for too long: announcements do not wait for
	// drop routes.
	NoDataplane bool
	// Withdraw: nothing is to be announced, because the data plane is absent or being filled again
	// (--withdraw-without-dataplane).
	Withdraw bool
	// Drain is the phase of a drain that the plan is for.
	Drain DrainPhase
	// Arrived are the host routes of workloads that have just come by live migration. Sorted.
	Arrived []netip.Prefix
	// PeerRoutes are the host routes to peers, and to former ones whose session may not have ended.
	PeerRoutes []route.Route
	// Outgoing are the interfaces of next hops, if a BGPFilter asks and they are known.
	Outgoing []route.Outgoing
	// Adopted: the routes of an earlier run in the data plane are known.
	Adopted bool
	// Restarting: the data plane kept routes of an earlier run when the agent started, and peers
	// may have kept this node's.
	Restarting bool
	// InterfacesRead: those of the data plane have been. Tunnels wait for it: they would be made
	// anew as soon as NodeMTUs are known.
	InterfacesRead bool
	// NodeMTUs are those of the interfaces with this node's addresses; 0: there was none.
	NodeMTUs ipam.MTUs
	// Tunnels and Overlay are those of the plan before. They save allocations and decide nothing,
	// so they are not recorded.
	Tunnels []route.Object
	Overlay []route.Route
	// HeldNodes keep their tunnels, though the datastore lacks them.
	HeldNodes route.Nodes
	// Former is what stays for a while where the modes of pools have changed.
	Former Former
	// ServicesVia is as configured.
	ServicesVia ServicesVia
	// Returning is an address of a service that is announced, and to which the data plane has no
	// way but back to the network; invalid: there is none, or it is not known.
	Returning netip.Addr
}

// mayAnnounce reports whether a has the route that must come first, or needs none.
func (f Facts) mayAnnounce(a bgp.Announcement) bool {
	needsRoute := ipam.NeedsDrop(a.Prefix)
	routed, announced := f.Announced[a.Prefix]
	if a.Service {
		needsRoute = f.ServicesVia.routes()
	} else {
		announced = routed // as a block: else its drop route comes first
	}
	return announced || f.NoDataplane || !needsRoute || f.Programmed[route.Key{Prefix: a.Prefix}]
}

// PlanFor computes the plan. It reads no clock, no environment and no channel.
//
// A block is announced after its drop route is acknowledged, and its drop route goes after the
// announcement is withdrawn: in between the facts change and the plan is computed again.
func PlanFor(self string, c *calico.Snapshot, o bgp.Options, f Facts) Plan {
	e, problems := ipam.Encapsulation(self, o.Tunnels, o.FelixTunnels, c)
	p := Plan{BGP: bgp.PlanWith(problems, self, c, f.options(o))}
	p.BGP.Restarting = f.Restarting
	p.BGP.Policies.Leaving = f.Drain != NotDraining
	switch {
	case f.Drain == Withdrawn:
		withhold(&p.BGP, "the node is drained")
	case f.Withdraw:
		withhold(&p.BGP, "the data plane is away, or does not have all routes yet")
	case f.Drain == Draining:
		makeWorst(p.BGP.Announcements)
	}
	blocks, _ := ipam.OwnBlocks(self, c)
	p.Own = append(dropRoutes(blocks, f), peerRoutes(p.BGP.Peers, f)...)
	p.Own = append(p.Own, serviceRoutes(p.BGP.Announcements, p.Own, f)...)
	p.BGP.Announcements = slices.DeleteFunc(p.BGP.Announcements, func(a bgp.Announcement) bool {
		if f.mayAnnounce(a) {
			return false
		}
		p.Deferred = append(p.Deferred, a.Prefix)
		return true
	})
	slices.SortFunc(p.Own, func(a, b route.Route) int { return route.CompareKeys(a.Key, b.Key) })
	p.OwnAddresses = nodeAddresses(c.Nodes[self])
	for _, peer := range p.BGP.Peers {
		p.PeerAddresses = append(p.PeerAddresses, peer.Address)
	}
	p.encapsulate(e, self, c, o, f)
	if f.Returning.IsValid() {
		p.BGP.Problems = append(p.BGP.Problems, returningProblem(f.Returning))
	}
	return p
}

// encapsulate takes e into the plan, and adds what only the agent knows.
func (p *Plan) encapsulate(e *route.Encapsulation, self string, c *calico.Snapshot, o bgp.Options,
	f Facts) {
	if c.Nodes[self].WireguardKey && o.NoWireguard {
		p.CannotRead = fmt.Sprintf("Node(%s) has a WireGuard key (status.wireguardPublicKey): "+
			"other nodes encrypt what they send here, and VPP cannot read it; Felix removes the "+
			"key where wireguardEnabled is false", self)
	}
	if e.Encapsulates() {
		e.Nodes = f.HeldNodes.With(e.Nodes, nil)
		p.Encapsulation, p.Overlay = e, ipam.Overlay(self, e, c, f.Overlay)
		if f.InterfacesRead && !o.FelixTunnels {
			p.Tunnels = ipam.Tunnels(self, e, c, f.NodeMTUs, o.LinuxTunnels, f.Tunnels)
			p.BGP.Problems = append(p.BGP.Problems, ipam.TooLarge(self, e, c, f.NodeMTUs)...)
		}
	}
	if used := f.Former.into(e); used != e {
		p.Encapsulation, p.Overlay = used, ipam.Overlay(self, used, c, f.Overlay)
		p.Tunnels = append(p.Tunnels, f.Former.Tunnels...)
	}
}

// options are o with what depends on facts.
func (f Facts) options(o bgp.Options) bgp.Options {
	o.Arrived, o.Outgoing = f.Arrived, f.Outgoing
	return o
}

// PlanWithoutBGP is PlanFor for a node without BGP, whose cluster need not register its nodes.
func PlanWithoutBGP(self string, c *calico.Snapshot, o bgp.Options, f Facts) Plan {
	blocks, _ := ipam.OwnBlocks(self, c)
	blocks = append(blocks, ipam.NamedBlocks(self, c)...)
	p := Plan{Own: dropRoutes(blocks, f), OwnAddresses: nodeAddresses(c.Nodes[self])}
	e, problems := ipam.Encapsulation(self, o.Tunnels, o.FelixTunnels, c)
	p.encapsulate(e, self, c, o, f)
	p.BGP.Problems = slices.Concat(problems, bgp.Unencrypted(self, c, o), c.UnusedFelix(self),
		c.AnnotatedFelix(self), p.BGP.Problems)
	return p
}

// withhold takes all announcements out of p.
func withhold(p *bgp.Plan, reason string) {
	for _, a := range p.Announcements {
		p.Withheld = append(p.Withheld, bgp.Withheld{Prefix: a.Prefix, Reason: reason})
	}
	p.Announcements = nil
	slices.SortFunc(p.Withheld, func(a, b bgp.Withheld) int {
		return cmp.Or(route.ComparePrefixes(a.Prefix, b.Prefix), cmp.Compare(a.Reason, b.Reason))
	})
}

// makeWorst has every other path win. iBGP peers compare LOCAL_PREF; eBGP peers do not receive it
// and need the community (RFC 8326 §4).
func makeWorst(all []bgp.Announcement) {
	for i := range all {
		all[i].LocalPref, all[i].GracefulShutdown = 0, true
	}
}

// dropRoutes are for each own block, and for a former one while it is still announced.
func dropRoutes(blocks []netip.Prefix, f Facts) []route.Route {
	blocks = slices.DeleteFunc(blocks, func(b netip.Prefix) bool { return !ipam.NeedsDrop(b) })
	for announced, routed := range f.Announced {
		if routed && ipam.NeedsDrop(announced) && !slices.Contains(blocks, announced) {
			blocks = append(blocks, announced)
		}
	}
	slices.SortFunc(blocks, route.ComparePrefixes)
	blocks = slices.Compact(blocks)
	routes := make([]route.Route, len(blocks))
	for i, b := range blocks {
		routes[i] = route.Route{Key: route.Key{Prefix: b}, Kind: route.Drop, Origin: route.Own}
	}
	return routes
}

// peerRoutes never meet dropRoutes: there is no drop for a single address.
func peerRoutes(peers []bgp.Peer, f Facts) []route.Route {
	var routes []route.Route
	for _, p := range peers {
		if p.ReachableBy.IsValid() && !p.Further { // another port needs no other route
			routes = append(routes, route.Route{
				Key: route.Key{Prefix: route.HostPrefix(p.Address)}, Origin: route.Own,
				Paths: route.CanonicalPaths([]route.Path{{NextHop: p.ReachableBy}}),
			})
		}
	}
	for _, r := range f.PeerRoutes {
		if !hasPeer(peers, r.Prefix.Addr()) {
			routes = append(routes, r)
		}
	}
	return routes
}

func nodeAddresses(n calico.Node) []netip.Addr {
	var out []netip.Addr
	for _, p := range []netip.Prefix{n.IPv4, n.IPv6} {
		if p.IsValid() {
			out = append(out, p.Addr())
		}
	}
	return out
}
