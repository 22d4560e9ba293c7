// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// TappedSession is what is needed to read what a peer sends while its session is up.
type TappedSession struct {
	PeerAddress, LocalAddress netip.Addr
	PeerAS, LocalAS           uint32
	FourOctetAS               bool // AS numbers in paths have four bytes
	// PathIDs are the families whose prefixes the peer sends with a path identifier (RFC 7911);
	// Families are all of the session.
	PathIDs, Families []bgp.RouteFamily
}

// Tap is told what a peer sends, in the goroutine of its session. It must not wait, nor call the
// server.
type Tap interface {
	// Message is called with each message but KEEPALIVE as it was received, before anything is made
	// of it, in two parts, which are neither kept nor changed.
	Message(at time.Time, header, body []byte)
	// End is called when the session is down.
	End(at time.Time)
}

// TapSessions has begin called when a session came up, before its first message. TapSessions is
// called before Serve.
func (s *BgpServer) TapSessions(begin func(TappedSession) Tap) { s.beginTap = begin }

// tapped begins the tap of a session that has come up, and returns what ends it.
func (h *fsmHandler) tapped() (end func()) {
	fsm := h.fsm
	if fsm.beginTap == nil { // also where a peer group made the peer
		return func() {}
	}
	fsm.lock.RLock()
	s := TappedSession{
		PeerAddress: plainAddress(fsm.peerInfo.Address), PeerAS: fsm.peerInfo.AS,
		LocalAddress: plainAddress(fsm.peerInfo.LocalAddress), LocalAS: fsm.peerInfo.LocalAS,
		FourOctetAS: !fsm.twoByteAsTrans,
	}
	for family, mode := range fsm.rfMap {
		s.Families = append(s.Families, family)
		if mode&bgp.BGP_ADD_PATH_RECEIVE > 0 {
			s.PathIDs = append(s.PathIDs, family)
		}
	}
	fsm.lock.RUnlock()
	h.tap = fsm.beginTap(s)
	return func() { h.tap.End(time.Now()) }
}

func plainAddress(a net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(a)
	return addr.Unmap()
}

// tell hands a message to the tap.
func (h *fsmHandler) tell(at time.Time, kind uint8, header, body []byte) {
	if h.tap != nil && kind != bgp.BGP_MSG_KEEPALIVE {
		h.tap.Message(at, header, body)
	}
}
