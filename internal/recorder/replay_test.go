package recorder

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

// plane is a data plane that takes everything.
type plane struct {
	facts chan route.Facts

	mu   sync.Mutex
	away map[netip.Addr]bool // next hops to which no route leads
}

func (p *plane) Routes(context.Context) ([]route.Route, error) { return nil, nil }
func (p *plane) Facts() <-chan route.Facts                     { return p.facts }

func (p *plane) Lookup(context.Context, route.Key) (r route.Route, ok bool, err error) {
	return r, false, nil
}

func (p *plane) Resolve(_ context.Context, _ uint32, a netip.Addr) (route.Resolution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return route.Resolution{Prefix: pfx("0.0.0.0/0"), Usable: !p.away[a]}, nil
}

func (p *plane) Apply(_ context.Context, ops []route.Op, done func(int, error)) error {
	for i := range ops {
		done(i, nil)
	}
	return nil
}

func (p *plane) Object(context.Context, route.ObjectKey) (route.Object, error) { return nil, nil }
func (p *plane) PutObject(context.Context, route.Object) error                 { return nil }
func (p *plane) DeleteObject(context.Context, route.ObjectKey) error           { return nil }

func (p *plane) tell(f route.Facts) {
	select {
	case <-p.facts:
	default:
	}
	p.facts <- f
}

// untilDecided is a Recorder of an engine that says when all has been decided behind what is
// learned about key. The engine calls it under its lock.
type untilDecided struct {
	*Recorder
	key     route.Key
	learned bool
	done    atomic.Bool
}

func (r *untilDecided) Candidate(c fib.CandidateChange) {
	r.Recorder.Candidate(c)
	r.learned = r.learned || c.Key == r.key
}

func (r *untilDecided) Settled(at fib.Moment) {
	if r.Recorder.Settled(at); r.learned {
		r.done.Store(true)
	}
}

// record records what an engine does with n random changes, up to where it has decided all.
func record(t *testing.T, r *Recorder, n int, seed uint64) {
	t.Helper()
	p := &plane{facts: make(chan route.Facts, 1), away: map[netip.Addr]bool{}}
	ends := &untilDecided{Recorder: r, key: host(60_000)}
	e := fib.New(fib.Config{Dataplane: p, Recorder: ends, Log: testlog.New(t)})
	r.Checkpoints(e.Checkpoint)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	stop := start(t, r)
	defer func() { cancel(); running.Wait(); stop() }()

	facts := route.Facts{Identity: "1", Interfaces: []route.Interface{
		{Name: "eth0", Index: 1, Up: true, Addresses: []netip.Prefix{pfx("172.16.0.1/24")}},
		{Name: "eth1", Index: 2, Up: true, Addresses: []netip.Prefix{pfx("172.16.1.1/24")}},
	}}
	p.tell(facts)
	rng := rand.New(rand.NewPCG(seed, 7))
	hops := []netip.Addr{}
	for _, s := range []string{"172.16.0.2", "172.16.0.3", "172.16.1.2", "10.9.9.9", "10.8.8.8"} {
		hops = append(hops, netip.MustParseAddr(s))
	}
	paths := func() (out []route.Path) {
		for range rng.IntN(4) {
			out = append(out, route.Path{NextHop: hops[rng.IntN(len(hops))]})
		}
		return route.CanonicalPaths(out)
	}
	prefix := func() netip.Prefix {
		k := host(rng.IntN(3000)).Prefix
		wider, _ := k.Addr().Prefix(32 - 4*rng.IntN(3))
		return wider
	}
	var w fib.Wanted
	for i := range n {
		switch rng.IntN(200) {
		case 0:
			facts.Interfaces = append([]route.Interface{}, facts.Interfaces...)
			facts.Interfaces[1].Up = !facts.Interfaces[1].Up
			p.tell(facts)
		case 1:
			p.mu.Lock()
			a := hops[3+rng.IntN(2)]
			p.away[a] = !p.away[a]
			p.mu.Unlock()
		case 2:
			all := map[netip.Prefix]bool{}
			for range rng.IntN(20) {
				all[prefix()] = true
			}
			origin := []route.Origin{route.Own, route.Etcd, route.External}[rng.IntN(3)]
			var routes []route.Route
			for k := range all {
				routes = append(routes, route.Route{Key: route.Key{Prefix: k}, Origin: origin,
					Kind: route.Kind(rng.IntN(2)), Paths: route.CanonicalPaths([]route.Path{
						{NextHop: hops[rng.IntN(len(hops))]}})})
				if routes[len(routes)-1].Kind == route.Drop {
					routes[len(routes)-1].Paths = nil
				}
			}
			w.Sources[origin].Routes = routes
			e.Set(w)
		case 3:
			w.Services = []netip.Prefix{prefix()}
			w.Converging = rng.IntN(2) == 0
			w.Peers = hops[:rng.IntN(3)]
			e.Set(w)
		default:
			e.Learn(fib.BestPaths{Prefix: prefix(), Paths: paths()})
		}
		if i%500 == 0 {
			time.Sleep(2 * time.Millisecond) // for next hops to be asked about
			until(t, func() bool {           // what comes next has room, however slow the disk is
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.queue.b) < enough
			})
		}
	}
	w.Converging = false
	e.Set(w)
	until(t, func() bool { return e.Stats().Queued == 0 })
	e.Learn(fib.BestPaths{Prefix: ends.key.Prefix, Paths: []route.Path{{NextHop: hops[0]}}})
	until(t, ends.done.Load)
}

