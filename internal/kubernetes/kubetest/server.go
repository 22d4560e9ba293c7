// Package kubetest is a stand-in for the Kubernetes API server, as far as it serves Nodes: lists,
// watches with their ends and their errors, one Node, merge patches, a token. It is for tests.
package kubetest

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is what the server asks for until SetToken.
const Token = "t0ken"

// Server has Nodes, over TLS. Its methods may be called at any time.
type Server struct {
	t    *testing.T
	http *httptest.Server

	mu      sync.Mutex // guards what follows
	nodes   map[string]*corev1.Node
	version int
	oldest  int           // the first version from which a watch can begin
	events  []event       // since oldest
	changed chan struct{} // closed and made anew with each change
	ended   chan struct{} // closed and made anew to end all watches
	token   string
	refuse  int           // status of every answer; 0: none
	hang    chan struct{} // requests wait until it is closed; nil: they do not
	streams bool          // it lists by a watch, where that is asked for
	stalls  bool          // it takes such a watch and sends nothing
	lists   int
	patches []string // bodies
}

type event struct {
	version int
	kind    string
	node    *corev1.Node
}

// NewServer starts a server without Nodes. It ends with the test.
func NewServer(t *testing.T) *Server {
	s := &Server{
		t: t, nodes: map[string]*corev1.Node{}, version: 100, oldest: 100, token: Token,
		changed: make(chan struct{}), ended: make(chan struct{}),
	}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.http.StartTLS()
	t.Cleanup(func() {
		s.Hang(false)
		s.EndWatches()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Kubeconfig writes a file with which a client reaches the server, and returns its path.
func (s *Server) Kubeconfig() string { return s.KubeconfigFor("token: " + Token) }

// KubeconfigFor does so for a user with other credentials, as the file has them.
func (s *Server) KubeconfigFor(credentials string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: test, user: {%s}}]
`, s.http.URL, credentials)
	file := filepath.Join(dir, "kubeconfig")
	err := errors.Join(os.WriteFile(file, []byte(config), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	if err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// Put adds a Node that is ready, or changes one.
func (s *Server) Put(name string, change ...func(*corev1.Node)) {
	s.locked(func() {
		n, kind := &corev1.Node{}, "ADDED"
		if was := s.nodes[name]; was != nil {
			n, kind = was.DeepCopy(), "MODIFIED"
		} else {
			n.Name = name
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			}}
		}
		for _, do := range change {
			do(n)
		}
		s.put(kind, n)
	})
}

// put needs s.mu.
func (s *Server) put(kind string, n *corev1.Node) {
	s.version++
	n.APIVersion, n.Kind, n.ResourceVersion = "v1", "Node", strconv.Itoa(s.version)
	s.nodes[n.Name] = n
	if kind == "DELETED" {
		delete(s.nodes, n.Name)
	}
	s.events = append(s.events, event{s.version, kind, n})
	close(s.changed)
	s.changed = make(chan struct{})
}

// NotReady is a change for Put, as those that follow.
func NotReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

// Ready undoes NotReady.
func Ready(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }

// Cordon is what kubectl does.
func Cordon(n *corev1.Node) { n.Spec.Unschedulable = true }

// Uncordon undoes Cordon.
func Uncordon(n *corev1.Node) { n.Spec.Unschedulable = false }

// Deleting marks a Node that waits for its finalizers.
func Deleting(n *corev1.Node) {
	now := metav1.Now()
	n.DeletionTimestamp = &now
}

// Taint adds a taint.
func Taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// Delete removes a Node.
func (s *Server) Delete(name string) {
	s.locked(func() { s.put("DELETED", s.nodes[name].DeepCopy()) })
}

// Node returns one; nil: there is none.
func (s *Server) Node(name string) (n *corev1.Node) {
	s.locked(func() { n = s.nodes[name].DeepCopy() })
	return n
}

// Refuse has every request answered with a status, and ends all watches; 0: no more.
func (s *Server) Refuse(status int) {
	s.locked(func() { s.refuse = status })
	if status != 0 {
		s.EndWatches()
	}
}

// SetToken has the server ask for another token.
func (s *Server) SetToken(token string) {
	s.locked(func() { s.token = token })
	s.EndWatches()
}

// Hang has requests wait for an answer, or no more.
func (s *Server) Hang(on bool) {
	s.locked(func() {
		switch {
		case on && s.hang == nil:
			s.hang = make(chan struct{})
		case !on && s.hang != nil:
			close(s.hang)
			s.hang = nil
		}
	})
}

// Stream has the server list by a watch, where a client asks for that.
func (s *Server) Stream() { s.locked(func() { s.streams = true }) }

// Stall has the server take a watch that is to list, and send nothing.
func (s *Server) Stall() { s.locked(func() { s.stalls = true }) }

// EndWatches ends all watches, as the server does every few minutes.
func (s *Server) EndWatches() {
	s.locked(func() { close(s.ended); s.ended = make(chan struct{}) })
}

// Compact forgets the history, so that watches from before are Gone.
func (s *Server) Compact() {
	s.locked(func() { s.version++; s.oldest, s.events = s.version, nil })
	s.EndWatches()
}

// Lists is how often Nodes were listed.
func (s *Server) Lists() (n int) {
	s.locked(func() { n = s.lists })
	return n
}

// Patches are the bodies of all patches.
func (s *Server) Patches() (all []string) {
	s.locked(func() { all = slices.Clone(s.patches) })
	return all
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	status := s.refuse
	hasCertificate := len(r.TLS.PeerCertificates) > 0
	if r.Header.Get("Authorization") != "Bearer "+s.token && !hasCertificate {
		status = http.StatusUnauthorized
	}
	s.mu.Unlock()
	name, one := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	q := r.URL.Query()
	switch {
	case status != 0:
		fail(w, status, "refused")
	case r.URL.Path == "/api/v1/nodes" && r.Method == http.MethodGet && q.Get("watch") != "":
		s.watch(w, r)
	case r.URL.Path == "/api/v1/nodes" && r.Method == http.MethodGet:
		s.list(w)
	case one && r.Method == http.MethodGet:
		if n := s.Node(name); n != nil {
			answer(w, n)
		} else {
			fail(w, http.StatusNotFound, "nodes \""+name+"\" not found")
		}
	case one && r.Method == http.MethodPatch:
		s.patch(w, r, name)
	default:
		fail(w, http.StatusForbidden, "forbidden")
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure(status, message))
}

func failure(status int, message string) metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
		http.StatusForbidden:    metav1.StatusReasonForbidden,
		http.StatusNotFound:     metav1.StatusReasonNotFound,
		http.StatusConflict:     metav1.StatusReasonConflict,
		http.StatusGone:         metav1.StatusReasonExpired,
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
		Message: message, Reason: reasons[status], Code: int32(status),
	}
}

func (s *Server) list(w http.ResponseWriter) {
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	s.locked(func() {
		s.lists++
		list.ResourceVersion = strconv.Itoa(s.version)
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			list.Items = append(list.Items, *s.nodes[name].DeepCopy())
		}
	})
	answer(w, list)
}

// watch sends what has changed since the version that the client has, or all there is and a mark.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var first []event
	s.mu.Lock()
	initial, ended := q.Get("sendInitialEvents") == "true", s.ended
	sent, _ := strconv.Atoi(q.Get("resourceVersion"))
	refused := 0
	switch {
	case initial && s.stalls:
		sent = math.MaxInt
	case initial && !s.streams:
		refused = http.StatusUnprocessableEntity
	case initial:
		s.lists++
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			first = append(first, event{s.version, "ADDED", s.nodes[name]})
		}
		mark := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		mark.ResourceVersion = strconv.Itoa(s.version)
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		first = append(first, event{s.version, "BOOKMARK", mark})
		sent = s.version
	}
	gone := !initial && sent < s.oldest
	s.mu.Unlock()
	if refused != 0 {
		fail(w, refused, "sendInitialEvents is forbidden")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(kind string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	}
	for _, e := range first {
		send(e.kind, e.node)
	}
	if gone { // a watch says so in its stream
		send("ERROR", failure(http.StatusGone, "too old resource version"))
		return
	}
	for {
		s.mu.Lock()
		events, changed := slices.Clone(s.events), s.changed
		s.mu.Unlock()
		for _, e := range events {
			if e.version > sent {
				send(e.kind, e.node)
				sent = e.version
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// patch merges what a cordon has: annotations, unschedulable, and the version that it asks for.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, name string) {
	var p struct {
		Metadata struct {
			ResourceVersion string
			Annotations     map[string]*string
		}
		Spec struct{ Unschedulable *bool }
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &p) != nil ||
		r.Header.Get("Content-Type") != "application/merge-patch+json" {
		fail(w, http.StatusUnsupportedMediaType, "not a merge patch")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.nodes[name]
	switch {
	case was == nil:
		fail(w, http.StatusNotFound, "not found")
		return
	case p.Metadata.ResourceVersion != was.ResourceVersion:
		fail(w, http.StatusConflict, "the object has been modified")
		return
	}
	s.patches = append(s.patches, string(body))
	n := was.DeepCopy()
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	for k, v := range p.Metadata.Annotations {
		if delete(n.Annotations, k); v != nil {
			n.Annotations[k] = *v
		}
	}
	if p.Spec.Unschedulable != nil {
		n.Spec.Unschedulable = *p.Spec.Unschedulable
	}
	s.put("MODIFIED", n)
	answer(w, n)
}
