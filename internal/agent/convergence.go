package agent

import (
	"slices"
	"time"

	"vpp-route-agent/bgp"
)

// convergence says whether peers may still announce more routes, for as long as a peer has not
// finished, and no longer than the limit. Routes from etcd stay in place meanwhile.
type convergence struct {
	unfinished []bgp.PeerID
	since      time.Time // when unfinished last changed
	converging bool
}

// step reports whether converging has changed.
func (c *convergence) step(now time.Time, d deferral) (changed bool) {
	unfinished := missingPeers(d.peers, d.states,
		func(s bgp.PeerState) bool { return s.Finished(now) })
	if !slices.Equal(unfinished, c.unfinished) {
		c.unfinished, c.since = unfinished, now
	}
	converging := len(unfinished) > 0 && now.Sub(c.since) < d.limit
	changed = converging != c.converging
	c.converging = converging
	return changed
}
