package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"vpp-route-agent/internal/calico/calicotest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

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
	t.Cleanup(e.Close)
	return e
}

// keys is Data without meaning, but that a key /index/N names the range /items/N/, and /index/=N
// the key /exact/N; and that a key that ends with /quiet changes nothing.
type keys struct {
	asked   int // for ranges
	values  map[string]string
	seen    map[string]bool
	changed bool
}

func (k *keys) Ranges() []Range {
	k.asked++
	all := []Range{{Prefix: "/a/"}, {Prefix: "/b/"}, {Prefix: "/index/"},
		{Prefix: "/hosts/", Leased: true}}
	for _, key := range slices.Sorted(maps.Keys(k.values)) {
		if n, ok := strings.CutPrefix(key, "/index/="); ok {
			all = append(all, Range{Prefix: "/exact/" + n, Exact: true})
		} else if n, ok := strings.CutPrefix(key, "/index/"); ok {
			all = append(all, Range{Prefix: "/items/" + n + "/"})
		}
	}
	return all
}

func (k *keys) Put(key string, value []byte) {
	k.values[key], k.seen[key] = string(value), true
	k.changed = k.changed || !strings.HasSuffix(key, "/quiet")
}

func (k *keys) Delete(key string) {
	delete(k.values, key)
	k.changed = true
}

func (k *keys) BeginList() { k.seen = map[string]bool{} }

func (k *keys) EndList(prefixes ...string) {
	maps.DeleteFunc(k.values, func(key, _ string) bool {
		return !k.seen[key] && slices.ContainsFunc(prefixes, func(p string) bool {
			return strings.HasPrefix(key, p)
		})
	})
	k.changed = true
}

func (k *keys) Changed() bool { return k.changed }

// view is what was published.
type view struct {
	values   map[string]string
	lists    int
	at       int64
	received time.Time
}

func (v view) has(key string) bool { return v.values[key] != "" }

// reader is a follower of keys, and etcd.
type reader struct {
	*Follower
	t    *testing.T
	etcd *calicotest.Etcd
	out  chan view
}

func newReader(t *testing.T, e *calicotest.Etcd) *reader {
	t.Helper()
	client, err := NewClient(Config{Endpoints: []string{e.Endpoint()}}, "to read")
	must(t, err)
	r := &reader{t: t, etcd: e, out: make(chan view, 1)}
	data := &keys{values: map[string]string{}, seen: map[string]bool{}}
	r.Follower = NewFollower(client, data, func(p Published) {
		data.changed = false
		for key := range data.values {
			n, ok := strings.CutPrefix(key, "/index/")
			if ok && n[0] != '=' && data.values["/items/"+n+"/always"] == "" {
				t.Errorf("%s was published without what it names", key)
			}
		}
		select {
		case <-r.out:
		default:
		}
		r.out <- view{maps.Clone(data.values), p.Lists, p.Revision, p.Received}
	}, slog.New(slog.DiscardHandler))
	return r
}

func (r *reader) put(key, value string) {
	r.t.Helper()
	_, err := r.etcd.Client().Put(r.t.Context(), key, value)
	must(r.t, err)
}

func (r *reader) del(key string) {
	r.t.Helper()
	_, err := r.etcd.Client().Delete(r.t.Context(), key)
	must(r.t, err)
}

// until runs one connection until ok, and ends it.
func (r *reader) until(ok func(view) bool) view {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- r.client.Once(ctx, r.follow) }()
	defer func() {
		cancel()
		<-ended
	}()
	for {
		select {
		case v := <-r.out:
			if ok(v) {
				return v
			}
		case err := <-ended:
			ended <- err
			r.t.Fatalf("ended: %v", err)
		}
	}
}

func (r *reader) untilHas(key string) view {
	r.t.Helper()
	return r.until(func(v view) bool { return v.has(key) })
}

// What is published has the time of the first event that it follows from: not of one which changed
// nothing, and none after a list.
func TestPublishedHasTheTimeOfItsEvent(t *testing.T) {
	r := newReader(t, startEtcd(t, calicotest.EtcdOptions{}))
	first, before := true, time.Time{}
	v := r.until(func(v view) bool {
		if !first {
			return v.has("/a/1")
		}
		if first = false; !v.received.IsZero() {
			t.Errorf("received at %v, by a list", v.received)
		}
		r.put("/b/quiet", "x")
		for r.Status().Events < 1 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Millisecond)
		before = time.Now()
		r.put("/a/1", "x")
		return false
	})
	if v.received.Before(before) || v.received.After(time.Now()) {
		t.Errorf("received at %v, which is not after %v", v.received, before)
	}
}