// What was recorded is decided again as it was, also when the beginning is gone.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	for run := range 2 {
		r := newRecorder(t, dir, 4<<20)
		record(t, r, 60_000, uint64(run))
		if s := r.Stats(); s.Dropped > 0 || s.Problem != "" {
			t.Fatalf("%+v", s)
		}
	}
	got, problems, err := Replay(dir, noPlanner)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if len(got.Runs) == 0 {
		t.Fatal("nothing was replayed")
	}
	for i, run := range got.Runs {
		isLast := i == len(got.Runs)-1 // of the first there is little left, or nothing
		if run.Problem != "" || run.Gaps > 0 ||
			isLast && (run.Keys < 500 || run.Undecided > 0 || run.Decided < 1000 ||
				run.Compared < run.Decided/2) {
			t.Errorf("%+v", run)
		}
		for _, d := range run.Differences {
			t.Errorf("%s: recorded %q, replayed %q", d.Key, d.Recorded, d.Replayed)
		}
	}
	all, err := listSegments(dir, suffix)
	if err != nil || len(all) < 4 || all[0].number == 1 {
		t.Errorf("the beginning is there: %v, %v", all, err)
	}
}

// A decision that does not follow from what was heard is found.
func TestReplayFindsDifferences(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 4<<20)
	stop := start(t, r)
	at := r.At(time.Now())
	r.Facts(at, route.Facts{Identity: "1"})
	until(t, written(r, 2))
	r.Candidate(fib.CandidateChange{Key: host(1), Origin: route.Own, Kind: route.Drop, At: at})
	r.Decided(fib.Decision{Key: host(1), Origin: route.Own, Programs: true,
		Kind: route.Unreachable, At: at})
	r.Settled(at)
	r.Candidate(fib.CandidateChange{Key: host(2), Origin: route.Own, Kind: route.Drop, At: at})
	stop()
	got, _, err := Replay(dir, noPlanner)
	if err != nil || len(got.Runs) != 1 {
		t.Fatal(err, got)
	}
	if run := got.Runs[0]; len(run.Differences) != 1 || run.Undecided != 1 ||
		!strings.Contains(run.Differences[0].Recorded, "unreachable") ||
		!strings.Contains(run.Differences[0].Replayed, "drop") {
		t.Errorf("%+v", run)
	}
}

// Where records are missing nothing is made up: the replay goes on with the next checkpoint.
func TestReplayOfAGap(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 4<<20)
	stop := start(t, r)
	at := r.At(time.Now())
	r.Facts(at, route.Facts{Identity: "1"})
	r.Settled(at)
	until(t, written(r, 3))
	r.mu.Lock()
	r.queue.dropped = 1 // the candidate of this decision
	r.mu.Unlock()
	r.Decided(fib.Decision{Key: host(1), Origin: route.Own, Programs: true, At: at})
	stop()
	got, _, err := Replay(dir, noPlanner)
	if err != nil || len(got.Runs) != 1 || got.Runs[0].Gaps != 1 ||
		len(got.Runs[0].Differences) > 0 || got.Runs[0].Problem != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// What cannot be compared is said, with the reason: at the beginning and after each gap.
