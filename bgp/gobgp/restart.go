package gobgp

import (
	"context"
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// restart is the time after a start with a FIB that kept forwarding. Until a peer has been told so by the R and F bits of its first
// OPEN (RFC 4724 §4.1), it holds on to our routes; from an OPEN without them it concludes that they are dead, and BIRD flushes them.
//
// GoBGP has these bits ready for each peer that was added as restarting, until "all" End-of-RIBs have come; peers that are not up do
// not count there (upstream issue 3431), so the first one that is complete takes the bits from everybody who comes a moment later.
// They cannot be given back: only AddPeer sets them, and the CEASE of a delete would meet peers in the middle of connecting. So the
// End-of-RIB of a holdout is kept outstanding until every peer has been up once.
//
// As long as its bits are not taken, GoBGP sends a peer no UPDATEs; the deferral bounds that for each peer by itself, whatever others do.
type restart struct {
	waiting  map[netip.Addr]bool // peers of the first plan that were not up yet
	until    time.Time           // when no peer holds on to our routes any more
	holdout  *holdout            // nil: it could not be had
	released bool                // its End-of-RIB was sent
	deferral time.Duration       // of the peers that it concerns
}

// The deferral is how long a peer's UPDATEs wait for others after its session came up (the Selection_Deferral_Timer of RFC 4724 §4.1).
const (
	// ownDeferral is where nobody gets anything but what we originate: that is complete before the first peer is added. It is the
	// shortest that GoBGP knows.
	ownDeferral = time.Second
	// learnedDeferral is where eBGP peers are or we reflect, so that learned routes are passed on: until all of them are learned, our End-of-RIB would
	// make peers drop routes that we still forward.
	learnedDeferral = 30 * time.Second
)

// beginRestart comes before the peers are added. Without a holdout, which needs a listener, the peers that come up first are told all
// the same.
func (s *Speaker) beginRestart(ctx context.Context, p bgp.Plan) {
	r := &restart{waiting: make(map[netip.Addr]bool, len(p.Peers)), deferral: ownDeferral}
	for _, peer := range p.Peers {
		r.waiting[peer.Address] = true
		if peer.External() || p.Policies.Reflects {
			r.deferral = learnedDeferral
		}
		// A helper counts from when it noticed that we were gone.
		if until := time.Now().Add(peer.RestartTime); until.After(r.until) {
			r.until = until
		}
	}
	s.applied.restart = r
	if len(p.Peers) < 2 {
		return // nobody's End-of-RIB could come too early for another
	}
	var err error
	if r.holdout, err = startHoldout(ctx, s.applied.server, p); err != nil {
		s.log.Warn("peers that come up late will not be told that this is a restart, and may drop our routes for a moment", "err", err)
	}
}

// restartsTo reports whether the first OPEN to a peer has to tell of our restart.
func (r *restart) restartsTo(peer netip.Addr) bool { return r != nil && r.waiting[peer] }

// watchRestart ends the restart when it is over. It comes each second.
func (s *Speaker) watchRestart(ctx context.Context, now time.Time) {
	r := s.applied.restart
	if r == nil {
		return
	}
	r.note(s.applied.wanted, s.sessions.snapshot())
	switch {
	case now.After(r.until), r.released:
		s.endRestart(ctx)
	case len(r.waiting) > 0:
	case r.holdout == nil || r.deferral == ownDeferral:
		s.endRestart(ctx)
	case s.allFinished(now):
		// Nobody is left who could miss the bits, and peers need not wait for their deferral to end.
		if err := r.holdout.release(); err != nil {
			s.log.Debug("releasing the deferral", "err", err)
		}
		r.released = true
	}
}

// note takes peers that have been up, or are not wanted any more, out of waiting.
func (r *restart) note(wanted []bgp.Peer, sessions map[netip.Addr]session) {
	still := make(map[netip.Addr]bool, len(r.waiting))
	for _, p := range wanted {
		if f := sessions[p.Address]; r.waiting[p.Address] && !f.up && f.since.IsZero() {
			still[p.Address] = true
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

func (s *Speaker) endRestart(ctx context.Context) {
	if h := s.applied.restart.holdout; h != nil {
		err := s.applied.server.DeletePeer(ctx, &api.DeletePeerRequest{Address: h.addr.String()})
		if err != nil {
			s.log.Warn("removing the holdout", "peer", h.addr, "err", err)
		}
	}
	s.abandonRestart()
}

// abandonRestart forgets about the restart when GoBGP has gone, or is left to itself.
func (s *Speaker) abandonRestart() {
	if r := s.applied.restart; r != nil && r.holdout != nil {
		r.holdout.close()
	}
	s.applied.restart = nil
}
