// This file is vpp-route-agent's, not GoBGP's.

package server

import "github.com/osrg/gobgp/v3/pkg/packet/bgp"

// batchLimit is how many UPDATEs one batch has at most. They take a few milliseconds.
const batchLimit = 64

// handleBatch handles a message. With an UPDATE it also handles the UPDATEs that are queued behind
// it: the groups are updated for all of them at once, and each member has one write. No other
// message is postponed.
func (s *BgpServer) handleBatch(e *fsmMsg, handle func(*fsmMsg)) {
	if s.adjOut == nil {
		handle(e)
		return
	}
	alone := s.alone     // what is queued was sent to the server's goroutine
	var sources []string // of what has changed
	s.adjOut.batching = true
	for n := 1; e != nil && e.isUpdate(); n++ {
		handle(e)
		for len(sources) < len(s.adjOut.changed) {
			sources = append(sources, e.MsgSrc)
		}
		e = nil
		if n < batchLimit && !alone {
			select {
			case e = <-s.messages:
			default:
			}
		}
	}
	s.adjOut.batching = false
	s.updateGroupsFor(sources)
	if e != nil {
		handle(e)
	}
}

// updateGroupsFor is updateGroups. It reports a panic as reportPanic does, about the peer whose
// change was applied to a group. A panic while the whole batch is packed is no peer's.
func (s *BgpServer) updateGroupsFor(sources []string) {
	defer func() {
		if v := recover(); v != nil {
			if i := s.adjOut.current; s.onPanic != nil && i < len(sources) {
				s.onPanic(sources[i], bgp.DescribePanic(v))
			}
			panic(v)
		}
	}()
	s.updateGroups()
}

// isUpdate is false for End-of-RIB, which may end our restart.
func (e *fsmMsg) isUpdate() bool {
	m, ok := e.MsgData.(*bgp.BGPMessage)
	return ok && m.Header.Type == bgp.BGP_MSG_UPDATE && len(e.PathList) > 0
}
