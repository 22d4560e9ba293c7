package fib

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

var benchRoutes = flag.Int("routes", 100_000,
	"routes in BenchmarkEngine; the budget is stated at 1000000")

// null is a data plane that says yes and keeps nothing.
type null struct {
	Dataplane // no objects
	facts     chan route.Facts
}

func (d null) Facts() <-chan route.Facts                     { return d.facts }
func (d null) Routes(context.Context) ([]route.Route, error) { return nil, nil }
func (d null) Lookup(context.Context, route.Key) (route.Route, bool, error) {
	return route.Route{}, false, nil
}
func (d null) Resolve(context.Context, uint32, netip.Addr) (route.Resolution, error) {
	return route.Resolution{}, nil
}
func (d null) Apply(_ context.Context, ops []route.Op, done func(int, error)) error {
	for i := range ops {
		done(i, nil)
	}
	return nil
}

// BenchmarkEngine fills an engine over the null data plane, with a journal on disk, and prints what
// a route costs; then it measures single changes on the idle engine, and a restart from the
// journal.
func BenchmarkEngine(b *testing.B) {
	n := *benchRoutes
	var journal string
	sets := make([][]route.Path, 200)
	for i := range sets {
		sets[i] = via(fmt.Sprintf("10.0.0.%d", 2+i), fmt.Sprintf("10.0.1.%d", 2+i))[:1+i%2]
	}
	prefix := func(i int) netip.Prefix {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 20<<24+uint32(i))
		return netip.PrefixFrom(netip.AddrFrom4(a), 32)
	}
	launch := func() (*Engine, func()) {
		d := null{facts: make(chan route.Facts, 1)}
		d.facts <- node("a")
		e := New(Config{Dataplane: d, Journal: journal, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { e.Run(ctx); close(done) }()
		return e, func() { cancel(); <-done }
	}
	until := func(cond func(Stats) bool, e *Engine) {
		for !cond(e.Stats()) {
			time.Sleep(100 * time.Microsecond)
		}
	}
	for b.Loop() {
		// else nothing would be left to put in the second round
		journal = filepath.Join(b.TempDir(), "journal")
		before := heapBytes()
		e, stop := launch()
		began := time.Now()
		for i := range n {
			e.Learn(BestPaths{Prefix: prefix(i), Paths: sets[i%len(sets)]})
		}
		handed := time.Since(began)
		until(func(s Stats) bool { return s.Put >= uint64(n) }, e)
		b.ReportMetric(float64(n)/time.Since(began).Seconds(), "routes/s")
		b.ReportMetric(float64(handed.Nanoseconds())/float64(n), "ns/Learn")
		b.ReportMetric(float64(heapBytes()-before)/float64(n), "B/route")

		var single []time.Duration
		for i := range 2000 {
			put := e.Stats().Put
			began := time.Now()
			e.Learn(BestPaths{Prefix: prefix(i), Paths: sets[(i+1)%len(sets)]})
			for e.Stats().Put == put {
				runtime.Gosched()
			}
			single = append(single, time.Since(began))
		}
		slices.Sort(single)
		b.ReportMetric(float64(single[len(single)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(single[len(single)*99/100].Microseconds()), "p99-µs")
		stop()

		e, stop = launch()
		began = time.Now()
		until(func(s Stats) bool { return s.Present }, e)
		b.ReportMetric(time.Since(began).Seconds()*1000, "adopt-ms")
		if s := e.Stats(); s.Adopted != "journal" || s.AdoptedRoutes != n {
			b.Fatalf("adopted %d from %q", s.AdoptedRoutes, s.Adopted)
		}
		stop()
		runtime.KeepAlive(e)
	}
}

// withObjects is a null data plane that keeps objects, and is asked and told one at a time.
type withObjects struct {
	null
	there sync.Map // route.ObjectKey → route.Object
}

func (d *withObjects) Object(_ context.Context, k route.ObjectKey) (route.Object, error) {
	o, _ := d.there.Load(k)
	found, _ := o.(route.Object)
	return found, nil
}

func (d *withObjects) PutObject(_ context.Context, o route.Object) error {
	d.there.Store(o.Key(), o)
	return nil
}

func (d *withObjects) DeleteObject(_ context.Context, k route.ObjectKey) error {
	d.there.Delete(k)
	return nil
}

// BenchmarkObjects makes neighbours, has others in their place, and deletes them. What one of them
// takes is not to grow with their number.
func BenchmarkObjects(b *testing.B) {
	for _, n := range []int{1000, 4000, 16_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				benchObjects(b, n)
			}
		})
	}
}

func benchObjects(b *testing.B, n int) {
	d := &withObjects{null: null{facts: make(chan route.Facts, 1)}}
	d.facts <- node("a")
	e := New(Config{Dataplane: d, Journal: filepath.Join(b.TempDir(), "journal"),
		Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	turn := func(what string, from, to int) {
		var w Wanted
		all := &w.Sources[route.External]
		for i := from; i < to; i++ {
			all.Objects = append(all.Objects, route.Neighbour{Interface: "eth0",
				Address: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}),
				MAC:     "02:fe:00:00:00:01"})
		}
		all.Complete = true
		began := time.Now()
		e.Set(w)
		for missing := true; missing; {
			time.Sleep(time.Millisecond)
			left := 0
			d.there.Range(func(any, any) bool { left++; return true })
			missing = left != to-from || slices.ContainsFunc(all.Objects,
				func(o route.Object) bool { _, ok := d.there.Load(o.Key()); return !ok })
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/float64(n), "µs/"+what)
	}
	turn("put", 0, n)
	turn("replaced", n, 2*n)
	turn("deleted", 0, 0)
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
