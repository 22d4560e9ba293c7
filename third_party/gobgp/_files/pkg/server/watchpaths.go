// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"net/netip"
	"sync"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Watched is one event of a watch: a path, an End-of-RIB, that no stale path of a peer is left, or
// that a session went up or down.
type Watched struct {
	// Peer sent the path or the End-of-RIB, or it is its session; not valid: this speaker.
	Peer netip.AddrPort
	NLRI bgp.AddrPrefixInterface // nil: no path
	// Attributes are of a path that is not withdrawn. They are shared, to be read only, and not to
	// be serialized, which writes lengths.
	Attributes   []bgp.PathAttributeInterface
	Withdrawn    bool            // no path to the prefix is left that can be used
	Stale        bool            // kept by graceful restart
	More         bool            // the next path belongs to the same set
	EndOfRIB     bgp.RouteFamily // 0: none
	NothingStale bool            // graceful restart keeps nothing of the peer any more
	Up           bool            // where it is none of these: the session came up, else went down
}

// WatchPaths watches sessions, End-of-RIBs and, with best, best paths: the complete new set each
// time those of a prefix change. next blocks, has one caller, and returns nil after ctx. GoBGP does
// not wait for it: a later set of a prefix replaces an unread one. While next waits, who has read a
// small UPDATE that came alone calls take, if not nil, with what that has brought.
func (s *BgpServer) WatchPaths(
	best bool, take func([]Watched),
) (next func(context.Context) []Watched) {
	q := &watchQueue{s: s, take: take, wake: make(chan struct{}, 1), full: watchQueueLeast}
	q.turn.Lock()
	w := &watcher{s: s, filters: map[watchEventType]func(watchEvent) bool{}}
	w.opts.inside = true
	kinds := []watchEventType{watchEventTypeEor, watchEventTypePeerState}
	if best {
		kinds = append(kinds, watchEventTypeBestPath)
	}
	s.mgmtOperation(func() error {
		for _, k := range kinds {
			// A filter sees each event in GoBGP's own goroutine. This one lets none through to the
			// watcher's channels.
			w.filters[k] = func(ev watchEvent) bool { q.note(ev); return false }
			s.watcherMap[k] = append(s.watcherMap[k], w)
		}
		s.takers = append(s.takers, q.handOver)
		return nil
	}, false)
	return q.next
}

const (
	// watchQueueLeast is how many events may be queued before the queue is compacted.
	watchQueueLeast = 4096
	// watchPiece is how many events the caller gets at a time, or one set: so what a peer sent
	// leaves its backlog piece by piece.
	watchPiece = 256
)

// watchQueue holds what the caller of WatchPaths has not taken yet. It is copied in GoBGP's
// goroutine, since that writes some fields later, such as whether a path is stale.
type watchQueue struct {
	s    *BgpServer
	take func([]Watched)
	wake chan struct{} // of size 1: something waits

	turn  sync.Mutex // guards out and given; the caller of next has it except while it waits
	out   watchBatch
	given int // out.all[:given] was given to the caller

	mu      sync.Mutex
	waiting watchBatch
	full    int // len(waiting.all) at which it is compacted
	ended   bool
}

// watchBatch is a sequence of events, and marks at which messages are complete.
type watchBatch struct {
	all   []Watched
	marks []watchMark
}

// watchMark is reached when so many events have been handled.
type watchMark struct {
	mark
	behind int
}

// reach notes that the first n events were handled.
func (b *watchBatch) reach(n int) {
	for len(b.marks) > 0 && b.marks[0].behind <= n {
		b.marks[0].reached()
		b.marks = b.marks[1:]
	}
}

func (q *watchQueue) next(ctx context.Context) []Watched {
	for {
		q.out.reach(q.given)
		if ctx.Err() != nil {
			q.end()
			q.turn.Unlock()
			return nil
		}
		if piece := q.piece(); piece != nil {
			return piece
		}
		q.turn.Unlock()
		select {
		case <-ctx.Done():
		case <-q.wake:
		}
		q.turn.Lock()
	}
}

// piece returns what is to be handled next, or nil.
func (q *watchQueue) piece() []Watched {
	if q.given == len(q.out.all) {
		q.swap()
	}
	from := q.given
	if from == len(q.out.all) {
		q.out.reach(from)
		return nil
	}
	q.given = min(from+watchPiece, len(q.out.all))
	for q.out.all[q.given-1].More {
		q.given++
	}
	return q.out.all[from:q.given]
}

// handOver has what is queued taken at once if the caller of next waits. It is called when a small
// UPDATE that came alone has been handled: no event of it has woken the caller.
func (q *watchQueue) handOver() {
	if q.take == nil || !q.turn.TryLock() {
		q.wakeCaller()
		return
	}
	for piece := q.piece(); piece != nil; piece = q.piece() {
		q.take(piece)
		q.out.reach(q.given)
	}
	q.turn.Unlock()
}

