package kernel

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// agent is a FIB engine on the kernel, as one process of ours has it.
func agent(t *testing.T, b *bed, c fib.Config) (*fib.Engine, *Dataplane, func()) {
	t.Helper()
	d, closeDataplane := open(t, Config{Namespace: b.ns.Path()})
	c.Dataplane, c.Log = d, slog.New(slog.NewTextHandler(t.Output(), nil))
	e := fib.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return e, d, func() {
		cancel()
		check(t, <-ended)
		closeDataplane()
	}
}

// TestTheNextProcessFollowsRecursiveNextHops: it trusts the journal, writes nothing, takes nothing
// for drift, and follows the routes that the next hops resolve through, also when they have changed
// while no process was there.
func TestTheNextProcessFollowsRecursiveNextHops(t *testing.T) {
	for name, c := range map[string]struct {
		between func(b *bed)
		gateway string // once the process has settled
	}{
		"nothing has changed": {func(*bed) {}, "via 10.0.1.2 dev eth1"},
		"the way to the next hop has": {func(b *bed) {
			b.ip("route replace 172.16.0.0/16 via 10.0.2.2")
		}, "via 10.0.2.2 dev eth2"},
		"somebody has changed it meanwhile": {func(b *bed) {
			b.ip("route replace 198.18.1.0/24 via 10.0.2.2 proto 179 metric 1050")
		}, "via 10.0.1.2 dev eth1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, node, _ := newNamespaces(t)
			b := &bed{t: t, ns: node}
			b.ip("route add 172.16.0.0/16 via 10.0.1.2")
			config := fib.Config{Journal: filepath.Join(t.TempDir(), "journal"),
				Tuning: fib.Tuning{SpotChecks: 1000, RepairDrift: true}}
			desired := via("198.18.1.0/24", "172.16.0.1")

			e, _, stop := agent(t, b, config)
			e.Learn(desired.Prefix, desired.Paths)
			eventually(t, "the route is programmed", func() bool { return e.Stats().Put == 1 })
			stop()
			c.between(b)

			e, d, stop := agent(t, b, config)
			defer stop()
			eventually(t, "the journal is read", func() bool {
				return e.Stats().Adopted == "journal"
			})
			e.Learn(desired.Prefix, desired.Paths)
			programmed := func(gateway string) func() bool {
				return func() bool {
					return strings.Contains(b.ip("route show 198.18.1.0/24"), gateway)
				}
			}
			eventually(t, "it reads as it was put", func() bool {
				r, ok, err := d.Lookup(t.Context(), desired.Key)
				return err == nil && ok &&
					r.SameForwarding(route.Route{Key: desired.Key, Paths: desired.Paths})
			})
			eventually(t, c.gateway, programmed(c.gateway))
			checked := e.Stats().Drift.Checked
			eventually(t, "it is compared", func() bool {
				return e.Stats().Drift.Checked > checked
			})
			if s := e.Stats(); s.Put != 0 || s.Drift.Different != 0 || s.Drift.Missing != 0 {
				t.Errorf("%d routes put, drift %+v", s.Put, s.Drift)
			}
			b.ip("route replace 172.16.0.0/16 via 10.0.2.3")
			eventually(t, "the route follows", programmed("via 10.0.2.3 dev eth2"))
		})
	}
}

// TestTheNextProcessKnowsWhatCarriesNextHops: the route to the peer is not written again, and
// routes learned after the restart resolve through it.
func TestTheNextProcessKnowsWhatCarriesNextHops(t *testing.T) {
	_, node, _ := newNamespaces(t)
	b := &bed{t: t, ns: node}
	config := fib.Config{Journal: filepath.Join(t.TempDir(), "journal")}
	peer := via("172.16.0.1/32", "10.0.1.2")
	first, second := via("198.18.1.0/24", "172.16.0.1"), via("198.18.2.0/24", "172.16.0.1")
	programmed := func(want int, gateway string) func() bool {
		return func() bool { return strings.Count(b.ip("route show proto 179"), gateway) == want }
	}

	e, _, stop := agent(t, b, config)
	e.SetRoutes(route.Own, []route.Route{peer})
	e.Learn(first.Prefix, first.Paths)
	eventually(t, "both are programmed", programmed(2, "via 10.0.1.2 dev eth1"))
	stop()

	e, d, stop := agent(t, b, config)
	defer stop()
	e.SetRoutes(route.Own, []route.Route{peer})
	e.Learn(first.Prefix, first.Paths)
	eventually(t, "it is recalled", func() bool {
		d.writing.Lock()
		defer d.writing.Unlock()
		return d.carriers[peer.Key]
	})
	e.Learn(second.Prefix, second.Paths)
	eventually(t, "the second one is programmed", programmed(3, "via 10.0.1.2 dev eth1"))
	if s := e.Stats(); s.Put != 1 || s.Errors != 0 {
		t.Errorf("%d put, %d refused: %v", s.Put, s.Errors, s.Refusal)
	}
	e.SetRoutes(route.Own, []route.Route{via("172.16.0.1/32", "10.0.2.2")})
	eventually(t, "both follow", programmed(3, "via 10.0.2.2 dev eth2"))
}

// TestRecallWritesNothingThatIsThere, nor what is not: that is drift.
func TestRecallWritesNothingThatIsThere(t *testing.T) {
	b := newBed(t)
	recursive, attached, missing := via("198.18.1.0/24", "10.0.1.2"),
		via("198.18.2.0/24", "10.0.1.2 eth1"), via("198.18.3.0/24", "10.0.1.2")
	b.apply(put(recursive, attached))
	next := &bed{t: t, ns: b.ns, Dataplane: start(t, Config{Namespace: b.ns.Path()})}
	requests := next.writer.seq
	check(t, next.Recall(t.Context(), []route.Route{recursive, attached, missing}))
	next.want(recursive, attached)
	if next.writer.seq != requests {
		t.Errorf("%d requests to change the FIB", next.writer.seq-requests)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if err := next.Recall(ctx, []route.Route{recursive}); err == nil {
		t.Error("no error after the end of ctx")
	}
}

// TestRecallKeepsNothingThatNoNextHopResolvesTo shows that a route which somebody made a
// prohibition, while no agent ran and its next hop could not be resolved, is not taken for what it
// was put as: it is drift.
func TestRecallKeepsNothingThatNoNextHopResolvesTo(t *testing.T) {
	b := newBed(t)
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	recursive := via("198.18.1.0/24", "172.16.0.1")
	b.apply(put(recursive))
	b.ip("route del 172.16.0.0/16")
	b.ip("route del 198.18.1.0/24 proto 179 metric 1050")
	b.ip("route add prohibit 198.18.1.0/24 proto 179 metric 1050")
	next := &bed{t: t, ns: b.ns, Dataplane: start(t, Config{Namespace: b.ns.Path()})}
	check(t, next.Recall(t.Context(), []route.Route{recursive}))
	got, ok, err := next.Lookup(t.Context(), recursive.Key)
	if err != nil || !ok || got.Kind != route.Prohibit {
		t.Errorf("%v, %v, %v; want the prohibition that is there", got, ok, err)
	}
}
