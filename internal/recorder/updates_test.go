package recorder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/mrt"
)

func newUpdatesRecorder(t *testing.T, dir string, size int64) *Recorder {
	r := newRecorder(t, dir, 1<<20)
	r.cfg.Updates = size
	r.updates = newUpdates(r, size)
	return r
}

func sessionWith(last byte) bgp.Session {
	return bgp.Session{Peer: netip.AddrFrom4([4]byte{10, 0, 0, last}),
		Local: netip.MustParseAddr("10.0.0.100"), PeerAS: 65001, LocalAS: 65000, FourOctetAS: true,
		IPv4: bgp.SessionFamily{On: true}}
}

// update sends an UPDATE that withdraws 0.0.0.0/0 so often.
func update(tap bgp.Tap, at time.Time, n int) {
	header := binary.BigEndian.AppendUint16(bytes.Repeat([]byte{0xff}, 16), uint16(23+n))
	body := append(binary.BigEndian.AppendUint16(nil, uint16(n)), make([]byte, n+2)...)
	tap.Message(at, append(header, 2), body)
}

func updateStats(r *Recorder) Stats {
	s, _ := r.UpdateStats()
	return s
}

// readUpdates returns records as text: the last byte of the peer, and states or the size.
func readUpdates(t *testing.T, dir string, s UpdatesSelection) (out []string, problems []error) {
	t.Helper()
	var b bytes.Buffer
	problems, err := Updates(dir, s, &b)
	if err != nil {
		t.Fatal(err)
	}
	err = mrt.Read(&b, func(r mrt.Record) error {
		what := fmt.Sprint(len(r.Bytes) - 36)
		if r.To != 0 {
			what = fmt.Sprintf("%d→%d", r.From, r.To)
		}
		out = append(out, fmt.Sprintf("%d %s", r.Peer.As4()[3], what))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, problems
}

// What peers sent is read as it came, from whom and since when one asks.
func TestUpdates(t *testing.T) {
	dir := t.TempDir()
	r := newUpdatesRecorder(t, dir, 1<<20)
	stop := start(t, r)
	one, two := r.Tap(sessionWith(1)), r.Tap(sessionWith(2))
	long := time.Now().Add(-time.Hour)
	update(one, long, 0)
	update(two, time.Now(), 4000)
	one.End(time.Now())
	stop()
	for _, c := range []struct {
		what UpdatesSelection
		want string
	}{
		{UpdatesSelection{}, "1 5→6, 2 5→6, 1 23, 2 4023, 1 6→1"},
		{UpdatesSelection{Peer: netip.MustParseAddr("10.0.0.1")}, "1 5→6, 1 23, 1 6→1"},
		{UpdatesSelection{Since: long.Add(time.Minute)}, "1 5→6, 2 5→6, 2 4023, 1 6→1"},
		{UpdatesSelection{Since: time.Now().Add(time.Minute)}, ""},
	} {
		got, problems := readUpdates(t, dir, c.what)
		if strings.Join(got, ", ") != c.want || len(problems) > 0 {
			t.Errorf("%+v: %v, %v instead of %s", c.what, got, problems, c.want)
		}
	}
	var b bytes.Buffer
	if _, err := Updates(dir, UpdatesSelection{WholeSeconds: true}, &b); err != nil ||
		b.Bytes()[5] != 16 {
		t.Errorf("type %d, %v", b.Bytes()[5], err)
	}
	if s := updateStats(r); s.Written != 5 || s.Dropped != 0 || s.Segments != 1 {
		t.Errorf("stats are %+v", s)
	}
	full := errors.New("the pipe is closed")
	if _, err := Updates(dir, UpdatesSelection{}, failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("an error of the reader became %v", err)
	}
}

type failingWriter struct{ error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.error }

// The ring stays within its size, has the newest, and each segment says which sessions are up; what
// is damaged is named, and costs no other segment.
func TestUpdatesTurn(t *testing.T) {
	const size = 64 << 10
	dir := t.TempDir()
	r := newUpdatesRecorder(t, dir, size)
	stop := start(t, r)
	one, gone := r.Tap(sessionWith(1)), r.Tap(sessionWith(2))
	gone.End(time.Now())
	const n = 2000
	for i := range n {
		update(one, time.Now(), i)
		until(t, func() bool { return updateStats(r).Written == uint64(i+4) })
	}
	stop()
	got, problems := readUpdates(t, dir, UpdatesSelection{})
	if len(problems) > 0 || got[0] != "1 6→6" {
		t.Fatalf("it begins with %v, problems %v", got[:1], problems)
	}
	for i, text := range got[1:] {
		if want := fmt.Sprintf("1 %d", n-len(got)+1+i+23); text != want {
			t.Fatalf("record %d is %s instead of %s", i, text, want)
		}
	}
	all, err := listSegments(updatesDir(dir), updatesSuffix)
	if err != nil || len(all) < parts {
		t.Fatalf("segments %v, %v", all, err)
	}
	bytes := int64(0)
	for _, s := range all {
		bytes += s.bytes
	}
	if bytes > size || bytes < size/2 || bytes != updateStats(r).Bytes {
		t.Errorf("%d bytes on disk, %d reported, %d allowed", bytes, updateStats(r).Bytes, size)
	}

	path := all[1].path(updatesDir(dir), updatesSuffix)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[40+5] ^= 1 // the type of what follows that the session is up
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	less, problems := readUpdates(t, dir, UpdatesSelection{})
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), path) ||
		len(less) >= len(got) || less[len(less)-1] != got[len(got)-1] {
		t.Errorf("%d of %d records, problems %v", len(less), len(got), problems)
	}
}

