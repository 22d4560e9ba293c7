package fib

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// replaying is a Recorder that replays at once, and compares.
type replaying struct {
	began time.Time

	e *Engine // that it hears

	mu       sync.Mutex // guards what follows
	replay   *Replay
	unlike   []string
	compared int // how often
}

func newReplaying() *replaying {
	return &replaying{began: time.Now().Add(-time.Second), replay: NewReplay()}
}

func (r *replaying) At(t time.Time) Moment { return Moment(t.Sub(r.began)) }

func (r *replaying) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *replaying) Candidate(c CandidateChange) { r.locked(func() { r.replay.Candidate(c) }) }
func (r *replaying) Decided(d Decision)          { r.locked(func() { r.replay.Decided(d) }) }
func (r *replaying) Sent(Batch)                  {}
func (r *replaying) Answered(BatchResult)        {}

func (r *replaying) Facts(at Moment, f route.Facts) { r.locked(func() { r.replay.Facts(at, f) }) }

func (r *replaying) Resolved(at Moment, n NextHop, is route.Resolution) {
	r.locked(func() { r.replay.Resolved(at, n, is) })
}

func (r *replaying) Forgotten(at Moment, n NextHop) {
	r.locked(func() { r.replay.Forgotten(at, n) })
}

func (r *replaying) Surroundings(at Moment, s Surroundings) {
	r.locked(func() { r.replay.Surroundings(at, s) })
}

func (r *replaying) Settled(at Moment) {
	r.locked(func() {
		r.compared++
		if told, is := r.e.selection.left, r.e.ownLeft(); !r.e.table.leftChanged &&
			!slices.Equal(told, is) {
			r.unlike = append(r.unlike, fmt.Sprintf("left is %v, told was %v", is, told))
		}
		_, differ := r.replay.Settled(at)
		for _, m := range differ {
			r.unlike = append(r.unlike, fmt.Sprintf("%v at %v: %+v", m.Was.Key, at, m))
		}
	})
}

// ownLeft is what noteLeft tells, found among all entries. The caller holds mu.
func (e *Engine) ownLeft() (all []route.Key) {
	if e.sync.adoptedLeft == 0 {
		return nil
	}
	for _, x := range e.table.all {
		if !x.isObject() && e.selection.isLeft(x) {
			all = append(all, x.key())
		}
	}
	slices.SortFunc(all, route.CompareKeys)
	return all
}

func (r *replaying) Stands([]CandidateChange, Decision) {}

// differences says where the replay decided otherwise than the engine did, whenever that had
// decided all.
func (r *replaying) differences() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unlike
}

// A block that an earlier run has left keeps BGP's aggregate around it from covering what lies
// inside, until Calico's data say that it is this node's no more. stop compares with a replay.
func TestReplayKnowsOwnBlocksOfAnEarlierRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Own, []route.Route{{Key: key("10.1.0.0/26"), Kind: route.Drop}})
		synctest.Wait()
		r.again()
		r.dp.printOps()
		r.Learn(pfx("10.1.0.0/16"), via("10.0.0.2"))
		synctest.Wait()
		r.SetRoutes(route.Etcd, etcdRoutes(map[string]string{"10.1.0.5/32": "10.0.0.3"}))
		synctest.Wait()
		check(t, "an earlier run has left the block", r.dp.printOps(),
			"put 10.1.0.0/16 via 10.0.0.2 eth0", "put 10.1.0.5/32 via 10.0.0.3 eth0")
		r.AllowSweep(route.Own)
		time.Sleep(time.Hour)
		check(t, "it is gone", r.dp.printOps(), "del 10.1.0.0/26", "del 10.1.0.5/32")
	})
}

// Such a block is left no more when another source wants it, and when the data plane has lost it:
// what the recorder was told is compared whenever all is decided.
func TestWhatEndsOwnBlocksOfAnEarlierRun(t *testing.T) {
	block := []route.Route{{Key: key("10.1.0.0/26"), Kind: route.Drop}}
	for name, ends := range map[string]func(*running){
		"external configuration wants it": func(r *running) {
			r.SetRoutes(route.External, block)
		},
		"the data plane restarts": func(r *running) {
			r.dp.lose("10.1.0.0/26")
			r.dp.tell(node("b"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *running) {
				r.SetRoutes(route.Own, block)
				synctest.Wait()
				r.again()
				if left := r.selection.left; len(left) != 1 {
					t.Errorf("left are %v", left)
				}
				ends(r)
				synctest.Wait()
				r.Learn(pfx("10.2.0.0/16"), via("10.0.0.2"))
				synctest.Wait()
				if left := r.selection.left; len(left) != 0 {
					t.Errorf("afterwards left are %v", left)
				}
			})
		})
	}
}

