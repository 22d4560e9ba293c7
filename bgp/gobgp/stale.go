package gobgp

import (
	"context"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// staleTime is how long a peer that came back may take to its End-of-RIB: the upper bound for stale
// paths that RFC 4724 §4.2 allows. A peer that restarted itself holds its paths back until all of
// its peers are complete, for up to 360 s in GoBGP and FRR and 240 s in BIRD by default,
// and must not be cut off in that.
const staleTime = 7 * time.Minute

// longestStale is for a peer whose sessions break again and again before its End-of-RIB, each of
// which would have it kept anew.
const longestStale = 2 * staleTime

// DefaultLimitRetry leaves time to inform somebody, and brings a peer that was repaired back
// without help.
const DefaultLimitRetry = 5 * time.Minute

// restartLimited tries peers again that were over their prefix limit. GoBGP would leave them down
// for ever.
func (s *Speaker) restartLimited(ctx context.Context, now time.Time) {
	for _, peer := range s.sessions.limitedUntil(now.Add(-s.cfg.LimitRetry)) {
		s.restartPeer(ctx, peer, "the peer was over its prefix limit and is tried again")
	}
}

// restartExpired drops the paths of peers that were silent for the hold time. GoBGP would keep them
// for the restart time on top, as for a peer whose connection broke, but who is silent for so long
// is not restarting.
func (s *Speaker) restartExpired(ctx context.Context) {
	for _, peer := range s.sessions.takeExpired() {
		s.restartPeer(ctx, peer, "hold timer expired, dropping the peer's routes")
	}
}

// restartIncomplete drops what GoBGP keeps of an earlier session of a peer that is back and sends
// no End-of-RIB: it would stay for ever (upstream issue 2430). GoBGP itself drops what it keeps of
// a peer that came back without graceful restart. It comes each second, and asks GoBGP only about
// peers that came back, once then and once when their time is up.
func (s *Speaker) restartIncomplete(ctx context.Context, now time.Time) {
	for peer, back := range s.sessions.returned(now) {
		p, err := s.listPeer(ctx, peer)
		overdue := back.overdue()
		switch {
		case err != nil || p.GetState().GetSessionState() != api.PeerState_ESTABLISHED:
			// It is going down, or looked at again.
		case !p.GetGracefulRestart().GetPeerRestarting(): // nothing is kept
			s.sessions.nothingKept(peer, back.since)
		case !now.Before(overdue):
			s.restartPeer(ctx, peer,
				"the peer came back and sent no End-of-RIB, dropping its old routes")
		default:
			s.sessions.lookAgain(peer, back.since, overdue)
		}
	}
}

// overdue is when the peer, which came back, should have sent its End-of-RIB.
func (p session) overdue() time.Time {
	overdue := p.since.Add(staleTime)
	if last := p.kept.Add(longestStale); last.Before(overdue) {
		return last
	}
	return overdue
}

func (s *Speaker) listPeer(ctx context.Context, peer bgp.PeerID) (found *api.Peer, err error) {
	err = s.applied.server.ListPeer(ctx, &api.ListPeerRequest{Address: peer.String()},
		func(p *api.Peer) { found = p })
	return found, err
}

// restartPeer takes a peer out and in again, so that its paths leave now.
func (s *Speaker) restartPeer(ctx context.Context, peer bgp.PeerID, why string) {
	c, ok := s.applied.peers[peer]
	if !ok {
		return
	}
	s.log.Info(why, "peer", peer)
	err := s.removePeer(ctx, c)
	if err == nil {
		err = s.setPeer(ctx, c)
	}
	if err != nil {
		s.log.Warn("restarting a peer", "peer", peer, "err", err) // retryPeers goes on
	}
}
