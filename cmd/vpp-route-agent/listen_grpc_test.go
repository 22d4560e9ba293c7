package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"vpp-route-agent/bgp/gobgp"
	"vpp-route-agent/internal/calico/calicotest"
)

// A gRPC that leaves the host answers clients with a certificate of the right authority, and nobody
// else; what it may do stays the same.
func TestGRPCOverTLS(t *testing.T) {
	certs, err := calicotest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := calicotest.WriteCerts(t.TempDir()) // another authority
	if err != nil {
		t.Fatal(err)
	}
	address := serveGRPC(t, config{tlsCertFile: certs.ServerCert, tlsKeyFile: certs.ServerKey,
		tlsClientCAFile: certs.CA})
	ours, theirs := keyPair(t, certs), keyPair(t, strangers)
	for name, tc := range map[string]struct {
		creds credentials.TransportCredentials
		want  codes.Code
	}{
		"a certificate of ours": {credentials.NewTLS(
			&tls.Config{RootCAs: authority(t, certs.CA), Certificates: ours}), codes.OK},
		"none": {credentials.NewTLS(&tls.Config{RootCAs: authority(t, certs.CA)}),
			codes.Unavailable},
		"another authority's": {credentials.NewTLS(
			&tls.Config{RootCAs: authority(t, certs.CA), Certificates: theirs}), codes.Unavailable},
		"ours, but the client knows no such server": {credentials.NewTLS(
			&tls.Config{RootCAs: authority(t, strangers.CA), Certificates: ours}),
			codes.Unavailable},
		"ours, but TLS 1.1": {credentials.NewTLS(
			&tls.Config{RootCAs: authority(t, certs.CA), Certificates: ours,
				MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}), codes.Unavailable},
		"plain text": {insecure.NewCredentials(), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(tc.creds))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			client := api.NewGobgpApiClient(conn)
			if _, err := client.GetBgp(ctx, &api.GetBgpRequest{}); status.Code(err) != tc.want {
				t.Errorf("GetBgp: %v, want %s", err, tc.want)
			}
			if tc.want != codes.OK {
				return
			}
			if _, err := client.StopBgp(ctx, &api.StopBgpRequest{}); status.Code(
				err) != codes.PermissionDenied {
				t.Errorf("StopBgp: %v", err)
			}
		})
	}
}

// serveGRPC runs a speaker whose gRPC listens on all addresses, as `run` would make it, and returns
// one of them.
func serveGRPC(t *testing.T, c config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	conf, err := c.tlsFor("0.0.0.0:" + port)
	if err != nil || conf == nil {
		t.Fatalf("TLS %v, %v", conf, err)
	}
	speaker, err := gobgp.New(gobgp.Config{Log: slog.New(slog.DiscardHandler),
		GRPC: "0.0.0.0:" + port, GRPCTLS: conf})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- speaker.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	address = net.JoinHostPort("127.0.0.1", port)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp4", address); err == nil {
			conn.Close()
			return address
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody listens")
		}
	}
}

func authority(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate in %s", file)
	}
	return pool
}

func keyPair(t *testing.T, c calicotest.Certs) []tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}
