package kernel

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

// agent is a FIB engine on the kernel, as one process of ours has it.
func agent(t *testing.T, b *bed, c fib.Config) (e *fib.Engine, stop func()) {
	t.Helper()
	d, closeDataplane := open(t, Config{Namespace: b.ns.Path()})
	e, end := engineOn(t, d, c)
	return e, func() {
		end()
		closeDataplane()
	}
}

func engineOn(t *testing.T, d *Dataplane, c fib.Config) (e *fib.Engine, stop func()) {
	t.Helper()
	c.Dataplane, c.Log = d, testlog.New(t)
	e = fib.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return e, func() {
		cancel()
		check(t, <-ended)
	}
}

func learn(e *fib.Engine, routes ...route.Route) {
	for _, r := range routes {
		e.Learn(fib.BestPaths{Prefix: r.Prefix, Paths: r.Paths})
	}
}

// own makes these routes all that this node itself wants.
func own(e *fib.Engine, routes ...route.Route) {
	w := fib.Wanted{Complete: true}
	w.Sources[route.Own].Routes = routes
	e.Set(w)
}

// goes reports whether the entry of a prefix has these words.
func (b *bed) goes(prefix string, words ...string) func() bool {
	return func() bool {
		family := "-4 "
		if strings.Contains(prefix, ":") {
			family = "-6 "
		}
		entry := b.ip(family + "route show " + prefix + " proto 179")
		for _, w := range words {
			if !strings.Contains(entry, w) {
				return false
			}
		}
		return entry != ""
	}
}

func TestRecursiveNextHopFollowsTheOtherRoutes(t *testing.T) {
	_, node, _ := newNamespaces(t)
	b := &bed{t: t, ns: node}
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	b.ip("route add fd99::/64 via fd00:1::2")
	e, stop := agent(t, b, fib.Config{})
	defer stop()
	learn(e, via("198.18.1.0/24", "172.16.0.1"))
	learn(e, via("2001:db8::/48", "fd99::1"))
	eventually(t, "IPv4", b.goes("198.18.1.0/24", "via 10.0.1.2 dev eth1"))
	eventually(t, "IPv6", b.goes("2001:db8::/48", "via fd00:1::2 dev eth1"))
	b.ip("route add 172.16.0.0/24 via 10.0.2.2")
	b.ip("route replace fd99::/64 via fd00:2::2")
	eventually(t, "IPv4 moves to eth2", b.goes("198.18.1.0/24", "via 10.0.2.2 dev eth2"))
	eventually(t, "IPv6 moves to eth2", b.goes("2001:db8::/48", "via fd00:2::2 dev eth2"))
	b.ip("route replace 172.16.0.0/24 nexthop via 10.0.2.2 nexthop via 10.0.1.3")
	eventually(t, "both neighbours are used", b.goes("198.18.1.0/24",
		"nexthop via 10.0.2.2 dev eth2", "nexthop via 10.0.1.3 dev eth1"))
	if s := e.Stats(); s.Errors != 0 || s.Drift.Different != 0 {
		t.Errorf("%d refused: %v; drift %+v", s.Errors, s.Refusal, s.Drift)
	}
	b.ip("route del 172.16.0.0/24")
	b.ip("route del 172.16.0.0/16")
	eventually(t, "nothing leads to the next hop", func() bool {
		return !b.goes("198.18.1.0/24")()
	})
}

// TestNextHopFollowsARouteThatCarriesIt: a route of this node's own or of external configuration
// carries next hops if its gateways are neighbours. No other route of ours does.
func TestNextHopFollowsARouteThatCarriesIt(t *testing.T) {
	_, node, _ := newNamespaces(t)
	b := &bed{t: t, ns: node}
	e, stop := agent(t, b, fib.Config{})
	defer stop()
	over := "198.18.1.0/24"
	learn(e, via(over, "172.16.0.1"))
	own(e, via("172.16.0.1/32", "10.0.1.2 eth1"))
	eventually(t, "one way", b.goes(over, "via 10.0.1.2 dev eth1"))
	own(e, via("172.16.0.1/32", "10.0.1.3 eth1", "10.0.2.2 eth2"))
	eventually(t, "both ways", b.goes(over, "nexthop via 10.0.1.3 dev eth1",
		"nexthop via 10.0.2.2 dev eth2"))
	b.ip("route add 172.16.0.0/16 via 10.0.1.4")
	own(e)
	eventually(t, "what others have is used", b.goes(over, "via 10.0.1.4 dev eth1"))
	learn(e, via("172.16.0.1/32", "10.0.2.2"))
	eventually(t, "a route from BGP carries nothing", func() bool { return !b.goes(over)() })
	own(e, via("172.16.0.1/32", "10.0.2.2 eth2"))
	eventually(t, "it carries once it is this node's own", b.goes(over, "via 10.0.2.2 dev eth2"))
	if s := e.Stats(); s.Errors != 0 {
		t.Errorf("%d refused: %v", s.Errors, s.Refusal)
	}
}

