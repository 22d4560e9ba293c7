package grpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// fakeFIB acknowledges what is wanted at once, but for the routes that it refuses.
type fakeFIB struct {
	mu       sync.Mutex
	wanted   fib.Source
	revision uint64
	away     string
	silent   bool            // it acknowledges nothing
	refused  map[string]bool // prefixes
	all      bool            // are refused
	links    []route.Interface
	changed  chan struct{}
}

func (f *fakeFIB) Want(all fib.Source) uint64 {
	f.set(func() { f.wanted, f.revision = all, f.revision+1 })
	return f.revision
}

func (f *fakeFIB) set(what func()) {
	f.mu.Lock()
	what()
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *fakeFIB) Facts() route.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return route.Facts{Interfaces: f.links}
}

func (f *fakeFIB) Find(keys []route.Key) (found []fib.Entry, taken uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found = make([]fib.Entry, len(keys))
	wanted := make(map[route.Key]route.Route, len(f.wanted.Routes))
	for _, r := range f.wanted.Routes {
		wanted[r.Key] = r
	}
	for i, k := range keys {
		found[i].Key = k
		if r, ok := wanted[k]; ok {
			found[i].State, found[i].Origin = fib.Programmed, route.External
			found[i].Paths = r.Paths
			if f.silent {
				found[i].State = fib.Pending
			}
			if f.all || f.refused[k.Prefix.String()] {
				found[i].State, found[i].Error = fib.Failed, "no buffers"
			}
		}
	}
	return found, f.revision
}

func (f *fakeFIB) Objects() (all []fib.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.wanted.Objects {
		all = append(all, fib.Entry{Object: o.Key(), State: fib.Programmed})
	}
	return all
}

func (f *fakeFIB) Progress(revision uint64) (settled, busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision >= revision, false
}

func (f *fakeFIB) Changed() <-chan struct{} { return f.changed }

func (f *fakeFIB) Away() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away
}

func (f *fakeFIB) routes() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.wanted.Routes)
}

type bed struct {
	*Source
	dir        string
	fib        *fakeFIB
	others     []external.Adapter
	controller *external.Controller
	stop       func()
}

func newBed(dir string, others ...external.Adapter) *bed {
	b := &bed{dir: dir, others: others, fib: &fakeFIB{changed: make(chan struct{}, 1),
		refused: map[string]bool{}, links: []route.Interface{{Name: "eth0", Up: true}}}}
	b.start()
	return b
}

func (b *bed) start() {
	b.Source = New(Config{StateDir: b.dir, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	b.controller = external.NewController(append([]external.Adapter{b.Source}, b.others...),
		external.Plane{Policy: external.Policy{Table0: true}, FIB: b.fib})
	var wait sync.WaitGroup
	source, controller := b.Source, b.controller
	wait.Go(func() { _ = source.Run(ctx) })
	wait.Go(func() { _ = controller.Run(ctx) })
	b.stop = func() { cancel(); wait.Wait() }
}

func (b *bed) restart() {
	b.stop()
	b.start()
}

// item is a route to 10.9.N.0/24.
func item(n int, hop string) external.Item {
	key := fmt.Sprintf("config/vpp/v2/route/vrf/0/dst/10.9.%d.0/24/gw/10.0.0.2", n)
	value := fmt.Sprintf(`{"dst_network":"10.9.%d.0/24","next_hop_addr":"10.0.0.2"%s}`, n, hop)
	return external.DecodeJSON(key, []byte(value), external.Item{})
}

func puts(ns ...int) (all []external.Item) {
	for _, n := range ns {
		all = append(all, item(n, ""))
	}
	return all
}

// do prints how a change came out.
func (b *bed) do(c Change) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.Client = Name; c.Source == "" {
		c.Source = Name
	}
	txn, results, err := b.Do(ctx, c)
	out := fmt.Sprint(txn)
	for _, r := range results {
		out += fmt.Sprintf(" %v", r.Verdict.State)
	}
	for _, known := range []error{ErrRefused, ErrRolledBack, ErrUnanswered} {
		if errors.Is(err, known) {
			return out + ": " + known.Error()
		}
	}
	if err != nil {
		return out + ": " + err.Error()
	}
	return out
}

func (b *bed) journalSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(b.dir, "external-grpc.journal"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestACallHearsWhatTheDataPlaneSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		check(t, "put", b.do(Change{Puts: puts(1, 2)}), "1 CONFIGURED CONFIGURED")
		size, set := b.journalSize(t), b.fib.revision
		check(t, "again", b.do(Change{Puts: puts(1)}), "1 CONFIGURED")
		check(t, "resync", b.do(Change{Puts: puts(2, 1), Replace: true}),
			"1 CONFIGURED CONFIGURED")
		if b.journalSize(t) != size || b.fib.revision != set {
			t.Error("what was there was written again")
		}
		b.fib.set(func() { b.fib.refused["10.9.3.0/24"] = true })
		check(t, "refused", b.do(Change{Puts: puts(3)}), "2 RETRYING")
		bad := item(4, `,"weight":1000`)
		bad.Message = nil
		check(t, "invalid", b.do(Change{Puts: []external.Item{bad, item(5, "")}}),
			"3 INVALID CONFIGURED")
		check(t, "twice", b.do(Change{Puts: puts(5, 5), Deletes: []string{item(5, "").Key}}),
			"3 CONFIGURED INVALID INVALID")
		check(t, "deleted", b.do(Change{Deletes: []string{item(1, "").Key, "nothing"}}),
			"4 REMOVED NONEXISTENT")
		check(t, "another client's", b.do(Change{Source: "grpc/a", Puts: puts(2), Replace: true}),
			"5 PENDING")
		check(t, "all", b.do(Change{Replace: true}), "6 REMOVED REMOVED REMOVED")
		check(t, "what is left", b.fib.routes(), "[10.9.2.0/24 via 10.0.0.2]")
	})
}

func TestACallEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.fib.set(func() { b.fib.silent = true })
		check(t, "silent", b.do(Change{Puts: puts(1)}), "1 PENDING: "+ErrUnanswered.Error())
		b.fib.set(func() { b.fib.away = "VPP does not answer" })
		began := time.Now()
		check(t, "away", b.do(Change{Puts: puts(2)}), "2 PENDING: "+ErrUnanswered.Error())
		if time.Since(began) > time.Second {
			t.Error("it waited for a data plane that is away")
		}
		b.fib.set(func() { b.fib.away, b.fib.silent = "", false })
		time.Sleep(time.Second)
		check(t, "back", b.do(Change{Puts: puts(1, 2)}), "2 CONFIGURED CONFIGURED")
	})
}

func TestWaitDoneWaitsForWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Source: "grpc/a", Puts: puts(1)})
		time.AfterFunc(10*time.Second, func() {
			b.do(Change{Source: "grpc/a", Deletes: []string{item(1, "").Key}})
		})
		began := time.Now()
		check(t, "done", b.do(Change{Source: "grpc/b", Puts: puts(1), WaitDone: true}),
			"2 CONFIGURED")
		if d := time.Since(began); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Puts: puts(1, 2)})
		b.fib.set(func() { b.fib.refused["10.9.3.0/24"] = true })
		wants := func() string { return strings.Join(keysOf(b.Source), " ") }
		before, routes := wants(), b.fib.routes()
		c := Change{Puts: puts(3, 4), Deletes: []string{item(1, "").Key}, Atomic: true}
		check(t, "one is refused", b.do(c),
			"2 RETRYING CONFIGURED REMOVED: "+ErrRolledBack.Error())
		check(t, "wanted", wants(), before)
		check(t, "routes", b.fib.routes(), routes)
		b.restart()
		check(t, "wanted by the next run", wants(), before)
		b.fib.set(func() { clear(b.fib.refused) })
		check(t, "none is refused", b.do(c), "4 CONFIGURED CONFIGURED REMOVED")
		after := wants()
		b.restart()
		check(t, "it is kept", wants(), after)

		b.fib.set(func() { b.fib.silent = true })
		check(t, "no answer", b.do(Change{Puts: puts(5), Atomic: true}),
			"5: "+ErrUnanswered.Error())
		b.restart()
		check(t, "it was never confirmed", wants(), after)
	})
}

// The data plane is back at the moment at which a change has heard that it is away.
func TestTheDataPlaneIsBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		ended := make(chan error, 1)
		go func() {
			_, _, err := s.Do(ctx, Change{Client: Name, Source: Name, Puts: puts(1), Atomic: true})
			ended <- err
		}()
		synctest.Wait()
		back := external.Answer{Revision: 1, Verdicts: []external.Verdict{
			{Source: Name, Key: item(1, "").Key, State: external.Configured}}}
		s.mu.Lock()
		s.answer = &answer{Answer: external.Answer{Revision: 1, Away: "it restarts"},
			byItem: func() map[itemID]*external.Verdict { // is called when it is looked at
				s.Answer(back)
				return nil
			}}
		close(s.answered)
		s.answered = make(chan struct{})
		s.mu.Unlock()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Error("the answer was not heard")
		}
	})
}

