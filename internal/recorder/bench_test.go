package recorder

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// blockOf is the i-th /26 of a large cluster, in which nodes have 16 in a row, and its path.
func blockOf(i int) fib.BestPaths {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 20<<24+uint32(i)<<6)
	n := i / 16 % 1000
	hop := netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)})
	return fib.BestPaths{Prefix: netip.PrefixFrom(netip.AddrFrom4(a), 26),
		Paths: []route.Path{{NextHop: hop, Weight: 1}}}
}

// loaded is an engine with so many routes, and a recorder that does not run yet.
func loaded(b testing.TB, dir string, routes int) (r *Recorder, e *fib.Engine, stop func()) {
	p := &plane{facts: make(chan route.Facts, 1)}
	r = New(Config{Dir: dir, Size: 256 << 20, Log: slog.New(slog.DiscardHandler)})
	e = fib.New(fib.Config{Dataplane: p, Recorder: r, Log: r.cfg.Log})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	facts := route.Facts{Identity: "1", Interfaces: []route.Interface{{Name: "eth0", Index: 1,
		Up: true, Addresses: []netip.Prefix{pfx("172.16.255.254/16")}}}}
	p.tell(facts)
	e.Set(fib.Wanted{})
	for i := range routes {
		e.Learn(blockOf(i))
	}
	programmed(e, routes)
	r.mu.Lock()
	r.queue, r.stats, r.inputs = queue{}, Stats{}, inputs{} // the checkpoint will say the rest
	r.mu.Unlock()
	r.Facts(r.At(time.Now()), facts)
	return r, e, func() { cancel(); running.Wait() }
}

// programmed waits until so much has been put.
func programmed(e *fib.Engine, puts int) {
	for e.Stats().Put < uint64(puts) {
		runtime.Gosched()
	}
}

// BenchmarkCheckpoint is how large a checkpoint is, how long it takes, and for how long it keeps
// the engine from work at once. Then replay reads it and 20 000 changes.
func BenchmarkCheckpoint(b *testing.B) {
	for _, n := range []int{100_000, 300_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				checkpoint(b, b.TempDir(), n)
			}
		})
	}
}

func checkpoint(b *testing.B, dir string, n int) {
	const changes = 20_000
	r, e, stop := loaded(b, dir, n)
	defer stop()
	var held time.Duration
	done := make(chan time.Time)
	r.Checkpoints(func(pause func() bool) {
		var since time.Time // when a part began
		e.Checkpoint(func() bool {
			if !since.IsZero() {
				held = max(held, time.Since(since))
			}
			more := pause()
			since = time.Now()
			return more
		})
		done <- time.Now()
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	began := time.Now()
	r.Settled(r.At(began))
	took := (<-done).Sub(began)
	for r.Stats().Written < uint64(2*n) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(took.Seconds(), "s/checkpoint")
	b.ReportMetric(float64(r.Stats().Bytes)/1e6, "MB")
	b.ReportMetric(float64(r.Stats().Bytes)/float64(n), "B/route")
	b.ReportMetric(float64(held.Microseconds())/1e3, "ms-held")
	for i := range changes {
		c := blockOf(i)
		c.Paths = blockOf(i + 16).Paths // of the next node
		e.Learn(c)
		programmed(e, n+i+1)
	}
	cancel()
	running.Wait()
	began = time.Now()
	got, problems, err := Replay(dir, noPlanner)
	if err != nil || len(problems) > 0 || !got.OK() || got.Runs[0].Keys != n {
		b.Fatalf("%.2000v, %v, %v", fmt.Sprint(got), problems, err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/replay")
	b.ReportMetric(float64(got.Runs[0].Compared), "compared")
}
