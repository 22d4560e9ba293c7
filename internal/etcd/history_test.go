package etcd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/settle"
)

// Changes that come in while a probe's answer is on its way do not make it an answer from the past.
func TestHistoryIsHeldAgainstWhatTheProbeKnew(t *testing.T) {
	f := &Follower{cluster: 7, term: 3, revision: 676, probed: 670}
	for _, tc := range []struct {
		name string
		head pb.ResponseHeader
		same bool
	}{
		{"overtaken by a change", pb.ResponseHeader{ClusterId: 7, RaftTerm: 3, Revision: 675},
			true},
		{"from before the probe", pb.ResponseHeader{ClusterId: 7, RaftTerm: 3, Revision: 669},
			false},
		{"another term", pb.ResponseHeader{ClusterId: 7, RaftTerm: 2, Revision: 680}, false},
		{"another cluster", pb.ResponseHeader{ClusterId: 8, RaftTerm: 3, Revision: 680}, false},
	} {
		err := f.sameHistory(&tc.head, f.probed, f.term)
		if (err == nil) != tc.same || err != nil && !errors.Is(err, ErrRestored) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A list that took long was begun in a term that is over. That is an election, not a restore.
func TestListAcrossAnElection(t *testing.T) {
	f := &Follower{data: &keys{}, log: slog.Default(), grace: newGrace(time.Second),
		known: map[Range]*keyRange{}, cluster: 1, term: 6, revision: 100}
	w := widened{revision: 100, term: 5, found: map[*keyRange][]*mvccpb.KeyValue{}}
	w.head = &pb.ResponseHeader{ClusterId: 1, Revision: 100, RaftTerm: 5}
	if err := f.takeList(w, settle.New()); err != nil {
		t.Error(err)
	}
	w.head.RaftTerm = 4
	if err := f.takeList(w, settle.New()); !errors.Is(err, ErrRestored) {
		t.Errorf("a lower term than before the list: %v", err)
	}
}

// changeKeys puts what begins with + and deletes what begins with -, in this order.
func changeKeys(t *testing.T, e *calicotest.Etcd, keys string) {
	t.Helper()
	for _, key := range strings.Fields(keys) {
		var err error
		if name, put := strings.CutPrefix(key, "+"); put {
			_, err = e.Client().Put(t.Context(), name, "x")
		} else {
			_, err = e.Client().Delete(t.Context(), key[1:])
		}
		must(t, err)
	}
}

// An etcd restored from a copy of its directory has the same cluster ID and a Raft term that is not
// lower. Its revision may be above ours by the time we ask.
func TestARestoreIsNoticedWhenTheRevisionIsNotLower(t *testing.T) {
	t.Attr("part", "etcd 3.6.16, embedded server")
	for _, tc := range []struct {
		name, lost string // what is changed after the backup
		since      string // in the restored etcd
		compacted  bool
		want       string
	}{
		{"a put is lost", "+/a/2", "", false, "/a/1 /b/1"},
		{"the last of a key is lost", "+/a/1 +/a/2 -/a/2 +/b/2", "", false, "/a/1 /b/1"},
		{"a key was put again", "+/a/2 +/a/3 -/a/3", "+/other +/a/2", false,
			"/a/1 /a/2 /b/1"},
		{"the newest put is deleted again", "+/a/2 +/a/3 -/a/3", "", false, "/a/1 /b/1"},
		{"a deletion is lost", "-/b/1", "", false, "/a/1 /b/1"},
		{"a put is lost, compacted", "+/a/2", "", true, "/a/1 /b/1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			o := calicotest.EtcdOptions{Dir: dir}
			e, err := calicotest.StartEtcd(o)
			must(t, err)
			stop := sync.OnceFunc(e.Close)
			defer func() { stop() }()
			restart := func(o calicotest.EtcdOptions) {
				stop()
				e, err = calicotest.StartEtcd(o)
				must(t, err)
				stop = sync.OnceFunc(e.Close)
			}
			changeKeys(t, e, "+/a/1 +/b/1")
			stop()
			backup := t.TempDir()
			must(t, os.CopyFS(backup, os.DirFS(dir)))
			restart(o)
			o.Listen = strings.TrimPrefix(e.Endpoint(), "http://")
			r := newReader(t, e)
			r.ProbeEvery = 200 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			first := <-r.out
			changeKeys(t, e, tc.lost)
			for r.Status().Revision < first.at+int64(len(strings.Fields(tc.lost))) {
				time.Sleep(time.Millisecond)
			}

			// Others write where the reader cannot see it.
			restart(calicotest.EtcdOptions{Dir: backup})
			changeKeys(t, e, tc.since+strings.Repeat(" +/other", 20))
			if tc.compacted {
				_, err = e.Client().Compact(t.Context(), r.Status().Revision+1)
				must(t, err)
			}
			o.Dir = backup
			restart(o)
			v, got := view{}, ""
			for late := time.After(2 * time.Minute); v.lists < 2 || got != tc.want; {
				select {
				case v = <-r.out:
					got = strings.Join(slices.Sorted(maps.Keys(v.values)), " ")
				case <-late:
					t.Fatalf("published %s by %d lists, there is %s", got, v.lists, tc.want)
				}
			}
			time.Sleep(5 * r.ProbeEvery)
			st := r.Status()
			if st.Lists != v.lists || v.lists > 2 && !tc.compacted || !st.Connected {
				t.Errorf("%d lists, and after more probes: %+v", v.lists, st)
			}
		})
	}
}

// The newest deletion is of a key that was put again.
func TestAKeyThatIsBackIsNoRestore(t *testing.T) {
	e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour})
	r := newReader(t, e)
	r.ProbeEvery = 200 * time.Millisecond
	changeKeys(t, e, "+/a/1 +/a/2")
	r.untilHas("/a/2")
	changeKeys(t, e, "-/a/2 +/a/2 +/a/3")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	must(t, r.client.Once(ctx, r.follow))
	if n := r.Status().Lists; n != 1 {
		t.Errorf("%d lists", n)
	}
}

// The newest key was deleted while nobody looked, and what it was is compacted.
func TestAKeyThatIsGoneIsNoRestore(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		e := startEtcd(t, calicotest.EtcdOptions{ProgressInterval: time.Hour})
		r := newReader(t, e)
		r.ProbeEvery = 30 * time.Second // a late watch is not late by two probes
		changeKeys(t, e, "+/a/1 +/a/2 +/other")
		at := r.untilHas("/a/2").at
		if compacted {
			_, err := e.Client().Compact(t.Context(), at)
			must(t, err)
		}
		changeKeys(t, e, "-/a/2 +/b/1")
		v := r.until(func(v view) bool { return v.has("/b/1") && !v.has("/a/2") })
		r.ProbeEvery = 300 * time.Millisecond
		changeKeys(t, e, "+/a/3 -/a/3 +/b/1 +/index/=1 +/exact/1 -/index/=1 -/exact/1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		must(t, r.client.Once(ctx, r.follow))
		cancel()
		if lists := r.Status().Lists; v.lists != 1 || lists != 1 {
			t.Errorf("compacted %v: %d lists, then %d", compacted, v.lists, lists)
		}
	}
}
