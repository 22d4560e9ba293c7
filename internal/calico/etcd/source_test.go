package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/testlog"
)

// pageSize is internal/etcd's.
const pageSize = 500

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func startEtcd(t *testing.T, o calicotest.EtcdOptions) *calicotest.Etcd {
	t.Attr("part", "etcd 3.6.16, embedded server")
	t.Helper()
	e, err := calicotest.StartEtcd(o)
	must(t, err)
	return e
}

// running is a source under test, its log, and the newest snapshot it has published.
type running struct {
	*Source
	log  *testlog.Buffer
	last *calico.Snapshot
}

// run starts a source for node edge-7 that ends with the test.
func run(t *testing.T, cfg Config) *running {
	t.Helper()
	return runFor(t, cfg, calico.Needs{})
}

func runFor(t *testing.T, cfg Config, needs calico.Needs) *running {
	t.Helper()
	r := &running{log: new(testlog.Buffer)}
	var err error
	r.Source, err = New(cfg, "edge-7", needs, slog.New(slog.NewTextHandler(r.log, nil)))
	must(t, err)
	r.ProbeEvery = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// until takes snapshots until ok likes one.
func (r *running) until(t *testing.T, what string,
	ok func(*calico.Snapshot) bool) *calico.Snapshot {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for r.last == nil || !ok(r.last) {
		select {
		case r.last = <-r.Snapshots():
		case <-timeout:
			t.Fatalf("not seen: %s; status %+v, last snapshot %+v", what, r.Status(), r.last)
		}
	}
	return r.last
}

func (r *running) untilStatus(t *testing.T, what string, ok func(etcd.Status) bool) etcd.Status {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		st := r.Status()
		if ok(st) {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("not seen: %s; status %+v", what, st)
		}
	}
}

func hasNode(name string) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { _, ok := s.Nodes[name]; return ok }
}

func lacksNode(name string) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { _, ok := s.Nodes[name]; return !ok }
}

// seed writes a small cluster.
func seed(t *testing.T, c *calicotest.Cluster) {
	t.Helper()
	ctx := t.Context()
	must(t, c.AddNode(ctx, "edge-7", pfx("172.30.8.7/24")))
	must(t, c.AddNode(ctx, "edge-10", pfx("172.30.8.10/24")))
	must(t, c.AddPool(ctx, "edge-v4", pfx("10.77.0.0/16"), 26))
	for _, w := range [][2]string{{"edge-7", "a"}, {"edge-10", "b"}} {
		_, err := c.Attach(ctx, w[0], w[1], "")
		must(t, err)
	}
}

// needed is what a node with BGP needs of what is in etcd, all of which it reads.
func needed(t *testing.T, e *calicotest.Etcd, node string) *calico.Snapshot {
	t.Helper()
	s, err := e.Cluster().Snapshot(t.Context(), node)
	must(t, err)
	handle, err := e.Client().Get(t.Context(), handleKey("ipip-tunnel-addr-"+node))
	must(t, err)
	tunnel := netip.Addr{}
	if len(s.IPPools) > 0 {
		tunnel = s.Nodes[node].IPv4IPIPTunnelAddr
	}
	maps.DeleteFunc(s.Blocks, func(cidr netip.Prefix, _ calico.Block) bool {
		_, own := s.Affinities[cidr]
		named := len(handle.Kvs) > 0 && strings.Contains(string(handle.Kvs[0].Value), cidr.String())
		return !own && !named && !cidr.Contains(tunnel)
	})
	return s
}

