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