// A change of nothing is held to it, too.
func TestAllOrNothingOfWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Source: "grpc/a", Puts: puts(1)})
		b.do(Change{Source: "grpc/b", Puts: puts(1, 2)})
		c := Change{Source: "grpc/b", Puts: puts(1, 2), Atomic: true}
		check(t, "one is pending", b.do(c), "2 PENDING CONFIGURED: "+ErrRolledBack.Error())
		check(t, "wanted", fmt.Sprint(len(b.Items("grpc/b"))), "2")
		b.do(Change{Source: "grpc/a", Deletes: []string{item(1, "").Key}})
		check(t, "none is", b.do(c), "3 CONFIGURED CONFIGURED")
	})
}

func TestWhatCannotBeKeptIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Puts: puts(1)})
		file, err := os.Open(b.journal.path) // read-only
		if err != nil {
			t.Fatal(err)
		}
		b.journal.close()
		b.journal.file = file
		check(t, "not written", b.do(Change{Puts: puts(2)}), "0: "+ErrRefused.Error())
		check(t, "routes", b.fib.routes(), "[10.9.1.0/24 via 10.0.0.2]")
		check(t, "the disk is back", b.do(Change{Puts: puts(2)}), "2 CONFIGURED")
		b.restart()
		check(t, "kept", fmt.Sprint(len(b.Items(Name))), "2")
	})
}

// A disk that stalls while a long journal is rewritten holds no answer up.
func TestTheJournalIsRewrittenAfterTheAnswer(t *testing.T) {
	b := newBed(t.TempDir())
	defer func() { b.stop() }()
	file := b.journal.path + ".new" // what durable.WriteFile writes
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	b.journal.base = -slack // so that it is long
	check(t, "answered", b.do(Change{Puts: puts(1)}), "1 CONFIGURED")
	reader, err := os.OpenFile(file, os.O_RDONLY, 0) // waits for the writer
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	check(t, "the disk is back", b.do(Change{Puts: puts(2)}), "2 CONFIGURED")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b.writing.Lock()
		long := b.journal.isLong()
		b.writing.Unlock()
		if !long {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the journal is long after a minute")
		}
	}
}

// The first format had puts by key, their values in JSON, and labels beside them.
func TestJournalInTextFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Puts: puts(1)})
		var old []byte
		for _, body := range []string{
			`{"format":1,"rewritten":1}`,
			`{"txn":1,"source":"grpc","puts":{"config/vpp/v2/route/vrf/0/dst/10.9.5.0/24/gw/` +
				`10.0.0.2":"{\"dst_network\":\"10.9.5.0/24\",\"next_hop_addr\":\"10.0.0.2\"}"},` +
				`"labels":{"config/vpp/v2/route/vrf/0/dst/10.9.5.0/24/gw/10.0.0.2":{"a":"b"}}}`,
		} {
			old = fmt.Appendf(old, "%08x %s\n", crc32.Checksum([]byte(body), castagnoli), body)
		}
		b.stop()
		if err := os.WriteFile(b.journal.path, old, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time from what the first has written
			b = newBed(filepath.Dir(b.journal.path))
			synctest.Wait()
			check(t, "items", strings.Join(keysOf(b.Source), " "),
				"grpc config/vpp/v2/route/vrf/0/dst/10.9.5.0/24/gw/10.0.0.2")
			for _, item := range b.Items(Name) {
				check(t, "labels", fmt.Sprint(item.Labels), "map[a:b]")
			}
			check(t, "routes", b.fib.routes(), "[10.9.5.0/24 via 10.0.0.2]")
			b.stop()
		}
		b = newBed(filepath.Dir(b.journal.path))
	})
}

// What an older journal has of such an item stays, too, as the text that it is.
func TestAnItemOfALaterVersionInText(t *testing.T) {
	s := newStore()
	later := kept{Key: "config/vpp/v9/later/x", Text: `{"a":1}`}
	s.replay([]record{{Source: "grpc/a", Puts: keptItems{later},
		Labels: map[string]map[string]string{later.Key: {"a": "b"}}}})
	for range 2 {
		all, err := s.records()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(all[len(all)-1].Puts)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "on disk", string(text), `[{"key":"config/vpp/v9/later/x","value":null,`+
			`"labels":{"a":"b"},"text":"{\"a\":1}"}]`)
		var again keptItems
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		s = newStore()
		s.replay([]record{{Source: "grpc/a", Puts: again}})
	}
}

