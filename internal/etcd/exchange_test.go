package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testlog"
)

const (
	statusKey = "/nodes/edge-7/status"
	answerKey = "/nodes/edge-7/answers/1"
)

// party is an Exchange, and what it was told last.
type party struct {
	*Exchange
	mu       sync.Mutex
	requests []string
}

func newParty(t *testing.T, e *calicotest.Etcd, ttl time.Duration, change ...func(*Config)) *party {
	t.Helper()
	cfg := Config{Endpoints: []string{e.Endpoint()}}
	for _, c := range change {
		c(&cfg)
	}
	client, err := NewClient(cfg, "to write under /nodes/edge-7/")
	must(t, err)
	p := &party{}
	p.Exchange = NewExchange(client, ExchangeConfig{
		Own: "/nodes/edge-7/", TTL: ttl, Requests: "/questions/", MaxRequests: 3,
		Take: func(all []Request) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requests = nil
			for _, r := range all {
				p.requests = append(p.requests, fmt.Sprintf("%s=%s", r.Key, r.Value))
			}
		},
		RevokeTimeout: 30 * time.Second, Log: testlog.New(t),
	})
	return p
}

// start runs p until stop, or the end of the test.
func (p *party) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

func (p *party) hears(want ...string) func() bool {
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Equal(p.requests, want)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// has reports whether etcd has value under key, with a lease; "" if it has no such key.
func has(t *testing.T, e *calicotest.Etcd, key, value string) func() bool {
	return func() bool {
		resp, err := e.Client().Get(t.Context(), key)
		must(t, err)
		if len(resp.Kvs) == 0 {
			return value == ""
		}
		return string(resp.Kvs[0].Value) == value && resp.Kvs[0].Lease != 0
	}
}

func TestKeysFollowWhatIsWantedAndEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	_, err := e.Client().Put(t.Context(), answerKey, "of an earlier run")
	must(t, err)
	p := newParty(t, e, time.Minute)
	stop := p.start(t)
	_, err = e.Client().Put(t.Context(), "/questions/1", "?")
	must(t, err)
	await(t, "the question", p.hears("/questions/1=?"))
	if resp, _ := e.Client().Get(t.Context(), answerKey); len(resp.Kvs) == 0 {
		t.Error("what an earlier run left was deleted before anything was wanted")
	}
	p.Want(map[string]string{statusKey: "a"})
	await(t, "the status", has(t, e, statusKey, "a"))
	await(t, "the end of what is not wanted", has(t, e, answerKey, ""))
	await(t, "it to be known", func() bool { return p.Status() == ExchangeStatus{Written: true} })
	p.Want(map[string]string{statusKey: "b", answerKey: "!"})
	await(t, "the answer", has(t, e, answerKey, "!"))
	await(t, "the next status", has(t, e, statusKey, "b"))
	_, err = e.Client().Put(t.Context(), "/questions/1", "again?")
	must(t, err)
	await(t, "the question once more", p.hears("/questions/1=again?"))
	_, err = e.Client().Delete(t.Context(), "/questions/1")
	must(t, err)
	await(t, "its end", p.hears())
	p.Want(map[string]string{statusKey: "b"})
	await(t, "the end of the answer", has(t, e, answerKey, ""))
	stop()
	leases, err := e.Client().Leases(t.Context())
	must(t, err)
	if !has(t, e, statusKey, "")() || len(leases.Leases) > 0 {
		t.Errorf("after the end there is a key, or a lease: %v", leases.Leases)
	}
}

// Whoever may write requests may write many. The first by key are heard, in a list and in changes,
// and the next ones when these go.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	put := func(n int) {
		_, err := e.Client().Put(t.Context(), fmt.Sprintf("/questions/%05d", n), "?")
		must(t, err)
	}
	remove := func(key string, opts ...clientv3.OpOption) {
		_, err := e.Client().Delete(t.Context(), "/questions/"+key, opts...)
		must(t, err)
	}
	for n := range 2000 {
		put(1000 + n)
	}
	p := newParty(t, e, time.Minute)
	p.start(t)
	await(t, "the first", p.hears("/questions/01000=?", "/questions/01001=?", "/questions/01002=?"))
	if !p.Status().TooMany {
		t.Error("nobody is told of the others")
	}
	put(9)
	await(t, "one before them", p.hears("/questions/00009=?", "/questions/01000=?",
		"/questions/01001=?"))
	put(5000)
	remove("01000")
	await(t, "the next", p.hears("/questions/00009=?", "/questions/01001=?", "/questions/01002=?"))
	remove("01", clientv3.WithPrefix())
	remove("02", clientv3.WithPrefix())
	await(t, "what is left", p.hears("/questions/00009=?", "/questions/05000=?"))
	await(t, "all to be heard", func() bool { return !p.Status().TooMany })
	for n := range 2000 {
		put(6000 + n)
	}
	await(t, "the first again", p.hears("/questions/00009=?", "/questions/05000=?",
		"/questions/06000=?"))
	if !p.Status().TooMany {
		t.Error("nobody is told of the others")
	}
}

