// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

const (
	// crossingTime is how long after a session came up a second connection can be the other one of
	// two that both ends opened at once. A later one is the peer's restart.
	crossingTime = 2 * time.Second
	// endPatience is how long a second connection waits for the end of a session that is up. The
	// peer may have ended it already.
	endPatience = time.Second
)

var errCollision = &bgp.MessageError{
	TypeCode:    bgp.BGP_ERROR_CEASE,
	SubTypeCode: bgp.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION,
}

// adopt makes the candidate the session's connection, if there is one.
func (h *fsmHandler) adopt() bool {
	c := h.fsm.candidates.take(anyCandidate)
	return c != nil && h.use(c)
}

// use does so unless the peer is shut down. OPENSENT finds the OPEN in earlyOpen.
func (h *fsmHandler) use(c *candidate) bool {
	fsm := h.fsm
	fsm.lock.Lock()
	up := fsm.adminState == adminStateUp
	if up {
		fsm.conn, fsm.dialled, fsm.earlyOpen = c.conn, false, c.open
	}
	fsm.lock.Unlock()
	if !up {
		c.conn.Close()
	}
	return up
}

// awaitOpen sends OPEN and has the answer read, unless that was done.
func (h *fsmHandler) awaitOpen(ctx context.Context, wg *sync.WaitGroup) {
	fsm := h.fsm
	fsm.lock.Lock()
	m, earlyOpen := buildopen(fsm.gConf, fsm.pConf), fsm.earlyOpen
	fsm.earlyOpen = nil
	fsm.lock.Unlock()
	if earlyOpen != nil {
		wg.Done()
		h.msgCh.In() <- &fsmMsg{fsm: fsm, MsgType: fsmMsgBGPMessage, MsgData: earlyOpen}
		return
	}
	b, _ := m.Serialize()
	fsm.conn.Write(b)
	fsm.bgpMessageStateUpdate(m.Header.Type, false)
	go h.recvMessage(ctx, wg)
}

// yields resolves a collision before the session is up (RFC 4271 §6.8), and reports whether the
// candidate took the connection's place. Of two that the peer opened the later one stays.
func (h *fsmHandler) yields() bool {
	fsm := h.fsm
	fsm.lock.RLock()
	dialled, silent := fsm.dialled, fsm.state == bgp.BGP_FSM_OPENSENT
	fsm.lock.RUnlock()
	// Ours may come to nothing, so the peer's does not lose before ours has its OPEN.
	c := fsm.candidates.take(func(c *candidate) bool {
		return !(dialled && silent && fsm.precedes(c))
	})
	if c == nil {
		return false
	}
	if dialled && fsm.precedes(c) {
		fsm.closeConn(c.conn, errCollision)
		return false
	}
	old := h.conn
	if !h.use(c) {
		return false
	}
	fsm.closeConn(old, errCollision)
	return true
}

// precedes reports whether a connection that we opened stays, and not that of the peer. The higher
// BGP identifier decides, or the higher AS where they are the same (RFC 6286 §2.3).
func (fsm *fsm) precedes(c *candidate) bool {
	own := net.ParseIP(fsm.gConf.Config.RouterId).To4()
	if d := bytes.Compare(own, c.open.Body.(*bgp.BGPOpen).ID.To4()); d != 0 {
		return d > 0
	}
	return fsm.peerInfo.LocalAS > c.as
}

// restarted ends the session that is up if the candidate is the peer's next one (RFC 4724 §5), as
// if the connection had broken. ACTIVE takes the candidate.
func (h *fsmHandler) restarted() {
	fsm := h.fsm
	restarts := false
	c := fsm.candidates.take(func(c *candidate) bool {
		restarts = fsm.restartsBy(c)
		return !restarts && time.Since(c.accepted) >= endPatience
	})
	switch {
	case c != nil:
		fsm.closeConn(c.conn, errCollision)
	case !restarts:
		time.AfterFunc(endPatience, fsm.candidates.again)
	default:
		fsm.tell(PeerReconnected, nil)
		fsm.logger.Info("The peer opened a new connection",
			log.Fields{"Topic": "Peer", "Key": fsm.pConf.State.NeighborAddress})
		select {
		case h.stateReasonCh <- *newfsmStateReason(fsmReadFailed, nil, nil):
		default: // the session ends already
		}
	}
}

func (fsm *fsm) restartsBy(c *candidate) bool {
	fsm.lock.RLock()
	defer fsm.lock.RUnlock()
	return fsm.pConf.GracefulRestart.State.Enabled &&
		c.accepted.Sub(fsm.upSince) >= crossingTime &&
		fsm.pConf.State.PeerAs == c.as &&
		fsm.peerInfo.ID.Equal(c.open.Body.(*bgp.BGPOpen).ID)
}
