package statuspage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// listOf has n routes, 10.0.0.0/32 and on, and answers as the agent does.
func listOf(n int) func(agent.RouteQuery) agent.RouteList {
	return func(q agent.RouteQuery) agent.RouteList {
		out := agent.RouteList{Count: n, Routes: []agent.RouteStatus{}}
		for i := range n {
			a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			k := route.Key{Prefix: netip.PrefixFrom(a, 32)}
			if route.CompareKeys(k, q.After) > 0 && len(out.Routes) < q.Most {
				out.Routes = append(out.Routes, agent.RouteStatus{Prefix: k.Prefix})
			}
		}
		return out
	}
}

func get(t *testing.T, p *Page, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	p.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	return w
}

// The browser never has more than a page of the routes, and can go through all of them.
func TestRoutesComeAPageAtATime(t *testing.T) {
	f := withPeers(0)
	f.search = listOf(1003)
	p := New(Config{Agent: f})
	seen, pages := map[netip.Prefix]bool{}, 0
	for after := ""; ; pages++ {
		w := get(t, p, "/page/routes?q=10.&after="+url.QueryEscape(after))
		var got routesFound
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err, w.Body)
		}
		if len(got.Routes) > perPage || got.Count != 1003 {
			t.Fatalf("%d of %d", len(got.Routes), got.Count)
		}
		for _, r := range got.Routes {
			if seen[r.Prefix] {
				t.Errorf("%s comes twice", r.Prefix)
			}
			seen[r.Prefix] = true
		}
		if after = got.Next; after == "" {
			break
		}
	}
	if len(seen) != 1003 || pages != 10 {
		t.Errorf("%d routes on %d pages", len(seen), pages+1)
	}
}

func TestWhatIsAskedReachesTheAgent(t *testing.T) {
	f := withPeers(0)
	var got agent.RouteQuery
	f.search = func(q agent.RouteQuery) agent.RouteList {
		got = q
		return agent.RouteList{}
	}
	p := New(Config{Agent: f})
	get(t, p, "/page/routes?q=+node-7++10.+&state=failed&origin=bgp&after=7,true,10.0.0.0%2F26")
	if fmt.Sprint(got.Words) != "[node-7 10.]" || got.State != fib.Failed || got.Origin == nil ||
		*got.Origin != route.BGP ||
		got.After.Table != 7 || !got.After.Elevated || got.After.Prefix.String() != "10.0.0.0/26" {
		t.Errorf("%+v", got)
	}
	var e agent.Explanation
	if w := get(t, p, "/page/explain?prefix=+10.0.0.7+"); json.Unmarshal(w.Body.Bytes(),
		&e) != nil || e.Asked.String() != "10.0.0.7/32" {
		t.Errorf("%s", w.Body)
	}
}

func TestBadQuestionsAreNamed(t *testing.T) {
	p := New(Config{Agent: withPeers(0)})
	for path, want := range map[string]string{
		"/page/explain":                              "neither a prefix nor an address",
		"/page/explain?prefix=<b>":                   "neither a prefix nor an address",
		"/page/routes?after=x":                       "no place in the list",
		"/page/routes?after=0,no,10.0.0.0/8":         "no place in the list",
		"/page/routes?after=-1,false,10.0.0.0/8":     "no place in the list",
		"/page/routes?after=0,false,10.0.0.0":        "no place in the list",
		"/page/routes?q=" + strings.Repeat("1", 201): "at most 200 bytes",
		"/page/routes?state=any":                     `state "any" is none of pending, programmed,`,
		"/page/routes?origin=BGP":                    `origin "BGP" is none of unknown, own,`,
	} {
		w := get(t, p, path)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) ||
			!strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Names and errors come from other nodes. In JSON they cannot be markup, whatever it is taken for.
func TestForeignTextIsNoMarkup(t *testing.T) {
	const evil = `<img src=x onerror="alert(1)"></script><script>alert(2)</script>`
	f := withPeers(1)
	f.status.Node = evil
	f.status.BGP.Peers[0].Node, f.status.BGP.Peers[0].LastError = evil, evil+"\n\nevent: state\n"
	f.search = func(agent.RouteQuery) agent.RouteList {
		return agent.RouteList{Count: 1, Routes: []agent.RouteStatus{{Reason: evil}},
			Nodes: map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): evil}}
	}
	p, address := serve(t, f)
	s := open(t, address)
	e := s.state()
	if e.Summary.Node != evil || e.Peers[0].Node != evil {
		t.Errorf("the text was changed: %+v", e.Peers[0])
	}
	text := get(t, p, "/page/routes").Body.String() + string(encode(f.Status()))
	if strings.ContainsAny(text, "<>") {
		t.Errorf("not escaped: %s", text)
	}
}

