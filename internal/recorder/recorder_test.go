package recorder

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func host(i int) route.Key {
	a := [4]byte{10}
	binary.BigEndian.PutUint16(a[2:], uint16(i))
	a[1] = byte(i >> 16)
	return route.Key{Prefix: netip.PrefixFrom(netip.AddrFrom4(a), 32)}
}

// start runs a recorder; stop ends it.
func start(t *testing.T, r *Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return stop
}

// newRecorder writes at once, and at its end all that it has, on a slow machine, too.
func newRecorder(t *testing.T, dir string, size int64) *Recorder {
	r := New(Config{Dir: dir, Size: size, Node: "node-1", Version: "v1", Log: testlog.New(t)})
	r.gather, r.endWait = 0, time.Minute
	return r
}

// readAll reads what dir has, but for the ends of checkpoints.
func readAll(t *testing.T, dir string) (all []Record, problems []error) {
	t.Helper()
	problems, err := Reader{Record: func(r Record) error {
		if _, ends := r.What.(Complete); !ends {
			all = append(all, r)
		}
		return nil
	}}.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all, problems
}

func keys(all []Record) (out []string) {
	for _, r := range all {
		switch w := r.What.(type) {
		case *fib.CandidateChange:
			out = append(out, w.Key.String())
		case Dropped:
			out = append(out, fmt.Sprintf("dropped %d", w))
		}
	}
	return out
}

// candidate records that host i is wanted.
func candidate(r *Recorder, i int) {
	r.Candidate(fib.CandidateChange{Key: host(i), Origin: route.BGP, At: r.At(time.Now()),
		Paths: []route.Path{{NextHop: netip.MustParseAddr("10.0.0.2"), Weight: 1}}})
}

// until waits for what the writer does.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen within a minute")
		}
	}
}

func written(r *Recorder, n uint64) func() bool {
	return func() bool { return r.Stats().Written >= n }
}

