package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// handshake finds out who calls: on a unix socket the kernel knows the user, and over TCP the
// client has a certificate, or speaks plain text where tls is nil.
type handshake struct {
	credentials.TransportCredentials // of TCP
}

func newHandshake(conf *tls.Config) handshake {
	if conf == nil {
		return handshake{insecure.NewCredentials()}
	}
	return handshake{credentials.NewTLS(conf)}
}

// user is who calls over a unix socket.
type user struct {
	credentials.CommonAuthInfo
	uid uint32
}

// AuthType implements credentials.AuthInfo.
func (user) AuthType() string { return "unix" }

// ServerHandshake implements credentials.TransportCredentials.
func (h handshake) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return h.TransportCredentials.ServerHandshake(c)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var cred *unix.Ucred
	failed := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(failed, err); err != nil {
		return nil, nil, err
	}
	return c, user{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		cred.Uid}, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone()}
}

// caller returns the entry of whoever makes a call, nil if there is none, and how to name them.
func (p Policy) caller(ctx context.Context) (c *Client, name string) {
	is := func(Client) bool { return false }
	if from, ok := peer.FromContext(ctx); ok {
		switch info := from.AuthInfo.(type) {
		case user:
			name = fmt.Sprintf("uid %d", info.uid)
			is = func(c Client) bool { return c.UID != nil && *c.UID == info.uid }
		case credentials.TLSInfo:
			cert := info.State.PeerCertificates[0] // the listener demands one
			name = fmt.Sprintf("certificate %q", cert.Subject.CommonName)
			is = func(c Client) bool {
				return c.Certificate != "" && (c.Certificate == cert.Subject.CommonName ||
					slices.Contains(cert.DNSNames, c.Certificate))
			}
		default:
			name = from.Addr.String()
			is = func(c Client) bool { return c.Anonymous }
		}
	}
	if i := slices.IndexFunc(p.Clients, is); i >= 0 {
		return &p.Clients[i], name
	}
	return nil, name
}
