package vpp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// handler handles a reply on the reader. It must not block, nor keep any part of msg.
type handler func(seq uint32, id uint16, msg []byte)

// call is what replies belong to.
type call struct {
	reply handler
	lost  func(error) // if not nil, called on the reader when the connection has ended before
}

// request is a message that the generated code can encode.
type request interface {
	api.Message
	codec.Marshaler
}

// call sends reqs and waits for all replies; each is called on the reader with the request's
// number, and not after call has returned. It returns the process id from VPP's control ping.
func (c *conn) call(ctx context.Context, reqs []request,
	each func(i int, id uint16, msg []byte) error) (pid uint32, err error) {
	if len(reqs) > seqMask {
		panic("vpp: too many requests in one call")
	}
	type result struct {
		pid uint32
		err error
	}
	finished := make(chan result, 1)
	started := c.started()
	var failed error
	var handling sync.Mutex
	over := false
	number := c.open(func(seq uint32, id uint16, msg []byte) {
		handling.Lock()
		defer handling.Unlock()
		if over {
			return
		}
		if int(seq) < len(reqs) {
			if err := each(int(seq), id, msg); err != nil && failed == nil {
				failed = err
			}
			return
		}
		var pong memclnt.ControlPingReply
		err := codec.DecodeMsg(msg, &pong)
		if id != c.pingReplyID || err != nil {
			err = fmt.Errorf("control ping was answered by message %d: %v", id, err)
		}
		if c.isOpen(started) {
			c.end(errors.New("VPP left routes unanswered"))
		}
		select {
		case finished <- result{pong.VpePID, errors.Join(failed, err)}:
		default:
		}
	})
	defer func() {
		c.forget(number)
		handling.Lock()
		over = true
		handling.Unlock()
	}()

	var buf []byte
	for i, req := range reqs {
		id, ok := c.id(req)
		if !ok {
			return 0, fmt.Errorf("this VPP has no %s", messageName(req))
		}
		if buf, err = c.frame(buf, id, number<<seqBits|uint32(i), req); err != nil {
			return 0, err
		}
	}
	if buf, err = c.frame(buf, c.pingID, number<<seqBits|uint32(len(reqs)),
		&memclnt.ControlPing{}); err != nil {
		return 0, err
	}
	if err := c.send(buf); err != nil {
		return 0, err
	}
	select {
	case r := <-finished:
		return r.pid, r.err
	case <-c.ended:
		return 0, c.cause()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// ping checks that VPP answers.
func (c *conn) ping(ctx context.Context) (pid uint32, err error) { return c.call(ctx, nil, nil) }

// ask sends a request that has one reply.
func ask[R any, P interface {
	*R
	api.Message
}](ctx context.Context, c *conn, req request) (R, error) {
	var replies []R
	err := dump(ctx, c, []request{req}, func(_ int, r P) { replies = append(replies, *r) })
	if err == nil && len(replies) != 1 {
		err = fmt.Errorf("VPP gave %d replies to %s", len(replies), req.GetMessageName())
	}
	if err != nil {
		var none R
		return none, err
	}
	return replies[0], nil
}

// dump sends requests with any number of replies of one kind, and calls each for every reply, on
// the reader.
func dump[R any, P interface {
	*R
	api.Message
}](ctx context.Context, c *conn, reqs []request, each func(i int, r P)) error {
	want, ok := c.id(P(nil))
	if !ok {
		return fmt.Errorf("this VPP has no %s", messageName(P(nil)))
	}
	_, err := c.call(ctx, reqs, func(i int, id uint16, msg []byte) error {
		if id != want {
			return fmt.Errorf("%s was answered by message %d", reqs[i].GetMessageName(), id)
		}
		r := P(new(R))
		if err := codec.DecodeMsg(msg, r); err != nil {
			return err
		}
		each(i, r)
		return nil
	})
	return err
}

// register is called with c.mu held.
func (c *conn) register(x call) uint32 {
	for {
		c.last = (c.last + 1) % (1 << (32 - seqBits))
		if _, taken := c.calls[c.last]; !taken {
			c.calls[c.last] = x
			return c.last
		}
	}
}

// forget ends a call: later replies to it are dropped. It reports whether the call was open.
func (c *conn) forget(number uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.calls[number]
	delete(c.calls, number)
	return open
}