// What is recorded is read as it was.
func TestEachKindOfRecord(t *testing.T) {
	r := newRecorder(t, t.TempDir(), 1<<20)
	stop := start(t, r)
	at := r.At(time.Now())
	paths := []route.Path{
		{NextHop: netip.MustParseAddr("10.0.0.2"), Interface: "tap0", Weight: 1},
		{NextHop: netip.MustParseAddr("fd00::2"), Table: 7, Preference: 1, Weight: 3},
		{Interface: "eth1"},
	}
	inTable := route.Key{Table: 9, Elevated: true, Prefix: pfx("fd00:1::/64")}
	candidates := []fib.CandidateChange{
		{Key: inTable, Origin: route.External, Paths: paths, At: at, Received: at - 5},
		{Key: host(1), Origin: route.Own, Kind: route.Drop, At: at + 1},
		{Key: host(2), Origin: route.BGP, Preference: 1 << 31, At: at + 1},
	}
	decisions := []fib.Decision{
		{Key: inTable, Programs: true, Kind: route.Via, Paths: paths,
			Digest: route.Route{Paths: paths}.Digest(), Origin: route.External, Received: at - 5,
			At: at + 2},
		{Key: host(9), Programs: true, Kind: route.Via, Paths: paths,
			Digest: route.Route{Paths: paths}.Digest(), Origin: route.BGP, At: at + 2},
		{Key: host(2), Origin: route.BGP, Waiting: true, Held: true, At: at + 2},
	}
	ops := []fib.BatchOp{
		{Key: inTable, Digest: 5, Queued: at + 2},
		{Key: host(2), Digest: 5, Queued: at + 2},
		{Key: host(1)},
		{Object: &route.ObjectKey{Kind: route.AdminUp, Interface: "tap0", Name: "x"}, Digest: 6},
	}
	result := fib.BatchResult{Number: 3, At: at + 4,
		Failed: []fib.FailedOp{{Index: 1, Error: "no"}}}
	facts := route.Facts{Identity: "boot 1", Interfaces: []route.Interface{{Name: "tap0", Up: true,
		Addresses: []netip.Prefix{pfx("10.0.0.1/24")}}}}
	hop := fib.NextHop{Table: 1, Address: netip.MustParseAddr("10.9.9.9")}
	resolution := route.Resolution{Prefix: pfx("10.9.0.0/16"), Usable: true, Interface: "tap0"}
	around := fib.Surroundings{Own: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Services: []netip.Prefix{pfx("10.96.0.0/12")}, Converging: true,
		Distances:     map[route.Origin]uint8{route.External: 30},
		Encapsulation: &route.Encapsulation{Pools: []route.Pool{{Prefix: pfx("10.1.0.0/16")}}}}
	for _, c := range candidates {
		r.Candidate(c)
	}
	for _, d := range decisions {
		r.Decided(d)
	}
	r.Sent(fib.Batch{Number: 3, At: at + 3, Ops: slices.Values(ops)})
	r.Answered(result)
	r.Facts(at+5, facts)
	r.Resolved(at+6, hop, resolution)
	r.Surroundings(at+7, around)
	r.Forgotten(at+8, hop)
	r.Settled(at + 8)
	until(t, written(r, 14))
	snapshots := []*calico.Snapshot{{Revision: 1, Nodes: map[string]calico.Node{"a": {Name: "a"},
		"b": {Name: "b", ASNumber: 7}}}, {Revision: 2, Nodes: map[string]calico.Node{
		"b": {Name: "b", ASNumber: 7}}}, {Revision: 2}}
	for _, s := range snapshots {
		r.Datastore(time.Now(), s)
	}
	stop()

	want := []any{&candidates[0], &candidates[1], &candidates[2], &Decision{Decision: decisions[0]},
		&Decision{Decision: decisions[1]}, &Decision{Decision: decisions[2]}, &Batch{3, ops},
		&result, &FactsChange{Facts: facts}, &Resolved{hop, resolution}, &around,
		&Forgotten{hop}, Settled{}}
	all, problems := readAll(t, r.cfg.Dir)
	if len(problems) > 0 || len(all) != len(want)+3 {
		t.Fatalf("read %d records instead of %d, problems %v", len(all), len(want)+3, problems)
	}
	for i := range want {
		what := all[i].What
		if c, is := what.(*SurroundingsChange); is {
			s, err := c.After(fib.Surroundings{})
			if what = &s; err != nil {
				t.Error(err)
			}
		}
		if !reflect.DeepEqual(what, want[i]) {
			t.Errorf("record %d is\n%+v instead of\n%+v", i, what, want[i])
		}
	}
	var s calico.Snapshot
	for i, want := range snapshots {
		err := all[13+i].What.(*calico.RecordedChanges).Apply(&s)
		if err != nil || !reflect.DeepEqual(&s, want) {
			t.Errorf("snapshot %d is\n%+v instead of\n%+v, %v", i, s, want, err)
		}
	}
	if all[3].Moment != at+2 || time.Since(all[3].At) > time.Minute || time.Since(all[3].At) < 0 {
		t.Errorf("a decision at %v was read as %v, %v", at+2, all[3].Moment, all[3].At)
	}
}

// The ring stays within its size, and has the newest.
func TestOldSegmentsGo(t *testing.T) {
	const size = 64 << 10
	dir := t.TempDir()
	r := newRecorder(t, dir, size)
	stop := start(t, r)
	const n = 20_000 // more than twice the ring
	for i := range n {
		candidate(r, i)
		if i%100 == 99 {
			until(t, written(r, uint64(i+1)))
		}
	}
	stop()
	all, problems := readAll(t, dir)
	if len(problems) > 0 || len(all) == 0 {
		t.Fatalf("%d records, problems %v", len(all), problems)
	}
	for i, r := range all {
		want := host(n - len(all) + i)
		if got := r.What.(*fib.CandidateChange).Key; got != want {
			t.Fatalf("record %d of %d is about %v instead of %v", i, len(all), got, want)
		}
	}
	if got := sizeOf(t, dir); got > size || got < size/2 || got != r.Stats().Bytes {
		t.Errorf("%d bytes on disk, %d reported, %d allowed", got, r.Stats().Bytes, size)
	}
}

