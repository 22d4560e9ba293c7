package grpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	credentials.TransportCredentials        // of TCP
	open                             *quota // of connections
}

func newHandshake(conf *tls.Config) handshake {
	h := handshake{insecure.NewCredentials(), newQuota(maxConnections, "connections")}
	if conf != nil {
		h.TransportCredentials = credentials.NewTLS(conf)
	}
	return h
}

// user is who calls over a unix socket.
type user struct {
	credentials.CommonAuthInfo
	uid uint32
}

// AuthType implements credentials.AuthInfo.
func (user) AuthType() string { return "unix" }

// ServerHandshake implements credentials.TransportCredentials. It takes what listener accepts.
func (h handshake) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := c.(*connection)
	inner, info, err := h.identify(conn)
	if err != nil {
		return nil, nil, err
	}
	_, conn.client = Policy{}.caller(peer.NewContext(context.Background(),
		&peer.Peer{Addr: conn.RemoteAddr(), AuthInfo: info}))
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok && conn.client == a.String() {
		conn.client = a.IP.String() // of a client without a name each connection has another port
	}
	conn.AuthInfo = info
	giveBack, err := h.open.take(conn.client)
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(conn.closed, giveBack)
	return inner, conn, nil
}

// identify returns a connection as it is to be used, and who is at its other end.
func (h handshake) identify(c *connection) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := c.Conn.(*net.UnixConn)
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
	return handshake{h.TransportCredentials.Clone(), h.open}
}

// caller returns the entry of whoever makes a call, nil if there is none, and how to name them.
func (p Policy) caller(ctx context.Context) (c *Client, name string) {
	is := func(Client) bool { return false }
	if from, ok := peer.FromContext(ctx); ok {
		info := from.AuthInfo
		if conn, ok := info.(*connection); ok {
			info = conn.AuthInfo
		}
		switch info := info.(type) {
		case user:
			name = fmt.Sprintf("uid %d", info.uid)
			is = func(c Client) bool { return c.UID != nil && *c.UID == info.uid }
		case credentials.TLSInfo:
			cert := info.State.PeerCertificates[0] // the listener demands one
			name = fmt.Sprintf("certificate %q", nameIn(cert))
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

// nameIn is a certificate's common name, else its first DNS name.
func nameIn(cert *x509.Certificate) string {
	if cert.Subject.CommonName == "" && len(cert.DNSNames) > 0 {
		return cert.DNSNames[0]
	}
	return cert.Subject.CommonName
}
