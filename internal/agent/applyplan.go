package agent

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"reflect"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// facts are read anew before each plan.
func (a *Agent) facts(now time.Time) Facts {
	f := Facts{
		Programmed: map[route.Key]bool{}, Announced: map[netip.Prefix]bool{},
		Drain: a.draining, Arrived: a.arrivals.step(now, a.cfg.Node, a.snapshot),
		NoDataplane: true, PeerRoutes: a.formerPeers.step(now, a.plan, a.cfg.Speaker.Peers),
	}
	for _, ann := range a.cfg.Speaker.Announced() {
		if !ann.Service || a.cfg.ServicesVia.routes() {
			f.Announced[ann.Prefix] = !ann.Service
		}
	}
	if a.cfg.Resolver != nil && bgp.AsksInterface(a.snapshot) {
		f.Outgoing = a.cfg.Resolver.Outgoing()
	}
	if a.cfg.FIB == nil {
		return f
	}
	stats := a.cfg.FIB.Stats()
	f.NoDataplane = a.absence.step(now, absenceFacts{
		present: a.cfg.FIB.Facts().Identity != "", filled: stats.Filled(), limit: a.cfg.Deferral,
	})
	f.Adopted, f.Restarting = a.plannedWith.Adopted, a.plannedWith.Restarting
	if a.sessions.configured.IsZero() {
		f.Adopted = stats.Adopted != ""
		f.Restarting = stats.AdoptedRoutes > 0 && !a.cfg.NothingKept
	}
	f.HeldNodes, f.Former = a.heldNodes(now), a.formerForms(now)
	f.InterfacesRead, f.NodeMTUs = a.plannedWith.InterfacesRead, a.plannedWith.NodeMTUs
	if facts := a.cfg.FIB.Facts(); facts.Identity != "" {
		mtus := mtusOf(a.snapshot.Nodes[a.cfg.Node], facts.Interfaces)
		// Tunnels stay as they are while the address is away.
		f.InterfacesRead = true
		f.NodeMTUs.IPv4 = cmp.Or(mtus.IPv4, f.NodeMTUs.IPv4)
		f.NodeMTUs.IPv6 = cmp.Or(mtus.IPv6, f.NodeMTUs.IPv6)
	}
	for _, r := range a.plan.Own {
		if a.cfg.FIB.Programmed(r) {
			f.Programmed[r.Key] = true
		}
	}
	f.ServicesVia, f.Returning = a.cfg.ServicesVia, a.returning()
	f.Withdraw = a.cfg.WithdrawWithoutDataplane && (f.NoDataplane || !a.absence.back.IsZero())
	return f
}

// applyPlan computes the plan and applies it, again when that changed the facts: the drop route of
// a withdrawn block may go. It does nothing while neither snapshot nor facts changed, unless the
// speaker did not take the last plan.
func (a *Agent) applyPlan(ctx context.Context, now time.Time) {
	for ctx.Err() == nil {
		f := a.facts(now)
		if a.planned == a.snapshot && reflect.DeepEqual(a.plannedWith, f) {
			break
		}
		a.planned, a.plannedWith = a.snapshot, f
		plan, ok := a.planFor(f)
		if !ok {
			continue
		}
		old := a.plan
		a.plan = plan
		a.setOwnRoutes()
		a.firstPlan.Do(func() { close(a.hasPlan) })
		if !reflect.DeepEqual(old.BGP, plan.BGP) {
			a.logPlan(old.BGP, plan.BGP)
			a.setSpeaker(ctx)
		}
	}
	waits := a.setError != nil || a.sessions.configured.IsZero()
	if waits && now.Sub(a.setAt) >= setRetry {
		a.setSpeaker(ctx)
	}
}

// planFor returns false while this node's object is not usable and never was. If it was, the plan
// is made with it as it was: it may be on its way back, and everything else still changes.
func (a *Agent) planFor(f Facts) (p Plan, ok bool) {
	// Not in plannedWith: a change of these alone needs no new plan.
	f.Tunnels, f.Overlay = a.plan.Tunnels, a.plan.Overlay.Routes
	if a.noBGP {
		p = PlanWithoutBGP(a.cfg.Node, a.snapshot, a.cfg.BGP, f)
	} else {
		p = PlanFor(a.cfg.Node, a.snapshot, a.cfg.BGP, f)
	}
	used := a.snapshot
	if was := a.waitingForNode; p.BGP.Waiting != was && p.BGP.Waiting != "" {
		a.cfg.Log.Warn(p.BGP.Waiting)
	}
	a.waitingForNode = p.BGP.Waiting
	if a.waitingForNode != "" && a.ownNode != nil {
		used = withNode(a.snapshot, *a.ownNode)
		p = PlanFor(a.cfg.Node, used, a.cfg.BGP, f)
	} else if node, ok := a.snapshot.Nodes[a.cfg.Node]; ok && a.waitingForNode == "" {
		a.ownNode = &node
	}
	if p.BGP.Waiting != "" {
		return p, false
	}
	a.inputs = inputs{used, f.options(a.cfg.BGP)}
	a.notePlan(used, f)
	return p, true
}

// withNode is c with this node as it was last known.
func withNode(c *calico.Snapshot, n calico.Node) *calico.Snapshot {
	out := *c
	out.Nodes = maps.Clone(c.Nodes)
	if out.Nodes == nil {
		out.Nodes = map[string]calico.Node{}
	}
	out.Nodes[n.Name] = n
	return &out
}

// logPlan logs what changed, not that a plan was made.
func (a *Agent) logPlan(old, now bgp.Plan) {
	if len(old.Peers) != len(now.Peers) || len(old.Announcements) != len(now.Announcements) {
		a.cfg.Log.Info("plan", "peers", len(now.Peers), "announcements", len(now.Announcements))
	}
	a.logProblems("Calico resource cannot be used", old.Problems, now.Problems)
}

// logProblems logs what old does not have.
func (a *Agent) logProblems(message string, old, now []calico.Problem) {
	known := map[calico.Problem]bool{}
	for _, p := range old {
		known[p] = true
	}
	for _, p := range now {
		if !known[p] {
			a.cfg.Log.Warn(message, "resource", p.Name(), "err", p.Err)
		}
	}
}