func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	all, err := listSegments(dir, suffix)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		n += s.bytes
	}
	return n
}

// A process that is killed at any byte leaves what came before, and the next goes on behind it.
func TestKilledAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 1<<20)
	stop := start(t, r)
	for i := range 5 { // a block each
		candidate(r, i)
		until(t, written(r, uint64(i+1)))
	}
	stop()
	whole, err := os.ReadFile(filepath.Join(dir, "0000000001.rec"))
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	for n := range len(whole) + 1 {
		dir := t.TempDir()
		path := filepath.Join(dir, "0000000001.rec")
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		next := newRecorder(t, dir, 1<<20)
		stop := start(t, next)
		candidate(next, 99)
		until(t, written(next, 1))
		stop()
		all, problems := readAll(t, dir)
		got := keys(all)
		if len(problems) > 0 || len(got) < before+1 || got[len(got)-1] != host(99).String() {
			t.Fatalf("cut at byte %d: %v, problems %v", n, got, problems)
		}
		for i, k := range got[:len(got)-1] {
			if k != host(i).String() {
				t.Fatalf("cut at byte %d: %v", n, got)
			}
		}
		before = len(got) - 1
	}
	if before != 5 {
		t.Errorf("all of the file has %d records instead of 5", before)
	}
}

// What is not as it was written is named, and costs no other segment.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		r := newRecorder(t, dir, 1<<20)
		stop := start(t, r)
		candidate(r, i)
		until(t, written(r, 1))
		stop()
	}
	path := filepath.Join(dir, "0000000001.rec")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		bad := bytes.Clone(whole)
		bad[n] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		all, problems := readAll(t, dir)
		got := keys(all)
		if len(got) == 2 && n > bytes.Index(whole, []byte("v1")) { // in what follows the record
			got = got[1:]
		}
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), path) ||
			!slices.Equal(got, []string{host(1).String()}) {
			t.Fatalf("byte %d flipped: %v, problems %v", n, keys(all), problems)
		}
	}
}

// A full disk costs the records that it does not take, and nobody waits for it.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "other program's")
	err := os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal("the disk is not full: ", err)
	}
	w := newRing(newRecorder(t, filepath.Join(dir, "ring"), 1<<20).cfg, time.Now(), create)
	defer w.close()
	now := time.Now()
	block := func(i int) []byte {
		r := newRecorder(t, "", 0)
		candidate(r, i)
		b := r.take(nil).block
		return durable.EndBlock(b)
	}
	if err := w.write(block(1), now); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a full disk took a record: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := w.write(block(2), now.Add(retryAfter-1)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("it was tried again at once: %v", err)
	}
	if err := w.write(block(3), now.Add(retryAfter)); err != nil {
		t.Fatal(err)
	}
	all, problems := readAll(t, w.dir)
	if got := keys(all); len(problems) > 0 || !slices.Equal(got, []string{host(3).String()}) {
		t.Errorf("read %v, problems %v", got, problems)
	}
}