func (q *watchQueue) wakeCaller() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// swap takes out what is queued.
func (q *watchQueue) swap() {
	empty := watchBatch{all: freed(q.out.all)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.out, q.given, q.waiting, q.full = q.waiting, 0, empty, watchQueueLeast
}

// freed returns a slice to be used again. It is cleared, so that it keeps nothing alive, and not a
// large one.
func freed(all []Watched) []Watched {
	if cap(all) > watchQueueLeast {
		return nil
	}
	clear(all)
	return all[:0]
}

// end stops others from waiting for the caller.
func (q *watchQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.out.reach(len(q.out.all))
	q.waiting.reach(len(q.waiting.all))
	q.out, q.given, q.waiting, q.ended = watchBatch{}, 0, watchBatch{}, true
}

// bestNow is watchEventBestPath without copies of the paths, for readers that finish before GoBGP
// goes on.
type bestNow struct {
	best      []*table.Path
	multipath [][]*table.Path
}

// notifyBestWatcher makes the copies that other watches need only where there is one.
func (s *BgpServer) notifyBestWatcher(best []*table.Path, multipath [][]*table.Path) {
	if table.SelectionOptions.DisableBestPathSelection {
		return
	}
	others := false
	for _, w := range s.watcherMap[watchEventTypeBestPath] {
		if f := w.filters[watchEventTypeBestPath]; f != nil {
			f(bestNow{best, multipath})
		} else {
			others = true
		}
	}
	if others {
		s.notifyBestWatcherOfCopies(best, multipath)
	}
}

// notifyDeleted reports to the watches of WatchPaths that a session has ended with its peer's
// configuration. GoBGP reports that when the session's goroutine has ended, and the peer may be
// configured again by then; after this event, all events of the peer are of another session.
func (s *BgpServer) notifyDeleted(peer *peer) {
	peer.fsm.lock.RLock()
	ev := &watchEventPeer{
		Type: PEER_EVENT_STATE, peer: peer.fsm.peerInfo.Name(), OldState: peer.fsm.state,
		State: bgp.BGP_FSM_IDLE,
	}
	peer.fsm.lock.RUnlock()
	s.notifyWatches(ev)
}

// nothingStale says that no stale path is left of the peer with this name.
type nothingStale struct{ netip.AddrPort }

// notifyNothingStale reports to the watches of WatchPaths that the restart of a peer is over. What
// the peer did not announce again is withdrawn before.
func (s *BgpServer) notifyNothingStale(peer *peer) {
	peer.fsm.lock.RLock()
	ev := nothingStale{peer.fsm.peerInfo.Name()}
	peer.fsm.lock.RUnlock()
	s.notifyWatches(ev)
}

// notifyWatches sends an event to the watches of WatchPaths alone.
func (s *BgpServer) notifyWatches(ev watchEvent) {
	for _, w := range s.watcherMap[watchEventTypePeerState] {
		if f := w.filters[watchEventTypePeerState]; f != nil {
			f(ev)
		}
	}
}

// note is called in GoBGP's goroutine.
func (q *watchQueue) note(ev watchEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		reachMark(ev)
		return
	}
	switch ev := ev.(type) {
	case mark:
		q.waiting.marks = append(q.waiting.marks, watchMark{ev, len(q.waiting.all)})
	case bestNow:
		if len(ev.multipath) > 0 {
			for _, set := range ev.multipath {
				q.add(set)
			}
		} else {
			q.add(ev.best)
		}
	case *watchEventEor:
		q.waiting.all = append(q.waiting.all, Watched{
			Peer: ev.PeerInfo.Name(), EndOfRIB: ev.Family,
		})
	case nothingStale:
		q.waiting.all = append(q.waiting.all, Watched{Peer: ev.AddrPort, NothingStale: true})
	case *watchEventPeer:
		up := ev.State == bgp.BGP_FSM_ESTABLISHED
		if ev.Type != PEER_EVENT_STATE || up == (ev.OldState == bgp.BGP_FSM_ESTABLISHED) {
			return
		}
		q.waiting.all = append(q.waiting.all, Watched{Peer: ev.peer, Up: up})
	default:
		return
	}
	if len(q.waiting.all) >= q.full {
		q.waiting.all = compactWatched(q.waiting.all)
		q.full = max(watchQueueLeast, 2*len(q.waiting.all))
		for i := range q.waiting.marks {
			q.waiting.marks[i].behind = len(q.waiting.all) // or earlier
		}
	}
	if !q.s.alone {
		q.wakeCaller()
	}
}

// add queues the set of a prefix.
func (q *watchQueue) add(set []*table.Path) {
	added := false
	for _, p := range set {
		if p == nil { // no change
			continue
		}
		w := Watched{
			Peer: p.GetSource().Name(), NLRI: p.GetNlri(), Withdrawn: p.IsWithdraw ||
				p.IsNexthopInvalid, Stale: p.IsStale(), More: true,
		}
		if !w.Withdrawn {
			w.Attributes = p.SharedPathAttrs()
		}
		q.waiting.all = append(q.waiting.all, w)
		added = true
	}
	if added {
		q.waiting.all[len(q.waiting.all)-1].More = false
	}
}

// compactWatched takes out, in place, the sets that a later one replaces. Sets pass nothing but
// sets.
func compactWatched(all []Watched) []Watched {
	type destination struct {
		afi    uint16
		safi   uint8
		prefix string
	}
	later := map[destination]bool{}
	kept := len(all) // all[kept:] stays
	for end := len(all); end > 0; {
		begin := end - 1
		for begin > 0 && all[begin-1].More {
			begin--
		}
		if n := all[begin].NLRI; n == nil {
			clear(later)
		} else if d := (destination{n.AFI(), n.SAFI(), n.String()}); later[d] {
			end = begin
			continue
		} else {
			later[d] = true
		}
		kept -= copy(all[kept-(end-begin):kept], all[begin:end])
		end = begin
	}
	n := copy(all, all[kept:])
	clear(all[n:])
	return all[:n]
}
