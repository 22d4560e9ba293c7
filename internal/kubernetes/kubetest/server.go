// Package kubetest is a stand-in for the Kubernetes API server: objects of any kind as JSON, lists
// in pages, watches with their bookmarks, ends and errors, writes of one object at a time, a token,
// rights, and faults on demand. It is for tests and the demo. Real starts a real API server.
package kubetest

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vpp-route-agent/internal/durable"
)

// Token is what the server asks for until SetToken.
const Token = "t0ken"

// Server has objects, over TLS. Its methods may be called at any time.
//
// A kind is named as RBAC does: "nodes", "ippools.crd.projectcalico.org". Those of the core group
// and Leases are always there, others from Install on.
type Server struct {
	t    *testing.T // nil: of no test
	http *httptest.Server

	mu      sync.Mutex // guards what follows
	state   state
	groups  map[string]string // version of each group that has kinds
	kinds   map[string]bool   // of these groups
	oldest  int               // the first version from which a watch can begin
	events  []event           // since oldest
	changed chan struct{}     // closed and made anew with each change
	ended   chan struct{}     // closed and made anew to end all watches
	token   string
	faults  faults
	lists   map[string]int // by kind
	asked   map[string]int // requests, by verb and kind
	patches []string       // bodies
	wrote   []string       // by verb, kind and name
	renewed bool           // next is the certificate
	file    string         // has all there is; "": none does

	next   *tls.Certificate
	sent   atomic.Int64 // bytes, by a front
	behind http.Handler // does what is asked; nil: this server does
}

// state is all there is.
type state struct {
	version int
	objects map[string]map[string]json.RawMessage // by kind, then "namespace/name" or name
}

func (s state) clone() state {
	all := make(map[string]map[string]json.RawMessage, len(s.objects))
	for kind, of := range s.objects {
		all[kind] = maps.Clone(of)
	}
	return state{s.version, all}
}

type event struct {
	version  int
	kind     string
	key      string
	was, now json.RawMessage // nil: not there
}

// Start starts a server without objects on a free port. The caller closes it.
func Start() *Server { return StartOn(nil) }

// StartOn starts one on l, which it closes; nil: on a free port.
func StartOn(l net.Listener) *Server {
	s := &Server{
		state: state{100, map[string]map[string]json.RawMessage{}}, oldest: 100,
		groups: map[string]string{}, kinds: map[string]bool{}, token: Token,
		changed: make(chan struct{}), ended: make(chan struct{}), lists: map[string]int{},
		asked: map[string]int{}, faults: faults{denied: map[string]bool{}},
	}
	s.http = httptest.NewUnstartedServer(s)
	if l != nil {
		s.http.Listener.Close()
		s.http.Listener = l
	}
	s.http.EnableHTTP2 = true
	s.next = newCertificate()
	s.http.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, GetCertificate: s.certificate}
	s.http.StartTLS()
	return s
}

