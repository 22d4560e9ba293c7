package recorder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/mrt"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

// story lets the i-th process record one change of each kind, about host i, and ends it.
func story(t *testing.T, dir string, i int) {
	t.Helper()
	r := newUpdatesRecorder(t, dir, 1<<20)
	r.Checkpoints(func(func() bool) {})
	stop := start(t, r)
	tell(r, i)
	until(t, func() bool { return completes(t, dir) == i && updateStats(r).Written == 2 })
	stop()
}

// completes counts the checkpoints on disk that are whole.
func completes(t *testing.T, dir string) (n int) {
	t.Helper()
	_, err := Reader{Record: func(x Record) error {
		if _, is := x.What.(Complete); is {
			n++
		}
		return nil
	}}.Read(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return n
}

// tell tells of host i.
func tell(r *Recorder, i int) {
	now := r.At(time.Now())
	at := func(ms int) fib.Moment { return now + fib.Moment(ms)*fib.Moment(time.Millisecond) }
	s := &calico.Snapshot{Nodes: map[string]calico.Node{"1": {Name: "1"}}}
	in := &planInputs{Limit: 1, Blocked: map[string]bool{"2": true}}
	r.Datastore(time.Now(), s)
	r.Plan(time.Now(), in, nodesAllowed(s, in, false))
	r.Facts(at(0), route.Facts{Identity: "1"})
	r.Surroundings(at(0), fib.Surroundings{Services: []netip.Prefix{pfx("10.96.0.0/12")}})
	r.Resolved(at(0), fib.NextHop{Address: netip.MustParseAddr("10.9.9.9")}, route.Resolution{})
	r.Candidate(fib.CandidateChange{Key: host(i), Origin: route.Own, Kind: route.Drop,
		Received: at(1), At: at(2)})
	r.Decided(fib.Decision{Key: host(i), Origin: route.Own, Programs: true, Kind: route.Drop,
		Received: at(1), At: at(3)})
	r.Settled(at(3))
	r.Sent(fib.Batch{Number: 1, At: at(4), Ops: slices.Values([]fib.BatchOp{
		{Key: host(i), Digest: 1, Queued: at(3)}})})
	r.Answered(fib.BatchResult{Number: 1, At: at(6)})
	if r.updates != nil {
		update(r.Tap(sessionWith(byte(i))), time.Now(), i)
	}
}

// readings is what each command finds.
type readings struct {
	// problems are those of `history`, `trace`, `dump`, `replay` and `mrt`.
	problems map[string][]error
	history  []Step
	trace    []Change
	dump     []Dumped
	replay   Replayed
	mrt      []mrt.Record
}

// readEach reads dir as each command does.
func readEach(t testing.TB, dir string) (r readings) {
	t.Helper()
	r.problems = map[string][]error{}
	said := func(command string, problems []error, err error) {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: %v", command, err)
		}
		r.problems[command] = problems
	}
	any := func(route.Key) bool { return true }
	problems, err := History(dir, pfx("10.0.0.0/32"), any, func(s Step) error {
		r.history = append(r.history, s)
		return nil
	})
	said("history", problems, err)
	r.trace, problems, err = Trace(dir, 10, time.Time{})
	said("trace", problems, err)
	problems, err = Dump(dir, Selection{}, func(d Dumped) error {
		r.dump = append(r.dump, d)
		return nil
	})
	said("dump", problems, err)
	r.replay, problems, err = Replay(dir, noPlanner)
	said("replay", problems, err)
	var file bytes.Buffer
	problems, err = Updates(dir, UpdatesSelection{}, &file)
	said("mrt", problems, err)
	err = mrt.Read(&file, func(x mrt.Record) error {
		r.mrt = append(r.mrt, x)
		return nil
	})
	if err != nil {
		t.Errorf("mrt wrote what it does not read: %v", err)
	}
	return r
}