// Data is asked for its ranges a few times for a list, however many it names.
func TestAListOfManyRangesAsksForThemAFewTimes(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	r := newReader(t, e)
	const named = 300
	for i := range named {
		r.put(fmt.Sprintf("/index/=%d", i), "x")
		r.put(fmt.Sprintf("/exact/%d", i), "x")
	}
	v := r.until(func(v view) bool { return len(v.values) == 2*named })
	if asked := r.data.(*keys).asked; v.lists != 1 || asked > 20 {
		t.Errorf("%d lists asked %d times", v.lists, asked)
	}
}

// A list of large values has few of them in an answer.
func TestAPageOfAListIsBounded(t *testing.T) {
	r := newReader(t, startEtcd(t, calicotest.EtcdOptions{}))
	const large, more = 70, 1200
	for i := range large {
		r.put(fmt.Sprintf("/a/a%d", i), strings.Repeat("x", 1<<20))
	}
	for i := range more {
		r.put(fmt.Sprintf("/a/b%d", i), "x")
	}
	var mu sync.Mutex
	var most, answers, beyond int
	r.client.etcd.DialOptions = append(r.client.etcd.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, conn, opts...)
			get, _ := req.(*pb.RangeRequest)
			page, _ := reply.(*pb.RangeResponse)
			if get != nil && page != nil && strings.HasPrefix(string(get.Key), "/a/") {
				mu.Lock()
				defer mu.Unlock()
				most, answers = max(most, page.Size()), answers+1
				if page.Size() > pageBytes {
					beyond++
				}
			}
			return err
		}))
	r.until(func(v view) bool { return len(v.values) == large+more })
	mu.Lock()
	defer mu.Unlock()
	if most > 51<<20 || answers > 10 || beyond > 1 { // the first alone is not bounded in bytes
		t.Errorf("%d answers of up to %d bytes, %d of them large", answers, most, beyond)
	}
}

// An exact key that is named no longer takes no other along whose name begins like its own.
func TestAnExactKeyGoesAlone(t *testing.T) {
	r := newReader(t, startEtcd(t, calicotest.EtcdOptions{}))
	r.put("/exact/1", "x")
	r.put("/exact/12", "x")
	r.put("/index/=1", "x")
	r.put("/index/=12", "x")
	r.until(func(v view) bool { return v.has("/exact/1") && v.has("/exact/12") })
	r.del("/index/=1")
	v := r.until(func(v view) bool { return !v.has("/exact/1") })
	if !v.has("/exact/12") {
		t.Errorf("left: %v", v.values)
	}
	r.forget() // and with the next list what is gone goes
	r.del("/exact/12")
	r.until(func(v view) bool { return !v.has("/exact/12") && v.has("/index/=12") })
}

// What a change names may be listed for as long as etcd stalls. The watches are served meanwhile,
// and a list that failed is tried again.
func TestAStallingListHoldsUpNoWatch(t *testing.T) {
	r := newReader(t, startEtcd(t, calicotest.EtcdOptions{}))
	r.ProbeEvery = 50 * time.Millisecond
	lists, release := make(chan string, 10), make(chan error)
	r.client.etcd.DialOptions = append(r.client.etcd.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			get, ok := req.(*pb.RangeRequest)
			if !ok || !strings.HasPrefix(string(get.Key), "/items/") {
				return invoke(ctx, method, req, reply, conn, opts...)
			}
			lists <- string(get.Key)
			select {
			case err := <-release:
				if err != nil {
					return err
				}
				return invoke(ctx, method, req, reply, conn, opts...)
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
	r.until(func(view) bool { return true })
	go func() {
		r.put("/items/1/always", "x")
		r.put("/index/1", "x")
		<-lists
		before := r.Status().Events
		r.put("/a/1", "x")
		r.put("/index/2", "x") // which another change no longer names, before it is listed
		r.del("/index/2")
		for r.Status().Events < before+3 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		release <- errors.New("etcd stalls")
		<-lists
		r.put("/a/2", "x")
		release <- nil
	}()
	v := r.until(func(v view) bool { return v.has("/a/2") && v.has("/index/1") })
	if !v.has("/items/1/always") || !v.has("/a/1") || v.lists != 1 || len(lists) > 0 {
		t.Errorf("published %v after %d lists, %d more are asked for",
			v.values, v.lists, len(lists))
	}
	if st := r.Status(); st.Failures != 1 || !st.Connected {
		t.Errorf("status %+v", st)
	}
}

// A watch that ended for any reason but a compaction (ErrNoLeader, a closed connection) goes on
// where it was.
func TestTheNextConnectionGoesOnWithoutAList(t *testing.T) {
	r := newReader(t, startEtcd(t, calicotest.EtcdOptions{}))
	r.put("/a/1", "x")
	r.untilHas("/a/1")
	r.del("/a/1")
	r.put("/a/2", "x")
	v := r.until(func(v view) bool { return v.has("/a/2") && !v.has("/a/1") })
	if v.lists != 1 {
		t.Errorf("lists: %d", v.lists)
	}
}

// After a compaction only ranges are listed that saw nothing since; a list that fails on the way
// deletes nothing.
func TestListsWhatWasCompactedOnly(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour})
	r := newReader(t, e)
	r.put("/a/1", "x")
	r.put("/b/1", "x")
	first := r.untilHas("/b/1").at
	for i := range 10 {
		r.put(fmt.Sprintf("/a/n%d", i), "x")
	}
	last := r.untilHas("/a/n9").at
	_, err := e.Client().Compact(t.Context(), last)
	must(t, err)
	r.del("/b/1")

	r.compacted(last)
	if r.listAgain(t.Context(), e.Client(), first) == nil { // compacted as well
		t.Fatal("a list at a compacted revision succeeded")
	}
	select {
	case v := <-r.out:
		t.Fatalf("the failed list was published: %+v", v)
	default:
	}
	for _, rng := range r.ranges {
		if isA := rng.Prefix == "/a/"; isA == (rng.next == 0) {
			t.Errorf("range %s: next %d", rng.Prefix, rng.next)
		}
	}
	v := r.until(func(v view) bool { return !v.has("/b/1") })
	if v.lists != 2 || len(v.values) != 11 {
		t.Errorf("%d lists, %v", v.lists, v.values)
	}
}

