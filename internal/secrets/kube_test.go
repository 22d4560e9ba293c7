package secrets

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer is as much of the Kubernetes API as lists and watches Secrets one by one. It refuses
// what a role with resourceNames would.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	token   string
	refuse  int // status of every answer; 0: none
	raw     string
	version int
	secrets map[string]map[string]string
	changed chan struct{} // closed and made anew with every change
	watches int           // now
	lists   int
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{token: "t1", version: 10, secrets: map[string]map[string]string{},
		changed: make(chan struct{})}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

// change changes something and tells the watches.
func (a *apiServer) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.version++
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, one := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	a.mu.Lock()
	status := a.refuse
	if r.Header.Get("Authorization") != "Bearer "+a.token {
		status = http.StatusUnauthorized
	}
	if r.URL.Path != "/api/v1/namespaces/kube-system/secrets" || !one ||
		r.Method != http.MethodGet {
		status = http.StatusForbidden
	}
	if status != 0 {
		a.mu.Unlock()
		w.WriteHeader(status)
		return
	}
	if r.URL.Query().Get("watch") == "true" {
		a.watches++
		a.mu.Unlock()
		a.watch(w, r, name)
		a.mu.Lock()
		a.watches--
		a.mu.Unlock()
		return
	}
	defer a.mu.Unlock()
	a.lists++
	if a.raw != "" {
		fmt.Fprint(w, a.raw)
		return
	}
	items := []any{}
	if data, ok := a.secrets[name]; ok {
		items = append(items, secretJSON(name, data))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "SecretList",
		"metadata": map[string]string{"resourceVersion": fmt.Sprint(a.version)}, "items": items})
}

func secretJSON(name string, data map[string]string) any {
	encoded := map[string][]byte{}
	for k, v := range data {
		encoded[k] = []byte(v)
	}
	return map[string]any{"data": encoded,
		"metadata": map[string]string{"name": name, "resourceVersion": "11"}}
}

// watch sends the Secret with each change since the version that the client has.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, name string) {
	sent := r.URL.Query().Get("resourceVersion")
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		a.mu.Lock()
		changed, now := a.changed, fmt.Sprint(a.version)
		data, exists := a.secrets[name]
		gone := sent == "gone"
		a.mu.Unlock()
		if gone {
			return
		}
		if now != sent {
			kind := "MODIFIED"
			if !exists {
				kind = "DELETED"
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK",
				"object": map[string]any{"metadata": map[string]any{"resourceVersion": "11"}}})
			_ = json.NewEncoder(w).Encode(map[string]any{"type": kind,
				"object": secretJSON(name, data)})
			sent = now
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// bed is a Kube that runs against an apiServer.
type bed struct {
	*Kube
	server *apiServer
	log    *testlog.Buffer
	token  string
}

func newBed(t *testing.T) *bed {
	server, log := newAPIServer(t), &testlog.Buffer{}
	return newBedAt(t, server, server.URL, log)
}

// newBedAt reaches the server by a URL of its own.
func newBedAt(t *testing.T, server *apiServer, url string, log *testlog.Buffer) *bed {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	token := filepath.Join(dir, "token")
	write(t, token, "t1\n")
	config := filepath.Join(dir, "kubeconfig")
	write(t, config, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: test, user: {tokenFile: token}}]
