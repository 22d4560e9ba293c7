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

// end ends Established with the NOTIFICATION of m. It is sent before everything that is queued,
// which no longer matters. The connection is closed after lastWords, even if the write has not
// returned.
func (h *fsmHandler) end(m *fsmOutgoingMsg) {
	h.stayIdle(m)
	if before := h.ending.Load(); before == nil || isHoldTimer(before) {
		h.ending.Store(m.Notification)
	}
	h.outgoing.In() <- m
	time.AfterFunc(lastWords, func() { h.conn.Close() })
}

// stayIdle keeps the peer down after m, if m says so, until it is restarted.
func (h *fsmHandler) stayIdle(m *fsmOutgoingMsg) {
	if m.StayIdle {
		h.changeadminState(adminStatePfxCt)
	}
}

// endedBefore reports whether the session had ended when the server decided on a NOTIFICATION.
func (h *fsmHandler) endedBefore() bool {
	select {
	case m := <-h.last:
		h.stayIdle(m)
		return true
	default:
		return false
	}
}

// lastWords is how long a session that ends waits for what the peer said before, if it cannot be
// written to, and for what is said to the peer.
const lastWords = time.Second

// endedBy is what ends the session: a NOTIFICATION, if there is one. The peer closes the connection
// when it got ours, and after it sent its own. So reading or writing can fail before those who sent
// or read it have said so. Whether paths are kept for a graceful restart depends on it (RFC 4724
// §4, RFC 8538 §4): after our hold timer the peer may still say that they are not to be.
func (h *fsmHandler) endedBy(ctx context.Context, reason fsmStateReason) fsmStateReason {
	theirs := reason.Type == fsmNotificationRecv || reason.Type == fsmHardReset
	select {
	case m := <-h.last: // decided while the session was ending
		h.end(m)
	default:
	}
	if m := h.ending.Load(); m != nil && !(theirs && isHoldTimer(m)) {
		return *newfsmStateReason(fsmNotificationSent, m, nil)
	}
	if reason.Type == fsmWriteFailed {
		select {
		case read := <-h.stateReasonCh:
			if read.Type != fsmReadFailed {
				return read
			}
		case m := <-h.last:
			h.end(m)
			return *newfsmStateReason(fsmNotificationSent, m.Notification, nil)
		case <-ctx.Done(): // who takes the peer out waits
		case <-time.After(lastWords):
		}
	}
	return reason
}

func isHoldTimer(m *bgp.BGPMessage) bool {
	body, ok := m.Body.(*bgp.BGPNotification)
	return ok && body.ErrorCode == bgp.BGP_ERROR_HOLD_TIMER_EXPIRED
}
