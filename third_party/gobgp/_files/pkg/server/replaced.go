// This file is vpp-route-agent's, not GoBGP's.

package server

import "github.com/osrg/gobgp/v3/internal/pkg/table"

// withoutEarlier adds to paths, for one that is not used, the withdrawal of the one that it
// replaces, if that is used.
func (peer *peer) withoutEarlier(paths []*table.Path, path *table.Path) []*table.Path {
	if peer.adjRibIn.Uses(path) {
		paths = append(paths, path.Clone(true))
	}
	return paths
}