// An item that this version cannot read, as after a downgrade, is named to its client and stays on
// disk. All others are as they were.
func TestAnItemOfALaterVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.do(Change{Source: "grpc/a", Puts: puts(1)})
		b.do(Change{Source: "grpc/b", Puts: puts(2)})
		later := kept{Key: "config/vpp/v9/later/x", Value: []byte("\x0a\x01x"),
			Labels: map[string]string{"a": "b"}}
		routed := kept{Key: item(3, "").Key, Value: []byte("\xff")}
		b.writing.Lock()
		err := b.journal.append(record{Txn: 3, Source: "grpc/b", Puts: keptItems{later, routed}})
		b.writing.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		onDisk := func() (all []string) {
			records, err := readJournal(b.journal.path)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				for _, k := range r.Puts {
					if k.Key == later.Key {
						all = append(all, fmt.Sprintf("%q %v", k.Value, k.Labels))
					}
				}
			}
			return all
		}
		for range 2 {
			b.restart()
			time.Sleep(time.Minute)
			check(t, "routes", b.fib.routes(),
				"[10.9.1.0/24 via 10.0.0.2 10.9.2.0/24 via 10.0.0.2]")
			check(t, "status", fmt.Sprintf("%+v", b.Status()),
				"{Txn:3 Observed:3 Synced:true Problem:}")
			check(t, "on disk", fmt.Sprint(onDisk()), `["\n\x01x" map[a:b]]`)
			states := ""
			for _, v := range b.controller.Verdicts() {
				states += fmt.Sprintf(" %s %v", v.Source, v.State)
			}
			check(t, "states", states,
				" grpc/a CONFIGURED grpc/b CONFIGURED grpc/b INVALID grpc/b UNIMPLEMENTED")
		}
		c := Change{Source: "grpc/b", Deletes: []string{later.Key}, Atomic: true}
		limited := Client{Tables: []string{"0"}}
		c.Refuses = limited.refuses
		check(t, "refused", b.do(c), "0 FAILED: "+ErrRolledBack.Error())
		c.Refuses, c.Puts = nil, puts(4)
		b.fib.set(func() { b.fib.refused["10.9.4.0/24"] = true })
		check(t, "rolled back", b.do(c), "4 RETRYING REMOVED: "+ErrRolledBack.Error())
		b.restart()
		check(t, "on disk", fmt.Sprint(len(onDisk())), "1")
		c.Puts = puts(3)
		check(t, "deleted", b.do(c), "6 CONFIGURED REMOVED")
		b.restart()
		check(t, "on disk", fmt.Sprint(len(onDisk())), "0")
		check(t, "items", fmt.Sprint(len(b.Items("grpc/b"))), "2")
	})
}

// Cut anywhere, a journal says what was wanted after one of the transactions. Any other damage is
// found, and then nothing is deleted.
func TestDamagedJournal(t *testing.T) {
	dir := t.TempDir()
	var whole []byte
	states := map[string]bool{"": true}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(dir)
		for _, c := range []Change{{Puts: puts(1, 2)}, {Deletes: []string{item(1, "").Key}},
			{Puts: puts(3), Atomic: true}, {Source: "grpc/a", Puts: puts(4)}} {
			b.do(c)
			states[strings.Join(keysOf(b.Source), " ")] = true
		}
		b.stop()
		whole, _ = os.ReadFile(b.journal.path)
	})
	if len(states) != 5 {
		t.Fatalf("%d states", len(states))
	}
	var rewritten []byte // by the next run; all of it was acknowledged
	synctest.Test(t, func(t *testing.T) {
		b := newBed(dir)
		b.stop()
		rewritten, _ = os.ReadFile(b.journal.path)
	})
	try := func(what string, content []byte) (complete bool) {
		dir := t.TempDir()
		path := filepath.Join(dir, "external-grpc.journal")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		open := func() *Source {
			return New(Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
		}
		s := open()
		now := <-s.Snapshots()
		if !states[strings.Join(keysOf(s), " ")] {
			t.Errorf("%s: %v", what, keysOf(s))
		}
		if !now.Complete && (s.problem == "" || len(keysOf(s)) > 0) {
			t.Errorf("%s: %q", what, s.problem)
		}
		s.journal.close()
		again := open()
		defer again.journal.close()
		if (<-again.Snapshots()).Complete != now.Complete {
			t.Errorf("%s: the next run does not know that it is not complete", what)
		}
		if _, err := os.Stat(path + ".damaged"); now.Complete == (err == nil) {
			t.Errorf("%s: complete %v, set aside: %v", what, now.Complete, err)
		}
		return now.Complete
	}
	for i := range whole {
		try(fmt.Sprintf("cut at %d", i), whole[:i])
		flipped := slices.Clone(whole)
		flipped[i] ^= 4
		if complete := try(fmt.Sprintf("flipped at %d", i), flipped); complete && i < len(whole)-1 {
			t.Errorf("flipped at %d: not found", i)
		}
	}
	for n := range 64 {
		i := len(rewritten) - 1 - n*len(rewritten)/64
		what := fmt.Sprintf("the rewritten journal, cut at %d", i)
		if complete := try(what, rewritten[:i]); complete {
			t.Errorf("%s: not found", what)
		}
	}
}

