package main

import (
	"fmt"
	"time"

	"vpp-route-agent/internal/route"
)

// counters asks what routes have forwarded: all of them, for which VPP lists them, and as many as
// are looked up.
func counters(l *lab) error {
	b, p := l.b, l.plane
	c, err := p.connect(b.ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	ops := attachedOps(hostPrefixes(b.pick(100_000, 20_000)), hops[0])
	keys := make([]route.Key, len(ops))
	for i, op := range ops {
		keys[i] = op.Route.Key
	}
	if _, err := c.apply(b.ctx, ops); err != nil {
		return err
	}
	timed := func(s *series, f func() (n int, err error), want int) func() error {
		return func() error {
			began := time.Now()
			n, err := f()
			if err == nil && n != want {
				err = fmt.Errorf("%d of %d routes", n, want)
			}
			*s = append(*s, time.Since(began).Seconds()*1000)
			return err
		}
	}
	var counted, looked, listed series
	count := func(keys []route.Key) func() (int, error) {
		return func() (int, error) {
			got, err := c.CountRoutes(b.ctx, keys)
			return len(got), err
		}
	}
	list := func() (int, error) {
		got, err := c.Routes(b.ctx)
		return len(got), err
	}
	err = rounds(b.pick(9, 5), timed(&counted, count(keys), len(keys)),
		timed(&listed, list, len(keys)),
		timed(&looked, count(keys[:route.MaxLookups]), route.MaxLookups))
	if err != nil {
		return err
	}
	on := fmt.Sprintf("%d /32s on %s, %d rounds", len(keys), p.name, len(counted))
	b.compare("counters: all routes", "ms", counted, "the routes listed, without", listed,
		b.quiet(p.limit(atMost(1.5))), on)
	b.single(fmt.Sprintf("counters: %d routes, looked up", route.MaxLookups), "ms",
		looked.median(), noBudget, on)
	_, err = c.apply(b.ctx, deletions(ops))
	return err
}
