package adminclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico/calicotest"
)

// authority is one, with certificates that it has signed for a server of some names and a client.
type authority struct {
	roots          *x509.CertPool
	server, client tls.Certificate
}

func newAuthority(t *testing.T, names ...string) authority {
	t.Helper()
	files, err := calicotest.WriteCerts(t.TempDir(), names...)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{roots: x509.NewCertPool()}
	a.roots.AppendCertsFromPEM(pem)
	if a.server, err = tls.LoadX509KeyPair(files.ServerCert, files.ServerKey); err != nil {
		t.Fatal(err)
	}
	if a.client, err = tls.LoadX509KeyPair(files.ClientCert, files.ClientKey); err != nil {
		t.Fatal(err)
	}
	return a
}

// listen answers as --query-listen does, until the test ends.
func listen(t *testing.T, of authority, h http.Handler) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{ClientCAs: of.roots,
		Certificates: []tls.Certificate{of.server}, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// Each way in which the agent of another host cannot be asked says which it is.
func TestRemote(t *testing.T) {
	ours, others := newAuthority(t, "edge-3"), newAuthority(t, "edge-3")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"node":"edge-3"}`)
	})
	mux.HandleFunc("GET /v1/plan", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"plan":`)
	})
	mux.HandleFunc("GET /v1/routes", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not now", http.StatusConflict)
	})
	mux.HandleFunc("GET /v1/tunnels", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v1/status", http.StatusFound)
	})
	address := listen(t, ours, mux)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	conf := func(server, client authority) *tls.Config {
		return &tls.Config{RootCAs: server.roots, Certificates: []tls.Certificate{client.client}}
	}
	for name, x := range map[string]struct {
		node, address, path string
		conf                *tls.Config
		want                string // "": it answers
	}{
		"well": {"edge-3", address, "/v1/status", conf(ours, ours), ""},
		"absent": {"edge-3", closed.Addr().String(), "/v1/status", conf(ours, ours),
			"nothing listens on"},
		"another node's certificate": {"edge-7", address, "/v1/status", conf(ours, ours),
			"is not believed: x509: certificate is valid for localhost, edge-3, not edge-7"},
		"of another authority": {"edge-3", address, "/v1/status", conf(others, ours),
			"is not believed: x509: certificate signed by unknown authority"},
		"we are strangers": {"edge-3", address, "/v1/status", conf(ours, others),
			"does not accept our certificate: "},
		"we have none": {"edge-3", address, "/v1/status", &tls.Config{RootCAs: ours.roots},
			"does not accept our certificate: "},
		"an older agent": {"edge-3", address, "/v1/explain", conf(ours, ours),
			"does not know GET /v1/explain: it is of another version"},
		"nonsense": {"edge-3", address, "/v1/plan", conf(ours, ours),
			"answers what cannot be read: unexpected EOF"},
		"a redirect": {"edge-3", address, "/v1/tunnels", conf(ours, ours),
			"sends us elsewhere: 302 Found"},
		"it refuses": {"edge-3", address, "/v1/routes", conf(ours, ours), "not now"},
	} {
		var s agent.Status
		err := NewRemote(x.node, x.address, x.conf).Get(t.Context(), x.path, nil, &s)
		switch {
		case x.want == "" && (err != nil || s.Node != "edge-3"):
			t.Errorf("%s: %v, %q", name, err, s.Node)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: %v; want %q", name, err, x.want)
		case errors.Is(err, ErrAway):
			t.Errorf("%s: it is there: %v", name, err)
		}
	}
}

// A host that no packet reaches is away.
func TestUnreachableIsAway(t *testing.T) {
	for _, cause := range []syscall.Errno{syscall.ETIMEDOUT, syscall.EHOSTUNREACH,
		syscall.ENETUNREACH} {
		c := NewRemote("edge-3", "192.0.2.3:1", &tls.Config{})
		c.http.Transport = refusal{cause}
		if _, err := c.Status(t.Context()); !errors.Is(err, ErrAway) || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// One that hangs costs what the caller's patience is.
func TestRemoteHangs(t *testing.T) {
	ours, end := newAuthority(t, "edge-3"), make(chan struct{})
	defer close(end)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	address := listen(t, ours, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-end
	}))
	c := NewRemote("edge-3", address, &tls.Config{RootCAs: ours.roots,
		Certificates: []tls.Certificate{ours.client}})
	_, err := c.Status(ctx)
	if !errors.Is(err, ErrAway) || !strings.HasPrefix(err.Error(), "the agent of edge-3 ("+address+
		") does not answer") {
		t.Error(err)
	}
}