// TestConnectedNextHopFollowsARouteThatCarriesIt: a host route goes before the connected subnet.
func TestConnectedNextHopFollowsARouteThatCarriesIt(t *testing.T) {
	for over, c := range map[string]struct{ hop, host, first, second string }{
		"198.18.1.0/24": {"10.0.1.5", "10.0.1.5/32", "10.0.1.2 eth1", "10.0.2.2 eth2"},
		"2001:db8::/48": {"fd00:1::5", "fd00:1::5/128", "fd00:1::2 eth1", "fd00:2::2 eth2"},
	} {
		t.Run(over, func(t *testing.T) {
			_, node, _ := newNamespaces(t)
			b := &bed{t: t, ns: node}
			e, stop := agent(t, b, fib.Config{})
			defer stop()
			learn(e, via(over, c.hop))
			eventually(t, "it is a neighbour", b.goes(over, "via "+c.hop+" dev eth1"))
			for _, gateway := range []string{c.first, c.second, c.first} {
				own(e, via(c.host, gateway))
				eventually(t, gateway,
					b.goes(over, "via "+strings.ReplaceAll(gateway, " ", " dev ")))
			}
			own(e)
			eventually(t, "it is a neighbour again", b.goes(over, "via "+c.hop+" dev eth1"))
		})
	}
}

// TestRecursiveRouteComesBackWithItsInterface, and with what its next hop resolves through.
func TestRecursiveRouteComesBackWithItsInterface(t *testing.T) {
	_, node, _ := newNamespaces(t)
	b := &bed{t: t, ns: node}
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	e, stop := agent(t, b, fib.Config{})
	defer stop()
	learn(e, via("198.18.1.0/24", "172.16.0.1"))
	eventually(t, "the route is there", b.goes("198.18.1.0/24", "via 10.0.1.2 dev eth1"))
	check(t, node.SetLink("eth1", false))
	time.Sleep(2 * settle)
	check(t, node.SetLink("eth1", true))
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	eventually(t, "the route is back", b.goes("198.18.1.0/24", "via 10.0.1.2 dev eth1"))
}

// TestTheNextProcessFollowsRecursiveNextHops: it trusts the journal, writes nothing that is as it
// was, and follows the routes that the next hops resolve through, also when they have changed while
// no process was there.
func TestTheNextProcessFollowsRecursiveNextHops(t *testing.T) {
	for name, c := range map[string]struct {
		between func(b *bed)
		gateway string // once the process has settled
		put     uint64
	}{
		"nothing has changed": {func(*bed) {}, "via 10.0.1.2 dev eth1", 0},
		"the way to the next hop has": {func(b *bed) {
			b.ip("route replace 172.16.0.0/16 via 10.0.2.2")
		}, "via 10.0.2.2 dev eth2", 1},
		"somebody has changed it meanwhile": {func(b *bed) {
			b.ip("route replace 198.18.1.0/24 via 10.0.2.2 proto 179 metric 1050")
		}, "via 10.0.1.2 dev eth1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, node, _ := newNamespaces(t)
			b := &bed{t: t, ns: node}
			b.ip("route add 172.16.0.0/16 via 10.0.1.2")
			config := fib.Config{Journal: filepath.Join(t.TempDir(), "journal"),
				Tuning: fib.Tuning{SpotChecks: 1000, RepairDrift: true}}
			desired := via("198.18.1.0/24", "172.16.0.1")

			e, stop := agent(t, b, config)
			learn(e, desired)
			eventually(t, "the route is programmed", func() bool { return e.Stats().Put == 1 })
			stop()
			c.between(b)

			e, stop = agent(t, b, config)
			defer stop()
			eventually(t, "the journal is read", func() bool {
				return e.Stats().Adopted == "journal"
			})
			learn(e, desired)
			eventually(t, c.gateway, b.goes("198.18.1.0/24", c.gateway))
			checked := e.Stats().Drift.Checked
			eventually(t, "it is compared", func() bool {
				return e.Stats().Drift.Checked > checked
			})
			if s := e.Stats(); s.Put != c.put || s.Drift.Missing != 0 {
				t.Errorf("%d routes put, want %d; drift %+v", s.Put, c.put, s.Drift)
			}
			b.ip("route replace 172.16.0.0/16 via 10.0.2.3")
			eventually(t, "the route follows", b.goes("198.18.1.0/24", "via 10.0.2.3 dev eth2"))
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

	e, stop := agent(t, b, config)
	own(e, peer)
	learn(e, first)
	eventually(t, "both are programmed", programmed(2, "via 10.0.1.2 dev eth1"))
	eventually(t, "both are acknowledged", func() bool { return e.Stats().Put == 2 })
	stop()

	e, stop = agent(t, b, config)
	defer stop()
	learn(e, first, second) // before own, which says that all have set what they want
	own(e, peer)
	eventually(t, "the second one is programmed", programmed(3, "via 10.0.1.2 dev eth1"))
	eventually(t, "it is acknowledged", func() bool { return e.Stats().Put == 1 })
	if s := e.Stats(); s.Errors != 0 || s.Deleted != 0 {
		t.Errorf("%d refused: %v; %d deleted", s.Errors, s.Refusal, s.Deleted)
	}
	own(e, via("172.16.0.1/32", "10.0.2.2"))
	eventually(t, "both follow", programmed(3, "via 10.0.2.2 dev eth2"))
}
