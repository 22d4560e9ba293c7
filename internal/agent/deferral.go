package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"vpp-route-agent/bgp"
)

// deferral is the wait for what peers have yet to send. Before it is over, a missing announcement
// does not mean that there is no route (RFC 4724 §4.1).
type deferral struct {
	configured time.Time     // when the speaker first took the peers; zero: not yet
	limit      time.Duration // of the wait, counted from configured
	peers      []bgp.Peer
	states     []bgp.PeerState
	unusable   int    // resources that could not be used and may stand for peers or routes
	planned    bool   // Calico's data are known, and the speaker is next
	node       string // what this node's object lacks, if the rest of Calico's data are known
}

// waiting says what is missing. It is over ("") when every peer has sent all it knows, or the limit
// has passed. It does not begin before peers are configured.
func (d deferral) waiting(now time.Time) string {
	switch {
	case d.configured.IsZero() && d.planned:
		return "waiting for BGP to start"
	case d.configured.IsZero():
		return cmp.Or(d.node, "waiting for Calico's data")
	}
	left := d.limit - now.Sub(d.configured)
	if left <= 0 {
		return ""
	}
	left = left.Round(time.Second)
	if d.unusable > 0 {
		return fmt.Sprintf("waiting %s because %d resources could not be used; "+
			"they may stand for peers or routes", left, d.unusable)
	}
	missing := d.missing(now)
	if missing == "" {
		return ""
	}
	return fmt.Sprintf("waiting %s at most for %s", left, missing)
}

// missing names the peers that have not sent all they know.
func (d deferral) missing(now time.Time) string {
	missing := missingPeers(d.peers, d.states, func(s bgp.PeerState) bool { return s.SentAll(now) })
	names := make([]string, len(missing))
	for i, id := range missing {
		names[i] = id.String()
	}
	return strings.Join(names, ", ")
}

// missingPeers returns the peers that done does not hold for, or that the speaker does not know.
func missingPeers(peers []bgp.Peer, states []bgp.PeerState,
	done func(bgp.PeerState) bool) (missing []bgp.PeerID) {
	finished := map[bgp.PeerID]bool{}
	for _, s := range states {
		finished[s.ID] = done(s)
	}
	for _, p := range peers {
		if !finished[p.ID()] {
			missing = append(missing, p.ID())
		}
	}
	return missing
}
