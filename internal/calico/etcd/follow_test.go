package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
)

// attemptUntil runs one connection of f until a snapshot satisfies ok, and ends it.
func attemptUntil(t *testing.T, s *Source, f *follower,
	ok func(*calico.Snapshot) bool) *calico.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- s.attempt(ctx, f) }()
	defer func() {
		cancel()
		<-ended
	}()
	for {
		select {
		case snap := <-s.Snapshots():
			if ok(snap) {
				return snap
			}
		case err := <-ended:
			ended <- err
			t.Fatalf("ended: %v", err)
		}
	}
}

func newSource(t *testing.T, e *calicotest.Etcd) *Source {
	t.Helper()
	s, err := New(Config{Endpoints: []string{e.Endpoint()}}, "edge-7",
		slog.New(slog.DiscardHandler))
	must(t, err)
	return s
}

// A watch that ended for any reason but a compaction (ErrNoLeader, a closed connection) goes on
// where it was.
func TestTheNextConnectionGoesOnWithoutAList(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	seed(t, e.Cluster())
	s := newSource(t, e)
	f := newFollower(s)
	attemptUntil(t, s, f, hasNode("edge-10"))
	must(t, e.Cluster().Delete(t.Context(), "Node", "edge-10"))
	must(t, e.Cluster().AddNode(t.Context(), "edge-11", pfx("172.30.8.11/24")))
	snap := attemptUntil(t, s, f, func(s *calico.Snapshot) bool {
		return hasNode("edge-11")(s) && lacksNode("edge-10")(s)
	})
	if snap.Lists != 1 {
		t.Errorf("lists: %d", snap.Lists)
	}
}

// After a compaction only ranges are listed that saw nothing since; a list that fails on the way
// deletes nothing.
func TestListsWhatWasCompactedOnly(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour})
	defer e.Close()
	seed(t, e.Cluster())
	s := newSource(t, e)
	f := newFollower(s)
	first := attemptUntil(t, s, f, hasNode("edge-10"))
	for i := range 10 {
		must(t, e.Cluster().AddNode(t.Context(), fmt.Sprintf("n%d", i), pfx("172.30.8.11/24")))
	}
	last := attemptUntil(t, s, f, hasNode("n9")).Revision
	_, err := e.Client().Compact(t.Context(), last)
	must(t, err)
	must(t, e.Cluster().Delete(t.Context(), "IPPool", "edge-v4"))

	client, err := clientv3.New(s.client)
	must(t, err)
	defer client.Close()
	f.compacted(last)
	if f.listAgain(t.Context(), client, first.Revision) == nil { // compacted as well
		t.Fatal("a list at a compacted revision succeeded")
	}
	select {
	case snap := <-s.Snapshots():
		t.Fatalf("the failed list made a snapshot: %+v", snap)
	default:
	}
	for _, r := range f.ranges {
		if isNodes := hasNodes(r.Prefix); isNodes == (r.next == 0) {
			t.Errorf("range %s: next %d", r.Prefix, r.next)
		}
	}
	snap := attemptUntil(t, s, f, func(s *calico.Snapshot) bool { return len(s.IPPools) == 0 })
	if snap.Lists != 2 || len(snap.Nodes) != 12 {
		t.Errorf("%d lists, %d nodes", snap.Lists, len(snap.Nodes))
	}
}

func hasNodes(prefix string) bool {
	return calico.Key{Kind: calico.KindNode}.String() == prefix
}

