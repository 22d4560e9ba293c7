package grpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
)

// quota limits what each client has at once.
type quota struct {
	most int
	what string // is limited: "calls under way"

	mu   sync.Mutex     // guards what follows
	used map[string]int // by client
}

func newQuota(most int, what string) *quota {
	return &quota{most: most, what: what, used: map[string]int{}}
}

// take counts one more until giveBack is called.
func (q *quota) take(client string) (giveBack func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[client] >= q.most {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d %s, and may not have more",
			client, q.most, q.what)
	}
	q.used[client]++
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.used[client]--; q.used[client] == 0 {
			delete(q.used, client)
		}
	}), nil
}

// openCall is under way until it has ended and its answer is sent, or its connection is closed: a
// client that reads nothing would have the agent keep any number of answers.
type openCall struct {
	conn *connection
	keep func() bool // has it under way although the client may leave; false: it has left
	end  func()
}

type callKey struct{}

// beginCall counts a call before its request is read, until it ends, or until one of the
// interceptors says so that keeps it.
func (s *Server) beginCall(ctx context.Context, _ *tap.Info) (context.Context, error) {
	from, _ := peer.FromContext(ctx)
	conn := from.AuthInfo.(*connection) // by the handshake
	giveBack, err := s.calls.take(conn.client)
	if err != nil {
		return ctx, err
	}
	forget := context.AfterFunc(conn.closed, giveBack)
	c := &openCall{conn: conn, end: func() { forget(); giveBack() }}
	c.keep = context.AfterFunc(ctx, c.end)
	return context.WithValue(ctx, callKey{}, c), nil
}

// holdUntilSent has a call under way until its answer is sent, though its client may have left. One
// that is not sent in answerPatience closes the connection.
func holdUntilSent(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	c := ctx.Value(callKey{}).(*openCall)
	if !c.keep() {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	out, err := handler(ctx, request)
	if err == nil && ctx.Err() != nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err == nil {
		// gRPC would be done with the answer when it is compressed, which is before it is sent
		err = grpc.SetSendCompressor(ctx, encoding.Identity)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	cutOff := time.AfterFunc(answerPatience, func() { c.conn.Close() })
	return &sending{out.(proto.Message), func() { cutOff.Stop(); c.end() }}, nil
}

// holdStream has a stream under way until its handler is done.
func holdStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	ctx := stream.Context()
	c := ctx.Value(callKey{}).(*openCall)
	if !c.keep() {
		return status.FromContextError(ctx.Err()).Err()
	}
	defer c.end()
	return handler(server, stream)
}

// dropped ends calls whose answers are not sent: gRPC does not return their bytes if the client has
// left before they were queued.
type dropped struct{}

// HandleRPC implements stats.Handler.
func (dropped) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if p, ok := s.(*stats.OutPayload); ok && ctx.Err() != nil {
		if a, ok := p.Payload.(*sending); ok {
			a.sent()
		}
	}
}

// TagRPC implements stats.Handler.
func (dropped) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (dropped) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (dropped) HandleConn(context.Context, stats.ConnStats) {}

// sending is an answer to a unary call.
type sending struct {
	message proto.Message
	sent    func()
}

// codec tells when an answer is sent: gRPC returns its bytes to their pool then.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*sending)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	const least = 2 << 10 // bytes; gRPC returns no small buffers
	content := make([]byte, 0, max(proto.Size(a.message), least))
	content, err := proto.MarshalOptions{}.MarshalAppend(content, a.message)
	if err != nil {
		a.sent()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&content, a)}, nil
}

// Get implements mem.BufferPool.
func (*sending) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (a *sending) Put(*[]byte) { a.sent() }
