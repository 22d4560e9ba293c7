package external

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// fakeFIB acknowledges all routes as soon as it has taken them in, which lasts a second.
type fakeFIB struct {
	mu      sync.Mutex
	wanted  fib.Source
	set     uint64
	taken   uint64
	busy    bool // and what was taken in is not settled
	atOnce  bool // what is wanted is taken in, and settles, before Want returns
	finding time.Duration
	away    string
	changed chan struct{}
}

func (f *fakeFIB) Want(all fib.Source) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted, f.set = all, f.set+1
	set := f.set
	if f.atOnce {
		f.taken = set
		go f.change(func() {})
		return set
	}
	time.AfterFunc(time.Second, func() { f.change(func() { f.taken = max(f.taken, set) }) })
	return f.set
}

func (f *fakeFIB) change(what func()) {
	f.mu.Lock()
	what()
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Facts are of a node with one interface.
func (f *fakeFIB) Facts() route.Facts {
	return route.Facts{Interfaces: []route.Interface{{Name: "eth0", Up: true}}}
}

func (f *fakeFIB) Find(keys []route.Key) (found []fib.Entry, taken uint64) {
	time.Sleep(f.finding)
	f.mu.Lock()
	defer f.mu.Unlock()
	found = []fib.Entry{}
	wanted := map[route.Key]route.Route{}
	for _, r := range f.wanted.Routes {
		wanted[r.Key] = r
	}
	for _, k := range keys {
		e := fib.Entry{Key: k}
		if r, ok := wanted[k]; ok {
			e.State, e.Origin, e.Paths = fib.Programmed, route.External, r.Paths
		}
		found = append(found, e)
	}
	return found, f.taken
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
	return f.taken >= revision && !f.busy, f.busy
}

func (f *fakeFIB) Changed() <-chan struct{} { return f.changed }

func (f *fakeFIB) Away() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away
}

// fakeAdapter is a source that a test drives.
type fakeAdapter struct {
	name      string
	snapshots chan Snapshot

	mu      sync.Mutex
	answers []Answer
}

func (a *fakeAdapter) Name() string               { return a.name }
func (a *fakeAdapter) Snapshots() <-chan Snapshot { return a.snapshots }
func (a *fakeAdapter) Answer(an Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers = append(a.answers, an)
}

func (a *fakeAdapter) tell(s Source, revision int64) {
	select {
	case <-a.snapshots:
	default:
	}
	a.snapshots <- Snapshot{Sources: []Source{s}, Complete: true, Revision: revision}
}

// newest returns the newest answer, and how many there were.
func (a *fakeAdapter) newest() (Answer, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) == 0 {
		return Answer{}, 0
	}
	return a.answers[len(a.answers)-1], len(a.answers)
}

// last prints the newest answer.
func (a *fakeAdapter) last() string {
	answer, _ := a.newest()
	return printed(answer.Verdicts)
}

type bed struct {
	*Controller
	fib, linux *fakeFIB
	adapters   []*fakeAdapter
}

var (
	notLinux = Policy{Table0: true,
		Takes: func(key string) bool { return !IsLinux(key) }}
	onlyLinux = Policy{Takes: IsLinux}
)

// withController runs f with a controller of two sources.
func withController(f func(b *bed)) {
	b := &bed{fib: &fakeFIB{changed: make(chan struct{}, 1)},
		linux: &fakeFIB{changed: make(chan struct{}, 1)}}
	var all []Adapter
	for _, name := range []string{"first", "second"} {
		a := &fakeAdapter{name: name, snapshots: make(chan Snapshot, 1)}
		b.adapters, all = append(b.adapters, a), append(all, a)
	}
	b.Controller = NewController(all, Plane{b.fib, notLinux}, Plane{b.linux, onlyLinux})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	f(b)
	cancel()
	<-done
}

// wanted returns what the FIB was set to last, and how often it was.
func (b *bed) wanted() (all fib.Source, set uint64) {
	b.fib.mu.Lock()
	defer b.fib.mu.Unlock()
	return b.fib.wanted, b.fib.set
}

func (b *bed) isComplete() bool {
	all, _ := b.wanted()
	return all.Complete
}

func (b *bed) routes() string {
	all, _ := b.wanted()
	return fmt.Sprint(all.Routes)
}

func TestControllerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first, second := b.adapters[0], b.adapters[1]
			first.tell(source(t, "first", one), 5)
			time.Sleep(500 * time.Millisecond)
			answer, _ := first.newest()
			if got := first.last(); !strings.Contains(got, "PENDING") || answer.Finished() ||
				answer.Revision != 5 {
				t.Errorf("before the FIB has taken it in: %s", got)
			}
			time.Sleep(time.Second)
			if got := first.last(); !strings.Contains(got, "CONFIGURED") {
				t.Errorf("afterwards: %s", got)
			}
			if b.isComplete() {
				t.Error("complete, though the second source is not complete")
			}
			second.tell(source(t, "second", other), 0)
			time.Sleep(2 * time.Second)
			if got := second.last(); !strings.Contains(got, "PENDING source first has") {
				t.Errorf("of the second source: %s", got)
			}
			if !b.isComplete() {
				t.Error("not complete")
			}
			first.tell(source(t, "first"), 0)
			time.Sleep(2 * time.Second)
			if got := second.last(); !strings.Contains(got, "CONFIGURED") {
				t.Errorf("the first one's is gone: %s", got)
			}
			b.fib.change(func() { b.fib.away = "VPP does not answer" })
			time.Sleep(2 * time.Second)
			if got := second.last(); !strings.Contains(got, "PENDING VPP does not answer") {
				t.Errorf("VPP is away: %s", got)
			}
			if len(b.Verdicts()) != 2 { // one of them is REMOVED
				t.Errorf("shown: %v", b.Verdicts())
			}
		})
	})
}

