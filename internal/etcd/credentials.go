package etcd

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// renewable is gRPC's TLS that reads the files again for each connection, including the
// authorities, which a tls.Config caches. gRPC and crypto/tls still verify the server.
type renewable struct {
	// from the files as they were at first; it identifies itself, and makes no handshake
	credentials.TransportCredentials
	config Config
}

func (r renewable) ClientHandshake(ctx context.Context, authority string,
	conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	now, err := r.config.tls()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(now).ClientHandshake(ctx, authority, conn)
}

func (r renewable) Clone() credentials.TransportCredentials {
	return renewable{r.TransportCredentials.Clone(), r.config}
}
