package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/testlog"
)

const ownKey = calico.DefaultHosts + "edge-7/peerip/ipv4/1"

// publish runs a publisher until stop, or the end of the test.
func publish(t *testing.T, cfg Config, ttl time.Duration,
	addresses ...string) (p *Publisher, log *testlog.Buffer, stop func()) {
	t.Helper()
	when := make(chan struct{})
	close(when)
	what := Publication{Hosts: calico.DefaultHosts, Node: "edge-7", TTL: ttl, When: when}
	for _, a := range addresses {
		what.Addresses = append(what.Addresses, netip.MustParseAddr(a))
	}
	log = new(testlog.Buffer)
	p, err := NewPublisher(cfg, what, slog.New(slog.NewTextHandler(log, nil)))
	must(t, err)
	p.lookEvery = time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return p, log, stop
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// stored returns the value and the lease of key; "" when it is not there.
func stored(t *testing.T, c *clientv3.Client, key string) (string, clientv3.LeaseID) {
	t.Helper()
	resp, err := c.Get(t.Context(), key)
	must(t, err)
	if len(resp.Kvs) == 0 {
		return "", 0
	}
	return string(resp.Kvs[0].Value), clientv3.LeaseID(resp.Kvs[0].Lease)
}

func TestPublishedAddressesOutliveTheirNodeByTheLease(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	p, _, stop := publish(t, Config{Endpoints: []string{e.Endpoint()}}, 5*time.Second, "172.30.8.7",
		"fd00::7")
	waitFor(t, "the address", func() bool {
		v, _ := stored(t, e.Client(), ownKey)
		return v == "172.30.8.7"
	})
	if v, _ := stored(t, e.Client(), calico.DefaultHosts+"edge-7/peerip/ipv6/1"); v != "fd00::7" {
		t.Errorf("IPv6: %q", v)
	}
	waitFor(t, "the status", func() bool {
		return len(p.Status().Published) == 2 && p.Status().Error == ""
	})
	_, lease := stored(t, e.Client(), ownKey)
	time.Sleep(8 * time.Second) // longer than the lease: it is kept alive
	if v, again := stored(t, e.Client(), ownKey); v != "172.30.8.7" || again != lease {
		t.Errorf("after the lease's time: %q, lease %x then %x", v, lease, again)
	}
	stop()
	if v, _ := stored(t, e.Client(), ownKey); v != "172.30.8.7" {
		t.Error("a stopped agent, which may be back in a moment, took its address away")
	}
	waitFor(t, "the end of the lease", func() bool {
		v, _ := stored(t, e.Client(), ownKey)
		return v == ""
	})
}

func TestStaticAddressStays(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	cfg := Config{Endpoints: []string{e.Endpoint()}}
	_, _, stop := publish(t, cfg, 5*time.Second, "172.30.8.7")
	waitFor(t, "the address with a lease", func() bool {
		_, lease := stored(t, e.Client(), ownKey)
		return lease != 0
	})
	stop()
	_, _, stop = publish(t, cfg, 0, "172.30.8.7") // the same, static from now on
	waitFor(t, "the address without a lease", func() bool {
		v, lease := stored(t, e.Client(), ownKey)
		return v != "" && lease == 0
	})
	stop()
	time.Sleep(8 * time.Second) // the first one's lease ends meanwhile
	if v, _ := stored(t, e.Client(), ownKey); v != "172.30.8.7" {
		t.Errorf("a static address became %q", v)
	}
}

// A write whose answer was not awaited may be carried out after the next one. It is no other
// client's.
func TestALateWriteIsOurOwn(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	_, log, _ := publish(t, Config{Endpoints: []string{e.Endpoint()}}, time.Minute, "172.30.8.7")
	logged := func(text string) func() bool {
		return func() bool { return strings.Contains(log.String(), text) }
	}
	waitFor(t, "the address", logged("our addresses are published"))
	_, lease := stored(t, e.Client(), ownKey)
	_, err := e.Client().Put(t.Context(), ownKey, "172.30.8.7", clientv3.WithLease(lease))
	must(t, err)
	_, err = e.Client().Put(t.Context(), ownKey, "172.30.8.8")
	must(t, err)
	waitFor(t, "the other client", logged("another client put"))
	if !logged("172.30.8.8")() {
		t.Error("our own write is taken for another client's")
	}
}

// Whatever takes the address from etcd, it comes back: the next run puts it under its own lease
// before the old one ends.
func TestPublishedAddressComesBack(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	cfg := Config{Endpoints: []string{e.Endpoint()}}
	_, log, stop := publish(t, cfg, 5*time.Second, "172.30.8.7")
	there := func() bool {
		v, lease := stored(t, e.Client(), ownKey)
		return v == "172.30.8.7" && lease != 0
	}
	waitFor(t, "the address", there)

	_, lease := stored(t, e.Client(), ownKey)
	_, err := e.Client().Revoke(t.Context(), lease)
	must(t, err)
	waitFor(t, "the address after its lease was revoked", there)

	must(t, e.Cluster().DeleteRaw(t.Context(), ownKey))
	waitFor(t, "the address after it was deleted", there)

	must(t, e.Cluster().PutRaw(t.Context(), ownKey, "172.30.8.99"))
	waitFor(t, "the address after somebody else's", there)
	if !strings.Contains(log.String(), "another node of our name") {
		t.Error("no word about somebody who uses our key")
	}

	stop()
	_, lease = stored(t, e.Client(), ownKey)
	publish(t, cfg, 5*time.Second, "172.30.8.7")
	waitFor(t, "the address under a new lease", func() bool {
		_, now := stored(t, e.Client(), ownKey)
		return now != lease && there()
	})
	time.Sleep(8 * time.Second)
	if !there() {
		t.Error("the end of the first run's lease took the address of the second along")
	}
}

func TestPublicationSurvivesAnEtcdRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := startEtcd(t, calicotest.EtcdOptions{Dir: dir})
	listen := strings.TrimPrefix(e.Endpoint(), "http://")
	p, _, _ := publish(t, Config{Endpoints: []string{e.Endpoint()}}, 30*time.Second, "172.30.8.7")
	waitFor(t, "the address", func() bool { return len(p.Status().Published) == 1 })
	e.Close()
	e = startEtcd(t, calicotest.EtcdOptions{Dir: dir, Listen: listen})
	defer e.Close()
	must(t, e.Cluster().DeleteRaw(t.Context(), ownKey))
	waitFor(t, "the address in the restarted etcd", func() bool {
		v, _ := stored(t, e.Client(), ownKey)
		return v == "172.30.8.7"
	})
}

