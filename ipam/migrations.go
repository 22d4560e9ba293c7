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
	migrations := slices.Sorted(maps.Keys(s.LiveMigrations))
	for name, w := range s.WorkloadEndpoints {
		if w.Node != self {
			continue
		}
		i := slices.IndexFunc(migrations, func(migration string) bool {
			return end(s.LiveMigrations[migration]).Is(w)
		})
		if i >= 0 {
			found[name] = fmt.Sprintf("LiveMigration(%s)", migrations[i])
		}
	}
	return found
}
