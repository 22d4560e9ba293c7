package gobgp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// handleEvent handles a session event of the patched GoBGP. It is called in GoBGP's goroutines and
// under its locks: it must neither call GoBGP nor wait.
func (s *Speaker) handleEvent(e server.SessionEvent) {
	ss, peer := s.sessions, peerID(e.Peer)
	switch e.Kind {
	case server.PeerUp:
		ss.cameUp(peer)
		s.logEvent(slog.LevelInfo, true, e)
	case server.PeerDown:
		ss.down(peer, e.Err)
		s.logEvent(slog.LevelInfo, true, e)
	case server.AttributesDiscarded, server.TreatedAsWithdraw:
		s.logEvent(slog.LevelWarn, !ss.revised(peer, e.Err, time.Now()), e)
	case server.RouteUnsendable:
		s.logEvent(slog.LevelWarn, !ss.unsendable(peer), e)
	case server.KeyRefused:
		if !errors.Is(e.Err, net.ErrClosed) { // listeners of before a restart stay in GoBGP's list
			ss.keyRefused(peer, e.Err)
		}
	case server.HoldTimerExpired:
		ss.holdTimer(peer)
	case server.NotificationSent:
		ss.ending(peer, sentBecause(e))
	case server.NotificationReceived:
		ss.ending(peer, "peer sent "+notification(e))
	case server.MessageRefused:
		ss.refused(peer, e.Err)
	case server.PrefixLimitReached:
		ss.limitReached(peer, time.Now())
	case server.PeerReconnected, server.PeerDoesNotRead:
		ss.ending(peer, string(e.Kind))
	case server.SessionPanicked:
		ss.panicked(peer, e.Err)
	case server.LocalAddressMismatched:
		ss.problem(peer, e.Err)
	case server.StrangerRefused:
		if !s.plans(e.Peer.Addr()) {
			s.logEvent(slog.LevelInfo, !ss.stranger(time.Now()), e)
		}
	}
}

// plans reports whether the plan has a peer at an address. GoBGP need not have it: its password may
// be missing, or its session is about to start anew.
func (s *Speaker) plans(address netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.view.peers, func(p bgp.Peer) bool { return p.Address == address })
}

// logEvent logs an event, at debug level unless it is important.
func (s *Speaker) logEvent(level slog.Level, important bool, e server.SessionEvent) {
	if !important {
		level = slog.LevelDebug
	}
	attrs := []any{"peer", peerID(e.Peer)}
	if e.Err != nil {
		attrs = append(attrs, "err", e.Err)
	}
	s.log.Log(context.Background(), level, "gobgp: "+string(e.Kind), attrs...)
}
