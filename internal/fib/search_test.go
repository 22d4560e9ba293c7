package fib

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// filled is an engine over the null data plane that has n host routes, 20.0.0.0 and on, each via
// one of 200 next hops.
func filled(t testing.TB, n int) *Engine {
	d := null{facts: make(chan route.Facts, 1)}
	d.facts <- node("a")
	e := New(Config{Dataplane: d, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	for i := range n {
		a := netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
		e.Learn(BestPaths{Prefix: netip.PrefixFrom(a, 32),
			Paths: via(fmt.Sprintf("10.0.0.%d", 2+i%200))})
	}
	for e.Stats().Put < uint64(n) {
		time.Sleep(100 * time.Microsecond)
	}
	return e
}

// Pages that follow each other are the whole list, by key, without a gap and nothing twice.
func TestSearchGoesOnAfterAKey(t *testing.T) {
	e := filled(t, 5000)
	all := e.Entries(netip.Prefix{})
	hop := netip.MustParseAddr("10.0.0.9")
	for name, tc := range map[string]struct {
		match func(Entry) bool
		page  int
	}{
		"all":           {func(Entry) bool { return true }, 999},
		"by a next hop": {func(x Entry) bool { return x.Paths[0].NextHop == hop }, 7},
		"by state":      {func(x Entry) bool { return x.State == Failed }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got []route.Key
			for _, x := range all {
				if tc.match(x) {
					want = append(want, x.Key)
				}
			}
			for after := (route.Key{}); ; {
				page, count := e.Search(after, tc.page, tc.match)
				if count != len(want) {
					t.Fatalf("%d in all, want %d", count, len(want))
				}
				for _, x := range page {
					if x.State != Programmed || len(x.Paths) != 1 {
						t.Fatalf("%+v", x)
					}
					got, after = append(got, x.Key), x.Key
				}
				if len(page) < tc.page {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d routes, want %d", len(got), len(want))
			}
		})
	}
	if none, count := e.Search(route.Key{}, 0, func(Entry) bool { return true }); count != 5000 ||
		len(none) != 0 {
		t.Errorf("only counted: %d, and %d returned", count, len(none))
	}
}

// BenchmarkSearch is one page of a table of -routes.
func BenchmarkSearch(b *testing.B) {
	e := filled(b, *benchRoutes)
	hop := netip.MustParseAddr("10.0.0.9")
	for b.Loop() {
		if found, _ := e.Search(route.Key{}, 100, func(x Entry) bool {
			return x.Paths[0].NextHop == hop
		}); len(found) != 100 {
			b.Fatal(len(found))
		}
	}
}

// Who goes through a list slowly holds up nothing, and finds entries as they are then.
func TestListIsReadAPieceAtATime(t *testing.T) {
	e := filled(t, 3*chunk)
	n := 0
	for x := range e.List(netip.Prefix{}) {
		if n++; n == 1 {
			e.Learn(BestPaths{Prefix: x.Key.Prefix})
			last := netip.AddrFrom4([4]byte{20, 0, byte((3*chunk - 1) >> 8), 255})
			e.Learn(BestPaths{Prefix: netip.PrefixFrom(last, 32)})
			for e.Stats().Deleted < 2 {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	if n != 3*chunk-1 {
		t.Errorf("%d entries: the first, which had been reached, and all but the last are %d", n,
			3*chunk-1)
	}
}
