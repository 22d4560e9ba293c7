package grpc

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// connection is one of a client. gRPC has it as the AuthInfo of the calls on it, too.
type connection struct {
	net.Conn
	credentials.AuthInfo                 // by the handshake
	client               string          // who calls, over all connections
	closed               context.Context // ends with the connection
	end                  context.CancelFunc
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.end()
	return c.Conn.Close()
}

// listener makes connections of what it accepts.
type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: c}
	conn.closed, conn.end = context.WithCancel(context.Background())
	return conn, nil
}
