package statuspage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/testlog"
)

// fakeAgent has the peers that it is given.
type fakeAgent struct {
	mu     sync.Mutex
	status agent.Status
	looks  int
	search func(agent.RouteQuery) agent.RouteList
	wait   func() // before each Status; nil: not at all

	counters func() agent.Counters // nil: all are zero
}

func (f *fakeAgent) Status() agent.Status {
	if f.wait != nil {
		f.wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	s := f.status
	s.BGP.Peers = append([]agent.PeerStatus{}, s.BGP.Peers...)
	return s
}

func (f *fakeAgent) Turned() time.Time { return time.Now() }

func (f *fakeAgent) Explain(_ context.Context, asked netip.Prefix) agent.Explanation {
	return agent.Explanation{Asked: asked}
}

func (f *fakeAgent) SearchRoutes(q agent.RouteQuery) agent.RouteList { return f.search(q) }

func (f *fakeAgent) Counters() agent.Counters {
	if f.counters != nil {
		return f.counters()
	}
	return agent.Counters{}
}

func (f *fakeAgent) change(by func(*agent.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by(&f.status)
}

func (f *fakeAgent) looked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

// withPeers has n peers, 10.0.0.0 and on, all Established.
func withPeers(n int) *fakeAgent {
	f := &fakeAgent{status: agent.Status{Node: "node-1", Health: "ready",
		Datastore: agent.DatastoreStatus{Connected: true}}}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		f.status.BGP.Peers = append(f.status.BGP.Peers, agent.PeerStatus{
			Peer: bgp.PeerID{Address: a}, Address: a, Node: fmt.Sprintf("node-%d", i+2),
			State: "Established", Established: true, EndOfRIB: true,
		})
	}
	return f
}

// serve runs a page of f on loopback until the test ends, as the agent serves it.
func serve(t *testing.T, f *fakeAgent, options ...func(*Page)) (p *Page, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = New(Config{Agent: f, Named: func(host string) bool { return host == "node-1.example" }})
	for _, o := range options {
		o(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { p.Run(ctx) })
	wait.Go(func() { agent.Serve(ctx, l, p.Handler(http.NotFoundHandler()), testlog.New(t)) })
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	for running := false; !running; time.Sleep(time.Millisecond) { // until then it turns away
		p.views.mu.Lock()
		running = p.views.running
		p.views.mu.Unlock()
	}
	return p, l.Addr().String()
}

// request is answered by a page of an agent without peers, that does not run.
func request(method, path string, change func(*http.Request)) *http.Response {
	p := New(Config{Agent: withPeers(0), Named: func(h string) bool { return h == "n.example" }})
	rest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "the rest has", r.URL.Path)
	})
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:9179"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	p.Handler(rest).ServeHTTP(w, r)
	return w.Result()
}

func TestAssetsAreServedUnderAStrictPolicy(t *testing.T) {
	for path, kind := range map[string]string{"/": "text/html", "/page/app.js": "text/javascript",
		"/page/page.css": "text/css", "/page/icon.svg": "image/svg+xml"} {
		got := request("GET", path, nil)
		if got.StatusCode != 200 || !strings.HasPrefix(got.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s, %s", path, got.Status, got.Header.Get("Content-Type"))
		}
		for _, part := range []string{"default-src 'none'", "script-src 'self'",
			"style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'"} {
			if !strings.Contains(got.Header.Get("Content-Security-Policy"), part) {
				t.Errorf("%s: no %s in the policy", path, part)
			}
		}
		if strings.Contains(got.Header.Get("Content-Security-Policy"), "unsafe") ||
			got.Header.Get("X-Content-Type-Options") != "nosniff" ||
			got.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, got.Header)
		}
		again := request("GET", path, func(r *http.Request) {
			r.Header.Set("If-None-Match", got.Header.Get("ETag"))
		})
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s, known by the browser: %s", path, again.Status)
		}
	}
}

// Who only scrapes metrics or probes health sees no difference, whatever they call the host.
func TestTheRestIsLeftAlone(t *testing.T) {
	for _, path := range []string{"/metrics", "/healthz", "/debug/pprof/", "/nowhere"} {
		got := request("POST", path, func(r *http.Request) {
			r.Host = "other.example"
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		})
		body, _ := io.ReadAll(got.Body)
		if string(body) != "the rest has "+path+"\n" ||
			got.Header.Get("Content-Security-Policy") != "" {
			t.Errorf("%s: %s, %v", path, body, got.Header)
		}
	}
}

