package lastgood

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/calico"
)

// keeping runs a Keeper in a bubble, over a folder that outlives it.
func keeping(t *testing.T, dir string, f func(k *Keeper, in chan *calico.Snapshot)) {
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *calico.Snapshot, 1)
		k := New(dir, "edge-5", calico.Needs{}, in, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { k.Run(ctx) })
		f(k, in)
		cancel()
		wait.Wait()
	})
}

func newest(k *Keeper) *calico.Snapshot {
	synctest.Wait()
	select {
	case s := <-k.Snapshots():
		return s
	default:
		return nil
	}
}

func TestSnapshotSurvivesAndIsUsedAfterAWhile(t *testing.T) {
	dir := t.TempDir()
	keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
		in <- small()
		if newest(k) == nil {
			t.Error("a snapshot was not handed on")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := os.Stat(filepath.Join(dir, "snapshot.json")); err != nil || k.Status().Behind {
			t.Errorf("%v, status %+v", err, k.Status())
		}
	})
	keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
		time.Sleep(4900 * time.Millisecond)
		if newest(k) != nil {
			t.Error("the file is used before the datastore had its time")
		}
		time.Sleep(200 * time.Millisecond)
		s := newest(k)
		if s == nil || len(s.Blocks) != 1 || s.Revision != 42 || !k.Status().Stale ||
			k.Status().AsOf.IsZero() {
			t.Fatalf("got %+v, status %+v", s, k.Status())
		}
		fresh := small()
		fresh.Revision = 50
		in <- fresh
		if s := newest(k); s != fresh || k.Status().Stale {
			t.Errorf("the datastore's own snapshot did not replace the file's: %+v", k.Status())
		}
	})
}

func TestChangesAreWrittenAtAPaceAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	revision := func() int64 {
		s, _, err := read(filepath.Join(dir, "snapshot.json"), edge5)
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision
	}
	keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
		written := map[int64]bool{}
		for r := range int64(95) { // ten each second
			s := small()
			s.Revision = r
			in <- s
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if r > 10 {
				written[revision()] = true
				if behind := revision() != r; k.Status().Behind != behind {
					t.Errorf("status says that revision %d is not on disk yet: %t", r, !behind)
				}
			}
		}
		if n := len(written); n < 7 || n > 9 {
			t.Errorf("%d files were written in 8 s", n)
		}
	})
	if got := revision(); got != 94 {
		t.Errorf("the file has revision %d after the end, want 94", got)
	}
}

func TestUnfitSnapshotsDoNotReplaceTheFile(t *testing.T) {
	dir := t.TempDir()
	keeping(t, dir, func(_ *Keeper, in chan *calico.Snapshot) {
		in <- small()
		time.Sleep(20 * time.Second)
		migrating := small()
		migrating.DatastoreNotReady = true
		in <- migrating
		time.Sleep(20 * time.Second)
		lost := small()
		lost.Nodes = nil
		in <- lost
		time.Sleep(20 * time.Second)
	})
	if s, _, err := read(filepath.Join(dir, "snapshot.json"), edge5); err != nil ||
		s.DatastoreNotReady || len(s.Nodes) != 1 {
		t.Errorf("the file has %+v, %v", s, err)
	}
}

// locked is what a datastore has while it is migrated.
func locked() *calico.Snapshot {
	return &calico.Snapshot{Revision: 60, ClusterInformation: true, DatastoreNotReady: true}
}

// An agent of before did not note whether there was a ClusterInformation. Its successor finds the
// datastore locked, and then empty.
func TestLockedDatastoreIsEmptiedAfterAnUpgrade(t *testing.T) {
	dir := t.TempDir()
	keeping(t, dir, func(_ *Keeper, in chan *calico.Snapshot) {
		in <- small()
		time.Sleep(20 * time.Second)
	})
	keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
		in <- locked()
		in <- &calico.Snapshot{Revision: 1}
		if s := newest(k); s == nil || s.Locked() != "" || s.Revision != 42 {
			t.Errorf("an agent starts from %+v, want what the file has", s)
		}
		if s := newest(k); s == nil || s.Locked() == "" {
			t.Errorf("the emptied datastore is used: %+v", s)
		}
	})
}

// TestEmptiedDatastoreIsLocked: etcd comes back empty, while the agent runs and before it starts.
func TestEmptiedDatastoreIsLocked(t *testing.T) {
	dir := t.TempDir()
	full := func(revision int64) *calico.Snapshot {
		s := small()
		s.Revision, s.ClusterInformation = revision, true
		return s
	}
	emptied := func() *calico.Snapshot { return &calico.Snapshot{Revision: 1} }
	comes := func(t *testing.T, k *Keeper, revision int64, why string) {
		t.Helper()
		s := newest(k)
		if s == nil || s.Revision != revision || s.Locked() != why {
			t.Errorf("then comes %+v, want revision %d, %q", s, revision, why)
		}
	}
	const gone = "ClusterInformation is gone"
	keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
		in <- emptied() // a cluster without a ClusterInformation is none that lost it
		comes(t, k, 1, "")
		in <- full(42)
		comes(t, k, 42, "")
		in <- emptied()
		comes(t, k, 1, gone)
		in <- emptied()
		comes(t, k, 1, gone)
		in <- full(43)
		comes(t, k, 43, "")
		time.Sleep(20 * time.Second)
		in <- emptied()
		comes(t, k, 1, gone)
		time.Sleep(20 * time.Second)
	})
	for name, after := range map[string]time.Duration{"at once": 0,
		"when the file is in use": 6 * time.Second} {
		t.Run(name, func(t *testing.T) {
			keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
				time.Sleep(after)
				in <- emptied()
				comes(t, k, 43, "")
				comes(t, k, 1, gone)
				if !k.Status().Stale {
					t.Errorf("while the agent works with the file's data: status %+v", k.Status())
				}
				in <- full(43)
				comes(t, k, 43, "")
			})
		})
	}
}

