// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// serialize returns m as it goes out. An UPDATE that is too long is sent in two. Where its attributes
// leave no room for a single prefix (RFC 4271 §9.2), or cannot be serialized, it withdraws the prefix, of
// which the peer may have an earlier route. The caller holds the lock.
func (h *fsmHandler) serialize(m *bgp.BGPMessage) ([]byte, error) {
	b, err := m.Serialize(h.fsm.marshallingOptions)
	update, ok := m.Body.(*bgp.BGPUpdate)
	if err == nil || !ok {
		return b, err
	}
	if half := len(update.NLRI) / 2; half > 0 {
		first, err := h.serialize(bgp.NewBGPUpdateMessage(update.WithdrawnRoutes, update.PathAttributes, update.NLRI[:half]))
		if err != nil {
			return nil, err
		}
		rest, err := h.serialize(bgp.NewBGPUpdateMessage(nil, update.PathAttributes, update.NLRI[half:]))
		return append(first, rest...), err
	}
	withdrawal := bgp.TreatAsWithdraw(update)
	h.fsm.logger.Warn("a route cannot be sent, and is withdrawn at the peer",
		log.Fields{"Topic": "Peer", "Key": h.fsm.pConf.State.NeighborAddress, "Error": err, "Data": withdrawal})
	return (&bgp.BGPMessage{Header: m.Header, Body: withdrawal}).Serialize(h.fsm.marshallingOptions)
}

// endWherePanicked recovers a panic of the goroutine that packs, serializes and sends. What the peer has
// of us is not known then, so its session ends.
func (h *fsmHandler) endWherePanicked() {
	v := recover()
	if v == nil {
		return
	}
	h.fsm.logger.Error("sending panicked", log.Fields{
		"Topic": "Peer", "Key": h.fsm.pConf.State.NeighborAddress, "Error": bgp.DescribePanic(v)})
	m := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
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
