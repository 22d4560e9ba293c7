package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// PlanWithoutBGP is PlanFor for a node that speaks no BGP. It waits for nobody: a cluster without BGP need not register its nodes.
func PlanWithoutBGP(self string, c *calico.Snapshot, f Facts) Plan {
	blocks, _ := ipam.OwnBlocks(self, c)
	blocks = append(blocks, ipam.NamedBlocks(self, c)...)
	return Plan{Own: dropRoutes(blocks, f), OwnAddresses: nodeAddresses(c.Nodes[self])}
}

// etcdRoutes are the routes of a plan as the FIB engine wants them.
func etcdRoutes(p ipam.RemotePlan) []route.Route {
	var out []route.Route
	for _, r := range p.Routes {
		out = append(out, route.Route{
			Key: route.Key{Prefix: r.Prefix}, Kind: route.Via, Origin: route.Etcd, Paths: route.CanonicalPaths([]route.Path{{NextHop: r.NextHop}}),
		})
	}
	return out
}

// applyRemotes hands the routes that follow from etcd alone to the FIB, once for each snapshot. They wait for nothing that BGP waits for:
// they are there to carry the node until BGP does.
func (a *Agent) applyRemotes() {
	if a.cfg.EtcdRoutes == nil || a.snapshot == a.remotesOf {
		return
	}
	listed := a.remotesOf == nil || a.snapshot.Lists != a.remotesOf.Lists
	a.remotesOf = a.snapshot
	plan := ipam.Remotes(a.cfg.Node, a.cfg.EtcdRoutes, a.snapshot)
	if listed { // what is missing now may be missing from a broken list only
		a.cfg.FIB.SetListed(route.Etcd, etcdRoutes(plan))
	} else {
		a.cfg.FIB.SetRoutes(route.Etcd, etcdRoutes(plan))
	}
	skipped := unrouted(a.cfg.Node, a.snapshot, plan)
	a.mu.Lock()
	old := a.remotes
	a.remotes, a.unrouted = plan, skipped
	a.mu.Unlock()
	a.logRemotes(old, plan)
}

func (a *Agent) logRemotes(old, now ipam.RemotePlan) {
	if len(old.Routes) != len(now.Routes) {
		a.cfg.Log.Info("routes from etcd", "routes", len(now.Routes))
	}
	told := map[calico.Problem]bool{}
	for _, p := range old.Problems {
		told[p] = true
	}
	for _, p := range now.Problems {
		if !told[p] {
			a.cfg.Log.Warn("hosts share an address", "resource", p.Name(), "err", p.Err)
		}
	}
}

// unrouted is what a person should know of what yields no route. That this node's own blocks do not is no news.
func unrouted(self string, c *calico.Snapshot, p ipam.RemotePlan) []UnroutedStatus {
	out := []UnroutedStatus{}
	for _, s := range p.Skipped {
		if c.Blocks[s.Prefix].Owner.Host != self {
			out = append(out, UnroutedStatus{s.Prefix, s.Reason})
		}
	}
	return out
}

// silence is the speaker of a node without BGP.
type silence struct{}

func (silence) Set(context.Context, bgp.Plan) error                { return nil }
func (silence) RejectNextHops(context.Context, []netip.Addr) error { return nil }
func (silence) NextHops() []netip.Addr                             { return nil }
func (silence) Peers() []bgp.PeerState                             { return nil }
func (silence) Counters() bgp.Counters                             { return bgp.Counters{} }
func (silence) Announced() []bgp.Announcement                      { return nil }
func (silence) Changed() <-chan struct{}                           { return nil }
func (silence) Stop(context.Context) error                         { return nil }

// noteConverging tells the FIB whether BGP still has something to say: a peer of the plan has not told all it knows, since no longer than
// the deferral. A peer that stays away does not count for ever. It matters only where routes from etcd stand behind those of BGP.
func (a *Agent) noteConverging(now time.Time) {
	if a.noBGP || a.cfg.EtcdRoutes == nil {
		return
	}
	finished := map[bgp.PeerID]bool{}
	for _, s := range a.cfg.Speaker.Peers() {
		finished[s.ID] = s.Finished(now)
	}
	var unfinished []bgp.PeerID
	for _, p := range a.plan.BGP.Peers {
		if !finished[p.ID()] {
			unfinished = append(unfinished, p.ID())
		}
	}
	if !slices.Equal(unfinished, a.unfinished) {
		a.unfinished, a.unfinishedSince = unfinished, now
	}
	converging := len(unfinished) > 0 && now.Sub(a.unfinishedSince) < a.cfg.Deferral
	if converging != a.converging {
		a.converging = converging
		a.cfg.FIB.SetBGPConverging(converging)
	}
}
