// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// withoutAS4 returns the attributes of an UPDATE without AS4_PATH and AS4_AGGREGATOR where they say
// nothing: a speaker of four-octet AS numbers does not send them (RFC 6793 §6), and one of two
// octets has its AGGREGATOR say whether they are the ones that its AS_PATH and AGGREGATOR came with
// (§4.2.3).
func (h *fsmHandler) withoutAS4(
	attributes []bgp.PathAttributeInterface,
) []bgp.PathAttributeInterface {
	h.fsm.lock.RLock()
	path, aggregator := h.fsm.twoByteAsTrans, false
	h.fsm.lock.RUnlock()
	for _, a := range attributes {
		if a, ok := a.(*bgp.PathAttributeAggregator); ok && path {
			aggregator = a.Value.AS == bgp.AS_TRANS
			path = aggregator
		}
	}
	return slices.DeleteFunc(attributes, func(a bgp.PathAttributeInterface) bool {
		switch a.GetType() {
		case bgp.BGP_ATTR_TYPE_AS4_PATH:
			return !path
		case bgp.BGP_ATTR_TYPE_AS4_AGGREGATOR:
			return !aggregator
		}
		return false
	})
}
