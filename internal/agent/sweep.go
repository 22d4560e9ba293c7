package agent

import (
	"fmt"
	"strings"
	"time"

	"vpp-route-agent/bgp"
)

// sweepVerdict says whether routes left by an earlier run may be deleted, and else for what they wait. Before that moment a missing
// announcement is ignorance, not knowledge (RFC 4724 §4.1): the deferral ends when every peer of the plan has told all it knows, or
// after cfg.Deferral, counted from when the peers were first configured. An unconfigured speaker never gets that far.
func sweepVerdict(now, configured time.Time, deferral time.Duration, peers []bgp.Peer, states []bgp.PeerState, unusable int) (ok bool, waiting string) {
	if configured.IsZero() {
		return false, "waiting for Calico's data"
	}
	if now.Sub(configured) >= deferral {
		return true, ""
	}
	left := (deferral - now.Sub(configured)).Round(time.Second)
	if unusable > 0 {
		return false, fmt.Sprintf("waiting %s because %d resources could not be used; they may stand for peers or routes", left, unusable)
	}
	finished := map[bgp.PeerID]bool{}
	for _, s := range states {
		finished[s.ID] = s.HasTold(now)
	}
	var names []string
	for _, p := range peers {
		if !finished[p.ID()] {
			names = append(names, p.ID().String())
		}
	}
	if len(names) == 0 {
		return true, ""
	}
	return false, fmt.Sprintf("waiting %s at most for %s", left, strings.Join(names, ", "))
}
