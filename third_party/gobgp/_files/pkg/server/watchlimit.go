// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// remoteLimit is how many paths may wait for all clients that watch over gRPC, about 40 MiB. One
// more, and the watch for which the most wait is ended.
const remoteLimit = 1 << 17

var errSlowWatch = status.Error(codes.ResourceExhausted,
	"the client reads more slowly than things change")

// remote is the part of a watch that is over gRPC.
type remote struct {
	end     context.CancelCauseFunc
	waiting atomic.Int64 // paths in the queue
	ended   bool         // the server goroutine's
}

type remoteKey struct{}

// remoteWatch returns the context of a watch over gRPC.
func remoteWatch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	return context.WithValue(ctx, remoteKey{}, end), func() { end(nil) }
}

// remoteError is the error that the client of a watch that has ended gets.
func remoteError(ctx context.Context) error {
	if why := context.Cause(ctx); status.Code(why) != codes.Unknown { // as when the client ended it
		return why
	}
	return nil
}

// watchPanicked is deferred by the goroutine that converts the events of a watch.
func (s *BgpServer) watchPanicked(ctx context.Context) {
	if v := recover(); v != nil {
		what := bgp.DescribePanic(v)
		s.logger.Error("a watch panicked", log.Fields{"Topic": "Server", "Error": what})
		if end, ok := ctx.Value(remoteKey{}).(context.CancelCauseFunc); ok {
			end(status.Error(codes.Internal, what))
		}
	}
}

// limitRemote limits a watch of such a context from now on. What there was when it began is not
// counted: the client asked for it.
func (s *BgpServer) limitRemote(ctx context.Context, w *watcher) {
	end, ok := ctx.Value(remoteKey{}).(context.CancelCauseFunc)
	if !ok {
		return
	}
	s.mgmtOperation(func() error {
		w.remote = &remote{end: end}
		s.remotes = append(s.remotes, w.remote)
		return nil
	}, false)
}

// counted is an event that counts as so many paths while it waits.
type counted struct {
	event watchEvent
	paths int64
}

// queue is called in the server's goroutine.
func (w *watcher) queue(ev watchEvent) {
	if w.remote == nil {
		w.ch.In() <- ev
		return
	}
	if w.remote.ended {
		return
	}
	c := counted{ev, pathsIn(ev)}
	w.remote.waiting.Add(c.paths)
	w.ch.In() <- c
	w.s.endSlowest()
}

// dequeued is called by the goroutine that hands events to the client.
func (w *watcher) dequeued(ev watchEvent) watchEvent {
	c, ok := ev.(counted)
	if !ok {
		return ev
	}
	w.remote.waiting.Add(-c.paths)
	return c.event
}

func pathsIn(ev watchEvent) int64 {
	paths := 1
	switch ev := ev.(type) {
	case *watchEventUpdate:
		paths += len(ev.PathList)
	case *watchEventBestPath:
		paths += len(ev.PathList)
		for _, set := range ev.MultiPathList {
			paths += len(set)
		}
	}
	return int64(paths)
}

// endSlowest counts no watch that is ended: its queue is on its way out.
func (s *BgpServer) endSlowest() {
	var sum, most int64
	var slowest *remote
	for _, r := range s.remotes {
		if r.ended {
			continue
		}
		n := r.waiting.Load()
		if sum += n; n >= most {
			slowest, most = r, n
		}
	}
	if sum > remoteLimit {
		slowest.ended = true
		slowest.end(errSlowWatch)
	}
}

// forgetRemote is called when the watch has ended and its queue is empty.
func (s *BgpServer) forgetRemote(w *watcher) {
	s.remotes = slices.DeleteFunc(s.remotes, func(r *remote) bool { return r == w.remote })
}
