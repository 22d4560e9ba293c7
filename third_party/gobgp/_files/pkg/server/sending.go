// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"errors"
	"slices"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// serialize returns m as it goes out. An UPDATE that is too long is sent in two. Where its attributes
// leave no room for a single prefix (RFC 4271 §9.2), cannot be serialized, or are of no use to the
// peer, it withdraws the prefix, of which the peer may have an earlier route. The caller holds the lock.
func (h *fsmHandler) serialize(m *bgp.BGPMessage) ([]byte, error) {
	b, err := m.Serialize(h.fsm.marshallingOptions)
	update, ok := m.Body.(*bgp.BGPUpdate)
	if ok && err == nil && !h.reachable(update) {
		err = errors.New("its next hop is of no use to the peer")
	}
	if err == nil || !ok {
		return b, err
	}
	if half := len(update.NLRI) / 2; half > 0 {
		attrs, nlri := update.PathAttributes, update.NLRI
		first, err := h.serialize(bgp.NewBGPUpdateMessage(update.WithdrawnRoutes, attrs, nlri[:half]))
		if err != nil {
			return nil, err
		}
		rest, err := h.serialize(bgp.NewBGPUpdateMessage(nil, attrs, nlri[half:]))
		return append(first, rest...), err
	}
	w := withdrawalFor(update)
	h.fsm.logger.Warn("a route cannot be sent, and is withdrawn at the peer", log.Fields{
		"Topic": "Peer", "Key": h.fsm.pConf.State.NeighborAddress, "Error": err, "Data": w})
	instead := bgp.NewBGPUpdateMessage(w.WithdrawnRoutes, w.PathAttributes, nil)
	return instead.Serialize(h.fsm.marshallingOptions)
}

// withdrawalFor returns the withdrawal of what u announces. Prefixes of IPv4 are withdrawn where every
// speaker looks for them.
func withdrawalFor(u *bgp.BGPUpdate) *bgp.BGPUpdate {
	w := bgp.TreatAsWithdraw(u)
	w.PathAttributes = slices.DeleteFunc(w.PathAttributes, func(a bgp.PathAttributeInterface) bool {
		unreach := a.(*bgp.PathAttributeMpUnreachNLRI)
		for _, p := range unreach.Value {
			if p, ok := p.(*bgp.IPAddrPrefix); ok {
				w.WithdrawnRoutes = append(w.WithdrawnRoutes, p)
			}
		}
		return unreach.AFI == bgp.AFI_IP && unreach.SAFI == bgp.SAFI_UNICAST
	})
	return w
}

// reachable reports whether u has a next hop that means something to the peer. A link-local address of
// another link does not (RFC 2545 §3), and FRR ends the session for it; nor does one of IPv6 for a prefix
// of IPv4, for which we do not have the capability (RFC 8950 §4).
func (h *fsmHandler) reachable(u *bgp.BGPUpdate) bool {
	for _, a := range u.PathAttributes {
		reach, ok := a.(*bgp.PathAttributeMpReachNLRI)
		if !ok || reach.Nexthop.To4() != nil {
			continue
		}
		elsewhere := !reach.Nexthop.Equal(h.fsm.peerInfo.LocalAddress)
		if reach.AFI == bgp.AFI_IP || elsewhere && reach.Nexthop.IsLinkLocalUnicast() {
			return false
		}
	}
	return true
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