func TestReplaySaysWhatIsNotCompared(t *testing.T) {
	var (
		segment = func(r *replayer, number uint64) {
			if err := r.begins(Segment{Number: number, Process: time.Unix(1, 0),
				Began: time.Unix(int64(number), 0)}); err != nil {
				t.Fatal(err)
			}
		}
		record = func(what any, state bool) func(*replayer) {
			return func(r *replayer) {
				x := Record{What: what, At: r.segment.Began.Add(time.Second), State: state}
				if err := r.record(x); err != nil {
					t.Fatal(err)
				}
			}
		}
		next  = func(r *replayer) { segment(r, r.segment.Number+1) }
		later = func(r *replayer) { segment(r, r.segment.Number+2) }
		facts = record(&FactsChange{Facts: route.Facts{Identity: "1"}}, true)
		input = record(&fib.CandidateChange{Key: host(1), Origin: route.Own, Kind: route.Drop},
			false)
		decided = record(&Decision{Decision: fib.Decision{Key: host(1), Origin: route.Own,
			Programs: true, Kind: route.Drop, Digest: route.Route{Kind: route.Drop}.Digest()}},
			false)
		settled = record(Settled{}, false)
		whole   = func(r *replayer) { record(Complete{Segment: r.segment.Number}, false)(r) }
		gap     = record(Dropped(3), false)
		noRoom  = record(Dropped(3), true)
		other   = func(r *replayer) {
			if err := r.begins(Segment{Number: r.segment.Number + 1,
				Process: time.Unix(9, 0)}); err != nil {
				t.Fatal(err)
			}
		}
	)
	type steps []func(*replayer)
	for name, tc := range map[string]struct {
		steps
		problem Reason
		later   string // reason, moments, inputs of each time that is not compared
		rest    int    // undecided
	}{
		"all":             {steps{next, facts, settled, whole, input, decided, settled}, "", "", 0},
		"busy at the end": {steps{next, facts, settled, whole, input, input}, "", "", 2},
		"no data plane":   {steps{next, whole, input}, "", "", 0},
		"killed at once":  {steps{next, facts, input, settled}, ReasonShort, "short 1 1", 0},
		"and another starts": {steps{next, facts, input, settled, other}, ReasonShort,
			"short 1 1", 0},
		"killed a bit later": {steps{next, facts, whole, input}, ReasonShort, "short 0 1", 0},
		"its beginning gone": {steps{later, facts, input, settled}, ReasonNotWhole,
			"notWhole 1 1", 0},
		"lasts, never whole": {steps{next, facts, settled, next, facts, settled}, ReasonNotWhole,
			"notWhole 2 0", 0},
		"busy, never settles": {steps{later, facts, whole, input}, ReasonUndecided,
			"undecided 0 1", 0},
		"no room": {steps{next, facts, noRoom, settled}, ReasonNoRoom, "noRoom 1 0", 0},
		"no room at first": {steps{next, facts, noRoom, settled, next, facts, settled, whole}, "",
			"noRoom 2 0", 0},
		"gap at first": {steps{next, facts, gap, input, settled}, ReasonMissing, "missing 1 1", 0},
		"a gap": {steps{next, facts, settled, whole, input, gap, input, settled, next, facts,
			settled, whole}, "", "missing 2 1", 1},
		"two gaps": {steps{next, facts, settled, whole, gap, settled, next, facts, settled, whole,
			gap, settled, gap, next, facts, settled, whole, input}, "",
			"missing 2 0, missing 2 0", 1},
		"a gap, and never whole": {steps{next, facts, settled, whole, gap, settled, next, facts,
			settled}, "", "missing 2 0", 0},
		"a gap, then no room": {steps{next, facts, settled, whole, gap, next, facts, noRoom,
			settled}, "", "noRoom 1 0", 0},
		"a gap, and never settled": {steps{next, facts, settled, whole, gap, next, facts, whole,
			input}, "", "undecided 0 1", 0},
		"settles late": {steps{next, facts, whole, input, next, decided, settled}, "", "", 0},
	} {
		r := &replayer{newPlanner: noPlanner}
		for _, do := range tc.steps {
			do(r)
		}
		r.finish()
		run := r.runs[0]
		var later []string
		for _, n := range run.NotCompared {
			later = append(later, fmt.Sprintf("%s %d %d", string(n.Reason), n.Moments, n.Inputs))
		}
		if got := strings.Join(later, ", "); run.Reason != tc.problem || got != tc.later ||
			(run.Problem == "") != (tc.problem == "") || run.Undecided != tc.rest ||
			len(run.Differences) > 0 {
			t.Errorf("%s: problem %q, not compared %q, %d undecided, differences %v", name,
				run.Reason, got, run.Undecided, run.Differences)
		}
	}
}

