package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// null is a data plane that says yes and keeps nothing: what is measured with it is the engine
// alone.
type null struct {
	fib.Dataplane // no objects
	facts         chan route.Facts
}

func newNull() null {
	d := null{facts: make(chan route.Facts, 1)}
	d.facts <- route.Facts{Identity: "null", Interfaces: []route.Interface{
		{
			Name: planeLink, Index: 1, Up: true,
			Addresses: []netip.Prefix{netip.MustParsePrefix(planeAddress)},
		},
	}}
	return d
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

// equalSets hands a million routes to the engine that it has already, and lets a new engine take
// them over from the journal: in both cases a million desired routes are compared with those
// programmed, and nothing is to be done.
func equalSets(b *bench) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	journal := filepath.Join(dir, "journal")
	prefixes := hostPrefixes(b.pick(1_000_000, 200_000))
	paths := []route.Path{{NextHop: hops[0]}}
	e := runEngine(b.ctx, newNull(), journal)
	fill, err := e.learn(b.ctx, prefixes, paths)
	if err != nil {
		e.stop()
		return err
	}
	var fills, same, restarts series
	for range b.pick(5, 3) {
		took, err := e.same(b.ctx, prefixes, paths)
		if err != nil {
			e.stop()
			return err
		}
		fills = append(fills, fill.Seconds())
		same = append(same, took.Seconds())
	}
	e.stop()
	for range b.pick(3, 2) {
		began := time.Now()
		e := runEngine(b.ctx, newNull(), journal)
		_, err := e.same(b.ctx, prefixes, paths)
		restarts = append(restarts, time.Since(began).Seconds())
		s := e.Stats()
		e.stop()
		if err != nil {
			return err
		}
		if s.Adopted != "journal" || s.AdoptedRoutes != len(prefixes) {
			return fmt.Errorf("adopted %d routes by %q", s.AdoptedRoutes, s.Adopted)
		}
	}
	on := fmt.Sprintf("%d routes, engine alone", len(prefixes))
	b.compare("compare equal sets", "s", same, "the fill", fills, noBudget, on)
	b.compare("compare equal sets after a restart, from the journal", "s", restarts, "the fill",
		fills[:len(restarts)], noBudget, on)
	return nil
}

// same hands over what is there already, and then one route that is new as a mark, and takes it
// away again.
func (e *engine) same(
	ctx context.Context, prefixes []netip.Prefix, paths []route.Path,
) (time.Duration, error) {
	mark := netip.MustParsePrefix("19.0.0.0/32")
	before := e.Stats()
	began := time.Now()
	for _, p := range prefixes {
		e.Learn(fib.BestPaths{Prefix: p, Paths: paths})
	}
	if _, err := e.learn(ctx, []netip.Prefix{mark}, paths); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if put := e.Stats().Put - before.Put; put != 1 {
		return 0, fmt.Errorf("%d writes for equal sets", put-1)
	}
	_, err := e.learn(ctx, []netip.Prefix{mark}, nil)
	return took, err
}
