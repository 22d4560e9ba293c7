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

// Start implements fib.Starter: all of ops in one write. The replies come to the connection's
// reader. No ping follows: it would add a tenth to the time of a lone route. The next call finds
// what VPP has dropped.
func (v *VPP) Start(ops []route.Op, done func(i int, err error), ended func(error)) bool {
	l, err := v.current()
	if err != nil || len(ops) == 0 || len(ops) > v.cfg.Window || l.conn.canRoute() != nil {
		return false
	}
	c := l.conn
	var number uint32
	acked := 0
	reply := func(seq uint32, id uint16, msg []byte) {
		retval, ofRoute := c.routeReply(id, msg)
		if !ofRoute || int(seq) != acked {
			c.end(unanswered(acked))
			return
		}
		done(acked, v.outcome(ops[acked], retval))
		if acked++; acked == len(ops) && c.forget(number) {
			ended(nil)
		}
	}
	lost := func(err error) { ended(fmt.Errorf("vpp: apply: %w", err)) }
	to := l.encoder()
	return c.start(call{reply, lost}, &number, func() (buf []byte, err error) {
		for i, op := range ops {
			if buf, err = to.frame(buf, number<<seqBits|uint32(i), op); err != nil {
				return nil, err // Apply tells which it is
			}
		}
		return buf, nil
	})
}

// encoder encodes ops by what interfaces are called at the moment.
type encoder struct {
	*session
	links *links
	paths []fib_types.FibPath // scratch
}

func (l *session) encoder() *encoder { return &encoder{session: l, links: l.links.Load()} }

// frame appends the request for op.
func (e *encoder) frame(buf []byte, context uint32, op route.Op) ([]byte, error) {
	req, paths, err := encodeOp(op, e.sourceFor(op.Route.Key).id, e.paths[:0],
		e.indexIn(e.links))
	if e.paths = paths; err != nil {
		return buf, err
	}
	return e.conn.frame(buf, e.conn.routeID, context, &req)
}

// routeReply returns what VPP says of a route, if msg does.
func (c *conn) routeReply(id uint16, msg []byte) (retval apiError, ok bool) {
	if id != c.routeReplyID || len(msg) < replyPrefix+4 {
		return 0, false
	}
	return apiError(binary.BigEndian.Uint32(msg[replyPrefix:])), true
}

func unanswered(request int) error {
	return fmt.Errorf("VPP left request %d unanswered", request)
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

	var (
		sent   = make([]int, 0, len(ops)) // which op the n-th request carries
		acked  int
		buf    []byte
		gather = firstWrite
		to     = l.encoder()
	)
	acknowledge := func(retvals []apiError) {
		for _, retval := range retvals {
			i := sent[acked]
			acked++
			done(i, v.outcome(ops[i], retval))
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
		if buf, err = to.frame(buf, s.context(len(sent)), op); err != nil {
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
	retvals []apiError // arrived, not yet taken
	arrived int        // how many replies came in all
	want    int        // how many of them are waited for
	broken  error      // replies do not belong to requests any more
}

func newStream(c *conn) (*stream, error) {
	if err := c.canRoute(); err != nil {
		return nil, err
	}
	s := &stream{conn: c, wake: make(chan struct{}, 1)}
	s.number = c.open(s.reply)
	return s, nil
}

func (c *conn) canRoute() error {
	if c.routeID == 0 || c.routeReplyID == 0 {
		return fmt.Errorf("this VPP has no %s", messageName((*ip.IPRouteAddDelV2)(nil)))
	}
	return nil
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
	retval, ofRoute := s.conn.routeReply(id, msg)
	s.mu.Lock()
	switch inOrder := seq == uint32(s.arrived)&seqMask; {
	case s.broken != nil:
	case inOrder && id == s.conn.pingReplyID: // all requests before the ping were answered
	case inOrder && ofRoute:
		s.retvals = append(s.retvals, retval)
		s.arrived++
	default: // from here on replies cannot be matched to requests
		s.broken = unanswered(s.arrived)
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
func (s *stream) wait(ctx context.Context, want int) ([]apiError, error) {
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
func (s *stream) take(want int) (retvals []apiError, enough bool, err error) {
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
