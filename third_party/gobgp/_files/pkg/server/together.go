// This file is vpp-route-agent's, not GoBGP's.

package server

import "github.com/osrg/gobgp/v3/pkg/packet/bgp"

// togetherLimit is how many UPDATEs the groups meet at once. They take a few milliseconds.
const togetherLimit = 64

// together handles a message, and an UPDATE with those that wait behind it: the groups meet their
// prefixes in one batch, which each member has one write for. Any other message finds nothing
// postponed.
func (s *BgpServer) together(e *fsmMsg, handle func(*fsmMsg)) {
	if s.adjOut == nil {
		handle(e)
		return
	}
	var sources []string // of what has changed
	s.adjOut.held = true
	for n := 1; e != nil && e.isUpdate(); n++ {
		handle(e)
		for len(sources) < len(s.adjOut.changed) {
			sources = append(sources, e.MsgSrc)
		}
		e = nil
		if n < togetherLimit {
			select {
			case e = <-s.messages:
			default:
			}
		}
	}
	s.adjOut.held = false
	s.tellPeersOf(sources)
	if e != nil {
		handle(e)
	}
}

// tellPeersOf is tellPeers, with a panic reported as tellPanic does: about the peer whose change a
// group was meeting. One in packing the whole batch is nobody's.
func (s *BgpServer) tellPeersOf(sources []string) {
	defer func() {
		if v := recover(); v != nil {
			if i := s.adjOut.meeting; s.onPanic != nil && i < len(sources) {
				s.onPanic(sources[i], bgp.DescribePanic(v))
			}
			panic(v)
		}
	}()
	s.tellPeers()
}

// isUpdate is false for End-of-RIB, which may end our restart.
func (e *fsmMsg) isUpdate() bool {
	m, ok := e.MsgData.(*bgp.BGPMessage)
	return ok && m.Header.Type == bgp.BGP_MSG_UPDATE && len(e.PathList) > 0
}
