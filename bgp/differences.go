package bgp

import (
	"strconv"
	"strings"

	"vpp-route-agent/internal/calico"
)

// Difference is a value of a session that is another one where stock confd (Calico ≥ 3.32) writes
// BIRD's configuration.
type Difference struct {
	Field       string // "remoteAS" or "dial"
	Ours, Stock string
	Why         string
}

// Differences returns what of a session of node self, as Peers has it, is not as stock confd has
// it.
func Differences(self string, s *calico.Snapshot, p Peer) []Difference {
	var all []Difference
	if as := stockRemoteAS(self, s, p); as != p.RemoteAS {
		all = append(all, Difference{
			Field: "remoteAS", Ours: formatAS(p.RemoteAS), Stock: formatAS(as),
			Why: "a mesh peer without an AS of its own has the cluster's; confd takes " +
				"the local node's",
		})
	}
	if p.Passive && !stockWaits(s, p) {
		all = append(all, Difference{
			Field: "dial", Ours: p.Dial(), Stock: Peer{}.Dial(),
			Why: "of two Calico nodes one dials; BIRD does so in the mesh and for a global " +
				"peerIP, else from both ends",
		})
	}
	return all
}

// stockWaits reports whether BIRD waits where we do. confd says "passive on" for workloads, and by
// the comparison that we use for all Calico nodes for the mesh and for global peers whose address
// it was given: of those that a selector finds it does not ask whether they are Calico nodes
// (nodeAsBGPPeers).
func stockWaits(s *calico.Snapshot, p Peer) bool {
	switch p.Scope {
	case ScopeNode:
		return false
	case ScopeGlobal:
		name := strings.TrimSuffix(strings.TrimPrefix(p.Source, "BGPPeer("), ")")
		return s.BGPPeers[name].PeerSelector == ""
	}
	return true
}

// stockRemoteAS is nodeAS as confd since v3.32 has it for the mesh.
func stockRemoteAS(self string, s *calico.Snapshot, p Peer) uint32 {
	own := s.Nodes[self].ASNumber
	if p.Scope == ScopeMesh && own != 0 && s.Nodes[p.CalicoNode].ASNumber == 0 {
		return own
	}
	return p.RemoteAS
}

// Dial says who opens the connection: "active" is this node (the peer may as well, if it is not one
// of ours), "passive" the peer alone.
func (p Peer) Dial() string {
	if p.Passive {
		return "passive"
	}
	return "active"
}

func formatAS(as uint32) string { return strconv.FormatUint(uint64(as), 10) }
