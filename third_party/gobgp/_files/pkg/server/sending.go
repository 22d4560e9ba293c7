// This file is vpp-route-agent's, not GoBGP's.

package server

import (
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
