package agent

import (
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// ServicesVia is where the data plane sends packets for announced addresses of services, such as a
// TAP behind which kube-proxy is at work. The zero value: nowhere, the agent has no route for them.
type ServicesVia struct {
	Interface string
	// NextHops are behind it, at most one of a family. Without one, whoever is behind it answers
	// for the addresses themselves.
	NextHops []netip.Addr
}

func (v ServicesVia) routes() bool { return v.Interface != "" }

func (v ServicesVia) path(to netip.Addr) route.Path {
	p := route.Path{Interface: v.Interface}
	for _, a := range v.NextHops {
		if a.Is4() == to.Is4() {
			p.NextHop = a
		}
	}
	return p
}

// serviceRoutes are for all addresses of services that are to be announced, and for former ones
// while they still are. What others need comes first.
func serviceRoutes(wanted []bgp.Announcement, others []route.Route, f Facts) []route.Route {
	if !f.ServicesVia.routes() {
		return nil
	}
	all := map[netip.Prefix]bool{}
	for _, a := range wanted {
		if a.Service {
			all[a.Prefix] = true
		}
	}
	for announced, routed := range f.Announced {
		if !routed {
			all[announced] = true
		}
	}
	for _, r := range others {
		delete(all, r.Prefix)
	}
	var routes []route.Route
	for _, p := range slices.SortedFunc(maps.Keys(all), route.ComparePrefixes) {
		routes = append(routes, route.Route{Key: route.Key{Prefix: p}, Origin: route.Own,
			Paths: route.CanonicalPaths([]route.Path{f.ServicesVia.path(p.Addr())})})
	}
	return routes
}

// maxFollowedServices bounds for how many addresses of services the way is looked up: each look-up
// stops VPP for a moment.
const maxFollowedServices = 16

// followedServices are announced addresses of services, to which the way is looked up where the
// agent has no route for them.
func (a *Agent) followedServices() (all []bgp.Announcement) {
	if a.cfg.Dataplane != "vpp" || a.cfg.ServicesVia.routes() {
		return nil
	}
	for _, x := range a.plan.BGP.Announcements {
		if x.Service && len(all) < maxFollowedServices {
			all = append(all, x)
		}
	}
	return all
}

// firstService is the first address in what is announced for services, which of cluster addresses
// is usually the API server's.
func firstService(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return p.Addr().Next()
}

// returning is the first announced address of a service that VPP sends out by the interface with
// the announced next hop, where such packets come in; invalid: none.
func (a *Agent) returning() netip.Addr {
	services := a.followedServices()
	if len(services) == 0 {
		return netip.Addr{}
	}
	interfaces := a.cfg.FIB.Facts().Interfaces
	for _, s := range services {
		first := firstService(s.Prefix)
		in, ok := interfaceWith(s.NextHop, interfaces)
		if ok && a.cfg.Resolver.OutgoingTo(first) == in.Name {
			return first
		}
	}
	return netip.Addr{}
}

func returningProblem(a netip.Addr) calico.Problem {
	return calico.Problem{Resource: "BGPConfiguration(default)", Harmless: true,
		Err: "service addresses are announced, but VPP has no route for " + a.String() +
			" but the one back to the network: packets for it loop. --services-via leads them " +
			"to where kube-proxy is"}
}
