package dataplanetest

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// patience is how long anything but the bulk cases may take, on a busy machine.
const patience = time.Minute

// bench is the data plane with the suite's short words for it. It lives through all cases.
type bench struct {
	*Setup
	facts  *factsReader
	starts bool // what apply did last
}

// factsReader keeps the newest facts of a data plane.
type factsReader struct {
	plane fib.Dataplane
	last  route.Facts
}

// await reads facts until ok holds.
func (f *factsReader) await(t *testing.T, what string, ok func(route.Facts) bool) route.Facts {
	t.Helper()
	deadline := time.After(patience)
	for !ok(f.last) {
		select {
		case f.last = <-f.plane.Facts():
		case <-deadline:
			t.Fatalf("%s: not within %s; facts are %+v", what, patience, f.last)
		}
	}
	return f.last
}

func newBench(t *testing.T, s *Setup) *bench {
	b := &bench{Setup: s}
	b.use(t, s.Dataplane)
	return b
}

// use turns to d and waits until it is there.
func (b *bench) use(t *testing.T, d fib.Dataplane) {
	t.Helper()
	b.Dataplane = d
	b.facts = &factsReader{plane: d}
	b.present(t)
}

// present waits until the data plane is there with both interfaces.
func (b *bench) present(t *testing.T) route.Facts {
	t.Helper()
	return b.facts.await(t, "data plane with two interfaces", func(f route.Facts) bool {
		for _, i := range b.Interfaces {
			if got, ok := f.Interface(i.Name); !ok || !got.Up || len(got.Addresses) < 2 {
				return false
			}
		}
		return f.Identity != ""
	})
}

func (b *bench) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// apply carries out ops, every second time by Start where that is provided, and returns the error
// of each.
func (b *bench) apply(t *testing.T, ops ...route.Op) []error {
	t.Helper()
	errs, calls := make([]error, len(ops)), make([]int, len(ops))
	done := func(i int, err error) {
		errs[i] = err
		calls[i]++
	}
	ended := make(chan error, 1)
	starter, ok := b.Dataplane.(fib.Starter)
	b.starts = !b.starts
	if !ok || !b.starts || !starter.Start(ops, done, func(err error) { ended <- err }) {
		ended <- b.Dataplane.Apply(b.context(t), ops, done)
	}
	if err := <-ended; err != nil {
		t.Fatalf("apply: %v", err)
	}
	for i, n := range calls {
		if n != 1 {
			t.Fatalf("op %d (%v): done was called %d times", i, ops[i], n)
		}
	}
	return errs
}

// mustApply fails the test when any op was refused.
func (b *bench) mustApply(t *testing.T, ops ...route.Op) {
	t.Helper()
	for i, err := range b.apply(t, ops...) {
		if err != nil {
			t.Fatalf("op %d (%v): %v", i, ops[i], err)
		}
	}
}

func (b *bench) put(t *testing.T, rs ...route.Route) {
	t.Helper()
	b.mustApply(t, puts(rs...)...)
}

func (b *bench) delete(t *testing.T, ks ...route.Key) {
	t.Helper()
	b.mustApply(t, deletes(ks...)...)
}

// has fails the test unless Routes shows exactly want, and Lookup the same.
func (b *bench) has(t *testing.T, want ...route.Route) {
	t.Helper()
	got, err := b.Dataplane.Routes(b.context(t))
	if err != nil {
		t.Fatalf("routes: %v", err)
	}
	found := map[route.Key]route.Route{}
	for _, r := range got {
		if _, twice := found[r.Key]; twice {
			t.Errorf("routes shows %s twice", r.Key)
		}
		found[r.Key] = r
	}
	for _, w := range want {
		if g, ok := found[w.Key]; !ok {
			t.Errorf("routes lacks %s", w)
		} else if !g.SameForwarding(w) {
			t.Errorf("put  %#v\nread %#v", w, g)
		}
		delete(found, w.Key)
	}
	for _, g := range found {
		t.Errorf("routes shows %s, which nobody put", g)
	}
	if len(want) > 100 {
		return // one by one would take long
	}
	for _, w := range want {
		if g, ok := b.lookup(t, w.Key); !ok || !g.SameForwarding(w) {
			t.Errorf("lookup of %s: %v, %t", w, g, ok)
		}
	}
}

// lookup: what another's route hides may not be seen.
func (b *bench) lookup(t *testing.T, k route.Key) (route.Route, bool) {
	t.Helper()
	r, ok, err := b.Dataplane.Lookup(b.context(t), k)
	if errors.As(err, &route.HiddenError{}) {
		return r, ok
	}
	if err != nil {
		t.Fatalf("lookup %s: %v", k, err)
	}
	return r, ok
}

// resolve leaves out the neighbours, which not every data plane names, and the owner, whom each
// names in its own words.
func (b *bench) resolve(t *testing.T, a netip.Addr) route.Resolution {
	t.Helper()
	r, err := b.Dataplane.Resolve(b.context(t), 0, a)
	if err != nil {
		t.Fatalf("resolve %s: %v", a, err)
	}
	r.Paths, r.Owner = nil, ""
	return r
}

// leaves fails the test unless packets that match r's entry leave by these interfaces, in this
// proportion.
func (b *bench) leaves(t *testing.T, k route.Key, want map[string]int) {
	t.Helper()
	if got := b.Egress(t, k); !maps.Equal(got, want) {
		t.Errorf("packets to %s leave by %v, want %v", k, got, want)
	}
}

// comesToLeave is leaves for a change that a data plane may take a moment to follow.
func (b *bench) comesToLeave(t *testing.T, k route.Key, want map[string]int) {
	t.Helper()
	for end := time.Now().Add(patience); !maps.Equal(b.Egress(t, k), want) &&
		time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	b.leaves(t, k, want)
}

// by is all packets through the n-th interface.
func (b *bench) by(n int) map[string]int { return map[string]int{b.Interfaces[n].Name: 1} }

// tables lists what tables there are, where that is known.
func (b *bench) tables(t *testing.T) []uint32 {
	if _, lacks := b.Lacks[Tables]; lacks {
		return nil
	}
	return b.Tables(t)
}

// in puts r into another table.
func in(table uint32, r route.Route) route.Route {
	r.Table = table
	return r
}

// v4 and v6 return a neighbour address on the n-th interface.
func (b *bench) v4(n int, host byte) netip.Addr { return neighbour(b.Interfaces[n].V4, host) }
func (b *bench) v6(n int, host byte) netip.Addr { return neighbour(b.Interfaces[n].V6, host) }

func neighbour(p netip.Prefix, host byte) netip.Addr {
	a := p.Masked().Addr()
	for range host {
		a = a.Next()
	}
	return a
}

// via is a path to a neighbour on the n-th interface.
func (b *bench) via(n int, next netip.Addr) route.Path {
	return route.Path{NextHop: next, Interface: b.Interfaces[n].Name, Weight: 1}
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func key(s string) route.Key    { return route.Key{Prefix: pfx(s)} }
func to(s string, paths ...route.Path) route.Route {
	return route.Route{Key: key(s), Paths: route.CanonicalPaths(paths)}
}
func sink(s string, k route.Kind) route.Route { return route.Route{Key: key(s), Kind: k} }

func puts(rs ...route.Route) []route.Op {
	ops := make([]route.Op, len(rs))
	for i, r := range rs {
		ops[i] = route.Op{Route: r}
	}
	return ops
}

func deletes(ks ...route.Key) []route.Op {
	ops := make([]route.Op, len(ks))
	for i, k := range ks {
		ops[i] = route.Op{Delete: true, Route: route.Route{Key: k}}
	}
	return ops
}
