// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// endWherePanicked recovers a panic of the goroutine that packs, serializes and sends. What the
// peer has of us is not known then, so its session ends.
func (h *fsmHandler) endWherePanicked() {
	v := recover()
	if v == nil {
		return
	}
	what := bgp.DescribePanic(v)
	h.fsm.tell(SessionPanicked, fmt.Errorf("while sending: %s", what))
	h.fsm.logger.Error("sending panicked", log.Fields{
		"Topic": "Peer", "Key": h.fsm.pConf.State.NeighborAddress, "Error": what})
	m := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
	h.ending.Store(m)
	if b, err := m.Serialize(); err == nil {
		h.conn.SetWriteDeadline(time.Now().Add(time.Second))
		h.conn.Write(b)
	}
	select {
	case h.stateReasonCh <- *newfsmStateReason(fsmNotificationSent, m, nil):
	default: // it ends already
	}
	h.conn.Close()
}

// end ends the session if it is up. With stayIdle the peer stays down until it is restarted.
func (peer *peer) end(m *bgp.BGPMessage, stayIdle bool) {
	if !peer.up() {
		return
	}
	if stayIdle {
		peer.fsm.h.changeadminState(adminStatePfxCt)
	}
	peer.fsm.h.end(m)
}

// up reports whether the session is up, as far as the server knows.
func (peer *peer) up() bool {
	peer.fsm.lock.RLock()
	defer peer.fsm.lock.RUnlock()
	return peer.fsm.state == bgp.BGP_FSM_ESTABLISHED
}

// end ends Established with a NOTIFICATION, which is sent before everything that is queued. The
// connection is closed after lastWords, even if the write has not returned. The server calls it,
// too: perhaps before the session has taken the connection, or after it has ended.
func (h *fsmHandler) end(m *bgp.BGPMessage) {
	if isHoldTimer(m) {
		h.ending.CompareAndSwap(nil, m)
	} else {
		h.ending.Store(m)
	}
	h.outgoing.In() <- &fsmOutgoingMsg{Notification: m}
	h.fsm.lock.RLock()
	conn := h.fsm.conn
	h.fsm.lock.RUnlock()
	time.AfterFunc(lastWords, func() { conn.Close() })
}

// endedByUs reports whether we have ended the session, and not for its hold timer.
func (h *fsmHandler) endedByUs() bool {
	m := h.ending.Load()
	return m != nil && !isHoldTimer(m)
}

// lastWords is how long a session that ends waits for what the peer said before, if it cannot be
// written to, and for what is said to the peer.
const lastWords = time.Second

// endedBy is what ends the session: a NOTIFICATION, if there is one. The peer closes the connection
// when it got ours, and after it sent its own. So reading or writing can fail before those who sent
// or read it have said so. Whether paths are kept for a graceful restart depends on it (RFC 4724
// §4, RFC 8538 §4): after our hold timer the peer may still say that they are not to be.
func (h *fsmHandler) endedBy(ctx context.Context, reason fsmStateReason) fsmStateReason {
	if reason.Type == fsmWriteFailed && !h.endedByUs() {
		select {
		case read := <-h.stateReasonCh:
			if read.Type != fsmReadFailed {
				reason = read
			}
		case <-ctx.Done(): // who takes the peer out waits
		case <-time.After(lastWords):
		}
	}
	theirs := reason.Type == fsmNotificationRecv || reason.Type == fsmHardReset
	if m := h.ending.Load(); m != nil && !(theirs && isHoldTimer(m)) {
		return *newfsmStateReason(fsmNotificationSent, m, nil)
	}
	return reason
}

func isHoldTimer(m *bgp.BGPMessage) bool {
	body, ok := m.Body.(*bgp.BGPNotification)
	return ok && body.ErrorCode == bgp.BGP_ERROR_HOLD_TIMER_EXPIRED
}
