package ipam

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Overlay returns the routes of node self to other hosts' blocks in VXLAN pools, but those that
// Felix has, by Nodes alone.
// BGP has no say about these: BIRD announces them and passes them on, but keeps them out of the
// kernel, and clusters without BGP have nothing else. last is as in Remotes.
func Overlay(self string, e *route.Encapsulation, s *calico.Snapshot,
	last []route.Route) RemotePlan {
	if e == nil || !hasVXLAN(e, false) && !hasVXLAN(e, true) {
		return RemotePlan{}
	}
	return remotesBy(route.Overlay, self, []AddressSource{NodeObject}, s, last).only(
		func(p netip.Prefix) bool { return inVXLAN(e, p) })
}

// Underlay is what is left of p without the pools of Overlay.
func (p RemotePlan) Underlay(e *route.Encapsulation) RemotePlan {
	if e == nil || !slices.ContainsFunc(e.Pools, isOverlay) {
		return p
	}
	return p.only(func(q netip.Prefix) bool { return !inVXLAN(e, q) })
}

func inVXLAN(e *route.Encapsulation, p netip.Prefix) bool {
	pool := e.PoolOf(p)
	return pool != nil && isOverlay(*pool)
}

func isOverlay(p route.Pool) bool { return p.Encap == route.VXLAN && !p.Felix }

// only returns what p says about some prefixes.
func (p RemotePlan) only(keep func(netip.Prefix) bool) (out RemotePlan) {
	for _, r := range p.Routes {
		if keep(r.Prefix) {
			out.Routes = append(out.Routes, r)
		}
	}
	for _, s := range p.Skipped {
		if keep(s.Prefix) {
			out.Skipped = append(out.Skipped, s)
		}
	}
	for _, q := range p.Unlocated {
		if keep(q) {
			out.Unlocated = append(out.Unlocated, q)
		}
	}
	return out
}
