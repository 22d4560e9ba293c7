package agent

import (
	"cmp"
	"fmt"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// details are the parts of an explanation besides the verdict.
func (x *explainer) details() Explanation {
	out := Explanation{
		Asked: x.asked, Node: x.node, Steps: []ExplainStep{}, Ownership: x.shown,
		Paths: []ReceivedStatus{}, Routes: []ExplainedRoute{}, Inside: []RouteStatus{},
		InsideMore: x.insideMore, Tunnels: append([]TunnelStatus{}, x.tunnels...),
		Exports: []ExportStatus{}, Problems: x.related(),
	}
	for _, p := range x.paths {
		for _, r := range p.Received {
			out.Paths = append(out.Paths, x.received(p, r))
		}
	}
	for _, a := range x.accounts {
		e := ExplainedRoute{RouteStatus: routeStatus(a.Entry), Claims: []ClaimStatus{}}
		for _, c := range a.Claims {
			status := ClaimStatus{Origin: c.Origin.String(), Distance: c.Distance,
				Kind: c.Kind.String(), Chosen: c.Chosen, Reason: c.Reason.String(),
				Paths: []WayStatus{}}
			for _, w := range c.Paths {
				way := WayStatus{Interface: w.Path.Interface, Owner: w.Owner, Used: []PathStatus{},
					Reason: w.Reason.String()}
				if w.Path.NextHop.IsValid() {
					way.NextHop = w.Path.NextHop.String()
				}
				if w.Match.IsValid() {
					way.By = w.Match.String()
				}
				if w.Connected {
					way.Owner = "connected"
				}
				way.Used = pathStatuses(w.Used, a.Key.Table)
				status.Paths = append(status.Paths, way)
			}
			e.Claims = append(e.Claims, status)
		}
		out.Routes = append(out.Routes, e)
	}
	for _, e := range x.inside {
		out.Inside = append(out.Inside, routeStatus(e))
	}
	accepted := func(e ExportStatus) bool { return e.Accept }
	if x.own.IsValid() || x.plan.BGP.Policies.Reflects || slices.ContainsFunc(x.sent, accepted) {
		out.Exports = append(out.Exports, x.sent...)
	}
	out.Dataplane.Problem = x.matchError
	if x.match != nil {
		m := matchStatus(*x.match)
		if x.match.Ours {
			m.Owner = "ours"
			m.Forwards = nil
			if x.matched != nil && x.matched.ok {
				r := x.matched.route
				m.Forwards = new(r.Kind == route.Via && len(r.Paths) > 0 && x.matched.err == nil)
				m.Paths = pathStatuses(r.Paths, r.Key.Table)
			}
		}
		out.Dataplane.Match = &m
	}
	if x.found != nil {
		differs := x.found.differs(*x.account(x.found.key.Prefix))
		out.Dataplane.Entry = cmp.Or(differs, "as acknowledged")
		out.Dataplane.NotCounted = x.countError
		if c := x.counted; c != nil {
			out.Dataplane.Packets, out.Dataplane.Bytes = &c.Packets, &c.Bytes
		}
		out.Dataplane.NextHops = hopsCounted(x.hops, func(p route.Path) bool {
			return leadsBy(x.found.route.Paths, p)
		})
		out.Dataplane.NextHopsNotCounted = x.hopsError
	}
	return out
}

// related are the problems that have to do with the prefix: of its pool, of the nodes that own it,
// and of this node.
func (x *explainer) related() []ProblemStatus {
	names := map[string]bool{"Node(" + x.node + ")": true}
	if x.owner.Host != "" {
		names["Node("+x.owner.Host+")"] = true
	}
	if x.owner.Pool != nil {
		names["IPPool("+x.owner.Pool.Name+")"] = true
	}
	out := []ProblemStatus{}
	for _, all := range [][]calico.Problem{x.problems, x.plan.BGP.Problems, x.shared} {
		for _, p := range all {
			if names[p.Resource] {
				out = append(out, ProblemOf(p))
			}
		}
	}
	return out
}

var origins = [...]string{"IGP", "EGP", "incomplete"}

func (x *explainer) received(p bgp.PrefixPaths, r bgp.Received) ReceivedStatus {
	a := r.Sent
	out := ReceivedStatus{
		Prefix: p.Prefix, Peer: r.Peer, LocalPref: a.LocalPref, MED: a.MED,
		Origin: origins[min(int(a.Origin), len(origins)-1)], ASPath: listOf(a.ASPath),
		Communities: texts(a.Communities), ClusterList: texts(a.ClusterList), Since: r.Since,
		Stale: r.Stale, Best: r.Best, Operations: []string{},
	}
	if a.NextHop.IsValid() {
		out.NextHop = a.NextHop.String()
	}
	if a.Originator.IsValid() {
		out.Originator = a.Originator.String()
	}
	from := x.peer(r.Peer)
	out.Import, out.Accepted = x.imported(p.Prefix, r)
	if from != nil {
		out.Node = from.CalicoNode
		if out.Accepted {
			_, v := x.plan.BGP.Policies.Import(r.Route(p.Prefix, from))
			out.Operations = texts(v.Operations)
		}
	}
	switch {
	case r.Best || !out.Accepted:
	case r.BadHop != "":
		out.Reason = r.BadHop
	case r.Rejected:
		out.Reason = "its next hop cannot be used"
	default:
		out.Reason = x.loses(p, r)
	}
	return out
}

// loses says what makes a path worse than the best one: the first difference, in the order of
// docs/best-path.md.
func (x *explainer) loses(p bgp.PrefixPaths, r bgp.Received) string {
	if p.OwnIsBest {
		return "this node announces the prefix itself"
	}
	i := slices.IndexFunc(p.Received, func(o bgp.Received) bool { return o.Best })
	if i < 0 || r.Accepted == nil || p.Received[i].Accepted == nil {
		return ""
	}
	a, b := r.Accepted, p.Received[i].Accepted
	best := x.nameOf(p.Received[i].Peer)
	value := func(v *uint32, none uint32) uint32 {
		if v == nil {
			return none
		}
		return *v
	}
	mine, others := value(a.LocalPref, bgp.FromExternal), value(b.LocalPref, bgp.FromExternal)
	external := func(r bgp.Received) bool {
		from := x.peer(r.Peer)
		return from != nil && from.External()
	}
	switch {
	case mine < others:
		return fmt.Sprintf("LOCAL_PREF %d is lower than %d of %s", mine, others, best)
	case a.PathLength() > b.PathLength():
		return fmt.Sprintf("AS_PATH is longer than that of %s", best)
	case a.Origin > b.Origin:
		return fmt.Sprintf("ORIGIN is higher than that of %s", best)
	case value(a.MED, 0) != value(b.MED, 0):
		return fmt.Sprintf("MED %d is not %d, that of %s", value(a.MED, 0), value(b.MED, 0), best)
	case external(p.Received[i]) && !external(r):
		return fmt.Sprintf("it came over iBGP, that of %s over eBGP", best)
	}
	return "it is worse than that of " + best
}

const notToSender = "learned from this peer"

// exportsOfOwn are what becomes of this node's announcement at each peer of its family.
func (x *explainer) exportsOfOwn() (all []ExportStatus) {
	a := x.announcement()
	if a == nil || x.noBGP {
		return nil
	}
	r := a.Route()
	if a.GracefulShutdown {
		r.Communities = append(r.Communities, bgp.GracefulShutdown)
	}
	return x.exports(r, a.NextHop.String())
}

// passedOn are what becomes of the best path of the longest prefix at each peer.
func (x *explainer) passedOn() []ExportStatus {
	h := x.heard()
	if h == nil {
		return nil
	}
	i := slices.IndexFunc(h.Received, func(r bgp.Received) bool { return r.Best })
	if i < 0 {
		return nil
	}
	r := h.Received[i]
	from := x.peer(r.Peer)
	if from == nil {
		return nil
	}
	imported, _ := x.plan.BGP.Policies.Import(r.Route(h.Prefix, from))
	return x.exports(imported, r.Accepted.NextHop.String())
}

// exports evaluates the export rules for each peer of a route's family.
func (x *explainer) exports(r bgp.Route, nextHop string) (all []ExportStatus) {
	for i, peer := range x.plan.BGP.Peers {
		if peer.Address.Is4() != r.Prefix.Addr().Is4() {
			continue
		}
		e := ExportStatus{Prefix: r.Prefix, Peer: peer.ID(), Node: peer.CalicoNode,
			Established: x.peers[i].Established, Deferring: x.peers[i].Deferring,
			ASPath: []uint32{}, Communities: []string{}}
		v := x.plan.BGP.Policies.Export(r, peer)
		e.Accept, e.Rule = v.Accept, v.Reason
		if e.Accept {
			sent := r.Apply(v.Operations)
			e.NextHop, e.ASPath = nextHop, listOf(sent.ASPath)
			e.Communities = texts(sent.Communities)
			if peer.External() {
				e.ASPath = append([]uint32{peer.LocalAS}, e.ASPath...)
			} else {
				e.LocalPref = &sent.LocalPref
			}
			selfTo := peer.NextHop == bgp.NextHopSelf ||
				peer.External() && peer.NextHop == bgp.NextHopAuto
			if r.From != nil && selfTo {
				e.NextHop = "this node"
			}
		}
		all = append(all, e)
	}
	return all
}