// The disk is shared: where others need room, the oldest segments go, and in the end all. Then it
// says so, and writes again when there is room.
func TestOthersNeedTheDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := newUpdatesRecorder(t, filepath.Join(dir, "ring"), 1<<20) // twice the disk
	w := &r.updates.files
	w.head = func(time.Time, func([]byte) error) error { return nil }
	defer w.close()
	now, block := time.Now(), make([]byte, 16<<10)
	for range 100 {
		if err := w.write(block, now); err != nil {
			t.Fatal("its own records fill the disk: ", err)
		}
	}
	before := len(w.segments)
	other := filepath.Join(dir, "journal")
	grow := func() (n int) {
		f, err := os.OpenFile(other, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4<<10))
			n++
		}
		return n
	}
	if n := grow(); n < 5 {
		t.Errorf("another program could write only %d pages at once", n)
	}
	for range 100 {
		if err := w.write(block, now); err != nil {
			break
		}
		if grow() < 5 {
			t.Error("a write that succeeded left nothing to others")
		}
	}
	if w.problem == nil || !errors.Is(w.problem, unix.ENOSPC) || len(w.segments) > 0 || before < 2 {
		t.Errorf("%d of %d segments are left, %v", len(w.segments), before, w.problem)
	}
	if all, err := listSegments(w.dir, w.suffix); err != nil || len(all) > 0 {
		t.Errorf("on disk are %v, %v", all, err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if err := w.write(block, now.Add(retryAfter)); err != nil {
		t.Error("it does not write again: ", err)
	}
}

// That something is not written is said while it lasts.
func TestProblemIsShown(t *testing.T) {
	dir := t.TempDir()
	full, isFull := fmt.Errorf("write: %w", unix.ENOSPC), true
	w := writer{Recorder: newUpdatesRecorder(t, dir, 1<<20)}
	r := w.Recorder
	open := func(path string) (*os.File, error) {
		if isFull {
			return nil, full
		}
		return create(path)
	}
	r.open = open
	w.ring = newRing(r.cfg, r.began, open)
	defer w.ring.close()
	r.updates.files.head = func(time.Time, func([]byte) error) error { return nil }
	defer r.updates.files.close()
	write := func() {
		w.ring.retry, r.updates.files.retry = time.Time{}, time.Time{}
		candidate(r, 1)
		w.block(w.take(nil).block, 1)
		r.updates.took(1, r.updates.files.write([]byte{1}, time.Now()))
	}
	write()
	first := []Stats{r.Stats(), updateStats(r)}
	write()
	for i, s := range []Stats{r.Stats(), updateStats(r)} {
		if s.Problem == "" || s.Since.IsZero() || s.Since != first[i].Since || s.Dropped != 2 {
			t.Errorf("%+v, before %+v", s, first[i])
		}
	}
	isFull = false
	write()
	for _, s := range []Stats{r.Stats(), updateStats(r)} {
		if s.Problem != "" || !s.Since.IsZero() || s.Written != 1 {
			t.Errorf("it writes again, and has %+v", s)
		}
	}
}

// What segments begin with is not written again and again where it is larger than they are, and
// never longer than half of one.
func TestLargeDatastoreInASmallRing(t *testing.T) {
	for nodes, isWhole := range map[int]bool{1000: true, 3000: false} {
		dir := t.TempDir()
		r := newRecorder(t, dir, 8<<20)
		stop := start(t, r)
		s := &calico.Snapshot{Nodes: map[string]calico.Node{}}
		for i := range nodes {
			name := fmt.Sprintf("node-%d-%s", i, strings.Repeat("x", 900))
			s.Nodes[name] = calico.Node{Name: name}
		}
		if isWhole { // longer than segments usually are, and than half of the longest one not
			s.Nodes["long"] = calico.Node{Name: strings.Repeat("x", 100_000)}
		}
		r.Datastore(time.Now(), s)
		until(t, written(r, 1))
		const n = 500
		before := r.Stats().Written
		for i := range n {
			candidate(r, i)
			until(t, written(r, before+uint64(i+1)))
		}
		stop()
		all, err := listSegments(dir, suffix)
		if err != nil || all[len(all)-1].number > 8 || r.Stats().Bytes > 8<<20 {
			t.Errorf("%d nodes: %d blocks made the segments %v, %v", nodes, n, all, err)
		}
	}
}

// While the disk stalls nobody waits, memory is bounded, and what had no room is counted. It ends
// with the program, stalled or not.
func TestDiskStalls(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "stalls")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	stalls, err := os.OpenFile(fifo, os.O_RDWR, 0) // takes 64 KiB, and then waits for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer stalls.Close()
	r := newRecorder(t, dir, 64<<20)
	r.endWait = endWait
	r.open = func(string) (*os.File, error) { return stalls, nil }
	stop := start(t, r)
	const n = 400_000
	for i := range n { // returns
		candidate(r, i)
	}
	for range 2 * maxSnapshots {
		r.Datastore(time.Now(), &calico.Snapshot{})
	}
	s := r.Stats()
	r.mu.Lock()
	if n := len(r.taken); n > maxSnapshots {
		t.Errorf("%d snapshots wait", n)
	}
	queued := cap(r.queue.b)
	r.mu.Unlock()
	if s.Dropped == 0 || s.Dropped == n || queued > 3*maxQueued {
		t.Errorf("%d of %d records were dropped, %d bytes are queued", s.Dropped, n, queued)
	}
	stop()
}