func keysOf(s *Source) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, items := range s.store.sources {
		for key := range items {
			all = append(all, name+" "+key)
		}
	}
	slices.Sort(all)
	return all
}

// Whatever is changed, refused and restarted, the clients' items are those of the changes that were
// not refused, and the routes follow from them.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp("", "external-grpc")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		synctest.Test(t, func(t *testing.T) {
			b := newBed(dir)
			defer func() { b.stop() }()
			model := map[string]map[string]bool{}
			for range rapid.IntRange(1, 25).Draw(r, "steps") {
				if rapid.IntRange(0, 6).Draw(r, "restart") == 0 {
					b.restart()
				}
				b.step(r, model)
				var want []string
				for source, keys := range model {
					for key := range keys {
						want = append(want, source+" "+key)
					}
				}
				slices.Sort(want)
				if got := keysOf(b.Source); !slices.Equal(got, want) {
					r.Fatalf("items %v, want %v", got, want)
				}
			}
		})
	})
}

// step makes a change, and makes it in the model, too.
func (b *bed) step(r *rapid.T, model map[string]map[string]bool) {
	numbers := rapid.SliceOfNDistinct(rapid.IntRange(1, 5), 0, 4, rapid.ID[int])
	c := Change{
		Source: rapid.SampledFrom([]string{"grpc", "grpc/a"}).Draw(r, "source"),
		Puts:   puts(numbers.Draw(r, "puts")...), Replace: rapid.Bool().Draw(r, "replace"),
		Atomic: rapid.Bool().Draw(r, "atomic"),
	}
	next := maps.Clone(model[c.Source])
	if c.Replace || next == nil {
		next = map[string]bool{}
	}
	for _, i := range c.Puts {
		next[i.Key] = true
	}
	if !c.Replace {
		for key := range model[c.Source] {
			if rapid.IntRange(0, 3).Draw(r, "delete") == 0 &&
				!slices.ContainsFunc(c.Puts, func(i external.Item) bool { return i.Key == key }) {
				c.Deletes = append(c.Deletes, key)
				delete(next, key)
			}
		}
	}
	refused := puts(numbers.Draw(r, "refused")...)
	b.fib.set(func() {
		clear(b.fib.refused)
		for _, i := range refused {
			b.fib.refused[strings.Split(strings.SplitAfter(i.Key, "/dst/")[1], "/gw")[0]] = true
		}
	})
	if got := b.do(c); !strings.HasSuffix(got, ErrRolledBack.Error()) {
		model[c.Source] = next
	} else if !c.Atomic {
		r.Fatalf("%s", got)
	}
}

// The journal of a client whose calls end before its atomic changes are decided is shortened, too.
func TestTheJournalIsRewrittenAfterALateDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t.TempDir())
		defer func() { b.stop() }()
		b.journal.base = -slack // so that it is long
		b.fib.set(func() { b.fib.silent = true })
		check(t, "no answer", b.do(Change{Puts: puts(1), Atomic: true}),
			"1: "+ErrUnanswered.Error())
		b.fib.set(func() { b.fib.silent = false })
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.journal.isLong() {
			t.Error("it is as long as before")
		}
	})
}

// Once the file is another one, nothing is written to the one before.
func TestARewriteThatFailsAtItsEnd(t *testing.T) {
	dir := t.TempDir()
	// The kernel follows the link; the folder that is synced is found by the text alone, and is
	// not there.
	if err := errors.Join(os.MkdirAll(dir+"/far/deep", 0o700), os.Mkdir(dir+"/far/b", 0o700),
		os.Mkdir(dir+"/a", 0o700), os.Symlink("../far/deep", dir+"/a/link")); err != nil {
		t.Fatal(err)
	}
	path := dir + "/far/b/journal"
	j := journal{path: path}
	first := record{Format: journalFormat, Txn: 1}
	if err := j.rewrite([]record{first}); err != nil {
		t.Fatal(err)
	}
	j.path = dir + "/a/link/../b/journal"
	if err := j.rewrite([]record{first}); err == nil {
		t.Fatal("it does not fail")
	}
	err := j.append(record{Txn: 2})
	records, err2 := readJournal(path)
	if err2 != nil || err == nil && len(records) != 2 {
		t.Errorf("%v, %v; the file has %d records", err, err2, len(records))
	}
}
