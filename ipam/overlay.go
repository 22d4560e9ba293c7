package ipam

import (
	"net/netip"

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
	r := remotes{origin: route.Overlay, self: self, sources: []AddressSource{NodeObject},
		snapshot: s, elsewhere: func(p netip.Prefix) bool { return !inVXLAN(e, p) }}
	return r.plan(last)
}

func inVXLAN(e *route.Encapsulation, p netip.Prefix) bool {
	pool := e.PoolOf(p)
	return pool != nil && isOverlay(*pool)
}

func isOverlay(p route.Pool) bool { return p.Encap == route.VXLAN && !p.Felix }