func TestLockedDatastoreComesAfterTheFile(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0,
		"when the file is in use": 6 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			keeping(t, dir, func(_ *Keeper, in chan *calico.Snapshot) {
				in <- small()
				time.Sleep(20 * time.Second)
			})
			keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
				time.Sleep(after)
				in <- locked()
				time.Sleep(time.Minute) // the reader is slow
				in <- locked()
				time.Sleep(time.Minute)
				if s := newest(k); s == nil || s.DatastoreNotReady || s.Revision != 42 {
					t.Errorf("an agent starts from %+v, want what the file has", s)
				}
				if s := newest(k); s == nil || !s.DatastoreNotReady {
					t.Errorf("the lock is not handed on: %+v", s)
				}
				if st := k.Status(); !st.Stale || st.AsOf.IsZero() {
					t.Errorf("while the agent works with the file's data: status %+v", st)
				}
				in <- locked()
				if s := newest(k); s == nil || !s.DatastoreNotReady {
					t.Errorf("the lock is not handed on once more: %+v", s)
				}
				in <- locked()
				fresh := small()
				fresh.Revision, fresh.ClusterInformation = 70, true
				in <- fresh
				if s := newest(k); s != fresh || k.Status().Stale {
					t.Errorf("after the lock %+v, status %+v", s, k.Status())
				}
				if s := newest(k); s != nil {
					t.Errorf("an old lock comes after it: %+v", s)
				}
			})
		})
	}
}

func TestLockedDatastoreDoesNotOvertakeGoodData(t *testing.T) {
	keeping(t, t.TempDir(), func(k *Keeper, in chan *calico.Snapshot) {
		in <- small()
		in <- locked()
		if s := newest(k); s == nil || s.DatastoreNotReady {
			t.Errorf("an agent starts from %+v", s)
		}
		if s := newest(k); s == nil || !s.DatastoreNotReady || k.Status().Stale {
			t.Errorf("then comes %+v, status %+v", s, k.Status())
		}
	})
}

func TestLockedDatastoreWithoutAFile(t *testing.T) {
	keeping(t, t.TempDir(), func(k *Keeper, in chan *calico.Snapshot) {
		in <- locked()
		if s := newest(k); s == nil || !s.DatastoreNotReady {
			t.Errorf("the lock is not handed on: %+v", s)
		}
		time.Sleep(time.Minute)
		if s := newest(k); s != nil || k.Status() != (Status{}) {
			t.Errorf("then comes %+v, status %+v", s, k.Status())
		}
	})
}

func TestProblemsAreShownAndEndNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot.json")
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	keeping(t, dir, func(k *Keeper, in chan *calico.Snapshot) {
		time.Sleep(time.Minute)
		if newest(k) != nil || !strings.Contains(k.Status().Problem, "no snapshot of an agent") {
			t.Errorf("status %+v", k.Status())
		}
		in <- small()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if k.Status().Problem != "" {
			t.Errorf("a good file was written, and status still says %q", k.Status().Problem)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		in <- small()
		time.Sleep(time.Minute)
		synctest.Wait()
		if newest(k) == nil || k.Status().Problem == "" || !k.Status().Behind {
			t.Errorf("an unwritable folder: status %+v", k.Status())
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); err != nil || k.Status().Problem != "" || k.Status().Behind {
			t.Errorf("nothing was written when that was possible again: %v, status %+v", err,
				k.Status())
		}
	})
}

func TestFirstStartWithoutAFileIsNoProblem(t *testing.T) {
	keeping(t, t.TempDir(), func(k *Keeper, _ chan *calico.Snapshot) {
		time.Sleep(time.Minute)
		if newest(k) != nil || k.Status() != (Status{}) {
			t.Errorf("status %+v", k.Status())
		}
	})
}

func TestWritingTakesAShareOfItsTime(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		4 * time.Millisecond:   200 * time.Millisecond,
		200 * time.Millisecond: 10 * time.Second,
		30 * time.Second:       time.Minute,
	} {
		if got := pause(took); got != want {
			t.Errorf("after %s nothing is written for %s, want %s", took, got, want)
		}
	}
}

// A disk that stalls does not keep the agent from ending, or from handing over to a new process.
func TestAStalledDiskDoesNotHoldUpTheEnd(t *testing.T) {
	dir := t.TempDir()
	stalled := filepath.Join(dir, "snapshot.json.new") // nobody reads it, so it cannot be opened
	if err := syscall.Mkfifo(stalled, 0o600); err != nil {
		t.Fatal(err)
	}
	in := make(chan *calico.Snapshot, 1)
	k := New(dir, "edge-5", calico.Needs{}, in, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	in <- small()
	<-k.Snapshots()
	cancel()
	select {
	case err := <-done:
		if err != nil || !k.Status().Behind {
			t.Errorf("%v, %+v", err, k.Status())
		}
	case <-time.After(20 * time.Second):
		t.Error("it has not ended after 20 s")
	}
	f, err := os.OpenFile(stalled, os.O_RDWR, 0) // the disk is back
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
