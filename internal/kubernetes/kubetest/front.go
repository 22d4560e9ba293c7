package kubetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
)

// NewFront starts a server that passes requests on to a real API server, with their tokens. It
// counts, and has the faults that need no objects: Refuse, Hang, Deny, OnWrite, OnGet, EndWatches.
// It ends with the test.
func NewFront(t *testing.T, r *Real) *Server {
	t.Helper()
	to, err := url.Parse(fmt.Sprintf("https://127.0.0.1:%d", r.port))
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(r.CA()) {
		t.Fatalf("kubetest: no way to the API server: %v", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true}
	s := Start()
	s.t = t
	s.behind = &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(to) },
		Transport:      transport,
		FlushInterval:  -1, // events of a watch are not to wait
		ModifyResponse: s.passed,
		ErrorLog:       log.New(io.Discard, "", 0), // a client has gone
	}
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	return s
}

// askedFor is the key of a write in its request's context: what was written.
type askedFor struct{}

// pass has the server behind do what is asked. A watch ends as one of ours does.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, q request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	switch {
	case q.verb == "watch":
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		go func() {
			select {
			case <-ended:
				cancel()
			case <-ctx.Done():
			}
		}()
	case q.verb == "get":
		s.reads(q)
	case slices.Contains([]string{"create", "patch", "delete"}, q.verb):
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		name := q.name
		if q.verb == "create" {
			name = headOf(body).Metadata.Name
		}
		if s.refusesWrite(w, q, name) {
			return
		}
		// a write that was sent is done, though its client does not wait any more
		ctx = context.WithValue(context.WithoutCancel(ctx), askedFor{},
			fmt.Sprintf("%s %s %s", q.verb, q.kind, name))
	}
	s.behind.ServeHTTP(counted{w, &s.sent}, r.WithContext(ctx))
}

// counted counts what is sent, as it is on its way: an API server compresses long lists.
type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (c counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Sent is how many bytes of answers a front has passed on.
func (s *Server) Sent() int64 { return s.sent.Load() }

// passed notes a write that was done, before its client hears of it.
func (s *Server) passed(resp *http.Response) error {
	if did, ok := resp.Request.Context().Value(askedFor{}).(string); ok &&
		resp.StatusCode/100 == 2 {
		s.locked(func() { s.wrote = append(s.wrote, did) })
	}
	return nil
}