`, url))
	client, err := kubernetes.NewClientFor(kubernetes.ClientConfig{Kubeconfig: config})
	if err != nil {
		t.Fatal(err)
	}
	k := NewKube(client, "kube-system", slog.New(slog.NewTextHandler(log,
		&slog.HandlerOptions{Level: slog.LevelDebug})))
	k.pause, k.longestPause = 10*time.Millisecond, 50*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &bed{k, server, log, token}
}

// becomes waits until the password is want, or, where want begins with "!", until the error
// contains the rest.
func (b *bed) becomes(t *testing.T, ref, want string) {
	t.Helper()
	name, key, _ := strings.Cut(ref, "/")
	deadline := time.Now().Add(2 * time.Minute)
	for {
		got, err := b.Lookup(calico.SecretKeyRef{Name: name, Key: key})
		if problem, fails := strings.CutPrefix(want, "!"); fails && err != nil &&
			strings.Contains(err.Error(), problem) || !fails && err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q, %v; want %q\n%s", ref, got, err, want, b.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bed) watched(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		b.server.mu.Lock()
		have := b.server.watches
		b.server.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d watches, want %d", have, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestKubeFollows(t *testing.T) {
	b := newBed(t)
	s := b.server
	if _, err := b.Lookup(calico.SecretKeyRef{Name: "bgp", Key: "tor"}); err == nil {
		t.Fatal("a first lookup has a password")
	}
	b.becomes(t, "bgp/tor", "!secret kube-system/bgp: it does not exist")
	b.watched(t, 1)

	s.change(func() { s.secrets["bgp"] = map[string]string{"tor": "one", "empty": "\n"} })
	b.becomes(t, "bgp/tor", "one")
	b.becomes(t, "bgp/other", "!has no key other")
	b.becomes(t, "bgp/empty", "!key empty: it is empty")
	s.change(func() { s.secrets["bgp"] = map[string]string{"tor": " two\n\x00", "other": "o"} })
	b.becomes(t, "bgp/tor", " two\n\x00") // bytes are taken as they are
	// BIRD cannot have a line end in a password: what wrote a file has added it. It can have a
	// carriage return.
	for stored, want := range map[string]string{"three\r\n": "three", "four\n\n": "four\n",
		"five\r": "five\r"} {
		s.change(func() { s.secrets["bgp"] = map[string]string{"tor": stored, "other": "o"} })
		b.becomes(t, "bgp/tor", want)
	}
	b.becomes(t, "bgp/other", "o")
	s.change(func() { s.secrets["mesh"] = map[string]string{"key": "m"} })
	b.becomes(t, "mesh/key", "m")
	b.watched(t, 2) // one for each Secret, however many keys
	s.change(func() { delete(s.secrets, "bgp") })
	b.becomes(t, "bgp/tor", "!it does not exist")
	b.becomes(t, "mesh/key", "m")
	s.change(func() { s.secrets["bgp"] = nil })
	b.becomes(t, "bgp/tor", "!has no key tor")

	s.mu.Lock()
	lists := s.lists
	s.mu.Unlock()
	if lists != 2 {
		t.Errorf("%d lists for two Secrets: changes did not come by watching", lists)
	}
	b.becomes(t, "../tor", "! is no name of a secret")
}

func TestKubeTrouble(t *testing.T) {
	b := newBed(t)
	s := b.server
	s.change(func() { s.secrets["bgp"] = map[string]string{"tor": "hunter2"} })
	b.becomes(t, "bgp/tor", "hunter2")
	b.watched(t, 1)

	// The API server is away, then refuses: what is known stays.
	s.mu.Lock()
	s.refuse = http.StatusServiceUnavailable
	s.mu.Unlock()
	s.CloseClientConnections()
	b.logs(t, "503 Service Unavailable")
	b.becomes(t, "bgp/tor", "hunter2")
	b.becomes(t, "new/key", "!503 Service Unavailable")
	s.mu.Lock()
	s.refuse = http.StatusForbidden
	s.mu.Unlock()
	b.becomes(t, "new/key", "!403 Forbidden")
	b.becomes(t, "bgp/tor", "hunter2")

	// Meanwhile it changed, and another token is asked for.
	s.change(func() {
		s.refuse, s.token, s.secrets["bgp"] = 0, "t2", map[string]string{"tor": "correct horse"}
	})
	b.becomes(t, "new/key", "!401 Unauthorized")
	// client-go reads the file anew within a minute; here the old token is taken again instead
	s.change(func() { s.token = "t1" })
	b.becomes(t, "bgp/tor", "correct horse")
	b.becomes(t, "new/key", "!it does not exist")
	b.watched(t, 2) // one that begins later would outlive the connections that are closed

	// The version of the list is too old for a watch, time and again: listing alone brings changes.
	s.change(func() {
		s.raw = `{"kind":"SecretList","metadata":{"resourceVersion":"gone"},` +
			`"items":[{"data":{"tor":"bGlzdGVk"}}]}`
	})
	s.CloseClientConnections()
	b.becomes(t, "bgp/tor", "listed")
	// Garbage, which must not be quoted.
	s.change(func() {
		s.raw = `{"kind":"SecretList","metadata":{"resourceVersion":"gone"},` +
			`"items":[{"data":{"tor":"!hunter3!"}}]}`
	})
	b.logs(t, "cannot be read")
	s.change(func() { s.raw = "" })
	b.becomes(t, "new/key", "!it does not exist")
	b.becomes(t, "bgp/tor", "correct horse")

	for _, password := range []string{"hunter2", "hunter3", "correct horse", "listed", "t1", "t2"} {
		if strings.Contains(b.log.String(), password) {
			t.Errorf("the log has %q:\n%s", password, b.log)
		}
	}
}

func (b *bed) logs(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(b.log.String(),
		text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing logged with %q:\n%s", text, b.log)
		}
	}
}

func TestKubeTrustsItsCA(t *testing.T) {
	server := newAPIServer(t)
	// httptest's servers share a certificate; a name that is not in it stands for a wrong one.
	b := newBedAt(t, server, strings.Replace(server.URL, "127.0.0.1", "localhost", 1),
		&testlog.Buffer{})
	b.becomes(t, "bgp/tor", "!certificate")
}
