package fib

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/durable"
	"vpp-route-agent/internal/route"
)

// script writes journals batch by batch and keeps, beside it, what may be in the data plane after
// each step.
type script struct {
	t     *testing.T
	j     *journal
	truth map[route.Key]uint64
	steps []step
}

// step is what a reader must know when the file ends at size or later, but before the next step.
type step struct {
	size  int64
	truth map[route.Key]uint64 // what is there, for keys not in doubt
	doubt map[route.Key]bool
}

func newScript(t *testing.T) *script {
	s := &script{
		t: t, j: &journal{path: filepath.Join(t.TempDir(), "journal")},
		truth: make(map[route.Key]uint64),
	}
	t.Cleanup(s.j.close)
	return s
}

func (s *script) note(doubt map[route.Key]bool) {
	info, err := s.j.file.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	s.steps = append(s.steps, step{info.Size(), maps.Clone(s.truth), doubt})
}

// batch writes a batch of routes with digests from first on; digest 0 deletes; those in failed are
// refused.
func (s *script) batch(ops map[string]uint64, failed ...string) {
	b := &batch{
		identity:   "start-1",
		interfaces: (&syncer{interfaces: node("start-1").Interfaces}).meanings(),
		errs:       make(map[int]error),
	}
	// as Engine.journalDue says it
	b.rewrite = s.j.file == nil || s.j.records > 2*len(s.truth)+compactSlack
	doubt := make(map[route.Key]bool)
	for _, p := range slices.Sorted(maps.Keys(ops)) {
		b.ops = append(b.ops, route.Op{Delete: ops[p] == 0, Route: route.Route{Key: key(p)}})
		b.digests = append(b.digests, ops[p])
		b.sources = append(b.sources, unknownSource)
		b.done = append(b.done, true)
		doubt[key(p)] = true
		if slices.Contains(failed, p) {
			b.errs[len(b.ops)-1] = errors.New("refused")
		}
	}
	before := len(s.steps)
	s.j.before(b, time.Now(), s.snapshot)
	s.note(doubt)
	for i, op := range b.ops {
		if b.errs[i] == nil {
			delete(doubt, op.Route.Key)
			s.truth[op.Route.Key] = b.digests[i]
			if b.digests[i] == 0 {
				delete(s.truth, op.Route.Key)
			}
		}
	}
	// The map that the intent's step holds is the one of before the batch was answered.
	s.steps[before].doubt = make(map[route.Key]bool)
	for _, op := range b.ops {
		s.steps[before].doubt[op.Route.Key] = true
	}
	s.j.after(b)
	s.note(doubt)
}

func (s *script) snapshot() iter.Seq[record] {
	return func(yield func(record) bool) {
		for k, d := range s.truth {
			if !yield(record{key: k, digest: d}) {
				return
			}
		}
	}
}

// compare reads the first size bytes and checks them against the newest step that they hold.
func (s *script) compare(file []byte) {
	s.t.Helper()
	found, err := readJournal(bytes.NewReader(file))
	i := slices.IndexFunc(s.steps, func(st step) bool { return st.size > int64(len(file)) })
	if i < 0 {
		i = len(s.steps)
	}
	if i == 0 {
		if err == nil && len(found.digests) > 0 {
			s.t.Fatalf("%d bytes, less than the first batch: %v", len(file), found.digests)
		}
		return
	}
	if err != nil {
		s.t.Fatalf("cut at %d: %v", len(file), err)
	}
	want := s.steps[i-1]
	for k := range want.doubt {
		if !found.unsure[k] {
			s.t.Fatalf("cut at %d: %v is in doubt and the journal is sure", len(file), k)
		}
	}
	for k, d := range want.truth {
		if found.digests[k] != d && !found.unsure[k] {
			s.t.Fatalf("cut at %d: %v is %x, want %x", len(file), k, found.digests[k], d)
		}
	}
	for k := range found.digests {
		if want.truth[k] == 0 && !found.unsure[k] {
			s.t.Fatalf("cut at %d: %v is not there", len(file), k)
		}
	}
}

func TestJournalCutAtAnyByte(t *testing.T) {
	s := newScript(t)
	s.batch(map[string]uint64{"10.1.0.0/26": 1, "10.2.0.0/26": 2, "fd10::/64": 3})
	s.batch(map[string]uint64{"10.1.0.0/26": 4, "10.3.0.0/26": 5}, "10.3.0.0/26")
	s.batch(map[string]uint64{"10.2.0.0/26": 0, "10.3.0.0/26": 6})
	s.batch(map[string]uint64{"10.1.0.0/26": 0, "fd10::/64": 7}, "10.1.0.0/26")
	file, err := os.ReadFile(s.j.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.steps) != 8 || s.steps[7].size != int64(len(file)) {
		t.Fatalf("%d steps, %d bytes of %d", len(s.steps), s.steps[7].size, len(file))
	}
	for n := range len(file) + 1 {
		s.compare(file[:n])
	}
	found, err := readJournal(bytes.NewReader(file))
	if err != nil || found.identity != "start-1" || found.valid != int64(len(file)) ||
		found.interfaces["eth1"] != (meaning{index: 2}) {
		t.Errorf("%+v, %v", found, err)
	}
	if !found.unsure[key("10.1.0.0/26")] || len(found.unsure) != 1 || len(found.digests) != 3 {
		t.Errorf("sure of %v, unsure of %v", found.digests, found.unsure)
	}
}