// expectSame compares what the source has with what is in etcd, read at once.
func (r *running) expectSame(t *testing.T, e *calicotest.Etcd) {
	t.Helper()
	want := needed(t, e, "edge-7")
	same := func(got *calico.Snapshot) string {
		w := *want
		w.Revision, w.Lists, w.Received = got.Revision, got.Lists, got.Received
		return cmp.Diff(&w, got, cmp.Comparer(func(a, b netip.Prefix) bool {
			return a == b
		}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
	}
	timeout := time.After(30 * time.Second)
	for diff := "no snapshot"; ; {
		if r.last != nil {
			if diff = same(r.last); diff == "" {
				return
			}
		}
		select {
		case r.last = <-r.Snapshots():
		case <-timeout:
			t.Fatalf("status %+v, differs from etcd (-etcd +source):\n%s", r.Status(), diff)
		}
	}
}

func TestFirstSnapshotIsComplete(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	seed(t, e.Cluster())
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	first := <-r.Snapshots()
	want, err := e.Cluster().Snapshot(t.Context(), "edge-7")
	must(t, err)
	if first.Revision != want.Revision || len(first.Nodes) != 2 || len(first.Blocks) != 1 ||
		len(first.Affinities) != 1 ||
		len(first.WorkloadEndpoints) != 1 || first.Lists != 1 {
		t.Errorf("first snapshot %+v", first)
	}
	st := r.untilStatus(t, "connected", func(s etcd.Status) bool { return s.Connected })
	if !st.Synced || st.Error != "" || st.Revision != first.Revision || st.Lists != 1 ||
		time.Since(st.LastContact) > 5*time.Second {
		t.Errorf("status %+v", st)
	}
}

// TestListOfManyPages also has a node whose name begins with ours.
func TestListOfManyPages(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	const n = 2*pageSize + 1
	for i := range n {
		key := calico.Key{Kind: calico.KindNode, Name: fmt.Sprintf("n%05d", i)}.String()
		must(t, e.Cluster().PutRaw(t.Context(), key, `{"spec":{}}`))
	}
	must(t, e.Cluster().ClaimBlock(t.Context(), "edge-77", pfx("10.0.0.0/26")))
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	if first := <-r.Snapshots(); len(first.Nodes) != n || len(first.Affinities) != 0 {
		t.Errorf("%d nodes, want %d; affinities %v", len(first.Nodes), n, first.Affinities)
	}
}

func TestNoChangeIsLostUnderConcurrentWriters(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	c := e.Cluster()
	seed(t, c)
	writers := func(round int) *sync.WaitGroup {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 60 {
					name := fmt.Sprintf("w%d-%d-%d", round, w, i)
					if c.AddNode(t.Context(), name, pfx("172.30.9.1/24")) != nil {
						t.Error("write failed")
						return
					}
					if i%3 == 0 {
						if c.Delete(t.Context(), "Node", name) != nil {
							t.Error("delete failed")
						}
					}
					if pod := fmt.Sprintf("p%d-%d", w, i); i%10 == 0 {
						c.Attach(t.Context(), []string{"edge-7", "edge-10"}[w%2], pod, "")
					}
				}
			})
		}
		return &wg
	}
	wg := writers(0) // the list runs while they write
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	wg.Wait()
	r.expectSame(t, e)
	writers(1).Wait()
	r.expectSame(t, e)
	if st := r.Status(); st.Lists != 1 || st.Failures != 0 {
		t.Errorf("status %+v", st)
	}
}

func TestABurstIsOneSnapshot(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	seed(t, e.Cluster())
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	<-r.Snapshots()
	time.Sleep(1100 * time.Millisecond) // after the start pauses are longer
	var puts []clientv3.Op
	for i := range 100 {
		puts = append(puts, clientv3.OpPut(calico.Key{Kind: calico.KindNode,
			Name: fmt.Sprintf("n%d", i)}.String(), `{}`))
	}
	_, err := e.Client().Txn(t.Context()).Then(puts...).Commit()
	must(t, err)
	if s := <-r.Snapshots(); len(s.Nodes) != 102 {
		t.Errorf("%d nodes, want 102", len(s.Nodes))
	}
	// What routing does not need is not even news.
	must(t, e.Cluster().PutRaw(t.Context(),
		"/calico/resources/v3/projectcalico.org/networkpolicies/x/y", `{}`))
	must(t, e.Cluster().PutRaw(t.Context(), calico.Key{Kind: calico.KindNode, Name: "n1"}.String(),
		`{"spec":{"unknown":1}}`))
	select {
	case s := <-r.Snapshots():
		t.Errorf("a snapshot for nothing: %+v", s)
	case <-time.After(300 * time.Millisecond):
	}
}

func TestEtcdThatComesLaterGoesAndComesBack(t *testing.T) {
	dir := t.TempDir()
	e := startEtcd(t, calicotest.EtcdOptions{Dir: dir})
	seed(t, e.Cluster())
	endpoint := e.Endpoint()
	listen := strings.TrimPrefix(endpoint, "http://")
	e.Close()

	r := run(t, Config{Endpoints: []string{endpoint}})
	st := r.untilStatus(t, "several attempts", func(s etcd.Status) bool { return s.Failures >= 3 })
	if st.Connected || st.Synced || !strings.Contains(st.Error, "connection refused") {
		t.Errorf("without etcd: %+v", st)
	}
	select {
	case s := <-r.Snapshots():
		t.Fatalf("a snapshot without etcd: %+v", s)
	default:
	}
	if n := strings.Count(r.log.String(), "waiting for it"); n != 1 {
		t.Errorf("the absence was logged %d times", n)
	}

	e = startEtcd(t, calicotest.EtcdOptions{Dir: dir, Listen: listen})
	r.until(t, "first snapshot", hasNode("edge-10"))
	r.untilStatus(t, "connected", func(s etcd.Status) bool { return s.Connected })

	e.Close()
	st = r.untilStatus(t, "etcd gone", func(s etcd.Status) bool { return !s.Connected })
	if !st.Synced || st.Error == "" {
		t.Errorf("after the loss: %+v", st)
	}
	select {
	case s := <-r.Snapshots():
		t.Errorf("the loss made a snapshot: %+v", s)
	case <-time.After(200 * time.Millisecond):
	}

	e = startEtcd(t, calicotest.EtcdOptions{Dir: dir, Listen: listen})
	defer e.Close()
	must(t, e.Cluster().Delete(t.Context(), "Node", "edge-10"))
	r.until(t, "deletion after the return", lacksNode("edge-10"))
	st = r.untilStatus(t, "connected again", func(s etcd.Status) bool { return s.Connected })
	if st.Lists != 1 {
		t.Errorf("a restart of etcd without a compaction took %d lists", st.Lists)
	}
	r.expectSame(t, e)
}

