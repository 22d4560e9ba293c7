// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"github.com/osrg/gobgp/v3/internal/pkg/table"
)

// withoutEarlier adds to paths, for one that is not used, the withdrawal of the one that it replaces, if that is used.
func (peer *peer) withoutEarlier(paths []*table.Path, path *table.Path) []*table.Path {
	if peer.adjRibIn.Uses(path) {
		paths = append(paths, path.Clone(true))
	}
	return paths
}

// orWithdrawal returns what filterpath left of path; where that is nothing since path has the peer's AS, the withdrawal of old, if that was sent. Within a
// mesh both have it most of the time (bgp/gobgp, policy.hush), which must cost little for each peer.
func (s *BgpServer) orWithdrawal(peer *peer, path, old, left *table.Path) *table.Path {
	if left != nil || path == nil || path.IsWithdraw || old == nil || isASLoop(peer, old) || !isASLoop(peer, path) {
		return left
	}
	if sent := s.filterpath(peer, old, nil); sent == nil || sent.IsWithdraw {
		return nil
	}
	return old.Clone(true)
}