// After a gap the reader knows how much is missing.
func TestGapIsRecorded(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 1<<20)
	r.queue.dropped = 7
	stop := start(t, r)
	candidate(r, 1)
	until(t, written(r, 1))
	stop()
	all, _ := readAll(t, dir)
	if got := keys(all); !slices.Equal(got, []string{"dropped 7", host(1).String()}) {
		t.Errorf("read %v", got)
	}
}

// A gap is on disk as soon as there is room, though nothing more happens; while the disk refuses
// what is written, it does not try because of that.
func TestGapIsRecordedAtOnce(t *testing.T) {
	r := newRecorder(t, t.TempDir(), 1<<20)
	w := writer{Recorder: r, ring: newRing(r.cfg, r.began, create)}
	defer w.ring.close()
	candidate(r, 1)
	r.queue.dropped = 7 // had no room behind it
	for range 2 {
		all := w.take(nil)
		w.block(all.block, all.records)
	}
	all, _ := readAll(t, r.cfg.Dir)
	if got := keys(all); !slices.Equal(got, []string{host(1).String(), "dropped 7"}) {
		t.Errorf("read %v", got)
	}
	r.stats.Problem, r.queue.dropped = "the disk is full", 7
	if r.take(nil); r.queue.records > 0 || r.queue.dropped != 7 {
		t.Errorf("%d records wait for a disk that refuses them", r.queue.records)
	}
}

// A record that no reader would take costs itself alone, also where segments begin with it.
func TestRecordTooLong(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 256<<20)
	long := route.Facts{Identity: strings.Repeat("x", durable.MaxBlock)}
	stop := start(t, r)
	candidate(r, 1)
	until(t, written(r, 2)) // and the checkpoint's end, which is not to be lost with what comes
	r.Facts(r.At(time.Now()), long)
	until(t, func() bool { return r.Stats().Dropped > 0 })
	candidate(r, 2)
	until(t, written(r, 3))
	stop()
	all, problems := readAll(t, dir)
	want := []string{host(1).String(), "dropped 1", host(2).String()}
	if got := keys(all); len(problems) > 0 || !slices.Equal(got, want) {
		t.Errorf("read %v, %v", got, problems)
	}

	w := writer{Recorder: newRecorder(t, t.TempDir(), 256<<20), inputs: r.inputs}
	w.ring = newRing(w.cfg, w.began, create)
	w.ring.preamble = w.preamble
	defer w.ring.close()
	candidate(w.Recorder, 3)
	w.block(w.take(nil).block, 1)
	all, problems = readAll(t, w.cfg.Dir)
	want = []string{"dropped 1", host(3).String()}
	if got := keys(all); len(problems) > 0 || !slices.Equal(got, want) {
		t.Errorf("read %v, %v", got, problems)
	}
}

// What cannot be encoded is missing, and ends nothing.
func TestRecordIsNoJSON(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 1<<20)
	stop := start(t, r)
	r.addJSON(1, kindFacts, func() {}, func(string) {})
	candidate(r, 1)
	until(t, written(r, 1))
	stop()
	all, _ := readAll(t, dir)
	if got := keys(all); !slices.Equal(got, []string{"dropped 1", host(1).String()}) ||
		r.Stats().Dropped != 1 {
		t.Errorf("read %v, %+v", got, r.Stats())
	}
}

