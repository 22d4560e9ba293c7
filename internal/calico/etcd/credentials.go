package etcd

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// renewable is gRPC's TLS with the files read again for each connection: authorities too, which a tls.Config holds read. What a server must
// show is checked by gRPC and crypto/tls as ever.
type renewable struct {
	credentials.TransportCredentials // from the files as they were at first; it tells of itself, and shakes no hands
	config                           Config
}

func (r renewable) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	now, err := r.config.tls()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(now).ClientHandshake(ctx, authority, conn)
}

func (r renewable) Clone() credentials.TransportCredentials {
	return renewable{r.TransportCredentials.Clone(), r.config}
}