func TestCompactionWhileAwayIsNoticedWithItsDeletions(t *testing.T) {
	dir := t.TempDir()
	e := startEtcd(t, calicotest.EtcdOptions{Dir: dir})
	c := e.Cluster()
	seed(t, c)
	listen := strings.TrimPrefix(e.Endpoint(), "http://")
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	r.until(t, "first snapshot", hasNode("edge-10"))
	e.Close()
	r.untilStatus(t, "etcd gone", func(s etcd.Status) bool { return !s.Connected })

	// Meanwhile, on another port where the source cannot see it.
	e = startEtcd(t, calicotest.EtcdOptions{Dir: dir})
	c = e.Cluster()
	must(t, c.Delete(t.Context(), "Node", "edge-10"))
	_, err := c.Release(t.Context(), "a")
	must(t, err)
	must(t, c.AddNode(t.Context(), "edge-11", pfx("172.30.8.11/24")))
	s, err := c.Snapshot(t.Context(), "edge-7")
	must(t, err)
	_, err = e.Client().Compact(t.Context(), s.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	e.Close()

	e = startEtcd(t, calicotest.EtcdOptions{Dir: dir, Listen: listen})
	defer e.Close()
	got := r.until(t, "the state after the compaction", func(s *calico.Snapshot) bool {
		return lacksNode("edge-10")(s) && hasNode("edge-11")(s) && len(s.WorkloadEndpoints) == 0
	})
	if got.Lists < 2 {
		t.Errorf("it came without a list: %d", got.Lists)
	}
	r.expectSame(t, e)
}

func TestEtcdRestoredToOlderDataIsReadAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		token  string // another cluster id
		writes int    // to the restored etcd, so that its revision is beyond what we have seen
	}{
		{"revision goes back", "", 0},
		{"cluster id changes", "another", 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := startEtcd(t, calicotest.EtcdOptions{})
			seed(t, e.Cluster())
			listen := strings.TrimPrefix(e.Endpoint(), "http://")
			r := run(t, Config{Endpoints: []string{e.Endpoint()}})
			r.until(t, "first snapshot", hasNode("edge-10"))
			e.Close()

			// Filled on another port, where the source cannot see it.
			o := calicotest.EtcdOptions{Dir: t.TempDir(), Token: tc.token}
			e = startEtcd(t, o)
			must(t, e.Cluster().AddNode(t.Context(), "restored", pfx("172.30.8.9/24")))
			for i := range tc.writes {
				must(t, e.Cluster().PutRaw(t.Context(), "/other", fmt.Sprint(i)))
			}
			e.Close()
			o.Listen = listen
			e = startEtcd(t, o)
			defer e.Close()
			got := r.until(t, "the restored data alone", func(s *calico.Snapshot) bool {
				return hasNode("restored")(s) && lacksNode("edge-10")(s) && len(s.Blocks) == 0
			})
			if got.Lists != 2 {
				t.Errorf("lists: %d", got.Lists)
			}
			must(t, e.Cluster().AddNode(t.Context(), "later", pfx("172.30.8.10/24")))
			r.until(t, "a change after it", hasNode("later"))
		})
	}
}

func TestUserAndPassword(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	seed(t, e.Cluster())
	must(t, e.EnableAuth(t.Context(), "secret", map[string]string{"agent": "good"}))

	good := run(t, Config{Endpoints: []string{e.Endpoint()}, Username: "agent", Password: "good"})
	good.until(t, "first snapshot", hasNode("edge-10"))

	for _, tc := range []struct{ user, password, want string }{
		{"agent", "bad", `refuses the password of user "agent"`},
		{"", "", "asks for a user name and a password"},
	} {
		r := run(t, Config{Endpoints: []string{e.Endpoint()}, Username: tc.user,
			Password: tc.password})
		st := r.untilStatus(t, tc.want, func(s etcd.Status) bool { // a busy etcd is slow at first
			return s.Connected || strings.Contains(s.Error, tc.want)
		})
		if st.Connected {
			t.Errorf("user %q: %+v, want %q", tc.user, st, tc.want)
		}
	}
}

