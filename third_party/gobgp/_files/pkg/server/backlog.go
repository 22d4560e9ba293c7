// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"sync"
	"time"

	"github.com/eapache/channels"
	grpcpeer "google.golang.org/grpc/peer"
)

// backlogLimit is how many paths of a peer may be queued, a few milliseconds' work and about 2 MiB.
// More does not make anything faster.
const backlogLimit = 4096

// backlog counts the paths of a peer that the server, or the watch inside this process, has not
// handled yet. While it is full the peer's connection is not read, so that TCP slows the peer down.
// Only the goroutine that reads from the peer waits for room, and it holds nothing then.
type backlog struct {
	mu    sync.Mutex
	paths int
	room  chan struct{} // closed when there is room again; nil while nobody waits
}

func (b *backlog) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paths += n
	if b.paths < backlogLimit && b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// holds reports whether n paths are queued.
func (b *backlog) holds(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paths == n
}

// full returns what is closed when there is room, or nil if there is.
func (b *backlog) full() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paths < backlogLimit {
		return nil
	}
	if b.room == nil {
		b.room = make(chan struct{})
	}
	return b.room
}

// awaitRoom returns when the peer's next message may be read, or when its session is taken down.
// The hold timer starts anew: KEEPALIVEs may wait in the socket meanwhile.
func (h *fsmHandler) awaitRoom(ctx context.Context) {
	room := h.fsm.backlog.full()
	if room == nil {
		return
	}
	tick := time.NewTicker(time.Second) // hold times are 3 s or longer (RFC 4271 §4.2)
	defer tick.Stop()
	for {
		select {
		case <-room:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			h.holdTimer.restart()
		}
	}
}

// weight is what a message counts in its peer's backlog. A change of state is not the peer's.
func (e *fsmMsg) weight() int {
	if e.MsgType == fsmMsgStateChange {
		return 0
	}
	return 1 + len(e.PathList)
}

// handled is called when the server has handled a message. A watch inside this process may still
// have events of it in its queue: the message then counts until the watch reaches the mark behind
// them.
func (s *BgpServer) handled(e *fsmMsg) {
	done := mark{&e.fsm.backlog, e.weight()}
	if done.weight == 0 {
		return
	}
	for _, w := range s.watcherMap[watchEventTypeBestPath] {
		if w.opts.inside {
			// WatchPaths has a queue of its own
			if f := w.filters[watchEventTypeBestPath]; f == nil || f(done) {
				w.notify(done)
			}
			return
		}
	}
	done.reached()
}

// mark is an entry in a watch's queue: all events of a message are before it.
type mark struct {
	backlog *backlog
	weight  int
}

func (m mark) reached() { m.backlog.add(-m.weight) }

// reachMark reports whether an entry of a watch's queue was a mark, and so no event.
func reachMark(entry any) bool {
	m, ok := entry.(mark)
	if ok {
		m.reached()
	}
	return ok
}

// cleanWatch is cleanInfiniteChannel for the queue of a watch, whose marks nobody waits for any
// more.
func cleanWatch(ch *channels.InfiniteChannel) {
	ch.Close()
	for entry := range ch.Out() {
		reachMark(entry)
	}
}

// watchInside notes where a watch comes from. Peers do not wait for one over gRPC, whose client may
// be stopped for ever.
func watchInside(ctx context.Context) watchOption {
	_, remote := grpcpeer.FromContext(ctx)
	return func(o *watchOptions) { o.inside = !remote }
}