// What a client reads slowly is out of its turn: others are answered meanwhile.
func TestSlowReadersHoldUpNobody(t *testing.T) {
	f := withPeers(0)
	f.search = listOf(perPage)
	p := New(Config{Agent: f})
	release, blocked := make(chan struct{}), make(chan struct{}, questions+1)
	done := make(chan struct{})
	for range questions + 1 {
		go func() {
			r := httptest.NewRequest("GET", "/page/routes", nil)
			r.Host = "localhost"
			p.Handler(http.NotFoundHandler()).ServeHTTP(
				&slowWriter{httptest.NewRecorder(), blocked, release}, r)
			done <- struct{}{}
		}()
	}
	for range questions + 1 {
		<-blocked
	}
	if w := get(t, p, "/page/routes"); w.Code != 200 || w.Body.Len() == 0 {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	close(release)
	for range questions + 1 {
		<-done
	}
}

type slowWriter struct {
	*httptest.ResponseRecorder
	blocked chan<- struct{}
	release <-chan struct{}
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.blocked <- struct{}{}
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// Four searches are answered at a time, and 64 wait. A client that goes away is forgotten. Other
// questions have their answers meanwhile.
func TestQuestionsAreBounded(t *testing.T) {
	f := withPeers(0)
	var running, most atomic.Int32
	release, began := make(chan struct{}), make(chan struct{}, 100)
	f.search = func(agent.RouteQuery) agent.RouteList {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		began <- struct{}{}
		<-release
		return agent.RouteList{}
	}
	p := New(Config{Agent: f})
	h := p.Handler(http.NotFoundHandler())
	ask := func(ctx context.Context) {
		r := httptest.NewRequestWithContext(ctx, "GET", "/page/routes", nil)
		r.Host = "localhost"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	done := make(chan struct{})
	for range questions {
		go func() { ask(t.Context()); done <- struct{}{} }()
	}
	for range questions {
		<-began
	}
	gone, cancel := context.WithCancel(t.Context())
	for range maxWaiting {
		go func() { ask(gone); done <- struct{}{} }()
	}
	for len(p.searches.places) < cap(p.searches.places) {
		time.Sleep(time.Millisecond)
	}
	if w := get(t, p, "/page/routes"); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "64 such questions wait") {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/page/rates", "/page/explain?prefix=10.0.0.7"} {
		if w := get(t, p, path); w.Code != http.StatusOK {
			t.Errorf("%s waits for searches: %d %s", path, w.Code, w.Body)
		}
	}
	cancel()
	for range maxWaiting {
		<-done
	}
	if len(began) > 0 || most.Load() != questions {
		t.Errorf("%d at a time", most.Load())
	}
	close(release)
	for range questions {
		<-done
	}
}

// A client that never reads is cut off, and costs no more than what its connection holds.
func TestStreamOfADeafClientIsCut(t *testing.T) {
	f := withPeers(20_000) // several megabytes: more than sockets hold
	p, address := serve(t, f, func(p *Page) { p.patience = 2 * time.Second })
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for f.looked() == 0 { // its stream may have been cut off since
		time.Sleep(time.Millisecond)
	}
	for p.views.watched() { // until the test's timeout, if it is not cut off
		time.Sleep(time.Millisecond)
	}
	if n, err := io.Copy(io.Discard, conn); n == 0 {
		t.Errorf("nothing was sent: %v", err)
	}
}

// BenchmarkLook is what an open page costs each second, with 1000 peers.
func BenchmarkLook(b *testing.B) {
	p := New(Config{Agent: withPeers(1000)})
	v := p.look(time.Now()).after(nil, 1)
	for b.Loop() {
		v = p.look(time.Now()).after(v, 2)
	}
}

// The file by which explain.test.mjs looks whether all of an explanation is shown has every field.
func TestTheSampleOfAnExplanationIsComplete(t *testing.T) {
	text, err := os.ReadFile("testdata/explanation.json")
	if err != nil {
		t.Fatal(err)
	}
	var e agent.Explanation
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatal(err)
	}
	// Packets of tunnels and of routes are not asked for, those of next hops in one place.
	never := regexp.MustCompile(`^\.(OK|Tunnels\.(Packets|Bytes|NotCounted).*|` +
		`(Routes|Inside|Dataplane\.Match)\..*(Packets|Bytes))$`)
	var look func(name string, of reflect.Type, all []reflect.Value)
	// look is handed the values of all elements of the lists around a field: one must have it.
	look = func(name string, of reflect.Type, all []reflect.Value) {
		all = slices.DeleteFunc(all, reflect.Value.IsZero)
		var inner []reflect.Value
		switch {
		case never.MatchString(name):
		case len(all) == 0:
			t.Errorf("the sample has no %s", name)
		case of.Kind() == reflect.Slice:
			for _, v := range all {
				for i := range v.Len() {
					inner = append(inner, v.Index(i))
				}
			}
			look(name, of.Elem(), inner)
		case of.Kind() == reflect.Pointer:
			for _, v := range all {
				inner = append(inner, v.Elem())
			}
			look(name, of.Elem(), inner)
		case of.Kind() == reflect.Struct && of.PkgPath() == reflect.TypeOf(e).PkgPath():
			for i := range of.NumField() {
				inner = nil
				for _, v := range all {
					inner = append(inner, v.Field(i))
				}
				look(name+"."+of.Field(i).Name, of.Field(i).Type, inner)
			}
		}
	}
	look("", reflect.TypeOf(e), []reflect.Value{reflect.ValueOf(e)})
}