// A deletion is answered when the data plane has acknowledged it.
func TestADeletedItemIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first := b.adapters[0]
			first.tell(source(t, "first", one, other, table7), 0)
			time.Sleep(2 * time.Second)
			first.tell(source(t, "first", other), 6)
			time.Sleep(500 * time.Millisecond)
			answer, _ := first.newest()
			if got := first.last(); answer.Finished() || answer.Revision != 6 ||
				strings.Count(got, "PENDING it is being deleted") != 2 {
				t.Errorf("before the FIB has taken it in: %s", got)
			}
			time.Sleep(time.Second)
			answer, _ = first.newest()
			if got := first.last(); !answer.Finished() || strings.Count(got, "REMOVED") != 2 {
				t.Errorf("afterwards: %s", got)
			}
			first.tell(source(t, "first", one, other), 7)
			time.Sleep(2 * time.Second)
			if got := first.last(); strings.Count(got, "REMOVED") != 1 ||
				strings.Count(got, "CONFIGURED") != 2 {
				t.Errorf("one is back: %s", got)
			}
			time.Sleep(2 * removedTime)
			if got := first.last(); strings.Contains(got, "REMOVED") {
				t.Errorf("later: %s", got)
			}
		})
	})
}

// A client that makes and deletes ever new items does not have all of them remembered.
func TestFewOfManyDeletedItemsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first := b.adapters[0]
			for round := range 2 {
				var all []string
				for i := range mostDeparted {
					all = append(all, fmt.Sprintf(`= {"dst_network":"10.%d.%d.%d/32",`+
						`"next_hop_addr":"10.0.0.2"}`, round, i>>8, i&255))
				}
				first.tell(source(t, "first", all...), 0)
				time.Sleep(1500 * time.Millisecond)
				first.tell(source(t, "first"), 0)
				time.Sleep(1500 * time.Millisecond)
				got := strings.Count(first.last(), "REMOVED")
				if got == 0 || got > mostDeparted {
					t.Errorf("%d are remembered after round %d", got, round)
				}
			}
		})
	})
}

func TestAnUnchangedStateSetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			for range 3 {
				for _, a := range b.adapters {
					a.tell(source(t, a.name, one, other), 0)
				}
				time.Sleep(2 * time.Second)
			}
			_, set := b.wanted()
			if _, answers := b.adapters[0].newest(); set != 2 || answers != 2 {
				t.Errorf("the FIB was set %d times, %d answers", set, answers)
			}
		})
	})
}

// While the FIB is at work, one judgement is enough for all that changes.
func TestABusyFIBIsJudgedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first := b.adapters[0]
			first.tell(source(t, "first", one), 0)
			synctest.Wait()
			for range 15 {
				b.fib.change(func() { b.fib.busy, b.fib.taken = true, b.fib.set })
				time.Sleep(10 * time.Millisecond)
			}
			if _, answers := first.newest(); answers != 0 {
				t.Errorf("%d answers while the FIB is at work", answers)
			}
			b.fib.change(func() { b.fib.busy = false })
			synctest.Wait()
			if got := first.last(); !strings.Contains(got, "CONFIGURED") {
				t.Errorf("settled: %s", got)
			}
		})
	})
}

// However long judging takes, what has settled is judged at once, though the FIB changes besides.
func TestWhatHasSettledIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first := b.adapters[0]
			b.fib.atOnce, b.fib.finding = true, 10*time.Millisecond
			for i := range int64(50) {
				now := one
				if i%2 == 1 {
					now = other
				}
				first.tell(source(t, "first", now), i)
				time.Sleep(3 * b.fib.finding)
				if got, _ := first.newest(); got.Revision != i || !got.Finished() {
					t.Errorf("revision %d is answered, not %d: %s", got.Revision, i, first.last())
					return
				}
			}
		})
	})
}

// So is what was judged before it had settled.
func TestWhatSettlesLaterIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first := b.adapters[0]
			b.fib.finding = 40 * time.Millisecond // the pause after it is 2 s
			first.tell(source(t, "first", one), 7)
			time.Sleep(900 * time.Millisecond)
			if got := first.last(); !strings.Contains(got, "PENDING") {
				t.Errorf("not judged yet: %s", got)
			}
			time.Sleep(200 * time.Millisecond)
			if got := first.last(); !strings.Contains(got, "CONFIGURED") {
				t.Errorf("settled: %s", got)
			}
		})
	})
}

func TestChangesWithoutEndAreJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withController(func(b *bed) {
			first := b.adapters[0]
			first.tell(source(t, "first", one), 0)
			for _, busy := range []bool{false, true} {
				_, before := first.newest()
				for i := range 100 {
					b.fib.change(func() { b.fib.busy, b.fib.away = busy, fmt.Sprint(busy, i) })
					time.Sleep(judgePause / 2)
				}
				if _, answers := first.newest(); answers < before+4 {
					t.Errorf("busy %v: %d answers within a second", busy, answers-before)
				}
			}
		})
	})
}

var anyItem = rapid.SampledFrom([]string{
	one, other, drop, table7, in7,
	`= {"vrf_id":7,"dst_network":"10.9.2.0/24","next_hop_addr":"10.0.0.2"}`,
	`= {"type":"INTER_VRF","via_vrf_id":7,"dst_network":"10.9.3.0/24","next_hop_addr":"10.0.0.9"}`,
	`= {"dst_network":"10.9.3.0/24","next_hop_addr":"10.0.0.2","weight":2}`,
	`config/vpp/v2/interfaces/loop1 = {"name":"loop1"}`,
	host, inBlue, vethA, vethB, viaHost, viaFar, nearFar,
})

// Whatever was put, spoiled and deleted before in whatever order, the end is as if the sources had
// only ever wanted what they want in the end.
func TestAnyOrderOfChangesEndsTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			withController(func(b *bed) {
				now := []Source{source(t, "first"), source(t, "second")}
				for range rapid.IntRange(1, 20).Draw(r, "steps") {
					i := rapid.IntRange(0, 1).Draw(r, "source")
					next := now[i]
					next.Items = maps.Clone(next.Items)
					for key, item := range source(t, "", anyItem.Draw(r, "item")).Items {
						switch rapid.SampledFrom([]string{"put", "put", "spoil", "delete"}).Draw(r,
							"what") {
						case "put":
							next.Items[key] = item
						case "spoil":
							next.Items[key] = DecodeJSON(key, []byte("{"), next.Items[key])
						case "delete":
							delete(next.Items, key)
						}
					}
					now[i] = next
					b.adapters[i].tell(next, 0)
					if rapid.Bool().Draw(r, "away") {
						b.fib.change(func() { b.fib.away = "away" })
					}
					if rapid.Bool().Draw(r, "Linux is away") {
						b.linux.change(func() { b.linux.away = "away" })
					}
					time.Sleep(time.Duration(rapid.IntRange(0, 1500).Draw(r, "ms")) *
						time.Millisecond)
					b.fib.change(func() { b.fib.away = "" })
					b.linux.change(func() { b.linux.away = "" })
				}
				for i, a := range b.adapters {
					a.tell(now[i], 0)
				}
				time.Sleep(time.Minute)
				plan, linux := Merge(now, notLinux), Merge(now, onlyLinux)
				found, _ := b.fib.Find(plan.Keys())
				links := b.fib.Facts().Interfaces
				want := slices.Concat(Judge(plan, Facts{Entries: found, Objects: b.fib.Objects(),
					Interfaces: links}), Judge(linux, Facts{Entries: []fib.Entry{},
					Objects: b.linux.Objects(), Interfaces: links}))
				b.sort(want)
				if got := keysOf(b.linux.Objects()); got != keysOf(entriesOf(linux.Objects)) {
					r.Errorf("objects of Linux %s, want %v", got, linux.Objects)
				}
				if got := b.routes(); got != fmt.Sprint(plan.Routes) {
					r.Errorf("routes %s, want %v", got, plan.Routes)
				}
				if got := b.Verdicts(); !slices.EqualFunc(got, want, Verdict.Equal) {
					r.Errorf("verdicts\n%swant\n%s", printed(got), printed(want))
				}
				obey(r, now, plan)
			})
		})
	})
}

func entriesOf(objects []route.Object) (all []fib.Entry) {
	for _, o := range objects {
		all = append(all, fib.Entry{Object: o.Key()})
	}
	return all
}

func keysOf(all []fib.Entry) string {
	var keys []string
	for _, e := range all {
		keys = append(keys, e.Object.String())
	}
	return strings.Join(keys, "; ")
}

// obey checks the rules about who wins, said plainly.
func obey(r *rapid.T, sources []Source, plan Plan) {
	for _, got := range plan.Routes {
		for _, s := range sources {
			wants := map[route.Path]bool{}
			drops := false
			for _, i := range s.Items {
				p := plannedOf(s.Name, i)
				if p.isRoute && p.key == got.Key {
					wants[p.path], drops = true, drops || p.kind == route.Drop
				}
			}
			if len(wants) == 0 {
				continue
			}
			for _, path := range got.Paths {
				if !wants[path] {
					r.Errorf("%v has a path of another source than %s", got, s.Name)
				}
			}
			if got.Kind == route.Drop && !drops {
				r.Errorf("%v: source %s has the say and wants no drop", got, s.Name)
			}
			break
		}
	}
}