// about are the hosts that commands know of.
func (r readings) about() string {
	hosts := map[string][]string{}
	add := func(command string, p netip.Prefix) {
		if name := p.String(); !slices.Contains(hosts[command], name) {
			hosts[command] = append(hosts[command], name)
		}
	}
	for _, s := range r.history {
		if s.Step == StepAnswered {
			add("history", s.Prefix)
		}
	}
	for _, c := range r.trace {
		add("trace", c.Prefix)
	}
	for _, d := range r.dump {
		if w, is := d.Data.(dumpedWant); is {
			add("dump", w.Prefix)
		}
	}
	for _, x := range r.mrt {
		if x.To == 0 {
			add("mrt", host(int(x.Peer.As4()[3])).Prefix)
		}
	}
	for _, list := range hosts {
		slices.Sort(list)
	}
	return fmt.Sprint(hosts)
}

// Whatever is cut off, or changed, in one segment, each command reads the segments around it, says
// what is wrong with that one, and finds nothing that was not recorded.
func TestSegmentsWithAnyDamage(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		story(t, dir, i+1)
	}
	if got := readEach(t, dir); len(got.replay.Runs) != 3 || !got.replay.OK() ||
		got.replay.Runs[0].Plans != 1 {
		t.Fatalf("%+v", got.replay)
	}
	all := readEach(t, dir).about()
	for path, isMRT := range map[string]bool{
		segment{number: 2}.path(dir, suffix):                    false,
		segment{number: 2}.path(updatesDir(dir), updatesSuffix): true,
	} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put := func(b []byte) readings {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return readEach(t, dir)
		}
		for n := 0; n < len(whole); n += 5 { // TestDamage and TestKilledAtAnyByte try each
			got := put(whole[:n])
			for command, problems := range got.problems {
				if len(problems) > 0 {
					t.Fatalf("%s cut at byte %d: %s says %v", path, n, command, problems)
				}
			}
			checkAround(t, fmt.Sprintf("%s cut at byte %d", path, n), got)

			bad := bytes.Clone(whole)
			bad[n] ^= 1 << (n % 8)
			got = put(bad)
			what := fmt.Sprintf("%s with byte %d changed", path, n)
			checkAround(t, what, got)
			for command, problems := range got.problems {
				if isMRT { // without a checksum
					continue
				}
				if named := fmt.Sprint(problems); (command != "mrt") !=
					strings.Contains(named, path) {
					t.Fatalf("%s: %s says %s", what, command, named)
				}
			}
			if isMRT {
				continue
			}
			if i := slices.IndexFunc(got.history, func(s Step) bool {
				return s.Step == StepMissing
			}); i < 0 {
				t.Fatalf("%s: history does not say that records are missing", what)
			}
		}
		if got := put(whole).about(); got != all {
			t.Errorf("whole again: %s instead of %s", got, all)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		got := readEach(t, dir)
		for command, problems := range got.problems {
			if said := fmt.Sprint(problems); isMRT == (command == "mrt") !=
				strings.Contains(said, "segment 2 is gone") {
				t.Errorf("without %s: %s says %s", path, command, said)
			}
		}
		checkAround(t, "without "+path, got)
		put(whole)
	}
}

// checkAround has each command know of hosts 1 and 3, and of no host but 2 besides.
func checkAround(t *testing.T, what string, got readings) {
	t.Helper()
	for _, host := range []string{"10.0.0.1/32", "10.0.0.3/32"} {
		if n := strings.Count(got.about(), host); n < 4 {
			t.Fatalf("%s: %s", what, got.about())
		}
	}
	compared := 0
	for _, run := range got.replay.Runs {
		if compared += run.Compared; len(run.Differences) > 0 {
			t.Fatalf("%s: %+v", what, run)
		}
	}
	if compared < 2 || compared > 3 {
		t.Fatalf("%s: %+v", what, got.replay)
	}
}