// While the disk stalls no session waits, memory is bounded, and what had no room is counted.
func TestUpdatesWhileTheDiskStalls(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "stalls")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	stalls, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stalls.Close()
	r := newUpdatesRecorder(t, dir, 64<<20)
	r.endWait = endWait
	r.open = func(string) (*os.File, error) { return stalls, nil }
	stop := start(t, r)
	tap := r.Tap(sessionWith(1))
	for range 5000 { // returns
		update(tap, time.Now(), 4000)
	}
	late := r.Tap(sessionWith(2)) // that it is up is not lost
	r.Tap(sessionWith(3)).End(time.Now())
	r.updates.mu.Lock()
	if c := r.updates.changes; !c[late.(*session)] || len(c) > 2 {
		t.Errorf("sessions that have come up or gone: %v", c)
	}
	r.updates.mu.Unlock()
	r.updates.mu.Lock()
	queued := cap(r.updates.queue)
	r.updates.mu.Unlock()
	if s := updateStats(r); s.Dropped == 0 || s.Dropped > 5000 || queued > 2*maxQueued {
		t.Errorf("%d messages were dropped, %d bytes are queued", s.Dropped, queued)
	}
	stop()
}

// BenchmarkUpdate is what an UPDATE with 800 routes costs the goroutine of its session.
func BenchmarkUpdate(b *testing.B) {
	r := New(Config{Updates: 1})
	tap := r.Tap(sessionWith(1))
	now := time.Now()
	for range b.N {
		update(tap, now, 4000)
		if u := r.updates; len(u.queue) > enough {
			u.queue = u.queue[:0]
		}
	}
}

// The writer never takes a change without its record: a segment that begins then would say so
// before what led there.
func TestChangeAndItsRecordAreTakenTogether(t *testing.T) {
	u := newUpdates(newRecorder(t, t.TempDir(), 1<<20), 1<<20)
	s := &session{to: u, mrt: mrt.NewWriter(bgp.Session{})}
	var both sync.WaitGroup
	both.Go(func() {
		for range 20_000 {
			s.change(time.Now(), true)
		}
	})
	for range 20_000 {
		u.mu.Lock()
		if (len(u.changes) > 0) != (u.records > 0) {
			t.Errorf("%d changes, %d records", len(u.changes), u.records)
		}
		clear(u.changes)
		u.queue, u.records = nil, 0
		u.mu.Unlock()
		if t.Failed() {
			break
		}
	}
	both.Wait()
}
