package vpp

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"

	"vpp-route-agent/internal/route"
)

// Apply implements fib.Dataplane. It pipelines requests, up to Config.Window at a time, in large
// writes. A put atomically replaces the route's whole path set in VPP.
func (v *VPP) Apply(ctx context.Context, ops []route.Op, done func(i int, err error)) error {
	l, err := v.current()
	if err != nil {
		return err
	}
	if err := v.pipeline(ctx, l, ops, done); err != nil {
		return fmt.Errorf("vpp: apply: %w", err)
	}
	return nil
}

// pipeline executes ops in order.
func (v *VPP) pipeline(ctx context.Context, l *session, ops []route.Op,
	done func(i int, err error)) error {
	if len(ops) == 0 {
		return nil
	}
	s, err := newStream(l.conn)
	if err != nil {
		return err
	}
	defer s.end()

	links := l.links.Load()
	var (
		sent   = make([]int, 0, len(ops)) // which op the n-th request carries
		acked  int
		buf    []byte
		gather = firstWrite
		req    ip.IPRouteAddDelV2
		paths  []fib_types.FibPath
	)
	acknowledge := func(retvals []int32) {
		for _, retval := range retvals {
			i := sent[acked]
			acked++
			done(i, v.outcome(ops[i], apiError(retval)))
		}
	}
	flush := func() error {
		if len(buf) == 0 {
			return nil
		}
		err := l.conn.send(buf)
		buf = buf[:0]
		return err
	}
	// settle flushes, with a ping to reveal requests that VPP dropped, and waits until at most left
	// requests are outstanding.
	settle := func(left int) error {
		var err error
		if buf, err = l.conn.frame(buf, l.conn.pingID, s.context(len(sent)),
			&memclnt.ControlPing{}); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
		retvals, err := s.wait(ctx, len(sent)-left)
		acknowledge(retvals)
		return err
	}
	for i, op := range ops {
		req, paths, err = encodeOp(op, l.sourceFor(op.Route.Key).id, paths[:0], links.index)
		if err == nil {
			buf, err = l.conn.frame(buf, l.conn.routeID, s.context(len(sent)), &req)
		}
		if err != nil {
			done(i, fmt.Errorf("vpp: %s %s: %w", verb(op), op.Route.Key, err))
			continue
		}
		sent = append(sent, i)
		if len(buf) >= gather {
			gather = min(2*gather, writeSize)
			if err := flush(); err != nil {
				return err
			}
		}
		// Wait for half of a full window before sending more: single replies would cause single
		// writes.
		if len(sent)-acked >= v.cfg.Window {
			if err := settle(v.cfg.Window / 2); err != nil {
				return err
			}
		}
	}
	return settle(0)
}

func verb(op route.Op) string {
	if op.Delete {
		return "delete"
	}
	return "put"
}

// outcome interprets VPP's return value for op.
func (v *VPP) outcome(op route.Op, retval apiError) error {
	if retval == 0 {
		return nil
	}
	if retval == noSuchFIB && op.Delete {
		return nil // with the table the route is gone
	}
	v.counters.refuse(retval)
	return fmt.Errorf("vpp: %s %s: %w", verb(op), op.Route.Key, retval)
}

// encodeOp returns the request for op. A delete without multipath removes everything of our source
// at the prefix, and nothing of other sources; it ignores paths.
func encodeOp(op route.Op, src uint8, paths []fib_types.FibPath,
	index func(string) (uint32, bool)) (ip.IPRouteAddDelV2, []fib_types.FibPath, error) {
	if op.Delete {
		prefix, ok := route.Normalize(op.Route.Prefix)
		if !ok {
			return ip.IPRouteAddDelV2{}, paths,
				fmt.Errorf("prefix %s is not valid", op.Route.Prefix)
		}
		return ip.IPRouteAddDelV2{Route: ip.IPRouteV2{TableID: op.Route.Table,
			Prefix: encodePrefix(prefix), Src: src}}, paths, nil
	}
	r, err := encodeRoute(op.Route, src, paths, index)
	return ip.IPRouteAddDelV2{IsAdd: true, Route: r}, r.Paths, err
}

// stream collects the replies to requests that are numbered from 0 and answered in order.
type stream struct {
	conn   *conn
	number uint32        // of the call
	wake   chan struct{} // size 1: what is waited for may have come

	mu      sync.Mutex
	retvals []int32 // arrived, not yet taken
	arrived int     // how many replies came in all
	want    int     // how many of them are waited for
	broken  error   // replies do not belong to requests any more
}

func newStream(c *conn) (*stream, error) {
	if c.routeID == 0 || c.routeReplyID == 0 {
		return nil, fmt.Errorf("this VPP has no %s", messageName((*ip.IPRouteAddDelV2)(nil)))
	}
	s := &stream{conn: c, wake: make(chan struct{}, 1)}
	s.number = c.open(s.reply)
	return s, nil
}

// end: later replies are dropped.
func (s *stream) end() {
	s.conn.forget(s.number)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = 0
	s.noteAwaited()
}

// context of the n-th request, and of a ping after n requests. The lower bits of n suffice: the
// window is smaller.
func (s *stream) context(n int) uint32 { return s.number<<seqBits | uint32(n)&seqMask }

// reply handles a reply, on the reader.
func (s *stream) reply(seq uint32, id uint16, msg []byte) {
	s.mu.Lock()
	switch inOrder := seq == uint32(s.arrived)&seqMask; {
	case s.broken != nil:
	case inOrder && id == s.conn.pingReplyID: // all requests before the ping were answered
	case inOrder && id == s.conn.routeReplyID && len(msg) >= replyPrefix+4:
		s.retvals = append(s.retvals, int32(binary.BigEndian.Uint32(msg[replyPrefix:])))
		s.arrived++
	default: // from here on replies cannot be matched to requests
		s.broken = fmt.Errorf("VPP left request %d unanswered", s.arrived)
	}
	awaited := s.noteAwaited()
	s.mu.Unlock()
	if awaited > 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wait waits for want replies in all, or for the end of the stream, and returns the retvals since
// the last call. Missing replies end the connection: its order cannot be trusted.
func (s *stream) wait(ctx context.Context, want int) ([]int32, error) {
	for {
		retvals, enough, err := s.take(want)
		if err != nil {
			s.conn.end(err)
		}
		if enough || err != nil {
			return retvals, err
		}
		select {
		case <-s.wake:
		case <-s.conn.ended:
			<-s.conn.done // what has been read counts
			retvals, _, _ := s.take(0)
			return retvals, s.conn.cause()
		case <-ctx.Done():
			retvals, _, _ := s.take(0)
			return retvals, ctx.Err()
		}
	}
}

// take returns the replies received, if there are enough or no more will come.
func (s *stream) take(want int) (retvals []int32, enough bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = want
	if s.noteAwaited() > 0 {
		return nil, false, nil
	}
	retvals, s.retvals = s.retvals, nil
	return retvals, true, s.broken
}

// noteAwaited notes for the reader how many awaited replies are outstanding, and returns the
// number. The caller holds s.mu.
func (s *stream) noteAwaited() int {
	n := max(s.want-s.arrived, 0)
	if s.broken != nil {
		n = 0
	}
	s.conn.awaited.Store(int64(n))
	return n
}