// The server's own progress notifications move idle ranges on, so that a compaction costs them no
// list.
func TestProgressSparesIdleRangesAList(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: 100 * time.Millisecond})
	defer e.Close()
	seed(t, e.Cluster())
	s := newSource(t, e)
	f := newFollower(s)
	attemptUntil(t, s, f, hasNode("edge-10"))
	for i := range 20 {
		must(t, e.Cluster().PutRaw(t.Context(), "/other", fmt.Sprint(i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	must(t, s.attempt(ctx, f))
	head, err := e.Client().Get(t.Context(), "/other")
	must(t, err)
	for _, r := range f.ranges {
		if r.next <= head.Header.Revision {
			t.Errorf("range %s is at %d, etcd at %d", r.Prefix, r.next, head.Header.Revision)
		}
	}
}

const hostKey = calico.DefaultHosts + "edge-3/peerip/ipv4/1"

func hasAddress(host string) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { return s.PeerIPs[calico.PeerIP{Host: host}].IsValid() }
}

// followHosts returns a source that reads what hosts publish, and its follower, after a snapshot
// with edge-3's address.
func followHosts(t *testing.T, e *calicotest.Etcd) (*Source, *follower) {
	t.Helper()
	s, err := NewFor(Config{Endpoints: []string{e.Endpoint()}}, "edge-7",
		calico.Needs{NoBGP: true, Hosts: calico.DefaultHosts}, slog.New(slog.DiscardHandler))
	must(t, err)
	s.returnTime = 2 * time.Second
	must(t, e.Cluster().PutRaw(t.Context(), hostKey, "10.0.0.3"))
	f := newFollower(s)
	attemptUntil(t, s, f, hasAddress("edge-3"))
	return s, f
}

// A host's lease ended while we were away, perhaps only because it was away as well.
func TestHostsHaveTimeToComeBackAfterALoss(t *testing.T) {
	for _, how := range []string{"watched", "listed again"} {
		t.Run(how, func(t *testing.T) {
			e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour})
			defer e.Close()
			s, f := followHosts(t, e)
			must(t, e.Cluster().PutRaw(t.Context(), calico.DefaultHosts+"edge-4/peerip/ipv4/1",
				"10.0.0.4"))
			attemptUntil(t, s, f, hasAddress("edge-4"))
			f.absences.lose(time.Now().Add(-time.Minute))
			must(t, e.Cluster().DeleteRaw(t.Context(), calico.DefaultHosts))
			must(t, e.Cluster().AddNode(t.Context(), "edge-11", pfx("172.30.8.11/24")))
			if how == "listed again" {
				f.forget()
			}
			if snap := attemptUntil(t, s, f, hasNode("edge-11")); !hasAddress("edge-3")(snap) ||
				!hasAddress("edge-4")(snap) {
				t.Fatalf("an address is gone at once: %v", snap.PeerIPs)
			}
			must(t, e.Cluster().PutRaw(t.Context(), hostKey, "10.0.0.3"))
			snap := attemptUntil(t, s, f, func(s *calico.Snapshot) bool {
				return !hasAddress("edge-4")(s)
			})
			if !hasAddress("edge-3")(snap) {
				t.Error("the address that came back went with the one that did not")
			}
		})
	}
}

func TestAHostThatGoesWithoutALossIsGoneAtOnce(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{})
	defer e.Close()
	s, f := followHosts(t, e)
	must(t, e.Cluster().DeleteRaw(t.Context(), hostKey))
	attemptUntil(t, s, f, func(s *calico.Snapshot) bool { return !hasAddress("edge-3")(s) })
	if len(f.absences.keys) > 0 {
		t.Error("held")
	}
}

func TestAbsencesDoNotEndWhileEtcdIsLost(t *testing.T) {
	a := newAbsences("/hosts/", time.Minute)
	now := time.Now()
	if a.lose(now); a.holds("/hosts/a", now) {
		t.Error("held though nothing was known before")
	}
	a.known = true
	a.lose(now)
	a.lose(now.Add(time.Hour)) // the first word counts
	if !a.holds("/hosts/a", now) || a.holds("/calico/a", now) {
		t.Error("not held, or of another range")
	}
	if over := a.over(now.Add(time.Hour)); over != nil {
		t.Errorf("over while lost: %v", over)
	}
	a.back(now.Add(time.Hour))
	if over := a.over(now.Add(time.Hour + 59*time.Second)); over != nil {
		t.Errorf("over before its time: %v", over)
	}
	if over := a.over(now.Add(time.Hour + time.Minute)); len(over) != 1 ||
		a.holds("/hosts/b", now.Add(2*time.Hour)) {
		t.Errorf("over %v", over)
	}
	a.lose(now.Add(3 * time.Hour))
	if a.back(now.Add(3*time.Hour + shortestLease - 1)); a.holds("/hosts/b",
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
			r := &keyRange{Range: calico.Range{Prefix: "/calico/"}}
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