func TestWhoIsRefused(t *testing.T) {
	host := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Host = name }
	}
	site := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", name) }
	}
	const asset = "/page/page.css"
	for _, tc := range []struct {
		name, method, path string
		change             func(*http.Request)
		want               int
	}{
		{"an address", "GET", asset, host("192.0.2.1:9179"), 200},
		{"an address of IPv6", "GET", asset, host("[2001:db8::1]:9179"), 200},
		{"without a port", "GET", asset, host("[::1]"), 200},
		{"localhost", "GET", asset, host("LocalHost:9179"), 200},
		{"the certificate's name", "GET", asset, host("n.example:9179"), 200},
		{"another name", "GET", asset, host("rebound.example:9179"), 403},
		{"another name, at /", "GET", "/", host("rebound.example:9179"), 403},
		{"a name that looks like an address", "GET", asset, host("127.0.0.1.example"), 403},
		{"a name below localhost", "GET", asset, host("a.localhost"), 403},
		{"no name", "GET", asset, host(""), 403},
		{"this page", "GET", asset, site("same-origin"), 200},
		{"typed by the user", "GET", asset, site("none"), 200},
		{"another site's page", "GET", asset, site("cross-site"), 403},
		{"another port's page", "GET", asset, site("same-site"), 403},
		{"a link on another site", "GET", "/", site("cross-site"), 200},
		{"HEAD", "HEAD", asset, nil, 200},
		{"POST", "POST", "/", nil, 405},
		{"POST", "POST", "/page/events", nil, 405},
		{"DELETE", "DELETE", asset, nil, 405},
		{"nothing there", "GET", "/page/nothing", nil, 404},
		{"no list of files", "GET", "/page/", nil, 404},
		{"a page that does not run", "GET", "/page/events", nil, 503},
	} {
		if got := request(tc.method, tc.path, tc.change); got.StatusCode != tc.want {
			t.Errorf("%s: %s, want %d", tc.name, got.Status, tc.want)
		}
	}
}

func TestRefusalSaysWhy(t *testing.T) {
	w := httptest.NewRecorder()
	Refuse("not here", http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusForbidden || w.Body.String() != "not here\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// stream reads the events of a page.
type stream struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
}

// event is one of either kind.
type event struct {
	name    string
	size    int
	Now     int64              `json:"now"`
	Looked  int64              `json:"looked"`
	Summary *summary           `json:"summary"`
	All     bool               `json:"all"`
	Peers   []agent.PeerStatus `json:"peers"`
}

func open(t *testing.T, address string) *stream {
	t.Helper()
	resp, err := http.Get("http://" + address + "/page/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(resp.Status, resp.Header)
	}
	return &stream{t, resp.Body, bufio.NewReader(resp.Body)}
}

func (s *stream) next() event {
	s.t.Helper()
	e, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *stream) read() (e event, err error) {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			e.name = name
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			if e.size = len(text); json.Unmarshal([]byte(text), &e) != nil {
				return e, fmt.Errorf("no JSON: %s", text)
			}
		}
		if line == "" {
			return e, nil
		}
	}
}

// state reads on to the next change.
func (s *stream) state() event {
	s.t.Helper()
	for {
		if e := s.next(); e.name == "state" {
			return e
		}
	}
}

// The first event has everything, later ones only what changed, and a change that undoes itself
// between two looks is no event.
func TestStreamTellsWhatChanges(t *testing.T) {
	f := withPeers(1000)
	_, address := serve(t, f)
	s := open(t, address)
	first := s.state()
	if !first.All || len(first.Peers) != 1000 || first.Summary == nil ||
		first.Summary.Counts.Established != 1000 || first.Looked == 0 {
		t.Fatalf("the first event: %+v", first)
	}
	f.change(func(s *agent.Status) { s.BGP.Peers[7].Established = false })
	second := s.state()
	if second.All || len(second.Peers) != 1 || second.Peers[0].Node != "node-9" ||
		second.Summary.Counts.Established != 999 {
		t.Errorf("one session lost: %+v", second)
	}
	if second.size > 4096 {
		t.Errorf("one session lost: %d bytes", second.size)
	}
	f.change(func(s *agent.Status) { s.BGP.Peers[8].Received++ })
	if third := s.state(); third.Summary != nil || len(third.Peers) != 1 {
		t.Errorf("one path more: %+v", third)
	}
	f.change(func(s *agent.Status) { s.BGP.Peers = s.BGP.Peers[1:] })
	if fourth := s.state(); !fourth.All || len(fourth.Peers) != 999 {
		t.Errorf("a peer less: %v, %d peers", fourth.All, len(fourth.Peers))
	}
}