// Without a lease nothing tells that etcd has come back without the key.
func TestStaticAddressComesBackInAnEmptyEtcd(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	listen := strings.TrimPrefix(e.Endpoint(), "http://")
	for range 20 { // a revision that the empty one does not reach
		must(t, e.Cluster().PutRaw(t.Context(), "/other", ""))
	}
	p, _, _ := publish(t, Config{Endpoints: []string{e.Endpoint()}}, 0, "172.30.8.7")
	waitFor(t, "the address", func() bool { return len(p.Status().Published) == 1 })
	e.Close()
	e = startEtcd(t, calicotest.EtcdOptions{Listen: listen})
	defer e.Close()
	waitFor(t, "the address in the empty etcd", func() bool {
		v, _ := stored(t, e.Client(), ownKey)
		return v == "172.30.8.7"
	})
}

// A key that others take again and again costs etcd no lease each time.
func TestOneLeaseIsEnough(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	_, _, stop := publish(t, Config{Endpoints: []string{e.Endpoint()}}, time.Hour, "172.30.8.7")
	there := func() bool { v, _ := stored(t, e.Client(), ownKey); return v == "172.30.8.7" }
	waitFor(t, "the address", there)
	for range 4 {
		must(t, e.Cluster().PutRaw(t.Context(), ownKey, "172.30.8.99"))
		waitFor(t, "the address after somebody else's", there)
	}
	stop()
	leases, err := e.Client().Leases(t.Context())
	must(t, err)
	if len(leases.Leases) != 1 {
		t.Errorf("%d leases", len(leases.Leases))
	}
}

func TestPublisherWithoutPermissionSaysSo(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	must(t, e.EnableAuth(t.Context(), "secret", map[string]string{"reader": "pw"}))
	p, _, _ := publish(t, Config{Endpoints: []string{e.Endpoint()}, Username: "reader",
		Password: "pw"}, 5*time.Second, "172.30.8.7")
	waitFor(t, "the refusal", func() bool {
		return strings.Contains(p.Status().Error,
			`does not allow user "reader" to write under /vpp-calico/hosts/`)
	})
}

// etcdV2 answers as an etcd 2.3 does: HTTP/1 only, and the version everybody may ask for.
func etcdV2(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"etcdserver":"2.3.8","etcdcluster":"2.3.0"}`)
	})
	mux.HandleFunc("GET /v2/keys/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"action":"get","node":{"dir":true}}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestV2ServerIsToldInOneSentence(t *testing.T) {
	url := etcdV2(t)
	want := url + " is etcd 2.3.8, which has the v2 API only: the v3 API is needed, etcd " +
		"3.4 or later"
	cfg := Config{Endpoints: []string{url}}
	r := run(t, cfg)
	if st := r.untilStatus(t, "refused", func(s etcd.Status) bool {
		return s.Failures > 0
	}); st.Error != want {
		t.Errorf("source: %q, want %q", st.Error, want)
	}
	p, _, _ := publish(t, cfg, 5*time.Second, "172.30.8.7")
	waitFor(t, "the publisher's word", func() bool { return p.Status().Error == want })
}

// A node without BGP starts before Calico, on an etcd in which there is nothing at all.
func TestNothingHasToExist(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	r := runFor(t, Config{Endpoints: []string{e.Endpoint()}},
		calico.Needs{NoBGP: true, Hosts: calico.DefaultHosts})
	r.until(t, "an empty snapshot", func(s *calico.Snapshot) bool {
		return len(s.Blocks)+len(s.Nodes)+len(s.PeerIPs) == 0
	})
	publish(t, Config{Endpoints: []string{e.Endpoint()}}, 5*time.Second, "172.30.8.7")
	s := r.until(t, "what was published", func(s *calico.Snapshot) bool {
		return len(s.PeerIPs) == 1
	})
	if got := s.PeerIPs[calico.PeerIP{Host: "edge-7"}]; got != netip.MustParseAddr("172.30.8.7") {
		t.Errorf("got %v", s.PeerIPs)
	}
	seed(t, e.Cluster())
	s = r.until(t, "blocks of others and their pool", func(s *calico.Snapshot) bool {
		return len(s.Blocks) == 2 && len(s.Nodes) == 2 && len(s.IPPools) == 1
	})
	if len(s.WorkloadEndpoints) != 0 {
		t.Errorf("read without need: %v", s.WorkloadEndpoints)
	}
}
