package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"testing"

	"vpp-route-agent/internal/calico/calicotest"
)

func TestPlaintextMustBeAskedFor(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "192.0.2.1:1": false,
		"localhost:1": false,
	} {
		if got := local(address); got != want {
			t.Errorf("local(%q) = %v", address, got)
		}
	}
	if _, err := load(t, []string{"--metrics-listen=0.0.0.0:9179", "--plaintext"}, nil,
		""); err != nil {
		t.Errorf("asked for by name: %v", err)
	}
}

// A listener that leaves the host speaks TLS to clients with a certificate of ours, and to nobody
// else.
func TestMetricsOverTLS(t *testing.T) {
	certs, err := calicotest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// Any address of this machine that is no loopback address, as the wildcard is.
	c := config{metricsListen: "0.0.0.0:0", tlsCertFile: certs.ServerCert,
		tlsKeyFile: certs.ServerKey, tlsClientCAFile: certs.CA}
	l, err := c.listenHealth()
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Close(); <-done }()
	pem, err := os.ReadFile(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	get := func(scheme string, conf *tls.Config) int {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: conf,
			DisableKeepAlives: true}}
		resp, err := client.Get(scheme + "://127.0.0.1:" + port + "/")
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	pair, err := tls.LoadX509KeyPair(certs.ClientCert, certs.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	if got := get("https", &tls.Config{RootCAs: roots,
		Certificates: []tls.Certificate{pair}}); got != http.StatusNotFound {
		t.Errorf("with a certificate: status %d", got)
	}
	if got := get("https", &tls.Config{RootCAs: roots}); got != 0 {
		t.Errorf("without a certificate: status %d", got)
	}
	strangers, err := calicotest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := get("https", &tls.Config{RootCAs: roots,
		Certificates: keyPair(t, strangers)}); got != 0 {
		t.Errorf("with a certificate of another authority: status %d", got)
	}
	if got := get("http", nil); got == http.StatusNotFound {
		t.Error("plain text was answered")
	}
	c.tlsClientCAFile = certs.ServerKey
	if _, err := c.listenHealth(); err == nil {
		t.Error("a CA file without a certificate was accepted")
	}
}
