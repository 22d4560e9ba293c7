package grpc

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls limits how many calls of a client are under way, over all its connections.
type calls struct {
	mu   sync.Mutex     // guards what follows
	open map[string]int // by who calls
}

// begin counts a call, whose end is to be called when it is over.
func (c *calls) begin(ctx context.Context) (end func(), err error) {
	_, name := Policy{}.caller(ctx)
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host // of a client without a name each connection has another port
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name] >= maxCalls {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d calls under way, and may "+
			"not have more", name, maxCalls)
	}
	c.open[name]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open[name]--; c.open[name] == 0 {
			delete(c.open, name)
		}
	}, nil
}

func (c *calls) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	end, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return handler(ctx, request)
}

func (c *calls) stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	end, err := c.begin(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	return handler(server, stream)
}
