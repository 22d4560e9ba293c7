package etcd

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"vpp-route-agent/internal/calico/calicotest"
)

// serveTLS is a server that speaks TLS and gRPC at address, and knows no method.
func serveTLS(t *testing.T, address string, certs calicotest.Certs) (at string, stop func()) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certs.ServerCert, certs.ServerKey)
	must(t, err)
	l, err := net.Listen("tcp", address)
	must(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	return l.Addr().String(), func() { server.Stop(); <-done }
}

// When the authority of etcd's certificates changes, its file is replaced as those of our own
// certificate and key are.
func TestANewAuthorityNeedsNoRestart(t *testing.T) {
	old, err := calicotest.WriteCerts(t.TempDir())
	must(t, err)
	renewed, err := calicotest.WriteCerts(t.TempDir())
	must(t, err)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	replace := func(from string) {
		t.Helper()
		pem, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(ca, pem, 0o600))
	}
	replace(old.CA)
	address, stop := serveTLS(t, "127.0.0.1:0", old)
	conf, err := Config{Endpoints: []string{"https://" + address}, CACertFile: ca}.client()
	must(t, err)
	client, err := clientv3.New(conf)
	must(t, err)
	defer client.Close()
	// connects reports whether a request comes through to the server, until it does or for that
	// long.
	connects := func(within time.Duration) bool {
		t.Helper()
		for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(
			50 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err = client.Get(ctx, "k")
			cancel()
			if status.Code(err) == codes.Unimplemented {
				return true
			}
		}
		return false
	}
	if !connects(30 * time.Second) {
		t.Fatalf("at first: %v", err)
	}
	stop()
	_, stop = serveTLS(t, address, renewed)
	defer stop()
	if connects(2 * time.Second) {
		t.Error("a server of an authority that is not in the file was trusted")
	}
	replace(renewed.CA)
	if !connects(30 * time.Second) {
		t.Errorf("after the file was replaced: %v", err)
	}
}
