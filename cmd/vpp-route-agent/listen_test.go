package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testlog"
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

// TestStrangersDoNotFillTheLog: each connection of a port scanner is an error of net/http's.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	certs, err := calicotest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&config{metricsListen: "0.0.0.0:0", tlsCertFile: certs.ServerCert,
		tlsKeyFile: certs.ServerKey, tlsClientCAFile: certs.CA}).listenHealth()
	if err != nil {
		t.Fatal(err)
	}
	var out testlog.Buffer
	log := newLogger(&out, config{nodeName: "a", logLevel: "info", logFormat: "text"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- agent.Serve(ctx, l, http.NotFoundHandler(), log.Logger) }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for range 50 {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "SSH-2.0-scanner\r\n")
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	log.end()
	text := out.String()
	if n := strings.Count(text, "TLS handshake error from 127.0.0.1:"); n != 2 ||
		!strings.Contains(text, "repeated=49") {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// The page shows routes and peers: they leave this host to clients with certificates alone.
func TestWhereThePageIsServed(t *testing.T) {
	for _, tc := range []struct {
		listen, authority string
		refused           bool
	}{
		{"127.0.0.1:9179", "", false}, {"[::1]:9179", "", false},
		{"0.0.0.0:9179", "", true}, {"192.0.2.1:9179", "", true},
		{"0.0.0.0:9179", "ca.pem", false}, {"192.0.2.1:9179", "ca.pem", false},
	} {
		c := config{metricsListen: tc.listen, tlsClientCAFile: tc.authority}
		if got := c.pageRefused(); (got != "") != tc.refused {
			t.Errorf("%s, clients' authority %q: %q", tc.listen, tc.authority, got)
		}
	}
	rest := http.NotFoundHandler()
	for name, tc := range map[string]struct {
		cfg   config
		want  int
		parts int
	}{
		"on":      {config{statusPage: true, metricsListen: "127.0.0.1:1"}, http.StatusOK, 1},
		"off":     {config{metricsListen: "127.0.0.1:1"}, http.StatusNotFound, 0},
		"refused": {config{statusPage: true, metricsListen: ":1"}, http.StatusForbidden, 0},
	} {
		p := &program{cfg: tc.cfg}
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		if p.addPage(rest).ServeHTTP(w, r); w.Code != tc.want || len(p.parts) != tc.parts {
			t.Errorf("%s: %d, %d parts", name, w.Code, len(p.parts))
		}
	}
}

func TestNamesOfTheCertificate(t *testing.T) {
	certs, err := calicotest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := config{tlsCertFile: certs.ServerCert, tlsKeyFile: certs.ServerKey}
	if !c.named("localhost") || c.named("rebound.example") {
		t.Errorf("%v, %v", c.named("localhost"), c.named("rebound.example"))
	}
	if c = (config{}); c.named("localhost") {
		t.Error("there is no certificate, and it has a name")
	}
}
