package ipam

import (
	"fmt"
	"maps"
	"slices"

	"vpp-route-agent/internal/calico"
)

// Arriving returns the workload endpoints of node self that are the target of a live migration, by
// "namespace/name", with the migration. Their addresses stay at the source until the LiveMigration
// is deleted.
func Arriving(self string, s *calico.Snapshot) map[string]string {
	return ends(self, s, func(m calico.LiveMigration) calico.MigrationEnd { return m.Target })
}

// Leaving returns the workload endpoints of node self that are the source of a live migration.
func Leaving(self string, s *calico.Snapshot) map[string]string {
	return ends(self, s, func(m calico.LiveMigration) calico.MigrationEnd { return m.Source })
}

func ends(self string, s *calico.Snapshot,
	end func(calico.LiveMigration) calico.MigrationEnd) map[string]string {
	found := map[string]string{}
	for _, migration := range slices.Sorted(maps.Keys(s.LiveMigrations)) {
		for name, w := range s.WorkloadEndpoints {
			if _, known := found[name]; !known && w.Node == self &&
				end(s.LiveMigrations[migration]).Is(w) {
				found[name] = fmt.Sprintf("LiveMigration(%s)", migration)
			}
		}
	}
	return found
}