// Own routes that are left cost a step nothing where nothing has become of them.
func TestStepCostsNothingForWhatIsLeft(t *testing.T) {
	e := New(Config{Log: slog.New(slog.DiscardHandler), Recorder: newReplaying()})
	for i := range 1000 {
		x := e.table.entry(route.Key{Prefix: host(i)})
		x.owner = sourceID(route.Own)
		x.set(isAdopted)
		e.table.adoptedOwn, e.table.leftChanged = append(e.table.adoptedOwn, x), true
	}
	e.selection.noteLeft()
	if n := len(e.selection.left); n != 1000 {
		t.Errorf("%d are left", n)
	}
	if n := testing.AllocsPerRun(100, e.selection.noteLeft); n > 0 {
		t.Errorf("a step that changes nothing allocates %v times", n)
	}
}

// comeAlone replays routes that come, or go, one by one.
func (r *Replay) comeAlone(n int, kind route.Kind) {
	for i := range n {
		at := Moment(i + 1)
		r.Candidate(CandidateChange{Key: route.Key{Prefix: host(i * 7919 % n)},
			Origin: route.Etcd, Kind: kind, At: at})
		r.Settled(at)
	}
}

// Routes that come one by one are merged into few lists, each of them a few times, and what went
// leaves the lists.
func TestReplayMergesCoverableRoutes(t *testing.T) {
	const n = 20_000
	r := NewReplay()
	r.Facts(1, node("a"))
	for round, kind := range []route.Kind{route.Unreachable, route.Via, route.Unreachable} {
		r.comeAlone(n, kind)
		lists, keys := r.e.selection.coverable, 0
		for _, l := range lists {
			keys += len(l)
		}
		if len(lists) > int(numSources)+15 || keys < n || keys > 2*n {
			t.Errorf("round %d: %d keys in %d lists", round, keys, len(lists))
		}
	}
}

// It takes 16 times as long for 16 times as many, and a little more: that is what a larger table
// costs.
func BenchmarkReplayOfCoverableRoutes(b *testing.B) {
	for _, n := range []int{10_000, 160_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				r := NewReplay()
				r.Facts(1, node("a"))
				r.comeAlone(n, route.Unreachable)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/route")
		})
	}
}

// A covered route that stays for longer than it may is found, once; while BGP converges it may.
func TestReplayFindsWhatIsHeldTooLong(t *testing.T) {
	r := NewReplay()
	r.Facts(1, node("a"))
	etcd, bgp := key("10.1.0.5/32"), key("10.1.0.0/26")
	stays := Decision{Key: etcd, Programs: true, Held: true, Kind: route.Unreachable,
		Digest: route.Route{Kind: route.Unreachable}.Digest(), At: 2}
	r.Candidate(CandidateChange{Key: etcd, Origin: route.Etcd, Kind: route.Unreachable, At: 1})
	r.Candidate(CandidateChange{Key: bgp, Origin: route.BGP, Paths: via("10.0.0.2"), At: 1})
	is := r.e.selection.view.viable(via("10.0.0.2"), false, &route.Pool{}).all.forward
	r.Decided(Decision{Key: bgp, Programs: true, Digest: is.digest, At: 2})
	r.Decided(stays)
	hold := Moment(coverHold)
	for at, want := range map[Moment]bool{2: false, 1 + hold: false} {
		if _, differ := r.Settled(at); (len(differ) > 0) != want {
			t.Errorf("at %v: %+v", at, differ)
		}
	}
	r.Surroundings(hold, Surroundings{Converging: true})
	if _, differ := r.Settled(9 * hold); len(differ) > 0 {
		t.Errorf("while BGP converges: %+v", differ)
	}
	r.Surroundings(9*hold, Surroundings{})
	if _, differ := r.Settled(9 * hold); len(differ) != 1 || !differ[0].TooLong {
		t.Errorf("held for long: %+v", differ)
	}
	if _, differ := r.Settled(9*hold + 1); len(differ) > 0 {
		t.Errorf("it is said twice: %+v", differ)
	}
	stays.Held = false
	r.Decided(stays)
	if _, differ := r.Settled(9*hold + 2); len(differ) != 1 || differ[0].TooLong {
		t.Errorf("covered, and no more held: %+v", differ)
	}
}