// newCertificate is one of its own authority, for the name that is in kubeconfigs.
func newCertificate() *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic("kubetest: " + err.Error()) // there is no randomness
	}
	self := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{serverName},
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	if err != nil {
		panic("kubetest: " + err.Error()) // the template is ours
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// certificate is the present one; nil: the one that httptest has.
func (s *Server) certificate(*tls.ClientHelloInfo) (c *tls.Certificate, err error) {
	s.locked(func() {
		if s.renewed {
			c = s.next
		}
	})
	return c, nil
}

// RenewCertificate has the server show another certificate, which clients have trusted before, and
// ends all connections.
func (s *Server) RenewCertificate() {
	s.locked(func() { s.renewed = true })
	s.EndWatches()
	s.http.CloseClientConnections()
}

// Close ends the server.
func (s *Server) Close() {
	s.Hang(false)
	s.EndWatches()
	s.http.CloseClientConnections()
	s.http.Close()
}

// NewServer starts a server without objects. It ends with the test.
func NewServer(t *testing.T) *Server {
	s := Start()
	s.t = t
	t.Cleanup(s.Close)
	return s
}

// URL is the server's address.
func (s *Server) URL() string { return s.http.URL }

// Kubeconfig writes a file with which a client reaches the server, and returns its path.
func (s *Server) Kubeconfig() string { return s.KubeconfigFor("token: " + Token) }

// KubeconfigFor does so for a user with other credentials, as the file has them.
func (s *Server) KubeconfigFor(credentials string) string {
	s.t.Helper()
	file, err := s.WriteKubeconfig(s.t.TempDir(), s.URL(), credentials)
	if err != nil {
		s.t.Fatal(err)
	}
	return file
}

// WriteKubeconfig writes such a file into dir, for clients that reach the server at url.
func (s *Server) WriteKubeconfig(dir, url, credentials string) (string, error) {
	// the name is one of the certificate's, whatever the address is
	return writeKubeconfig(dir, url, serverName, credentials, s.CA())
}

// serverName is in the certificate of httptest, too.
const serverName = "example.com"

// writeKubeconfig is for a server whose certificate has a name, and that authority. Clients that
// are reading the files see them whole, also when they are written again.
func writeKubeconfig(dir, url, name, credentials string, ca []byte) (string, error) {
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters:
- name: test
  cluster: {server: %q, certificate-authority: ca.crt, tls-server-name: %s}
users: [{name: test, user: {%s}}]
`, url, name, credentials)
	file := filepath.Join(dir, "kubeconfig")
	return file, errors.Join(durable.WriteFile(filepath.Join(dir, "ca.crt"), ca),
		durable.WriteFile(file, []byte(config)))
}

// CA are the authorities of the server's certificate, and of the next one, in PEM form.
func (s *Server) CA() []byte {
	var all []byte
	for _, der := range [][]byte{s.http.Certificate().Raw, s.next.Certificate[0]} {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return all
}

func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// Install has the server know kinds of a group and version, "crd.projectcalico.org/v1".
func (s *Server) Install(groupVersion string, plurals ...string) {
	group, version, _ := strings.Cut(groupVersion, "/")
	s.locked(func() {
		s.groups[group] = version
		for _, p := range plurals {
			s.kinds[p+"."+group] = true
		}
	})
}

// Uninstall deletes the objects of a kind, of which its watches tell before they end, and has the
// server forget the kind, as if the CRD were deleted.
func (s *Server) Uninstall(kind string) {
	s.locked(func() {
		for _, key := range slices.Sorted(maps.Keys(s.state.objects[kind])) {
			s.put(kind, key, nil)
		}
		s.forget(kind)
	})
}

// Unserve has the server not know a kind whose objects are kept, as if the CRD were not served, and
// ends its watches.
func (s *Server) Unserve(kind string) { s.locked(func() { s.forget(kind) }) }

// forget needs s.mu. A group without kinds is none.
func (s *Server) forget(kind string) {
	delete(s.kinds, kind)
	_, group, _ := strings.Cut(kind, ".")
	ofGroup := func(k string) bool { return strings.HasSuffix(k, "."+group) }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(s.kinds)), ofGroup) {
		delete(s.groups, group)
	}
	s.tell()
}

// knows needs s.mu.
func (s *Server) knows(q request) bool {
	group, version, isGroup := strings.Cut(q.apiVersion, "/")
	return !isGroup || q.apiVersion == "coordination.k8s.io/v1" ||
		s.groups[group] == version && s.kinds[q.kind]
}

// PutObject adds or replaces an object, whose metadata.name (and namespace) it needs.
func (s *Server) PutObject(kind string, object []byte) {
	s.locked(func() { s.put(kind, keyOf(object), object) })
}

// DeleteObject removes an object, by "namespace/name" or name.
func (s *Server) DeleteObject(kind, key string) {
	s.locked(func() { s.put(kind, key, nil) })
}

// Object returns one; nil: there is none.
func (s *Server) Object(kind, key string) (object json.RawMessage) {
	s.locked(func() { object = s.state.objects[kind][key] })
	return object
}

type head struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
}

func headOf(object []byte) (h head) {
	_ = json.Unmarshal(object, &h) // what is garbage has no fields to select by
	return h
}

func keyOf(object []byte) string {
	h := headOf(object).Metadata
	if h.Namespace != "" {
		return h.Namespace + "/" + h.Name
	}
	return h.Name
}

// put needs s.mu. now is nil for what goes.
func (s *Server) put(kind, key string, now json.RawMessage) {
	was := s.state.objects[kind][key]
	if was == nil && now == nil {
		return
	}
	s.state.version++
	if s.state.objects[kind] == nil {
		s.state.objects[kind] = map[string]json.RawMessage{}
	}
	if now != nil {
		now = withVersion(now, s.state.version)
		s.state.objects[kind][key] = now
	} else {
		was = withVersion(was, s.state.version)
		delete(s.state.objects[kind], key)
	}
	s.events = append(s.events, event{s.state.version, kind, key, was, now})
	s.tell()
}

// tell needs s.mu.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func withVersion(object json.RawMessage, version int) json.RawMessage {
	var fields, meta map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil || json.Unmarshal(fields["metadata"], &meta) != nil {
		return object
	}
	meta["resourceVersion"] = json.RawMessage(strconv.Quote(strconv.Itoa(version)))
	fields["metadata"], _ = json.Marshal(meta)
	out, _ := json.Marshal(fields)
	return out
}

// Version is the newest version.
func (s *Server) Version() (v int) {
	s.locked(func() { v = s.state.version })
	return v
}

// ListsOf is how often a kind was listed, page by page counted once.
func (s *Server) ListsOf(kind string) (n int) {
	s.locked(func() { n = s.lists[kind] })
	return n
}

// Asked is how many requests of a verb (get, list, watch) there were for a kind, also those that
// failed.
func (s *Server) Asked(verb, kind string) (n int) {
	s.locked(func() { n = s.asked[verb+" "+kind] })
	return n
}

// request is what a client asks for.
type request struct {
	verb, kind, apiVersion string
	namespace, name        string
	fields                 map[string]string // selected
}

// matches reports whether an object is among those that are asked for.
func (q request) matches(object []byte) bool {
	if object == nil {
		return false
	}
	if q.namespace == "" && len(q.fields) == 0 {
		return true
	}
	for _, value := range q.fields {
		if !bytes.Contains(object, []byte(value)) { // an API server has an index
			return false
		}
	}
	h := headOf(object)
	return (q.namespace == "" || q.namespace == h.Metadata.Namespace) &&
		cmp.Or(q.fields["metadata.name"], h.Metadata.Name) == h.Metadata.Name &&
		cmp.Or(q.fields["spec.nodeName"], h.Spec.NodeName) == h.Spec.NodeName
}

// read parses a request as far as there are such paths.
func read(r *http.Request) (q request, ok bool) {
	rest, isCore := strings.CutPrefix(r.URL.Path, "/api/v1/")
	q.apiVersion = "v1"
	suffix := ""
	if !isCore {
		parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/apis/"), "/", 3)
		if len(parts) < 3 {
			return q, false
		}
		q.apiVersion, rest, suffix = parts[0]+"/"+parts[1], parts[2], "."+parts[0]
	}
	parts := strings.Split(rest, "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.kind = parts[0] + suffix
	q.fields = map[string]string{}
	for f := range strings.SplitSeq(r.URL.Query().Get("fieldSelector"), ",") {
		if field, value, ok := strings.Cut(f, "="); ok {
			q.fields[field] = value
		}
	}
	switch {
	case len(parts) > 2:
		return q, false
	case len(parts) == 2:
		q.name = parts[1]
		q.verb = map[string]string{http.MethodGet: "get", http.MethodPatch: "patch",
			http.MethodDelete: "delete"}[r.Method]
	case r.Method == http.MethodPost:
		q.verb = "create"
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		q.verb = "watch"
	case r.Method == http.MethodGet:
		q.verb = "list"
	}
	return q, q.verb != ""
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.hangs(r) {
		return
	}
	q, ok := read(r)
	s.mu.Lock()
	s.asked[q.verb+" "+q.kind]++
	refusal := s.faults.refusal(q, s.asked[q.verb+" "+q.kind])
	retry := s.faults.retryAfter
	hasCertificate := len(r.TLS.PeerCertificates) > 0
	if s.behind == nil && r.Header.Get("Authorization") != "Bearer "+s.token && !hasCertificate {
		refusal = apierrors.NewUnauthorized("Unauthorized")
	}
	known := s.knows(q)
	s.mu.Unlock()
	switch {
	case refusal != nil:
		if retry != 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(retry/time.Second)))
		}
		fail(w, refusal)
	case s.behind != nil:
		s.pass(w, r, q)
	case r.URL.Path == "/apis":
		s.serveGroups(w)
	case !ok:
		fail(w, failure(http.StatusForbidden, "forbidden"))
	case !known: // it says so in no Status
		http.NotFound(w, r)
	case q.verb == "watch":
		s.watch(w, r, q)
	case q.verb == "list":
		s.list(w, r, q)
	case q.verb == "get":
		s.get(w, q)
	default:
		s.write(w, r, q)
	}
}

func (s *Server) get(w http.ResponseWriter, q request) {
	s.reads(q)
	key := strings.Trim(q.namespace+"/"+q.name, "/")
	if o := s.Object(q.kind, key); o != nil {
		answer(w, o)
	} else {
		fail(w, apierrors.NewNotFound(q.resource(), q.name))
	}
}

func (s *Server) reads(q request) {
	var reading Reading
	s.locked(func() { reading = s.faults.reading })
	if reading != nil {
		reading(q.kind, q.name)
	}
}

func (s *Server) serveGroups(w http.ResponseWriter) {
	all := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	s.locked(func() {
		for _, group := range slices.Sorted(maps.Keys(s.groups)) {
			all.Groups = append(all.Groups, metav1.APIGroup{Name: group,
				Versions: []metav1.GroupVersionForDiscovery{{
					GroupVersion: group + "/" + s.groups[group], Version: s.groups[group],
				}}})
		}
	})
	answer(w, all)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// singular is the Kind of a request's objects, where a client checks it.
func singular(q request) string {
	if q.kind == nodes {
		return "Node"
	}
	return "Object"
}

// list serves a page. What it continues with is the version of the list and the last name.
func (s *Server) list(w http.ResponseWriter, r *http.Request, q request) {
	v := r.URL.Query()
	limit, _ := strconv.Atoi(v.Get("limit"))
	from, version := "", 0
	if c := v.Get("continue"); c != "" {
		text, name, _ := strings.Cut(c, " ")
		version, _ = strconv.Atoi(text)
		from = name
	}
	var items []json.RawMessage
	meta := metav1.ListMeta{}
	expired, large := false, 0
	var slow time.Duration
	s.locked(func() {
		slow = s.faults.slow
		all := s.faults.listed(s.state, v.Get("resourceVersion") == "" && v.Get("continue") == "")
		atLeast, _ := strconv.Atoi(v.Get("resourceVersion"))
		if atLeast > all.version && !s.faults.lies {
			large, version = atLeast, all.version
			return
		}
		if from == "" {
			s.lists[q.kind]++
			version = all.version
		}
		expired = from != "" && (s.faults.expireContinue || version < s.oldest)
		meta.ResourceVersion = strconv.Itoa(version)
		for _, key := range slices.Sorted(maps.Keys(all.objects[q.kind])) {
			if key <= from && from != "" || !q.matches(all.objects[q.kind][key]) {
				continue
			}
			if limit > 0 && len(items) == limit {
				meta.Continue = fmt.Sprintf("%d %s", version, keyOf(items[limit-1]))
				break
			}
			items = append(items, all.objects[q.kind][key])
		}
	})
	select {
	case <-time.After(slow):
	case <-r.Context().Done():
		return
	}
	switch {
	case large != 0:
		fail(w, tooLarge(large, version))
	case expired:
		fail(w, tooLate(fmt.Sprintf("%d %s", s.Version(), from)))
	default:
		if items == nil {
			items = []json.RawMessage{}
		}
		// as the API server has it of resources it knows by their CRDs: sorted by key
		answer(w, map[string]any{"apiVersion": q.apiVersion, "kind": singular(q) + "List",
			"items": items, "metadata": meta})
	}
}