func TestDeadEndpointAmongSeveral(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	seed(t, e.Cluster())
	for _, endpoints := range [][]string{{"http://127.0.0.1:1", e.Endpoint()},
		{e.Endpoint(), "http://127.0.0.1:1"}} {
		r := run(t, Config{Endpoints: endpoints})
		r.until(t, "first snapshot", hasNode("edge-10"))
		r.untilStatus(t, "connected", func(s etcd.Status) bool { return s.Connected })
	}
}

func TestTLS(t *testing.T) {
	certs, err := calicotest.WriteCerts(t.TempDir())
	must(t, err)
	e := startEtcd(t, calicotest.EtcdOptions{CertFile: certs.ServerCert, KeyFile: certs.ServerKey,
		ClientCAFile: certs.CA})
	defer e.Close()
	seed(t, e.Cluster())
	good := Config{Endpoints: []string{e.Endpoint()}, CACertFile: certs.CA,
		CertFile: certs.ClientCert, KeyFile: certs.ClientKey}
	run(t, good).until(t, "first snapshot", hasNode("edge-10"))

	noCA := good
	noCA.CACertFile = ""
	st := run(t, noCA).untilStatus(t, "refused", func(s etcd.Status) bool { return s.Failures > 0 })
	if !strings.Contains(st.Error, "certificate signed by unknown authority") ||
		!strings.Contains(st.Error, "ETCD_CA_CERT_FILE") {
		t.Errorf("without CA: %q", st.Error)
	}
	noCert := good
	noCert.CertFile, noCert.KeyFile = "", ""
	// A refusal that comes after the handshake is not read each time.
	st = run(t, noCert).untilStatus(t, "refused by name", func(s etcd.Status) bool {
		return strings.Contains(s.Error, "ETCD_CERT_FILE")
	})
	if st.Synced {
		t.Errorf("without a client certificate: %+v", st)
	}
}

func TestWhatIsNoEtcdIsNamed(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	web := httptest.NewServer(http.NotFoundHandler()) // an etcd 2 looks the same
	defer web.Close()
	certs, err := calicotest.WriteCerts(t.TempDir())
	must(t, err)
	secure := startEtcd(t, calicotest.EtcdOptions{CertFile: certs.ServerCert,
		KeyFile: certs.ServerKey})
	defer secure.Close()
	for endpoint, want := range map[string]string{
		web.URL: "not an etcd with the v3 API",
		strings.Replace(e.Endpoint(), "http:", "https:", 1): "does not speak TLS, " +
			"perhaps it is http",
		strings.Replace(secure.Endpoint(), "https:", "http:", 1): "or wants https",
	} {
		st := run(t, Config{Endpoints: []string{endpoint}}).untilStatus(t, "refused",
			func(s etcd.Status) bool {
				return s.Failures > 0
			})
		if !strings.Contains(st.Error, want) {
			t.Errorf("%s: %q, want %q", endpoint, st.Error, want)
		}
	}
}

func TestABadItemIsNamedOnceAndTheRestGoesOn(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	c := e.Cluster()
	seed(t, c)
	bad := calico.Key{Kind: calico.KindNode, Name: "broken"}.String()
	must(t, c.PutRaw(t.Context(), bad, `{"spec":`))
	r := run(t, Config{Endpoints: []string{e.Endpoint()}})
	s := r.until(t, "first snapshot", hasNode("edge-10"))
	if len(s.Problems) != 1 || s.Problems[0].Key != bad {
		t.Errorf("problems %v", s.Problems)
	}
	must(t, c.AddNode(t.Context(), "edge-11", pfx("172.30.8.11/24")))
	r.until(t, "another node", hasNode("edge-11"))
	if n := strings.Count(r.log.String(), "cannot be used"); n != 1 {
		t.Errorf("the bad item was named %d times", n)
	}
	must(t, c.DeleteRaw(t.Context(), bad))
	r.until(t, "no problem", func(s *calico.Snapshot) bool { return len(s.Problems) == 0 })
}

func TestNodeNeedsAName(t *testing.T) {
	_, err := New(Config{Endpoints: []string{"http://127.0.0.1:2379"}}, "", calico.Needs{},
		slog.New(slog.DiscardHandler))
	if err == nil {
		t.Error("no node name was accepted")
	}
}