// What is damaged, and a segment that is gone, are gaps like any other.
func TestReplayOfDamage(t *testing.T) {
	dir := t.TempDir()
	record(t, newRecorder(t, dir, 6<<20), 60_000, 3)
	all, err := listSegments(dir, suffix)
	if err != nil || len(all) < 3 {
		t.Fatal(all, err)
	}
	second := all[1].path(dir, suffix)
	whole, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(whole)
	bad[len(bad)/2] ^= 0x10
	badHeader := bytes.Clone(whole)
	badHeader[0] ^= 0x10
	for name, tc := range map[string]struct {
		change   func() error
		problems int
	}{
		"damage":        {func() error { return os.WriteFile(second, bad, 0o600) }, 1},
		"a bad header":  {func() error { return os.WriteFile(second, badHeader, 0o600) }, 1},
		"a segment off": {func() error { return os.Remove(second) }, 1},
	} {
		if err := tc.change(); err != nil {
			t.Fatal(err)
		}
		got, problems, err := Replay(dir, noPlanner)
		if err != nil || len(problems) != tc.problems || len(got.Runs) != 1 ||
			got.Runs[0].Gaps != 1 || got.Runs[0].Problem != "" || got.Runs[0].Keys < 500 ||
			len(got.Runs[0].Differences) > 0 || len(got.Runs[0].NotCompared) != 1 {
			t.Errorf("%s: %+v, %v, %v", name, got, problems, err)
		}
	}
}

// A checkpoint that does not fit into a segment is not taken again and again.
func TestCheckpointTooLarge(t *testing.T) {
	r := newRecorder(t, t.TempDir(), 60<<10)
	taken := 0
	r.Checkpoints(func(pause func() bool) {
		taken++
		for i := 0; i < 10_000 && pause(); i++ {
			for range 100 {
				r.Stands([]fib.CandidateChange{{Key: host(i)}}, fib.Decision{Key: host(i)})
			}
		}
	})
	stop := start(t, r)
	for i := range 5000 {
		candidate(r, i)
		until(t, written(r, uint64(i)))
	}
	stop()
	if taken != 1 {
		t.Errorf("%d checkpoints were begun", taken)
	}
	got, problems, err := Replay(r.cfg.Dir, noPlanner)
	if err != nil || len(problems) > 0 || got.OK() {
		t.Errorf("%+v, %v, %v", got, problems, err)
	}
}

// What a checkpoint leaves out for lack of room happened before, and is lost to nobody.
func TestCheckpointWithoutRoomIsNoGap(t *testing.T) {
	for _, isState := range []bool{true, false} {
		x := Record{What: Dropped(3), State: isState}
		replay := replayer{runs: []Run{{}}, isWhole: true}
		lost := 0
		about := history{each: func(Step) error { lost++; return nil }}
		slow := tracer{open: map[route.Key]*open{host(1): {}}}
		for _, err := range []error{replay.record(x), about.record(x), slow.record(x)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := 1
		if isState {
			want = 0
		}
		if replay.runs[0].Gaps != want || lost != want || len(slow.open) != 1-want {
			t.Errorf("of a checkpoint: %t: %d gaps, %d lost, %d under way", isState,
				replay.runs[0].Gaps, lost, len(slow.open))
		}
	}
}
