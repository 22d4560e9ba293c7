package agent

import (
	"math"
	"net/netip"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// Learner hands best paths to the FIB engine.
type Learner struct{ FIB *fib.Engine }

// Learned implements the speaker's sink. A change that comes alone is written before it returns.
func (l Learner) Learned(prefix netip.Prefix, paths []bgp.Path) {
	next := make([]route.Path, len(paths))
	preference := uint32(math.MaxUint32)
	for i, p := range paths {
		next[i] = route.Path{NextHop: p.NextHop}
		preference = min(preference, p.LocalPref) // equal, unless stale paths are alone
	}
	l.FIB.Learn(fib.BestPaths{Prefix: prefix, Paths: next, Preference: preference})
}

// setOwnRoutes hands the plan's part of the FIB over.
func (a *Agent) setOwnRoutes() {
	if a.cfg.FIB == nil {
		return
	}
	p := a.plan
	// With a new snapshot, so that the engine works through all of it once; and with the pools, as
	// what one loses the other has.
	remotes := a.remotesPlanned != a.snapshot ||
		!slices.Equal(a.remotesPools, poolsOf(p.Encapsulation))
	if remotes {
		a.planRemotes()
	}
	a.setWanted(func(w *fib.Wanted) {
		w.Received = a.received
		w.Own, w.Peers, w.Services = p.OwnAddresses, p.PeerAddresses, p.BGP.NotProgrammed
		w.Normal4, w.Normal6 = p.BGP.Policies.Normal4, p.BGP.Policies.Normal6
		own := fib.Source{Routes: p.Own, Objects: p.Tunnels, List: a.snapshot.Lists}
		if was := w.Sources[route.Own].Objects; slices.Equal(was, own.Objects) {
			own.Objects = was // the same slice costs nothing
		}
		if !w.Encapsulation.Equal(p.Encapsulation) {
			w.Encapsulation = p.Encapsulation
		}
		setSource(w, route.Own, own)
		// With the pools, as what BGP has for them goes at the same moment.
		setSource(w, route.Overlay,
			fib.Source{List: a.snapshot.Lists, Routes: p.Overlay.Routes})
		if remotes {
			a.setRemotes(w)
		}
	})
}

func poolsOf(e *route.Encapsulation) []route.Pool {
	if e == nil {
		return nil
	}
	return e.Pools
}

// applyRemotes hands over the routes from etcd where no plan has. They do not wait for what BGP
// waits for: until BGP has converged, the node forwards by them.
func (a *Agent) applyRemotes() {
	if a.snapshot == a.remotesPlanned {
		return
	}
	a.planRemotes()
	if a.cfg.EtcdRoutes == nil {
		return
	}
	a.setWanted(func(w *fib.Wanted) {
		w.Received = a.received
		a.setRemotes(w)
	})
}

func (a *Agent) setRemotes(w *fib.Wanted) {
	if a.cfg.EtcdRoutes != nil {
		setSource(w, route.Etcd, fib.Source{List: a.snapshot.Lists, Routes: a.remotes.Routes})
	}
}

// planRemotes plans the routes from etcd, and finds what lacks one.
func (a *Agent) planRemotes() {
	old := a.remotes
	a.remotesPlanned, a.remotesPools = a.snapshot, poolsOf(a.plan.Encapsulation)
	a.remotes = remotesOf(a.cfg.Node, a.cfg.EtcdRoutes, a.plan.Encapsulation, a.snapshot,
		old.Routes)
	a.unrouted = unrouted(a.cfg.Node, a.snapshot,
		slices.Concat(a.remotes.Skipped, a.plan.Overlay.Skipped))
	if len(old.Routes) != len(a.remotes.Routes) {
		a.cfg.Log.Info("routes from etcd", "routes", len(a.remotes.Routes))
	}
}

// findSharedAddresses is for people alone, and comes after what packets wait for.
func (a *Agent) findSharedAddresses() {
	if a.sharedOf == a.snapshot {
		return
	}
	old := a.shared
	a.shared, a.sharedOf = ipam.SharedAddresses(a.cfg.EtcdRoutes, a.snapshot), a.snapshot
	a.logProblems("hosts share an address", old, a.shared)
}

// unrouted are the prefixes without a route that a person should know of. This node's own blocks
// need none.
func unrouted(self string, c *calico.Snapshot, skipped []ipam.Skipped) []UnroutedStatus {
	out := []UnroutedStatus{}
	for _, s := range skipped {
		if c.Blocks[s.Prefix].Owner.Host != self {
			out = append(out, UnroutedStatus{s.Prefix, s.Reason})
		}
	}
	return out
}

// trackInterfaces has the engine track the outgoing interface to every address that a learned route
// may have as next hop: peers and nodes, before a session is up, and what peers have sent. An
// import rule that asks for an interface matches no next hop whose interface is unknown. And to
// addresses of services.
func (a *Agent) trackInterfaces() {
	if a.cfg.Resolver == nil {
		return
	}
	var all []netip.Addr // nil: nobody asks
	for _, x := range a.followedServices() {
		all = append(all, firstService(x.Prefix))
	}
	if bgp.AsksInterface(a.snapshot) {
		all = slices.Concat(all, a.cfg.Speaker.NextHops(), a.plan.PeerAddresses)
		for _, n := range a.snapshot.Nodes {
			all = append(all, nodeAddresses(n)...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	if !slices.Equal(all, a.wanted.Follow) { // which nobody else changes
		a.setWanted(func(w *fib.Wanted) { w.Follow = all })
	}
}
