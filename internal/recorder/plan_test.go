package recorder

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/changes"
	"vpp-route-agent/internal/route"
)

// planInputs are those of the plans here.
type planInputs struct {
	Limit   int
	Blocked map[string]bool
}

// nodesAllowed is the plan here.
func nodesAllowed(s *calico.Snapshot, in *planInputs, wrong bool) []PlanPart {
	var allowed []string
	for i := range 100 {
		name := fmt.Sprint(i)
		if _, there := s.Nodes[name]; there && !in.Blocked[name] && len(allowed) < in.Limit {
			allowed = append(allowed, name)
		}
	}
	count := len(s.Nodes)
	if wrong {
		count++
	}
	return []PlanPart{{"allowed", allowed}, {"count", count}}
}

// testPlanner plans for tests.
type testPlanner struct {
	snapshot calico.Snapshot
	inputs   planInputs
	wrong    bool
}

func (p *testPlanner) Datastore(c calico.RecordedChanges) error { return c.Apply(&p.snapshot) }

func (p *testPlanner) Inputs(c PlanInputs) error { return changes.Apply(c.Recorded, &p.inputs) }

func (p *testPlanner) Plan() []PlanPart { return nodesAllowed(&p.snapshot, &p.inputs, p.wrong) }

func noPlanner(string) Planner { return &testPlanner{} }

// Plans are made again, also where the beginning of the records is gone; what differs is named.
func TestReplayOfPlans(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 256<<10)
	stop := start(t, r)
	r.Facts(r.At(time.Now()), route.Facts{Identity: "1"})
	const n = 1000
	whole := uint64(0) // the last segment that was seen to have its checkpoint
	for i := range n {
		s := &calico.Snapshot{Revision: int64(i), Nodes: map[string]calico.Node{}}
		for k := range 20 {
			name := fmt.Sprint((i + k) % 100)
			s.Nodes[name] = calico.Node{Name: name, ASNumber: uint32(i / 100)}
		}
		in := &planInputs{Limit: i % 10, Blocked: map[string]bool{fmt.Sprint(i % 100): true}}
		r.Datastore(time.Now(), s)
		r.Plan(time.Now(), in, nodesAllowed(s, in, false))
		r.Settled(r.At(time.Now()))
		if i%3 == 0 { // else snapshots have no room
			var newest uint64
			until(t, func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				newest = r.segment
				return len(r.taken) == 0 && newest > 0
			})
			if newest != whole { // a checkpoint that comes too late would be the last for an hour
				until(t, func() bool { return isWhole(t, dir, newest) })
				whole = newest
			}
		}
	}
	stop()
	if all, err := listSegments(dir, suffix); err != nil || len(all) < 4 || all[0].number == 1 {
		t.Fatalf("the beginning is there: %v, %v", all, err)
	}
	for _, wrong := range []bool{false, true} {
		got, problems, err := Replay(dir, func(node string) Planner {
			if node != r.cfg.Node {
				t.Errorf("a planner for %q", node)
			}
			return &testPlanner{wrong: wrong}
		})
		if err != nil || len(problems) > 0 || len(got.Runs) != 1 {
			t.Fatal(got, problems, err)
		}
		run := got.Runs[0]
		if run.Plans == 0 || wrong != (len(run.Differences) == min(run.Plans, maxDifferences)) ||
			!wrong && len(run.Differences)+run.More > 0 ||
			wrong && run.More != max(0, run.Plans-maxDifferences) {
			t.Errorf("%d plans, differences %+v and %d", run.Plans, run.Differences, run.More)
		}
		for _, d := range run.Differences {
			if wrong && d.Key != "plan: count" {
				t.Errorf("%+v", d)
			}
		}
	}
}

