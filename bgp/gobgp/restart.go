package gobgp

import (
	"iter"
	"maps"
	"time"

	"vpp-route-agent/bgp"
)

// restart is the time after a start with a FIB that kept forwarding. A peer keeps our routes if its
// first OPEN from us has the R and F bits (RFC 4724 §4.1). GoBGP sends them to each peer until that
// peer was Established once, and no UPDATEs before its deferral expires. EndRestart ends both
// early.
type restart struct {
	waiting  map[bgp.PeerID]bool // peers of the first plan that were not up yet
	until    time.Time           // when no peer holds on to our routes any more
	deferral time.Duration       // of the peers that it concerns
}

// The deferral is how long a peer's UPDATEs wait for others after its session came up (the
// Selection_Deferral_Timer of RFC 4724 §4.1).
const (
	// ownDeferral is for a node that announces only what it originates: that is complete before the
	// first peer is added. It is the shortest that GoBGP knows.
	ownDeferral = time.Second
	// learnedDeferral is where eBGP peers are or we reflect, so that learned routes are passed on:
	// until all of them are learned, our End-of-RIB would make peers drop routes that we still
	// forward.
	learnedDeferral = 30 * time.Second
)

// beginRestart comes before the peers are added.
func (s *Speaker) beginRestart(p bgp.Plan) {
	r := &restart{waiting: make(map[bgp.PeerID]bool, len(p.Peers)), deferral: ownDeferral}
	for _, peer := range p.Peers {
		if peer.RestartTime == 0 {
			continue // our routes went with the session
		}
		r.waiting[peer.ID()] = true
		if peer.External() || p.Policies.Reflects {
			r.deferral = learnedDeferral
		}
		// A helper counts from when it noticed that we were gone.
		if until := time.Now().Add(peer.RestartTime); until.After(r.until) {
			r.until = until
		}
	}
	s.applied.restart = r
}

// restartsTo reports whether the first OPEN to a peer has the R bit.
func (r *restart) restartsTo(peer bgp.PeerID) bool { return r != nil && r.waiting[peer] }

// watchRestart ends the restart when it is over. It comes when a session or an End-of-RIB does, and
// each second.
func (s *Speaker) watchRestart(now time.Time) {
	r := s.applied.restart
	if r == nil {
		return
	}
	r.note(s.applied.wanted, s.sessions.snapshot())
	switch {
	case now.After(r.until): // peers that came in time keep their deferral
		s.endRestart(maps.Keys(r.waiting))
	case len(r.waiting) == 0 && (r.deferral == ownDeferral || s.allFinished(now)):
		s.endRestart(maps.Keys(s.applied.peers))
	}
}

// note takes peers that have been up, or are not wanted any more, out of waiting.
func (r *restart) note(wanted []bgp.Peer, sessions map[bgp.PeerID]session) {
	still := make(map[bgp.PeerID]bool, len(r.waiting))
	for _, p := range wanted {
		if f := sessions[p.ID()]; r.waiting[p.ID()] && !f.up && f.since.IsZero() {
			still[p.ID()] = true
		}
	}
	r.waiting = still
}

func (s *Speaker) allFinished(now time.Time) bool {
	for _, p := range s.Peers() {
		if !p.Finished(now) {
			return false
		}
	}
	return true
}

func (s *Speaker) endRestart(peers iter.Seq[bgp.PeerID]) {
	var names []string
	for peer := range peers {
		names = append(names, peer.String())
	}
	if err := s.applied.server.EndRestart(names); err != nil {
		s.log.Warn("ending the restart", "err", err)
	}
	s.sessions.stir()
	s.applied.restart = nil
}
