package gobgp

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"vpp-route-agent/bgp"
)

// receivedHops are the next hops that peers have sent. What is rejected is in no set of best paths,
// so import notes them. One that no path has any more stays until no import rule of the peer asks
// for an interface, or the peer goes: policies do not see withdrawals.
type receivedHops struct {
	mu sync.Mutex
	of map[bgp.PeerID]map[netip.Addr]struct{}
}

// hopsPerPeer bounds what a peer can have the data plane look up; peers and nodes are looked up
// anyway.
const hopsPerPeer = 16384

func (h *receivedHops) add(peer bgp.PeerID, hop netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.of[peer]
	if all == nil {
		all = map[netip.Addr]struct{}{}
		if h.of == nil {
			h.of = map[bgp.PeerID]map[netip.Addr]struct{}{}
		}
		h.of[peer] = all
	}
	if hop.IsValid() && len(all) < hopsPerPeer {
		all[hop] = struct{}{}
	}
}

// keep forgets what other peers have sent.
func (h *receivedHops) keep(peers map[bgp.PeerID]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for peer := range h.of {
		if !peers[peer] {
			delete(h.of, peer)
		}
	}
}

// NextHops returns the next hops of what was received, accepted or not, from peers whose import
// filters ask for interfaces; sorted, and at most 16384 of each peer.
func (s *Speaker) NextHops() []netip.Addr {
	s.received.mu.Lock()
	defer s.received.mu.Unlock()
	all := map[netip.Addr]struct{}{}
	for _, hops := range s.received.of {
		maps.Copy(all, hops)
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}
