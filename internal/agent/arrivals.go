package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// arrivals knows what came to this node by live migration a moment ago. Calico's data only tell of migrations that are under way, so an endpoint has come when it
// was the target of one and is not any more. For a while its addresses are announced as elevated, so that everybody prefers them to those of the
// node that it left, whose word may end later.
//
// It has one owner. A process that starts anew does not know what its predecessor had seen: then addresses are normal a while too early.
type arrivals struct {
	coming map[string]string    // targets in the snapshot before, by "namespace/name"
	since  map[string]time.Time // endpoints that have come, and when
}

// defaultConvergence is Felix' (felix/config, LiveMigrationRouteConvergenceTime).
const defaultConvergence = 30 * time.Second

// see takes the newest snapshot and returns the host routes that are elevated now, sorted.
func (a *arrivals) see(self string, s *calico.Snapshot, now time.Time) (elevated []netip.Prefix) {
	coming, leaving := ipam.Arriving(self, s), ipam.Leaving(self, s)
	if a.since == nil {
		a.since = map[string]time.Time{}
	}
	for name := range a.coming {
		if _, still := coming[name]; !still {
			a.since[name] = now
		}
	}
	a.coming = coming
	convergence := cmp.Or(s.FelixOn(self).LiveMigrationRouteConvergenceTime, defaultConvergence)
	maps.DeleteFunc(a.since, func(name string, at time.Time) bool {
		_, there := s.WorkloadEndpoints[name]
		_, back := coming[name]
		_, away := leaving[name] // Felix ends it then as well: the next node is to be preferred
		return !there || back || away || now.Sub(at) >= convergence
	})
	for name := range a.since {
		for _, p := range s.WorkloadEndpoints[name].IPNetworks {
			if p.IsSingleIP() {
				elevated = append(elevated, p)
			}
		}
	}
	slices.SortFunc(elevated, route.ComparePrefixes)
	return slices.Compact(elevated)
}
