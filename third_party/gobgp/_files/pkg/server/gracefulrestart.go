// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"github.com/osrg/gobgp/v3/pkg/config/oc"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// endsRestart reports whether a peer that restarts is not waited for after this change of state to
// IDLE: its time is up, or it is taken out by hand. GoBGP gives up at every one. Its timer goes on
// in all states but ESTABLISHED.
func (e *fsmMsg) endsRestart() bool {
	return e.StateReason.Type == fsmRestartTimerExpired || e.StateReason.Type == fsmAdminDown
}

// cameBack reports whether the session is not the first one with this peer: the one that is up, or
// else the one that is to come. It is called with the lock of the peer's fsm.
func cameBack(conf *oc.Neighbor) bool {
	if conf.State.SessionState == oc.SESSION_STATE_ESTABLISHED {
		return conf.State.EstablishedCount > 1
	}
	return conf.State.EstablishedCount > 0
}

// EndRestart ends our own restart (RFC 4724 §4.1) towards these peers: UPDATEs and End-of-RIB that
// wait for the Selection_Deferral_Timer are sent now, and later OPENs do not have the R bit. Names
// without a peer are ignored.
func (s *BgpServer) EndRestart(peers []string) error {
	return s.mgmtOperation(func() error {
		for _, name := range peers {
			peer, ok := s.neighborMap[name]
			if !ok {
				continue
			}
			if err := s.softResetOut(name, 0, true); err != nil {
				return err
			}
			peer.fsm.lock.Lock()
			peer.fsm.pConf.GracefulRestart.State.LocalRestarting = false
			peer.fsm.lock.Unlock()
		}
		return nil
	}, true)
}

// dropNotForwarded drops what is kept of a peer whose session is up again: of each family that its
// capability does not list, or that it did not keep forwarding (F bit) when it restarted (R bit).
// Where that is all, the restart is over, and not only at End-of-RIB.
func (s *BgpServer) dropNotForwarded(peer *peer) {
	peer.fsm.lock.RLock()
	restarting := peer.fsm.pConf.GracefulRestart.State.PeerRestarting
	var forwarded []bgp.RouteFamily
	if caps := peer.fsm.capMap[bgp.BGP_CAP_GRACEFUL_RESTART]; len(caps) > 0 {
		c := caps[len(caps)-1].(*bgp.CapGracefulRestart)
		for _, t := range c.Tuples {
			if t.Flags&0x80 != 0 || c.Flags&0x08 == 0 {
				forwarded = append(forwarded, bgp.AfiSafiToRouteFamily(t.AFI, t.SAFI))
			}
		}
	}
	peer.fsm.lock.RUnlock()
	if !restarting {
		return
	}
	kept, gone := classifyFamilies(peer.configuredRFlist(), forwarded)
	s.propagateUpdate(peer, peer.adjRibIn.DropStale(gone))
	if len(kept) == 0 {
		peer.stopPeerRestarting()
		s.notifyNothingStale(peer)
	}
}

// forgetRestart clears what an earlier OPEN of the peer had of graceful restart. It is called with
// the lock of the peer's fsm.
func forgetRestart(conf *oc.Neighbor) {
	s := &conf.GracefulRestart.State
	s.Enabled, s.NotificationEnabled, s.LongLivedEnabled = false, false, false
	for i := range conf.AfiSafis {
		a := &conf.AfiSafis[i]
		a.MpGracefulRestart.State.Received = false
		longLived := &a.LongLivedGracefulRestart.State
		longLived.Enabled, longLived.Received = false, false
	}
}

// withNegotiated copies what the session's OPENs negotiated for each family to the new
// configuration of the same families.
func withNegotiated(families, before []oc.AfiSafi) []oc.AfiSafi {
	for i := range families {
		for _, b := range before {
			if b.State.Family == families[i].State.Family {
				families[i].MpGracefulRestart.State = b.MpGracefulRestart.State
				families[i].LongLivedGracefulRestart.State = b.LongLivedGracefulRestart.State
			}
		}
	}
	return families
}
