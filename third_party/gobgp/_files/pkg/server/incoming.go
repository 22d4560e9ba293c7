// This file is vpp-route-agent's, not GoBGP's.

package server

import "github.com/eapache/channels"

// incoming hands the messages of one peer's queue to the server's goroutine, which waits for one
// channel then, however many peers there are. Peers take turns: Go serves blocked senders in order.
type incoming struct {
	stop, ended chan struct{}
}

// addIncoming, like delIncoming, is called in the server's goroutine.
func (s *BgpServer) addIncoming(ch *channels.InfiniteChannel) {
	in := &incoming{stop: make(chan struct{}), ended: make(chan struct{})}
	s.incomings[ch] = in
	go func() {
		defer close(in.ended)
		for {
			select {
			case <-in.stop:
				return
			case e, ok := <-ch.Out():
				if !ok {
					return
				}
				select {
				case <-in.stop:
					return
				case s.messages <- e.(*fsmMsg):
				}
			}
		}
	}()
}

// delIncoming returns when no message of the queue can come any more.
func (s *BgpServer) delIncoming(ch *channels.InfiniteChannel) {
	if in, ok := s.incomings[ch]; ok {
		close(in.stop)
		<-in.ended
		delete(s.incomings, ch)
	}
}

// smallUpdate is how many routes an UPDATE may have that is handled by who has read it.
const smallUpdate = 16

// isAlone reports whether nothing else of the peer waits when e was read and added to the backlog.
func (h *fsmHandler) isAlone(e *fsmMsg) bool {
	return h.fsm.backlog.holds(e.weight()) && h.buffered.Buffered() == 0
}

// handleAlone handles a small UPDATE in the goroutine that has read it, if the server has nothing
// to do: waking one goroutine after the other would take longer. It is for an UPDATE that nothing
// follows; many are handled faster while the next ones are read.
func (s *BgpServer) handleAlone(e *fsmMsg) bool {
	if len(e.PathList) > smallUpdate || !e.isUpdate() || !s.turn.TryLock() {
		return false
	}
	h, takers := e.fsm.h, s.takers
	// Where the session was cancelled, the server is about to wait for this goroutine.
	handles := h.ctx.Err() == nil
	if handles {
		s.alone = true
		s.handleBatch(e, s.handle)
		s.alone = false
	}
	s.turn.Unlock() // not deferred: after a panic nobody is to use the tables
	if handles {
		h.handOver(takers)
	}
	return handles
}

// handOver hands over what an UPDATE has brought, after the server's turn: who takes it may wait
// for a disk. That the peer is not heard meanwhile is not its fault.
func (h *fsmHandler) handOver(takers []func()) {
	h.holdTimer.stop()
	for _, take := range takers {
		take()
	}
	h.holdTimer.restart()
}