// However often the status changes, it is written at most once a second, and the last one is.
func TestKeysAreWrittenOnceASecond(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	p := newParty(t, e, time.Minute)
	p.start(t)
	began, last := time.Now(), ""
	for i := 0; time.Since(began) < 1500*time.Millisecond; i++ {
		last = fmt.Sprint(i)
		p.Want(map[string]string{statusKey: last})
		time.Sleep(time.Millisecond)
	}
	await(t, "the last status", has(t, e, statusKey, last))
	resp, err := e.Client().Get(t.Context(), statusKey)
	must(t, err)
	if n, most := resp.Kvs[0].Version, int64(time.Since(began)/writePause)+1; n > most {
		t.Errorf("written %d times in %s", n, time.Since(began))
	}
	p.Want(map[string]string{statusKey: last}) // the same: nothing is written
	_, err = e.Client().Put(t.Context(), "/questions/1", "?")
	must(t, err)
	await(t, "a later event", p.hears("/questions/1=?"))
	if again, _ := e.Client().Get(t.Context(), statusKey); again.Kvs[0].ModRevision !=
		resp.Kvs[0].ModRevision {
		t.Error("the same status was written again")
	}
}

// Whatever takes the keys from etcd, they come back, with one lease in the end.
func TestKeysComeBack(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	p := newParty(t, e, 5*time.Second)
	var log testlog.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	p.start(t)
	p.Want(map[string]string{statusKey: "a"})
	there := has(t, e, statusKey, "a")
	await(t, "the status", there)
	resp, err := e.Client().Get(t.Context(), statusKey)
	must(t, err)
	_, err = e.Client().Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
	must(t, err)
	await(t, "the status after its lease was revoked", there)
	_, err = e.Client().Delete(t.Context(), statusKey)
	must(t, err)
	await(t, "the status after it was deleted", there)
	_, err = e.Client().Put(t.Context(), statusKey, "of somebody else")
	must(t, err)
	await(t, "a word about the other", func() bool { // the status has it until the next write
		return strings.Contains(log.String(), "another node of our name")
	})
	await(t, "the status after somebody else's", there)
	_, err = e.Client().Put(t.Context(), answerKey, "of somebody else")
	must(t, err)
	await(t, "the end of what is not ours", has(t, e, answerKey, ""))
	await(t, "the end of the problem", func() bool { return p.Status().Problem == "" })
	leases, err := e.Client().Leases(t.Context())
	must(t, err)
	if len(leases.Leases) != 1 {
		t.Errorf("%d leases", len(leases.Leases))
	}
}

// The answer to a keepalive that was on its way during a write knows nothing of it. To take it for
// a restored etcd's has etcd listed again, and hides what another client does meanwhile.
func TestAnswersOlderThanAWriteAreOfTheSameHistory(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	listed, err := e.Client().Get(t.Context(), "/")
	must(t, err)
	own := OwnKeys{Prefix: "/nodes/edge-7/"}
	must(t, own.Listed(listed.Header, nil, clientv3.NoLease))
	_, err = own.Write(t.Context(), e.Client(), map[string]string{statusKey: "a"}, "")
	must(t, err)
	for range 2 { // clientv3 asks again while there is no answer
		must(t, own.SameHistory(t.Context(), e.Client(), listed.Header))
	}
	older := startEtcd(t, calicotest.EtcdOptions{})
	err = own.SameHistory(t.Context(), older.Client(), listed.Header)
	if !errors.Is(err, ErrRestored) {
		t.Errorf("of another etcd: %v", err)
	}
}