// The engine goes on while the disk stalls, and what had no room is missing where it was. When the
// disk is back, recording goes on.
func TestForwardingWhileTheDiskStalls(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "stalls")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(fifo, os.O_RDWR, 0) // takes 64 KiB, and then waits for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	dir := t.TempDir()
	r, e, end := loaded(t, dir, 10)
	defer end()
	r.cfg.Log = testlog.New(t)
	r.open = func(string) (*os.File, error) { return disk, nil }
	r.Checkpoints(e.Checkpoint)
	stop := start(t, r)
	const n = 200_000
	for i := 10; i < n; i++ {
		e.Learn(blockOf(i))
	}
	programmed(e, n) // though nobody reads
	if s := r.Stats(); s.Dropped == 0 {
		t.Fatalf("there was room for all: %+v", s)
	}

	file, err := os.Create(segment{number: 1}.path(dir, suffix))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(file, reader)
		copied <- err
	}()
	until(t, func() bool { // all that waited is on its way
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.queue.records == 0
	})
	e.Learn(blockOf(n))
	programmed(e, n+1)
	stop() // closes disk
	if err := <-copied; err != nil {
		t.Fatal(err)
	}

	got := readEach(t, dir)
	for command, problems := range got.problems {
		if isTrace := command == "trace"; len(problems) > 0 != isTrace {
			t.Errorf("%s says %v", command, problems)
		}
	}
	last := got.history[len(got.history)-1]
	lost := slices.IndexFunc(got.history, func(s Step) bool { return s.Step == StepMissing })
	if lost < 0 || !slices.ContainsFunc(got.history[lost:], func(s Step) bool {
		return s.Step == StepAnswered && s.Prefix == blockOf(n).Prefix
	}) {
		t.Errorf("history says at %d what is missing, and ends with %+v", lost, last)
	}
	if run := got.replay.Runs[0]; run.Gaps == 0 || len(run.Differences) > 0 ||
		len(run.NotCompared) != 1 || run.NotCompared[0].Inputs == 0 {
		t.Errorf("replay: %+v", run)
	}
}

// A directory that is, or becomes, read-only is a problem that shows, and is read as ever. When it
// can be written again, it is.
func TestReadOnlyDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	remount := func(flags uintptr) {
		if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	story(t, dir, 1)
	before := readEach(t, dir).about()
	remount(unix.MS_RDONLY)
	w := writer{Recorder: newUpdatesRecorder(t, dir, 1<<20)}
	r := w.Recorder
	w.ring = newRing(r.cfg, r.began, create)
	defer w.ring.close()
	r.updates.files.head = func(time.Time, func([]byte) error) error { return nil }
	defer r.updates.files.close()
	write := func() {
		w.ring.retry, r.updates.files.retry = time.Time{}, time.Time{}
		candidate(r, 2)
		w.block(w.take(nil).block, 1)
		r.updates.took(1, r.updates.files.write(nil, time.Now()))
	}
	write()
	for _, s := range []Stats{r.Stats(), updateStats(r)} {
		if !strings.Contains(s.Problem, "read-only file system") || s.Dropped != 1 {
			t.Errorf("%+v", s)
		}
	}
	if got := readEach(t, dir).about(); got != before {
		t.Errorf("read %s instead of %s", got, before)
	}
	remount(0)
	write()
	for _, s := range []Stats{r.Stats(), updateStats(r)} {
		if s.Problem != "" || s.Written != 1 {
			t.Errorf("%+v", s)
		}
	}
}

// A clock that is set back by an hour changes times of day, and no order, duration or verdict.
func TestClockIsSetBack(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 1<<20)
	w := writer{Recorder: r, ring: newRing(r.cfg, r.began, create)}
	w.ring.preamble = w.preamble
	w.segment = 1
	put := func(back time.Duration) {
		all := w.take(nil)
		b := w.dated(all.block)
		at := b[durable.BlockHeader+1:]
		binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)-uint64(back))
		if err := w.ring.write(durable.EndBlock(b), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	tell(r, 1)
	put(0)
	e := r.begin(kindComplete, r.At(time.Now()))
	e.uint(1)
	e.uint(0)
	r.end()
	tell(r, 2)
	put(time.Hour)
	w.ring.close()
	got := readEach(t, dir)
	for command, problems := range got.problems {
		if len(problems) > 0 {
			t.Errorf("%s says %v", command, problems)
		}
	}
	if n := len(got.trace); n != 2 || got.trace[0].Seconds != 0.005 ||
		got.trace[1].Seconds != 0.005 {
		t.Errorf("trace: %+v", got.trace)
	}
	var at []time.Time
	for _, s := range got.history {
		if s.Step == StepAnswered {
			at = append(at, s.At)
			if s.Seconds != 0.002 {
				t.Errorf("history: %+v", s)
			}
		}
	}
	if len(at) != 2 || at[0].Sub(at[1]) < 50*time.Minute {
		t.Errorf("answers at %v", at)
	}
	last := int64(0)
	for _, d := range got.dump {
		if d.Moment < last-int64(10*time.Millisecond) {
			t.Errorf("dump: moment %d after %d", d.Moment, last)
		}
		last = d.Moment
	}
	if run := got.replay.Runs[0]; !got.replay.OK() || run.Compared != 2 ||
		len(run.NotCompared) > 0 {
		t.Errorf("replay: %+v", run)
	}
}