func TestJournalWithOneWrongByteIsWorthless(t *testing.T) {
	s := newScript(t)
	s.batch(map[string]uint64{"10.1.0.0/26": 1, "fd10::/64": 3})
	s.batch(map[string]uint64{"10.1.0.0/26": 0})
	file, err := os.ReadFile(s.j.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range file {
		bad := bytes.Clone(file)
		bad[i] ^= 0x10
		if found, err := readJournal(bytes.NewReader(bad)); err == nil {
			t.Errorf("byte %d wrong: read as %+v", i, found)
		}
	}
}

func TestJournalGoesOnAfterATornBlock(t *testing.T) {
	s := newScript(t)
	s.batch(map[string]uint64{"10.1.0.0/26": 1})
	s.j.close()
	file, _ := os.ReadFile(s.j.path)
	os.WriteFile(s.j.path, append(file, 0, 0, 0, 9, 1, 2), 0o600)
	if _, err := s.j.open("start-1"); err != nil {
		t.Fatal(err)
	}
	s.batch(map[string]uint64{"10.2.0.0/26": 2})
	file, _ = os.ReadFile(s.j.path)
	s.compare(file)
}

func TestJournalOfAnotherLifeIsRefused(t *testing.T) {
	s := newScript(t)
	s.batch(map[string]uint64{"10.1.0.0/26": 1})
	s.j.close()
	if _, err := (&journal{path: s.j.path}).open("start-2"); !errors.Is(err,
		errOtherGeneration) {
		t.Error(err)
	}
	if _, err := (&journal{path: s.j.path + "x"}).open("start-1"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestJournalStaysSmall(t *testing.T) {
	s := newScript(t)
	for i := range 100 {
		ops := make(map[string]uint64)
		for n := range 2000 {
			ops[fmt.Sprintf("10.%d.%d.0/26", n/250, n%250)] = uint64(i + 1)
		}
		s.batch(ops)
	}
	info, err := os.Stat(s.j.path)
	if err != nil {
		t.Fatal(err)
	}
	limit := int64(2*2000+compactSlack+2000) * 20
	if info.Size() > limit {
		t.Errorf("%d bytes, limit %d", info.Size(), limit)
	}
	if _, err := os.Stat(s.j.path + ".new"); err == nil {
		t.Error("the temporary file is left")
	}
	file, _ := os.ReadFile(s.j.path)
	s.steps = s.steps[len(s.steps)-1:]
	s.compare(file)
}

func TestJournalKeepsDoubtThroughARewrite(t *testing.T) {
	s := newScript(t)
	s.j.rewrite("start-1", nil, slices.Values([]record{
		{key: key("10.1.0.0/26"), digest: 1}, {key: key("10.2.0.0/26"), digest: 2, unsure: true},
		{key: key("10.3.0.0/26"), unsure: true},
	}))
	s.truth[key("10.1.0.0/26")] = 1
	s.batch(map[string]uint64{"10.4.0.0/26": 4})
	file, _ := os.ReadFile(s.j.path)
	found, err := readJournal(bytes.NewReader(file))
	if err != nil || len(found.unsure) != 2 || !found.unsure[key("10.2.0.0/26")] ||
		!found.unsure[key("10.3.0.0/26")] {
		t.Errorf("%+v, %v", found, err)
	}
	if found.digests[key("10.1.0.0/26")] != 1 || found.digests[key("10.4.0.0/26")] != 4 {
		t.Errorf("%v", found.digests)
	}
}

// FuzzJournal: whatever the bytes, the reader returns; and what it accepts survives being written
// again.
func FuzzJournal(f *testing.F) {
	f.Add(appendJournalHeader(nil, "start-1"))
	f.Add(durable.EndBlock(append(durable.StartBlock(appendJournalHeader(nil, ""), blockState), 0)))
	block := appendRecord(durable.StartBlock(nil, blockIntent), record{
		key: key("10.1.0.0/26"), digest: 7, owner: sourceID(route.BGP),
	})
	block = appendRecord(block, record{key: key("fd10::/64")})
	outcome := append(durable.StartBlock(nil, blockOutcome), 0, 0, 0, 1)
	f.Add(slices.Concat(appendJournalHeader(nil, "start-1"), durable.EndBlock(block),
		durable.EndBlock(outcome)))
	interfaces := append(durable.StartBlock(nil, blockInterfaces),
		0, 0, 0, 1, 0, 4, 'e', 't', 'h', '0')
	f.Add(slices.Concat(appendJournalHeader(nil, "start-1"), durable.EndBlock(interfaces)))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := readJournal(bytes.NewReader(b))
		if err != nil {
			return
		}
		if found.valid > int64(len(b)) {
			t.Fatalf("%d of %d bytes", found.valid, len(b))
		}
		j := &journal{path: filepath.Join(dir, "journal")}
		j.rewrite(found.identity, nil, found.all)
		j.close()
		if j.problem != "" {
			t.Fatal(j.problem)
		}
		again, err := (&journal{path: j.path}).reread(found.identity)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(again.unsure, found.unsure) {
			t.Errorf("unsure of %v, before %v", again.unsure, found.unsure)
		}
		for k, d := range found.digests {
			if !found.unsure[k] && again.digests[k] != d {
				t.Errorf("%v is %x, before %x", k, again.digests[k], d)
			}
		}
	})
}

func (j *journal) reread(identity string) (journalled, error) {
	defer j.close()
	return j.open(identity)
}
