package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/route"
)

// counters asks what routes have forwarded: all of them, for which VPP lists them, and as many as
// are looked up. Then it has the agent answer `routes`, with and without.
func counters(l *lab) error {
	b, p := l.b, l.plane
	c, err := p.connect(b.ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	e := c.engine(b.ctx, "")
	defer e.stop()
	prefixes := hostPrefixes(b.pick(100_000, 20_000))
	if _, err := e.learn(b.ctx, prefixes, []route.Path{{NextHop: hops[0]}}); err != nil {
		return err
	}
	keys := make([]route.Key, len(prefixes))
	for i, p := range prefixes {
		keys[i].Prefix = p
	}
	answers := agent.New(agent.Config{Dataplane: "vpp", FIB: e.Engine, Counter: c,
		Log: discard}).AdminHandler()

	var counted, looked, listed, shown, shownCounted series
	count := func(keys []route.Key) func() error {
		return func() error {
			got, err := c.CountRoutes(b.ctx, keys)
			if err == nil && len(got) != len(keys) {
				err = fmt.Errorf("%d of %d routes are counted", len(got), len(keys))
			}
			return err
		}
	}
	list := func() error {
		_, err := c.Routes(b.ctx)
		return err
	}
	show := func(query string) func() error {
		return func() error {
			w := unread{header: http.Header{}}
			answers.ServeHTTP(&w, httptest.NewRequest(http.MethodGet, "/v1/routes"+query, nil))
			if w.failed {
				return errors.New("the agent does not list its routes")
			}
			return nil
		}
	}
	err = rounds(b.pick(9, 5), timed(&counted, count(keys)), timed(&listed, list),
		timed(&looked, count(keys[:route.MaxLookups])),
		timed(&shown, show("")), timed(&shownCounted, show("?counters=true")))
	if err != nil {
		return err
	}
	on := fmt.Sprintf("%d /32s on %s, %d rounds", len(keys), p.name, len(counted))
	b.compare("counters: all routes", "ms", counted, "the routes listed, without", listed,
		b.quiet(p.limit(atMost(1.5))), on)
	b.single(fmt.Sprintf("counters: %d routes, looked up", route.MaxLookups), "ms",
		looked.median(), noBudget, on)
	b.compare("counters: the answer to `routes --counters`", "ms", shownCounted,
		"to `routes`", shown, noBudget, "")
	_, err = e.learn(b.ctx, prefixes, nil)
	return err
}

// timed adds the milliseconds that f takes.
func timed(s *series, f func() error) func() error {
	return func() error {
		began := time.Now()
		err := f()
		*s = append(*s, time.Since(began).Seconds()*1000)
		return err
	}
}

// unread is an answer that nobody reads.
type unread struct {
	header http.Header
	failed bool
}

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) Write(b []byte) (int, error) { return io.Discard.Write(b) }
func (u *unread) WriteHeader(status int)      { u.failed = status != http.StatusOK }