// A full disk that takes the head of a segment, but not what comes next, leaves no stubs.
func TestNoStubs(t *testing.T) {
	full := errors.New("the disk is full")
	w := newRing(newRecorder(t, t.TempDir(), 1<<20).cfg, time.Now(), create)
	w.preamble = func(func([]byte) error) error { return full }
	defer w.close()
	if err := w.write(nil, time.Now()); !errors.Is(err, full) {
		t.Error(err)
	}
	if all, err := listSegments(w.dir, suffix); err != nil || len(all) > 0 {
		t.Errorf("it left %v, %v", all, err)
	}
}

// When the clock steps back, no duration becomes negative and the order stays.
func TestClockStepsBack(t *testing.T) {
	r := newRecorder(t, "", 0)
	e := encoder{}
	moments := []fib.Moment{5e9, 7e9, 6e9, 0, 6e9, 1}
	for _, m := range moments {
		e.moment(m)
	}
	d := decoder{b: e.b}
	for i, m := range moments {
		if got := d.moment(); got != m || d.bad {
			t.Errorf("moment %d is %d instead of %d", i, got, m)
		}
	}
	// moments count by the monotonic clock, which time.Now has and a step does not change
	now := time.Now()
	stepped := now.Round(0).Add(-time.Hour) // what a clock that was set back says
	if r.At(now) < 0 || r.At(stepped) > 0 {
		t.Errorf("moments %v and %v", r.At(now), r.At(stepped))
	}
	r.Decided(fib.Decision{Key: host(1), Received: 9e9, At: 8e9})
	if h := r.Times().Decide; h.Count != 1 || h.Sum != 0 {
		t.Errorf("%d durations of %v in all", h.Count, h.Sum)
	}
}

func TestBuckets(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: lowest, -1: lowest, time.Microsecond: lowest, time.Second: 0, time.Second + 1: 1,
		time.Second / 2: -4, time.Second/2 + 1: -3, 600 * time.Millisecond: -2,
		10_000 * time.Hour: lowest + numBuckets - 1,
	} {
		var h Histogram
		h.add(1, 1+fib.Moment(d))
		if got := h.Buckets(); !reflect.DeepEqual(got, map[int]int64{want: 1}) {
			t.Errorf("%v is in %v instead of %d", d, got, want)
		}
	}
}

func FuzzRecords(f *testing.F) {
	r := New(Config{})
	candidate(r, 1)
	r.Decided(fib.Decision{Key: host(1), Programs: true, Digest: 4, Received: 3, At: 8e9})
	r.Sent(fib.Batch{Number: 1, At: 9e9, Ops: slices.Values([]fib.BatchOp{{Key: host(1)},
		{Object: &route.ObjectKey{Kind: route.AdminUp}, Digest: 4}})})
	r.Answered(fib.BatchResult{Number: 1, Failed: []fib.FailedOp{{Index: 1, Error: "refused"}}})
	r.Surroundings(1, fib.Surroundings{})
	f.Add(r.queue.b[durable.BlockHeader+1:])
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = records(b, false, func(Record) error { return nil })
	})
}

// BenchmarkRecord is what one new route costs the agent's goroutines.
func BenchmarkRecord(b *testing.B) {
	r := New(Config{})
	paths := []route.Path{{NextHop: netip.MustParseAddr("10.0.0.2"), Interface: "tap0", Weight: 1}}
	ops, spare := make([]fib.BatchOp, 0, 4096), []byte(nil)
	for i := range b.N {
		now := r.At(time.Now())
		r.Candidate(fib.CandidateChange{Key: host(i), Origin: route.BGP, Paths: paths, At: now,
			Received: now})
		r.Decided(fib.Decision{Key: host(i), Programs: true, Paths: paths, Digest: uint64(i) << 32,
			At: now, Received: now})
		ops = append(ops, fib.BatchOp{Key: host(i), Digest: uint64(i) << 32,
			Queued: now})
		if len(ops) == cap(ops) {
			r.Sent(fib.Batch{Number: 1, At: now, Ops: slices.Values(ops)})
			r.Answered(fib.BatchResult{Number: 1, At: now})
			ops = ops[:0]
			spare = durable.EndBlock(r.take(spare).block)
		}
	}
}
