package agent

import (
	"maps"
	"slices"
	"time"

	"vpp-route-agent/bgp"
)

// handOver lets a new process take over when the speaker must start anew, once the deferral is
// over. A peer must not see another restart in the middle of one: it would drop what it keeps of us
// (RFC 4724 §4.2, a session that fails again before its End-of-RIB).
type handOver struct {
	// upBefore are the peers that had a session when the wait began; nil: idle. Others have no
	// session to lose, and the new process is as likely to establish one.
	upBefore map[bgp.PeerID]bool
}

// step reports whether a new process takes over now. It sweeps what this one has not swept.
func (h *handOver) step(now time.Time, needed bool, d deferral) (takeOver bool) {
	if !needed {
		h.upBefore = nil
		return false
	}
	up := map[bgp.PeerID]bool{}
	for _, s := range d.states {
		up[s.ID] = s.Established
	}
	if h.upBefore == nil {
		h.upBefore = maps.Clone(up)
	}
	d.peers = slices.DeleteFunc(slices.Clone(d.peers), func(p bgp.Peer) bool {
		return !h.upBefore[p.ID()] && !up[p.ID()]
	})
	return d.waiting(now) == ""
}