// The server's own progress notifications move idle ranges on, so that a compaction costs them no
// list.
func TestProgressSparesIdleRangesAList(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: 100 * time.Millisecond})
	r := newReader(t, e)
	r.put("/a/1", "x")
	r.untilHas("/a/1")
	for i := range 20 {
		r.put("/other", fmt.Sprint(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	must(t, r.client.Once(ctx, r.follow))
	head, err := e.Client().Get(t.Context(), "/other")
	must(t, err)
	for _, rng := range r.ranges {
		if rng.next <= head.Header.Revision {
			t.Errorf("range %s is at %d, etcd at %d", rng.Prefix, rng.next, head.Header.Revision)
		}
	}
}

func TestCompactionBetweenAnItemAndWhatItNames(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour})
	r := newReader(t, e)
	r.put("/items/1/always", "x")
	r.put("/index/1", "x")
	r.untilHas("/items/1/always")
	// While nobody watches, one goes and another comes.
	r.del("/index/1")
	r.put("/items/2/always", "x")
	r.put("/index/2", "x")
	head, err := e.Client().Get(t.Context(), "/index/2")
	must(t, err)
	_, err = e.Client().Compact(t.Context(), head.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	v := r.untilHas("/items/2/always")
	if v.has("/items/1/always") || v.has("/index/1") || v.lists != 2 {
		t.Errorf("lists %d, %v", v.lists, v.values)
	}
}

// TestRangesThatComeAndGoMissNothing changes items and what they name at random, with and without a
// connection, with compactions and lists in between.
func TestRangesThatComeAndGoMissNothing(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: 100 * time.Millisecond})
	r := newReader(t, e)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for n := range 4 {
		r.put(fmt.Sprintf("/items/%d/always", n), "x")
	}
	change := func(value string) error {
		key := fmt.Sprintf("/items/%d/%d", rng.IntN(4), rng.IntN(2))
		if rng.IntN(2) == 0 {
			key = fmt.Sprintf("/index/%d", rng.IntN(4))
		}
		var err error
		if rng.IntN(3) == 0 {
			_, err = e.Client().Delete(t.Context(), key)
		} else {
			_, err = e.Client().Put(t.Context(), key, value)
		}
		return err
	}
	for round := range 40 {
		value := fmt.Sprint("round ", round)
		for range rng.IntN(8) { // while nobody watches
			must(t, change(value))
		}
		switch rng.IntN(4) {
		case 0:
			head, err := e.Client().Get(t.Context(), "/a/round")
			must(t, err)
			_, err = e.Client().Compact(t.Context(), head.Header.Revision)
			if err != nil && !strings.Contains(err.Error(), "compacted") {
				t.Fatal(err)
			}
		case 1:
			r.forget()
		}
		n := rng.IntN(8)
		written := make(chan error, 1)
		go func() {
			for range n {
				if err := change(value); err != nil {
					written <- err
					return
				}
			}
			_, err := e.Client().Put(t.Context(), "/a/round", value)
			written <- err
		}()
		// the ranges are not synchronized: wait until all of them are there
		var want map[string]string
		r.until(func(v view) bool {
			if v.values["/a/round"] != value {
				return false
			}
			if want == nil {
				must(t, <-written)
				want = wantedOf(t, e)
			}
			return maps.Equal(v.values, want)
		})
	}
}