// Two recorders of one directory never write to one file, and each segment is whose it says.
func TestTwoRecordersOfADirectory(t *testing.T) {
	dir := t.TempDir()
	rings := []*ring{}
	for range 2 {
		r := newRecorder(t, dir, 1<<20)
		w := newRing(r.cfg, time.Now(), create)
		defer w.close()
		rings = append(rings, w)
	}
	block := func(i int) []byte {
		r := newRecorder(t, "", 0)
		candidate(r, i)
		return durable.EndBlock(r.take(nil).block)
	}
	now := time.Now()
	rings[0].open = func(path string) (*os.File, error) { // the other one is faster
		if err := rings[1].write(block(2), now); err != nil {
			t.Error(err)
		}
		return create(path)
	}
	if err := rings[0].write(block(1), now); !errors.Is(err, os.ErrExist) {
		t.Errorf("it wrote to the other's file: %v", err)
	}
	rings[0].open = create
	for i := range 2 {
		if err := rings[i].write(block(3+i), now.Add(retryAfter)); err != nil {
			t.Fatal(err)
		}
	}
	all, problems := readAll(t, dir)
	want := []string{host(2).String(), host(4).String(), host(3).String()}
	if got := keys(all); len(problems) > 0 || !slices.Equal(got, want) {
		t.Errorf("read %v, problems %v", got, problems)
	}
}

// FuzzSegment has each command read a segment with any records, whole or as bytes, and a good one
// behind it.
func FuzzSegment(f *testing.F) {
	quiet := Config{Node: "node-1", Log: slog.New(slog.DiscardHandler)}
	r := New(quiet)
	tell(r, 1)
	r.Stands([]fib.CandidateChange{{Key: host(2), Origin: route.Own, Kind: route.Drop, At: 1}},
		fib.Decision{Key: host(2), Origin: route.Own, Programs: true, Kind: route.Drop, At: 1})
	e := r.begin(kindComplete, 1)
	e.uint(1)
	e.uint(1)
	r.end()
	tell(r, 3)
	w := writer{Recorder: r}
	var all [][]byte // bodies of blocks
	add := func(block []byte, records int) {
		if records > 0 {
			all = append(all, bytes.Clone(block[durable.BlockHeader+1:]))
		}
	}
	waiting := r.take(nil)
	for _, t := range waiting.taken {
		w.differences(add, t)
	}
	add(waiting.block, waiting.records)
	for _, body := range all {
		f.Add(body, false)
	}
	f.Add(slices.Concat(all[0], all[1][8:], all[2][8:]), false)
	head := func() []byte {
		var b bytes.Buffer
		ring := newRing(quiet, time.Unix(1, 0), nil)
		ring.segments = []segment{{}}
		err := ring.beginWith(time.Unix(1, 0), func(block []byte) error {
			b.Write(block)
			return nil
		})
		if err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}()
	block := func(body []byte) []byte {
		return durable.EndBlock(append(durable.StartBlock(nil, blockRecords), body...))
	}
	good := slices.Concat(head, block(all[len(all)-1]))
	f.Add(good, true)
	dir := f.TempDir() // of this process, which tries one at a time
	f.Fuzz(func(t *testing.T, b []byte, isFile bool) {
		if !isFile && len(b) < durable.MaxBlock {
			b = slices.Concat(head, block(b))
		}
		for i, file := range [][]byte{b, good} {
			path := segment{number: uint64(i + 1)}.path(dir, suffix)
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := readEach(t, dir)
		if i := slices.IndexFunc(got.history, func(s Step) bool {
			return s.Step == StepWanted && s.Prefix == host(3).Prefix
		}); i < 0 {
			t.Error("the segment behind it was not read")
		}
	})
}