// isWhole reports whether a segment has its checkpoint.
func isWhole(t *testing.T, dir string, segment uint64) (is bool) {
	t.Helper()
	_, err := Reader{Record: func(x Record) error {
		is = is || x.What == Complete{Segment: segment}
		return nil
	}}.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// A segment that begins while a difference of the datastore, or of a plan, is written in several
// blocks has all of it: a replay of what is left is right, whatever has gone.
func TestSegmentsBeginWithWholeDifferences(t *testing.T) {
	const nodes = 1500 // more than one block
	dir := t.TempDir()
	r := newRecorder(t, dir, 64<<20)
	w := writer{Recorder: r}
	w.ring = newRing(r.cfg, r.began, create)
	w.ring.preamble = w.preamble
	w.inputs.facts.Identity = "1"
	record := func(kind recordKind, args ...uint64) {
		e := r.begin(kind, r.At(time.Now()))
		for _, x := range args {
			e.uint(x)
		}
		r.end()
		all := w.take(nil)
		w.block(all.block, all.records)
	}
	blocks := 0
	write := func(block []byte, records int) { // each begins a segment
		if records == 0 {
			return
		}
		w.ring.close()
		w.block(block, records)
		blocks++
		record(kindSettled)
		record(kindComplete, w.ring.last().number, 0)
	}
	for i := range 3 {
		s := &calico.Snapshot{Revision: int64(i), Nodes: map[string]calico.Node{}}
		in := &planInputs{Limit: i, Blocked: map[string]bool{}}
		for k := range nodes {
			name := fmt.Sprint(k)
			s.Nodes[name] = calico.Node{Name: name, ASNumber: uint32(i)}
			in.Blocked[fmt.Sprint(i, k)] = true
		}
		w.differences(write, taken{at: r.At(time.Now()), snapshot: s})
		w.differences(write, taken{at: r.At(time.Now()), plan: &plan{in, sumOfNodes(s, in)}})
	}
	w.ring.close()
	all, err := listSegments(dir, suffix)
	if err != nil || len(all) != blocks || blocks < 9 {
		t.Fatal(all, blocks, err)
	}
	for _, s := range all {
		got, problems, err := Replay(dir, func(string) Planner { return &sumPlanner{} })
		if err != nil || len(problems) > 0 || len(got.Runs) != 1 {
			t.Fatalf("%+v, %v, %v", got, problems, err)
		}
		run := got.Runs[0]
		if run.Gaps > 0 || len(run.Differences) > 0 || s.number == 2 && run.Plans == 0 {
			t.Errorf("from segment %d on %d plans, %d gaps, differences %+v", s.number, run.Plans,
				run.Gaps, run.Differences)
		}
		if err := os.Remove(s.path(dir, suffix)); err != nil {
			t.Fatal(err)
		}
	}
}

// sumOfNodes depends on each item of what a plan is made of.
func sumOfNodes(s *calico.Snapshot, in *planInputs) []PlanPart {
	sum := uint64(0)
	for _, n := range s.Nodes {
		sum += Digest(n)
	}
	return []PlanPart{{"sum", sum}, {"blocked", len(in.Blocked)}}
}

type sumPlanner struct{ testPlanner }

func (p *sumPlanner) Plan() []PlanPart { return sumOfNodes(&p.snapshot, &p.inputs) }

// A burst of plans costs one, and the snapshot that it was made of comes before it.
func TestOnlyTheLastPlanWaits(t *testing.T) {
	r := newRecorder(t, t.TempDir(), 1<<20)
	for i := range 3 * maxSnapshots {
		s := &calico.Snapshot{Revision: int64(i)}
		r.Datastore(time.Now(), s)
		in := &planInputs{Limit: i}
		r.Plan(time.Now(), in, nodesAllowed(s, in, false))
	}
	last := r.taken[len(r.taken)-1]
	if len(r.taken) > maxSnapshots+1 || last.plan.inputs.(*planInputs).Limit != 3*maxSnapshots-1 {
		t.Errorf("%d wait, last %+v", len(r.taken), last)
	}
	for range maxSnapshots + 1 { // the plan's snapshot goes, and the plan with it
		r.Datastore(time.Now(), &calico.Snapshot{})
	}
	for _, x := range r.taken {
		if x.plan != nil {
			t.Errorf("a plan waits without its snapshot")
		}
	}
}

func TestDigest(t *testing.T) {
	type inner struct {
		secret int
		Any    any
	}
	type all struct {
		List []netip.Prefix
		Map  map[netip.Addr]*inner
		Any  any
	}
	one := func(change func(*all)) all {
		a := all{List: []netip.Prefix{pfx("10.0.0.0/8"), pfx("fd00::/8")},
			Map: map[netip.Addr]*inner{}, Any: inner{Any: "x"}}
		for i := range 50 {
			a.Map[netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})] = &inner{secret: i}
		}
		change(&a)
		return a
	}
	first := one(func(*all) {})
	seen := map[uint64]string{}
	for name, change := range map[string]func(*all){
		"nothing":      func(*all) {},
		"order":        func(a *all) { a.List[0], a.List[1] = a.List[1], a.List[0] },
		"shorter":      func(a *all) { a.List = a.List[:1] },
		"none":         func(a *all) { a.List = nil },
		"empty":        func(a *all) { a.List = a.List[:0] },
		"unexported":   func(a *all) { a.Map[netip.MustParseAddr("10.0.0.7")].secret++ },
		"a nil":        func(a *all) { a.Map[netip.MustParseAddr("10.0.0.7")] = nil },
		"a key":        func(a *all) { delete(a.Map, netip.MustParseAddr("10.0.0.7")) },
		"another type": func(a *all) { a.Any = &inner{Any: "x"} },
		"a value":      func(a *all) { a.Any = inner{Any: "y"} },
		"no map":       func(a *all) { a.Map = nil },
	} {
		a, again := one(change), one(change)
		d := Digest(a)
		if !reflect.DeepEqual(a, again) || d != Digest(again) {
			t.Errorf("%s: equal values have digests %x and %x", name, d, Digest(again))
		}
		if other, there := seen[d]; there {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		if seen[d] = name; (d == Digest(first)) != (name == "nothing") {
			t.Errorf("%s has digest %x", name, d)
		}
	}
	if !strings.HasPrefix(digestText(first), fmt.Sprintf("%016x", Digest(first))) {
		t.Error(digestText(first))
	}
}