// wantedOf reads all that is in etcd and keeps what keys want.
func wantedOf(t *testing.T, e *calicotest.Etcd) map[string]string {
	t.Helper()
	all, err := e.Client().Get(t.Context(), "/", clientv3.WithPrefix())
	must(t, err)
	k := &keys{values: map[string]string{}, seen: map[string]bool{}}
	for _, kv := range all.Kvs {
		k.Put(string(kv.Key), kv.Value)
	}
	ranges := k.Ranges()
	maps.DeleteFunc(k.values, func(key, _ string) bool {
		return !slices.ContainsFunc(ranges, func(r Range) bool {
			return strings.HasPrefix(key, r.Prefix)
		})
	})
	return k.values
}

// A host's lease ended while we were away, perhaps only because it was away as well.
func TestLeasedKeysHaveTimeToComeBackAfterALoss(t *testing.T) {
	for _, how := range []string{"watched", "listed again"} {
		t.Run(how, func(t *testing.T) {
			r := newReader(t, startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour}))
			r.grace.period = 2 * time.Second
			r.put("/hosts/3", "x")
			r.untilHas("/hosts/3")
			r.put("/hosts/4", "x")
			r.untilHas("/hosts/4")
			r.grace.lose(time.Now().Add(-time.Minute))
			r.del("/hosts/3")
			r.del("/hosts/4")
			r.put("/a/1", "x")
			if how == "listed again" {
				r.forget()
			}
			if v := r.untilHas("/a/1"); !v.has("/hosts/3") || !v.has("/hosts/4") {
				t.Fatalf("a key is gone at once: %v", v.values)
			}
			r.put("/hosts/3", "x")
			v := r.until(func(v view) bool { return !v.has("/hosts/4") })
			if !v.has("/hosts/3") {
				t.Error("the key that came back went with the one that did not")
			}
		})
	}
}

func TestALeasedKeyThatGoesWithoutALossIsGoneAtOnce(t *testing.T) {
	r := newReader(t, startEtcd(t, calicotest.EtcdOptions{}))
	r.put("/hosts/3", "x")
	r.untilHas("/hosts/3")
	r.del("/hosts/3")
	r.until(func(v view) bool { return !v.has("/hosts/3") })
	if len(r.grace.missing)+len(r.grace.keys) > 0 {
		t.Error("held")
	}
}

func TestGraceDoesNotEndWhileEtcdIsLost(t *testing.T) {
	g := newGrace(time.Minute)
	now := time.Now()
	if g.lose(now); g.holds("/hosts/a", now) {
		t.Error("held though nothing was known before")
	}
	g.known = true
	g.lose(now)
	g.lose(now.Add(time.Hour)) // the first word counts
	if !g.holds("/hosts/a", now) {
		t.Error("not held")
	}
	if over := g.over(now.Add(time.Hour)); over != nil {
		t.Errorf("over while lost: %v", over)
	}
	g.back(now.Add(time.Hour))
	if over := g.over(now.Add(time.Hour + 59*time.Second)); over != nil {
		t.Errorf("over before its time: %v", over)
	}
	if over := g.over(now.Add(time.Hour + time.Minute)); len(over) != 1 ||
		g.holds("/hosts/b", now.Add(2*time.Hour)) {
		t.Errorf("over %v", over)
	}
	g.lose(now.Add(3 * time.Hour))
	if g.back(now.Add(3*time.Hour + shortestLease - 1)); g.holds("/hosts/b",
		now.Add(3*time.Hour+shortestLease)) {
		t.Error("held after a loss that no lease minds")
	}
}

// silentWatcher has watches that say nothing and do not end, as clientv3's do not while it waits
// for etcd to hear that one of them has.
type silentWatcher struct{ clientv3.Watcher }

func (silentWatcher) Watch(context.Context, string, ...clientv3.OpOption) clientv3.WatchChan {
	return make(clientv3.WatchChan)
}

func TestWatchesThatDoNotEndHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &clientv3.Client{Watcher: silentWatcher{}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r := &keyRange{Range: Range{Prefix: "/calico/"}}
			forward(ctx, client, r, 1, make(chan watched))
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Fatal("it waits for a watch that does not end")
		}
	})
}