// What changes with each message of a peer, and with each spot check, is no news.
func TestNothingIsSentWhileNothingHappens(t *testing.T) {
	f := withPeers(1)
	_, address := serve(t, f)
	s := open(t, address)
	s.state()
	f.change(func(s *agent.Status) {
		s.BGP.Peers[0].LastContact = new(time.Now())
		s.FIB.LastContact, s.FIB.Drift.Checked = new(time.Now()), 77
		s.Datastore.LastContact = new(time.Now())
	})
	changed := time.Now().UnixMilli()
	for beats := 0; ; beats++ { // until one tells of a look at the change
		e := s.next()
		if e.name != "beat" {
			t.Errorf("an event without news: %+v", e)
		}
		if e.Looked > changed {
			break
		}
		if beats == 12 {
			t.Fatal("the agent was not looked at")
		}
	}
}

// Without a page nobody looks at the agent, and with many pages no more than with one.
func TestPagesShareOneLook(t *testing.T) {
	f := withPeers(1)
	p, address := serve(t, f)
	if f.looked() != 0 {
		t.Error("somebody looks for nobody")
	}
	var all []*stream
	for range maxStreams {
		all = append(all, open(t, address))
	}
	began := time.Now()
	for _, s := range all {
		s.state()
	}
	before := f.looked()
	f.change(func(s *agent.Status) { s.Health = "degraded" })
	for _, s := range all {
		s.state()
	}
	if looks, most := f.looked()-before, int(time.Since(began)/lookEvery)+2; looks > most {
		t.Errorf("%d looks for %d pages", looks, len(all))
	}
	resp, err := http.Get("http://" + address + "/page/events")
	if err != nil {
		t.Fatal(err)
	}
	why, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(why), "16 ") {
		t.Errorf("one more: %s, %s", resp.Status, why)
	}
	for _, s := range all {
		s.body.Close()
	}
	for p.views.watched() {
		time.Sleep(time.Millisecond)
	}
	if v, looked, _, _ := p.views.latest(); v != nil || !looked.IsZero() {
		t.Errorf("a view is kept for nobody, of %s", looked)
	}
	p.views.show(found{}) // what a look found that began for the last page
	if _, looked, _, _ := p.views.latest(); !looked.IsZero() {
		t.Errorf("a look for nobody, of %s", looked)
	}
	again := open(t, address)
	if e := again.state(); !e.All || e.Summary == nil || e.Summary.Health != "degraded" {
		t.Errorf("a page that is opened later: %+v", e)
	}
}

// Streams end at once with Run, though nobody closes their connections.
func TestStreamsEndWithRun(t *testing.T) {
	p := New(Config{Agent: withPeers(1)})
	server := httptest.NewServer(p.Handler(http.NotFoundHandler()))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	for {
		p.views.mu.Lock()
		running := p.views.running
		p.views.mu.Unlock()
		if running {
			break
		}
		time.Sleep(time.Millisecond)
	}
	s := open(t, server.Listener.Addr().String())
	s.state()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for {
		if _, err := s.read(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

var (
	// risky would make elements or code of strings, or need a weaker policy.
	risky = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|` +
		`new Function|\bstyle=|\son[a-z]+=|<script>|<style>|setAttribute\("style"`)
	elsewhere = regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]+`)
	named     = regexp.MustCompile(`(?:href|src)="(/[^"]*)"|from "\./([^"]*)"`)
)

// What the policy forbids is not even tried, and each file that another one names is served.
func TestAssetsKeepToThePolicy(t *testing.T) {
	files, err := assets.ReadDir("assets")
	if err != nil || len(files) < 10 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		text, err := assets.ReadFile("assets/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if m := risky.Find(text); m != nil {
			t.Errorf("%s has %s", f.Name(), m)
		}
		if m := elsewhere.FindString(string(text)); m != "" && m != "http://www.w3.org" {
			t.Errorf("%s names another host: %s", f.Name(), m)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			path := m[1]
			if m[2] != "" {
				path = "/page/" + m[2]
			}
			if got := request("GET", path, nil); got.StatusCode != http.StatusOK {
				t.Errorf("%s names %s: %s", f.Name(), path, got.Status)
			}
		}
	}
}
