// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// outgoingLimit is how many paths may wait to be sent to a peer before later ones take the place of earlier ones.
const outgoingLimit = 4096

// outgoing is what waits to be sent to a peer in one session. A peer that reads slowly, or not at all, has changes wait for it. The queue that they
// are in has no bound; so when many wait, one message at its end takes all others, and has each prefix once. Then no more
// waits than there are prefixes, however often they change, and what is sent at last is what holds by then.
type outgoing struct {
	waiting atomic.Int64    // paths in messages that were not taken yet, without those that joined
	last    *fsmOutgoingMsg // what others join, the last in the queue; the server goroutine's
}

// joined is the part of a message that others join. Nobody does after it was taken.
type joined struct {
	mu    sync.Mutex
	taken bool
	at    map[sentPath]int // where in Paths
}

// queue is called in the server's goroutine.
func (peer *peer) queue(m *fsmOutgoingMsg) {
	if peer.outgoing == nil {
		peer.outgoing = &outgoing{}
	}
	q := peer.outgoing
	if q.last != nil && q.last.join(peer, m) {
		return
	}
	q.last = nil
	if q.waiting.Load() >= outgoingLimit {
		if all := (&fsmOutgoingMsg{joined: &joined{at: map[sentPath]int{}}}); all.join(peer, m) {
			m, q.last = all, all
		}
	}
	m.waiting, m.weight = &q.waiting, int64(1+len(m.Paths))
	q.waiting.Add(m.weight)
	peer.fsm.outgoingCh.In() <- m
}

// join adds m's paths, if that is possible. Each takes the place of an earlier one that it replaces: of the same prefix and, in a session with
// ADD-PATH, of the same identifier.
func (all *fsmOutgoingMsg) join(peer *peer, m *fsmOutgoingMsg) bool {
	if m.Notification != nil || slices.ContainsFunc(m.Paths, notToJoin) {
		return false
	}
	all.joined.mu.Lock()
	defer all.joined.mu.Unlock()
	if all.joined.taken {
		return false
	}
	for _, p := range m.Paths {
		name, _ := nameOf(p)
		if !peer.isAddPathSendEnabled(p.GetRouteFamily()) {
			name.id = 0
		}
		if i, ok := all.joined.at[name]; ok {
			all.Paths[i] = p
			continue
		}
		all.joined.at[name] = len(all.Paths)
		all.Paths = append(all.Paths, p)
	}
	return true
}

// notToJoin is what keeps its place in the queue: End-of-RIB, and what has no name.
func notToJoin(p *table.Path) bool {
	_, ok := nameOf(p)
	return !ok || p.IsEOR()
}

// updates is called by the goroutine that sends, which has the message from then on. Of one that others joined announcements go
// first: one of them may be what takes the place of a route that is withdrawn.
func (m *fsmOutgoingMsg) updates(options *bgp.MarshallingOption) []*bgp.BGPMessage {
	if m.waiting != nil { // not one of the session's own
		m.waiting.Add(-m.weight)
	}
	if m.joined == nil {
		return table.CreateUpdateMsgFromPaths(m.Paths, options)
	}
	m.joined.mu.Lock()
	m.joined.taken, m.joined.at = true, nil
	m.joined.mu.Unlock()
	var announced, withdrawn []*table.Path
	for _, p := range m.Paths {
		if p.IsWithdraw {
			withdrawn = append(withdrawn, p)
		} else {
			announced = append(announced, p)
		}
	}
	return append(table.CreateUpdateMsgFromPaths(announced, options), table.CreateUpdateMsgFromPaths(withdrawn, options)...)
}
