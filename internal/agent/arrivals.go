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

// arrivals are the workloads that came to this node by live migration: targets of a migration that
// is in Calico's data no more. Their addresses are elevated for the convergence time: every node
// prefers them to the announcements of the node that they left, which may end later.
// A new process knows of no earlier arrivals.
type arrivals struct {
	coming map[string]string    // targets in the previous snapshot, by "namespace/name"
	since  map[string]time.Time // when workloads arrived
}

// defaultConvergence is Felix' (felix/config, LiveMigrationRouteConvergenceTime).
const defaultConvergence = 30 * time.Second

// step takes the newest snapshot and returns the host routes that are elevated now, sorted.
func (a *arrivals) step(now time.Time, self string, s *calico.Snapshot) (elevated []netip.Prefix) {
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