// What another client put before a list is named as if a watch had told, once. Ours is not, nor
// what was there before.
func TestAListNamesWhatAnotherHasPut(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	own := OwnKeys{Prefix: "/nodes/edge-7/"}
	grant := func() clientv3.LeaseID {
		lease, err := e.Client().Grant(t.Context(), 60)
		must(t, err)
		return lease.ID
	}
	put := func(key, value string, opts ...clientv3.OpOption) {
		_, err := e.Client().Put(t.Context(), key, value, opts...)
		must(t, err)
	}
	list := func(lease clientv3.LeaseID) error {
		all, err := e.Client().Get(t.Context(), own.Prefix, clientv3.WithPrefix())
		must(t, err)
		return own.Listed(all.Header, all.Kvs, lease)
	}
	put(answerKey, "of an earlier run")
	lease := grant()
	must(t, list(lease))
	_, err := own.Write(t.Context(), e.Client(), map[string]string{statusKey: "a"}, "")
	must(t, err)
	put(statusKey, "not acknowledged", clientv3.WithLease(lease))
	must(t, list(lease))
	put(statusKey, "nor this", clientv3.WithLease(lease))
	next := grant()
	must(t, list(next))
	for _, key := range []string{statusKey, answerKey} {
		put(key, "of somebody else", clientv3.WithLease(grant()))
		want := `another client put "of somebody else" under our key ` + key
		if err := list(next); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		must(t, list(next))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := own.Watch(ctx, e.Client())
	put(statusKey, "of somebody else")
	told, open := <-watch
	if err := own.Take(told, open); err == nil {
		t.Error("a watch does not name it")
	}
	must(t, list(next))
}

// A process that is killed revokes nothing.
func TestKeysOfAKilledProcessExpire(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	p := newParty(t, e, 2*time.Second)
	ctx, kill := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.client.Once(ctx, p.attempt) }()
	p.Want(map[string]string{statusKey: "a"})
	await(t, "the status", has(t, e, statusKey, "a"))
	kill()
	<-ended
	if !has(t, e, statusKey, "a")() {
		t.Error("gone at once")
	}
	await(t, "the end of the lease", has(t, e, statusKey, ""))
}

// An etcd that comes back without the keys, or with older ones under our own lease, is noticed; so
// is one that was compacted meanwhile.
func TestKeysComeBackInARestoredEtcd(t *testing.T) {
	t.Parallel()
	t.Attr("part", "etcd 3.6.16, embedded server")
	dir, listen := t.TempDir(), ""
	var e *calicotest.Etcd
	restart := func(dir string) {
		t.Helper()
		if e != nil {
			e.Close()
		}
		var err error
		e, err = calicotest.StartEtcd(calicotest.EtcdOptions{Dir: dir, Listen: listen})
		must(t, err)
	}
	restart(dir)
	defer func() { e.Close() }()
	listen = strings.TrimPrefix(e.Endpoint(), "http://")
	p := newParty(t, e, 15*time.Second)
	p.start(t)
	p.Want(map[string]string{statusKey: "old"})
	await(t, "the status", has(t, e, statusKey, "old"))
	e.Close()
	e = nil
	backup := t.TempDir()
	must(t, os.CopyFS(backup, os.DirFS(dir)))

	restart(dir)
	for i := range 20 {
		_, err := e.Client().Put(t.Context(), "/other", fmt.Sprint(i))
		must(t, err)
	}
	head, err := e.Client().Get(t.Context(), "/other")
	must(t, err)
	_, err = e.Client().Compact(t.Context(), head.Header.Revision)
	must(t, err)
	p.Want(map[string]string{statusKey: "new"})
	await(t, "the next status after a compaction", has(t, e, statusKey, "new"))

	restart(backup)
	if !has(t, e, statusKey, "old")() {
		t.Fatal("the backup has not the older status")
	}
	await(t, "the status in the restored etcd", has(t, e, statusKey, "new"))
	_, err = e.Client().Put(t.Context(), "/questions/1", "?")
	must(t, err)
	await(t, "a question there", p.hears("/questions/1=?"))

	restart("")
	await(t, "the status in an empty etcd", has(t, e, statusKey, "new"))
	await(t, "no question there", p.hears())
}

func TestExchangeWithoutPermissionSaysSo(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, calicotest.EtcdOptions{})
	must(t, e.EnableAuth(t.Context(), "secret", map[string]string{"reader": "pw"}))
	p := newParty(t, e, time.Minute, func(c *Config) { c.Username, c.Password = "reader", "pw" })
	p.start(t)
	p.Want(map[string]string{statusKey: "a"})
	await(t, "the refusal", func() bool {
		return strings.Contains(p.Status().Problem,
			`does not allow user "reader" to write under /nodes/edge-7/`)
	})
}
