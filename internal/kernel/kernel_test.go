package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

// bed is a namespace with two interfaces, and a data plane on it.
type bed struct {
	*Dataplane
	t    *testing.T
	ns   *netlab.Namespace
	peer *netlab.Namespace
}

func newNamespaces(t *testing.T) (l *netlab.Lab, node, peer *netlab.Namespace) {
	t.Helper()
	if err := netlab.Available(); err != nil {
		t.Skip(err)
	}
	l, err := netlab.New("kernel", slog.New(slog.NewTextHandler(t.Output(), nil)))
	check(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	node, err = l.Namespace("node")
	check(t, err)
	peer, err = l.Namespace("peer")
	check(t, err)
	for i := 1; i <= 2; i++ {
		check(t, l.Veth(
			netlab.End{Namespace: node, Device: fmt.Sprintf("eth%d", i), Addresses: []netip.Prefix{
				pfx(fmt.Sprintf("10.0.%d.1/24", i)), pfx(fmt.Sprintf("fd00:%d::1/64", i))}},
			netlab.End{Namespace: peer, Device: fmt.Sprintf("eth%d", i), Addresses: []netip.Prefix{
				pfx(fmt.Sprintf("10.0.%d.2/24", i)), pfx(fmt.Sprintf("fd00:%d::2/64", i))}}))
	}
	return l, node, peer
}

func newBed(t *testing.T) *bed {
	t.Helper()
	_, node, peer := newNamespaces(t)
	return &bed{t: t, ns: node, peer: peer, Dataplane: start(t, Config{Namespace: node.Path()})}
}

// open runs a data plane until stop.
func open(t *testing.T, c Config) (d *Dataplane, stop func()) {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := New(c)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return d, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// start runs a data plane until the test ends.
func start(t *testing.T, c Config) *Dataplane {
	t.Helper()
	d, stop := open(t, c)
	t.Cleanup(stop)
	return d
}

// ip runs iproute2 in the node's namespace: the other program that owns routes there.
func (b *bed) ip(args string) string {
	b.t.Helper()
	out, err := b.ns.Run(b.t.Context(), "ip", strings.Fields(args)...)
	check(b.t, err)
	return string(out)
}

func put(routes ...route.Route) (ops []route.Op) {
	for _, r := range routes {
		ops = append(ops, route.Op{Route: r})
	}
	return ops
}

func del(keys ...string) (ops []route.Op) {
	for _, k := range keys {
		ops = append(ops, route.Op{Delete: true, Route: route.Route{Key: route.Key{Prefix: pfx(k)}}})
	}
	return ops
}

// try applies ops and returns each one's result.
func (b *bed) try(ops []route.Op) []error {
	b.t.Helper()
	results := make([]error, len(ops))
	calls := make([]int, len(ops))
	check(b.t, b.Apply(b.t.Context(), ops, func(i int, err error) { results[i], calls[i] = err, calls[i]+1 }))
	for i, n := range calls {
		if n != 1 {
			b.t.Fatalf("op %d: done called %d times", i, n)
		}
	}
	return results
}

func (b *bed) apply(ops []route.Op) {
	b.t.Helper()
	check(b.t, errors.Join(b.try(ops)...))
}

// want compares what is ours with routes, listed and looked up.
func (b *bed) want(routes ...route.Route) {
	b.t.Helper()
	got, err := b.Routes(b.t.Context())
	check(b.t, err)
	if g, w := show(got), show(routes); g != w {
		b.t.Errorf("our routes:\n%swant:\n%s", g, w)
	}
	for _, r := range routes {
		found, ok, err := b.Lookup(b.t.Context(), r.Key)
		if err != nil || !ok || !found.SameForwarding(r) {
			b.t.Errorf("lookup of %s: %s, %v, %v", r, found, ok, err)
		}
	}
}

func show(routes []route.Route) string {
	routes = slices.SortedFunc(slices.Values(routes), func(a, b route.Route) int { return route.CompareKeys(a.Key, b.Key) })
	var s strings.Builder
	for _, r := range routes {
		fmt.Fprintln(&s, " ", r)
	}
	return s.String()
}

func via(prefix string, paths ...string) route.Route {
	r := route.Route{Key: route.Key{Prefix: pfx(prefix)}}
	for _, p := range paths {
		var path route.Path
		for _, word := range strings.Fields(p) {
			if a, err := netip.ParseAddr(word); err == nil {
				path.NextHop = a
			} else if n, ok := strings.CutPrefix(word, "w"); ok {
				fmt.Sscan(n, &path.Weight)
			} else if n, ok := strings.CutPrefix(word, "p"); ok {
				fmt.Sscan(n, &path.Preference)
			} else {
				path.Interface = word
			}
		}
		r.Paths = append(r.Paths, path)
	}
	r.Paths = route.CanonicalPaths(r.Paths)
	return r
}

func kind(prefix string, k route.Kind) route.Route {
	return route.Route{Key: route.Key{Prefix: pfx(prefix)}, Kind: k}
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 5 s: %s", what)
		}
	}
}

func TestEveryKindReadsBackAsPut(t *testing.T) {
	for name, r := range map[string]route.Route{
		"via":                       via("198.18.0.0/24", "10.0.1.2 eth1"),
		"via IPv6":                  via("2001:db8::/48", "fd00:1::2 eth1"),
		"ECMP":                      via("198.18.0.0/24", "10.0.1.2 eth1", "10.0.1.3 eth1", "10.0.2.2 eth2"),
		"ECMP IPv6":                 via("2001:db8::/48", "fd00:1::2 eth1", "fd00:1::3 eth1", "fd00:2::2 eth2"),
		"weights":                   via("198.18.0.0/24", "10.0.1.2 eth1 w3", "10.0.2.2 eth2 w255"),
		"weights IPv6":              via("2001:db8::/48", "fd00:1::2 eth1 w3", "fd00:2::2 eth2 w255"),
		"a weight alone":            via("198.18.0.0/24", "10.0.1.2 eth1 w3"),
		"the interface alone":       via("198.18.0.7/32", "eth1"),
		"the interface alone, IPv6": via("2001:db8::7/128", "eth1"),
		"default":                   via("0.0.0.0/0", "10.0.1.2 eth1"),
		"default IPv6":              via("::/0", "fd00:1::2 eth1"),
		"drop":                      kind("198.18.0.0/26", route.Drop),
		"drop IPv6":                 kind("2001:db8::/122", route.Drop),
		"unreachable":               kind("198.18.0.0/26", route.Unreachable),
		"unreachable IPv6":          kind("2001:db8::/122", route.Unreachable),
		"prohibit":                  kind("198.18.0.0/26", route.Prohibit),
		"prohibit IPv6":             kind("2001:db8::/122", route.Prohibit),
		"IPv4 over IPv6":            via("198.18.0.0/24", "fd00:1::2 eth1"),
		"IPv4 over IPv6, ECMP":      via("198.18.0.0/24", "fd00:1::2 eth1", "10.0.2.2 eth2"),
		"link-local":                via("2001:db8::/48", "fe80::1 eth1"),
		"IPv4 over link-local":      via("198.18.0.0/24", "fe80::1 eth1"),
		"outside the subnet":        via("198.18.0.0/24", "172.16.0.1 eth1"),
		"outside the subnet, IPv6":  via("2001:db8::/48", "fd99::1 eth1"),
		"recursive":                 via("198.18.0.0/24", "10.0.1.2"),
		"recursive IPv6":            via("2001:db8::/48", "fd00:1::2"),
		"stand-by":                  via("198.18.0.0/24", "10.0.1.2 eth1", "10.0.2.2 eth2 p1"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			before := b.ip("route show table all")
			b.apply(put(r))
			b.want(r)
			b.apply(put(r))
			b.want(r)
			key := r.Key.Prefix.String()
			b.apply(del(key))
			b.want()
			if _, ok, err := b.Lookup(t.Context(), r.Key); ok || err != nil {
				t.Errorf("after its deletion: %v, %v", ok, err)
			}
			b.apply(del(key))
			if after := b.ip("route show table all"); after != before {
				t.Errorf("left in the kernel:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// TestReplacing walks from each form of a route to each other. None of the old form may be left, which for IPv6 the kernel makes
// hard: it keeps each leg as a route of its own.
func TestReplacing(t *testing.T) {
	forms := map[string][]route.Route{
		"IPv4": {
			via("198.18.0.0/24", "10.0.1.2 eth1"),
			via("198.18.0.0/24", "10.0.1.3 eth1"),
			via("198.18.0.0/24", "10.0.1.2 eth1", "10.0.2.2 eth2"),
			via("198.18.0.0/24", "10.0.1.3 eth1", "10.0.2.2 eth2 w7"),
			via("198.18.0.0/24", "10.0.1.3 eth1", "10.0.1.4 eth1", "10.0.2.2 eth2"),
			via("198.18.0.0/24", "eth1"),
			via("198.18.0.0/24", "fe80::1 eth1"),
			kind("198.18.0.0/24", route.Drop),
			kind("198.18.0.0/24", route.Unreachable),
			kind("198.18.0.0/24", route.Prohibit),
		},
		"IPv6": {
			via("2001:db8::/48", "fd00:1::2 eth1"),
			via("2001:db8::/48", "fd00:1::3 eth1"),
			via("2001:db8::/48", "fd00:1::2 eth1", "fd00:2::2 eth2"),
			via("2001:db8::/48", "fd00:1::3 eth1", "fd00:2::2 eth2 w7"),
			via("2001:db8::/48", "fd00:1::3 eth1", "fd00:1::4 eth1", "fd00:2::2 eth2"),
			via("2001:db8::/48", "eth1"),
			kind("2001:db8::/48", route.Drop),
			kind("2001:db8::/48", route.Unreachable),
			kind("2001:db8::/48", route.Prohibit),
		},
	}
	for family, forms := range forms {
		t.Run(family, func(t *testing.T) {
			b := newBed(t)
			for _, from := range forms {
				for _, to := range forms {
					b.apply(put(from))
					b.apply(put(to))
					b.want(to)
					if t.Failed() {
						t.Fatalf("from %s\nto %s\nkernel has:\n%s", from, to, b.ip("-d route show table main")+b.ip("-6 -d route show table main"))
					}
				}
			}
		})
	}
}

func TestRefusedOpsHoldUpNoOther(t *testing.T) {
	b := newBed(t)
	good := []route.Route{via("198.18.1.0/24", "10.0.1.2 eth1"), via("198.18.2.0/24", "10.0.1.2 eth1"), via("2001:db8::/48", "fd00:1::2 eth1")}
	bad := []route.Route{
		via("198.18.3.0/24", "10.0.1.2 eth9"),
		via("198.18.4.0/24", "10.0.1.1 eth1"),  // our own address
		via("198.18.5.0/24", "172.16.0.1"),     // no route to it
		via("198.18.6.0/24", "10.0.1.1"),       // our own address, looked up
		via("2001:db8:1::/48", "eth1", "eth2"), // IPv6 knows ECMP over gateways only
		{Key: route.Key{Prefix: pfx("198.18.7.0/24")}},
		{Key: route.Key{Prefix: pfx("198.18.8.0/24"), Table: 254}, Kind: route.Drop},
	}
	results := b.try(put(slices.Concat(good[:1], bad, good[1:])...))
	for i, err := range results {
		refused := i >= 1 && i < 1+len(bad)
		if refused != (err != nil) {
			t.Errorf("op %d: %v, want refused %v", i, err, refused)
		}
		if err != nil {
			t.Log(err)
		}
	}
	var refusal *Refusal
	if !errors.As(results[5], &refusal) || refusal.Errno != unix.EINVAL || refusal.Message == "" {
		t.Errorf("the kernel's own words are missing: %v", results[5])
	}
	b.want(good...)
}

// TestMoreThanAWindow has refusals in every batch.
func TestMoreThanAWindow(t *testing.T) {
	b := newBed(t)
	var ops []route.Op
	var want []route.Route
	for i := range 5 * window / 2 {
		r := via(fmt.Sprintf("198.18.%d.%d/32", i/256, i%256), "10.0.1.2 eth1")
		if i%100 == 99 {
			r.Paths = []route.Path{{NextHop: addr("10.0.1.1"), Interface: "eth1", Weight: 1}} // our own address
		} else {
			want = append(want, r)
		}
		ops = append(ops, put(r)...)
	}
	for i, err := range b.try(ops) {
		if (i%100 == 99) != (err != nil) {
			t.Fatalf("op %d: %v", i, err)
		}
	}
	b.want(want...)
}

func TestForeignRoutesAreNeverTouched(t *testing.T) {
	foreign := []string{
		"198.18.1.0/24 via 10.0.2.2 proto static",           // a better metric
		"198.18.1.0/24 via 10.0.2.2 proto bird metric 1024", // Calico's
		"198.18.1.0/24 via 10.0.2.2 proto bird metric 2000", // a worse metric
		"198.18.1.0/24 via 10.0.2.2 proto 179 metric 77",    // our protocol only
		"blackhole 198.18.1.0/24 proto 80 metric 900",
		"2001:db8:1::/48 via fd00:2::2 proto static metric 7",
		"2001:db8:1::/48 via fd00:2::2 proto bird metric 1024",
		"2001:db8:1::/48 via fd00:2::2 proto 179 metric 77",
		"unreachable 2001:db8:1::/48 proto 80 metric 900",
	}
	b := newBed(t)
	for _, r := range foreign {
		b.ip("route add " + r)
	}
	before := b.ip("route show table all") + b.ip("-6 route show table all")
	ours := []route.Route{via("198.18.1.0/24", "10.0.1.2 eth1"), via("2001:db8:1::/48", "fd00:1::2 eth1", "fd00:1::3 eth1")}
	b.apply(put(ours...))
	b.want(ours...)
	b.apply(put(kind("198.18.1.0/24", route.Drop), kind("2001:db8:1::/48", route.Drop)))
	b.apply(del("198.18.1.0/24", "2001:db8:1::/48"))
	b.apply(del("198.18.1.0/24", "2001:db8:1::/48"))
	b.want()
	if after := b.ip("route show table all") + b.ip("-6 route show table all"); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// TestRouteWithOurMetric: the kernel would replace it (IPv4), or make it and ours one ECMP route (IPv6).
func TestRouteWithOurMetric(t *testing.T) {
	for name, c := range map[string]struct {
		foreign string
		ours    route.Route
	}{
		"IPv4": {"198.18.1.0/24 via 10.0.2.2 proto static metric 1050", via("198.18.1.0/24", "10.0.1.2 eth1")},
		"IPv6": {"2001:db8:1::/48 via fd00:2::2 proto static metric 1050", via("2001:db8:1::/48", "fd00:1::2 eth1")},
	} {
		for _, when := range []string{"before we start", "while we run"} {
			t.Run(name+" "+when, func(t *testing.T) {
				_, node, peer := newNamespaces(t)
				b := &bed{t: t, ns: node, peer: peer}
				if when == "before we start" {
					b.ip("route add " + c.foreign)
				}
				b.Dataplane = start(t, Config{Namespace: node.Path()})
				if when == "while we run" {
					b.apply(put(via("198.18.9.0/24", "10.0.1.2 eth1"))) // so that the list of clashes is made
					b.ip("route add " + c.foreign)
				}
				before := b.ip("route show table all") + b.ip("-6 route show table all")
				if errs := b.try(put(c.ours)); errs[0] == nil {
					t.Error("no error")
				}
				b.apply(del(c.ours.Prefix.String()))
				if after := b.ip("route show table all") + b.ip("-6 route show table all"); after != before {
					t.Errorf("after:\n%s\nbefore:\n%s", after, before)
				}
				b.ip("route del " + c.foreign)
				b.apply(put(c.ours))
				if r, ok, err := b.Lookup(t.Context(), c.ours.Key); !ok || err != nil || !r.SameForwarding(c.ours) {
					t.Errorf("once the foreign route is gone: %s, %v, %v", r, ok, err)
				}
			})
		}
	}
}

func TestLookupBehindOtherRoutes(t *testing.T) {
	b := newBed(t)
	ours := via("198.18.1.0/24", "10.0.1.2 eth1")
	b.apply(put(ours, via("198.18.1.0/32", "10.0.1.3 eth1")))
	b.ip("route add 198.18.1.0/24 via 10.0.2.2 metric 5")
	for key, want := range map[string]bool{"198.18.1.0/24": true, "198.18.1.0/32": true, "198.18.1.0/25": false, "198.18.0.0/16": false, "10.0.1.0/24": false} {
		if _, ok, err := b.Lookup(t.Context(), route.Key{Prefix: pfx(key)}); ok != want || err != nil {
			t.Errorf("%s: %v, %v", key, ok, err)
		}
	}
}

func TestResolve(t *testing.T) {
	b := newBed(t)
	b.apply(put(via("198.18.1.0/24", "10.0.1.2 eth1"), kind("198.18.2.0/24", route.Drop), kind("2001:db8::/48", route.Drop)))
	b.ip("route add blackhole 198.18.3.0/24")
	b.ip("route add 198.18.4.0/24 via 10.0.2.2")
	b.ip("route add 198.18.5.0/24 via 10.0.2.2 table 7")
	for _, c := range []struct {
		table uint32
		addr  string
		want  route.Resolution
	}{
		{0, "10.0.1.77", route.Resolution{Prefix: pfx("10.0.1.0/24"), Usable: true}},
		{0, "10.0.1.1", route.Resolution{Prefix: pfx("10.0.1.1/32")}},
		{0, "198.18.1.1", route.Resolution{Prefix: pfx("198.18.1.0/24"), Ours: true}},
		{0, "198.18.2.1", route.Resolution{Prefix: pfx("198.18.2.0/24"), Ours: true}},
		{0, "198.18.3.1", route.Resolution{Prefix: pfx("198.18.3.0/24")}},
		{0, "198.18.4.1", route.Resolution{Prefix: pfx("198.18.4.0/24"), Usable: true}},
		{0, "198.18.5.1", route.Resolution{}},
		{7, "198.18.5.1", route.Resolution{Prefix: pfx("198.18.5.0/24"), Usable: true}},
		{8, "198.18.5.1", route.Resolution{}},
		{0, "fd00:1::77", route.Resolution{Prefix: pfx("fd00:1::/64"), Usable: true}},
		{0, "fd00:1::1", route.Resolution{Prefix: pfx("fd00:1::1/128")}},
		{0, "2001:db8::1", route.Resolution{Prefix: pfx("2001:db8::/48"), Ours: true}},
		{0, "2001:db9::1", route.Resolution{}},
	} {
		got, err := b.Resolve(t.Context(), c.table, addr(c.addr))
		if err != nil || got != c.want {
			t.Errorf("%s in table %d: %+v, %v; want %+v", c.addr, c.table, got, err, c.want)
		}
	}
}

func TestTables(t *testing.T) {
	b := newBed(t)
	in := func(table uint32, r route.Route) route.Route { r.Table = table; return r }
	routes := []route.Route{
		via("198.18.1.0/24", "10.0.1.2 eth1"),
		in(7, via("198.18.1.0/24", "10.0.2.2 eth2")),
		in(70000, kind("198.18.1.0/24", route.Drop)),
		in(70000, via("2001:db8::/48", "fd00:1::2 eth1")),
	}
	b.apply(put(routes...))
	b.want(routes...)
	b.apply([]route.Op{{Delete: true, Route: routes[1]}})
	b.want(routes[0], routes[2], routes[3])
}

func TestDefaultTableIsConfigured(t *testing.T) {
	_, node, peer := newNamespaces(t)
	b := &bed{t: t, ns: node, peer: peer, Dataplane: start(t, Config{Namespace: node.Path(), Table: 77, Protocol: 150, Metric: 9})}
	b.apply(put(via("198.18.1.0/24", "10.0.1.2 eth1")))
	b.want(via("198.18.1.0/24", "10.0.1.2 eth1"))
	if got := strings.TrimSpace(b.ip("route show table 77")); got != "198.18.1.0/24 via 10.0.1.2 dev eth1 proto 150 metric 9" {
		t.Errorf("the kernel has %q", got)
	}
}

func TestRecursiveNextHopFollowsTheOtherRoutes(t *testing.T) {
	b := newBed(t)
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	b.ip("route add fd99::/64 via fd00:1::2")
	routes := []route.Route{via("198.18.1.0/24", "172.16.0.1"), via("2001:db8::/48", "fd99::1")}
	b.apply(put(routes...))
	b.want(routes...)
	gateways := func() string {
		return b.ip("route show proto 179") + b.ip("-6 route show proto 179")
	}
	if got := gateways(); !strings.Contains(got, "via 10.0.1.2 dev eth1") || !strings.Contains(got, "via fd00:1::2 dev eth1") {
		t.Fatalf("programmed: %s", got)
	}
	b.ip("route add 172.16.0.0/24 via 10.0.2.2")
	b.ip("route replace fd99::/64 via fd00:2::2")
	eventually(t, "both routes move to eth2", func() bool {
		got := gateways()
		return strings.Contains(got, "via 10.0.2.2 dev eth2") && strings.Contains(got, "via fd00:2::2 dev eth2")
	})
	b.want(routes...)
	b.ip("route replace 172.16.0.0/24 nexthop via 10.0.2.2 nexthop via 10.0.1.3")
	eventually(t, "both legs of the underlay are used", func() bool {
		return strings.Count(b.ip("route show 198.18.1.0/24"), "nexthop") == 2
	})
	b.want(routes...)
	b.apply(del("198.18.1.0/24", "2001:db8::/48"))
	b.want()
	if len(b.recalled) != 0 {
		t.Errorf("still remembered: %v", b.recalled)
	}
}

// TestRecursiveRouteComesBackWithItsInterface: nobody else would put it again.
func TestRecursiveRouteComesBackWithItsInterface(t *testing.T) {
	b := newBed(t)
	r := via("198.18.1.0/24", "10.0.1.2")
	b.apply(put(r))
	check(t, b.ns.SetLink("eth1", false))
	b.want() // gone, and there is no way to it
	time.Sleep(2 * settle)
	check(t, b.ns.SetLink("eth1", true))
	eventually(t, "the route is back", func() bool { _, ok, err := b.Lookup(t.Context(), r.Key); return ok && err == nil })
	b.want(r)
}

// TestAfterARestartARecursiveRouteReadsAsResolved, and putting it again makes it read as put.
func TestAfterARestartARecursiveRouteReadsAsResolved(t *testing.T) {
	b := newBed(t)
	b.apply(put(via("198.18.1.0/24", "10.0.1.2")))
	again := &bed{t: t, ns: b.ns, Dataplane: start(t, Config{Namespace: b.ns.Path()})}
	again.want(via("198.18.1.0/24", "10.0.1.2 eth1"))
	again.apply(put(via("198.18.1.0/24", "10.0.1.2")))
	again.want(via("198.18.1.0/24", "10.0.1.2"))
	if got, want := (<-again.Facts()).Identity, (<-b.Facts()).Identity; got != want || got == "" {
		t.Errorf("identity %q, before the restart %q", got, want)
	}
}

func facts(t *testing.T, d *Dataplane) route.Facts {
	t.Helper()
	select {
	case f := <-d.Facts():
		return f
	case <-time.After(5 * time.Second):
		t.Fatal("no facts in 5 s")
		return route.Facts{}
	}
}

func TestFactsShowInterfaces(t *testing.T) {
	b := newBed(t)
	f := facts(t, b.Dataplane)
	eth1, ok := f.Interface("eth1")
	if !ok || !eth1.Up || eth1.Index == 0 || !slices.Contains(eth1.Addresses, pfx("10.0.1.1/24")) || !slices.Contains(eth1.Addresses, pfx("fd00:1::1/64")) {
		t.Errorf("eth1: %+v", eth1)
	}
	if name, subnet, ok := f.Connected(0, addr("10.0.2.9")); !ok || name != "eth2" || subnet != pfx("10.0.2.0/24") {
		t.Errorf("10.0.2.9 is connected to %s %s %v", name, subnet, ok)
	}
	if !strings.HasPrefix(f.Version, "Linux ") || f.Problem != "" {
		t.Errorf("version %q, problem %q", f.Version, f.Problem)
	}
	check(t, b.ns.AddAddress("eth1", pfx("10.9.0.1/24")))
	if eth1, _ = facts(t, b.Dataplane).Interface("eth1"); !slices.Contains(eth1.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("after a new address: %+v", eth1)
	}
	check(t, b.peer.SetLink("eth2", false))
	if eth2, _ := facts(t, b.Dataplane).Interface("eth2"); eth2.Up {
		t.Errorf("without carrier: %+v", eth2)
	}
	check(t, b.ns.DeleteLink("eth2"))
	eventually(t, "eth2 is gone", func() bool { _, there := facts(t, b.Dataplane).Interface("eth2"); return !there })
}

// TestFlapIsSeenByASlowReader: the routes are gone, and the kernel says so only by the interface's event.
func TestFlapIsSeenByASlowReader(t *testing.T) {
	b := newBed(t)
	r := via("198.18.1.0/24", "10.0.1.2 eth1")
	b.apply(put(r))
	if eth1, _ := facts(t, b.Dataplane).Interface("eth1"); !eth1.Up {
		t.Fatal("eth1 is not up")
	}
	check(t, b.ns.SetLink("eth1", false))
	check(t, b.ns.SetLink("eth1", true))
	b.want()                           // the kernel dropped it
	time.Sleep(100 * time.Millisecond) // until all is over for a reader who now looks
	if eth1, _ := facts(t, b.Dataplane).Interface("eth1"); eth1.Up {
		t.Error("the first facts after the flap do not show it")
	}
	eventually(t, "up again", func() bool { eth1, _ := facts(t, b.Dataplane).Interface("eth1"); return eth1.Up })
	b.apply(put(r))
	b.want(r)
}

func TestLostAddressIsSeenByASlowReader(t *testing.T) {
	b := newBed(t)
	b.apply(put(via("198.18.1.0/24", "10.0.1.2 eth1")))
	facts(t, b.Dataplane)
	check(t, b.ns.DeleteAddress("eth1", pfx("10.0.1.1/24")))
	check(t, b.ns.AddAddress("eth1", pfx("10.0.1.1/24")))
	b.want() // the kernel dropped it with the last IPv4 address
	time.Sleep(100 * time.Millisecond)
	if eth1, _ := facts(t, b.Dataplane).Interface("eth1"); !eth1.Up || slices.Contains(eth1.Addresses, pfx("10.0.1.1/24")) {
		t.Errorf("the first facts after the loss do not show it: %+v", eth1)
	}
	if eth1, _ := facts(t, b.Dataplane).Interface("eth1"); !slices.Contains(eth1.Addresses, pfx("10.0.1.1/24")) {
		t.Errorf("the second facts do not show the address again: %+v", eth1)
	}
}

func TestRecreatedInterfaceIsUsedByItsNewIndex(t *testing.T) {
	l, node, peer := newNamespaces(t)
	b := &bed{t: t, ns: node, peer: peer, Dataplane: start(t, Config{Namespace: node.Path()})}
	r := via("198.18.1.0/24", "10.0.1.2 eth1")
	b.apply(put(r))
	check(t, node.DeleteLink("eth1"))
	check(t, l.Veth(netlab.End{Namespace: node, Device: "eth1", Addresses: []netip.Prefix{pfx("10.0.1.1/24")}},
		netlab.End{Namespace: peer, Device: "eth1"}))
	b.apply(put(r))
	b.want(r)
}

func TestFlushByAnotherProgram(t *testing.T) {
	b := newBed(t)
	r := via("198.18.1.0/24", "10.0.1.2 eth1")
	b.apply(put(r))
	b.ip("route flush proto 179")
	b.want()
	if _, ok, err := b.Lookup(t.Context(), r.Key); ok || err != nil {
		t.Errorf("lookup: %v, %v", ok, err)
	}
	b.apply(put(r))
	b.want(r)
}

// TestLostEvents overruns the event buffer: everything is listed again.
func TestLostEvents(t *testing.T) {
	b := newBed(t)
	facts(t, b.Dataplane)
	b.apply(put(via("198.18.9.0/24", "10.0.1.2 eth1")))
	b.watch.mu.Lock() // nobody reads
	fd := -1
	check(t, b.watch.socket.raw.Control(func(f uintptr) { fd = int(f) }))
	check(t, setReceiveBuffer(fd, 4096))
	for i := range 100 {
		b.ip(fmt.Sprintf("route add 198.19.%d.0/24 via 10.0.1.2", i))
	}
	b.ip("route add 198.18.1.0/24 via 10.0.1.2 metric 1050")
	check(t, b.ns.AddAddress("eth1", pfx("10.9.0.1/24")))
	check(t, setReceiveBuffer(fd, receiveBuffer))
	b.watch.mu.Unlock()
	if errs := b.try(put(via("198.18.1.0/24", "10.0.1.3 eth1"))); errs[0] == nil {
		t.Error("a foreign route was replaced after events were lost")
	}
	if eth1, _ := facts(t, b.Dataplane).Interface("eth1"); !slices.Contains(eth1.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("facts after lost events: %+v", eth1)
	}
}

func TestOwnWritesCauseNoEvents(t *testing.T) {
	b := newBed(t)
	eventually(t, "the start's events are read", func() bool { return len(b.watch.routes) == 0 })
	b.apply(put(via("198.18.1.0/24", "10.0.1.2 eth1"), via("2001:db8::/48", "fd00:1::2 eth1")))
	var n int
	check(t, b.watch.socket.raw.Control(func(fd uintptr) { n = b.watch.readAll(int(fd)) }))
	if n != 0 {
		t.Errorf("%d events of our own", n)
	}
}

func TestApplyEndsWithItsContext(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.Apply(ctx, put(kind("198.18.1.0/24", route.Drop)), func(int, error) { t.Error("done was called") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.want()
}

func TestClosedDataplaneFails(t *testing.T) {
	_, node, _ := newNamespaces(t)
	d, err := New(Config{Namespace: node.Path(), Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check(t, d.Run(ctx))
	if _, err := d.Routes(t.Context()); err == nil {
		t.Error("a closed data plane lists routes")
	}
	if err := d.Apply(t.Context(), put(kind("198.18.1.0/24", route.Drop)), func(int, error) {}); err == nil {
		t.Error("a closed data plane applies")
	}
}

func TestNamespaceThatIsNotThere(t *testing.T) {
	if _, err := New(Config{Namespace: "/run/netns/no-such", Log: slog.Default()}); err == nil {
		t.Error("no error")
	}
}

// TestReplacementLosesNoPacket pings through a route while it is replaced.
func TestReplacementLosesNoPacket(t *testing.T) {
	b := newBed(t)
	check(t, b.peer.AddAddress("lo", pfx("198.18.1.1/32")))
	check(t, b.peer.AddAddress("lo", pfx("2001:db8::1/128")))
	forms := [][]route.Route{
		{via("198.18.1.0/24", "10.0.1.2 eth1"), via("2001:db8::/48", "fd00:1::2 eth1")},
		{via("198.18.1.0/24", "10.0.2.2 eth2"), via("2001:db8::/48", "fd00:2::2 eth2")},
		{via("198.18.1.0/24", "10.0.1.2 eth1", "10.0.2.2 eth2"), via("2001:db8::/48", "fd00:1::2 eth1", "fd00:2::2 eth2")},
	}
	b.apply(put(forms[0]...))
	var flows []*netlab.Flow
	for _, to := range []string{"198.18.1.1", "2001:db8::1"} {
		_, err := b.ns.Ping(t.Context(), addr(to))
		check(t, err)
		flow, err := b.ns.StartFlow(netlab.FlowConfig{To: addr(to), Interval: time.Millisecond})
		check(t, err)
		flows = append(flows, flow)
	}
	replaced := 0
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); replaced++ {
		b.apply(put(forms[replaced%len(forms)]...))
	}
	for _, flow := range flows {
		r := flow.Stop()
		t.Logf("%d replacements: %s", replaced, r)
		if r.Lost > 0 || r.Received == 0 {
			t.Errorf("%s %v", r, r.Outages)
		}
	}
}

// BenchmarkApply compares one batch of 10 000 routes with one Apply per route.
func BenchmarkApply(b *testing.B) {
	if _, err := exec.LookPath("ip"); err != nil || netlab.Available() != nil {
		b.Skip("needs root")
	}
	l, err := netlab.New("kernelbench", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	node, err := l.Namespace("node")
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Veth(netlab.End{Namespace: node, Device: "eth1", Addresses: []netip.Prefix{pfx("10.0.1.1/24"), pfx("fd00:1::1/64")}},
		netlab.End{Namespace: node, Device: "eth2"}); err != nil {
		b.Fatal(err)
	}
	d, err := New(Config{Namespace: node.Path(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.close()
	const count = 10000
	b.Run("Routes", func(b *testing.B) { benchmarkRoutes(b, d) })
	for _, family := range []string{"IPv4", "IPv6"} {
		ops := make([]route.Op, count)
		for i := range ops {
			r := via(fmt.Sprintf("198.18.%d.%d/32", i/256, i%256), "10.0.1.2 eth1")
			if family == "IPv6" {
				r = via(fmt.Sprintf("2001:db8::%x/128", i), "fd00:1::2 eth1")
			}
			ops[i].Route = r
		}
		done := func(_ int, err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		b.Run(family+"/batch", func(b *testing.B) {
			for b.Loop() {
				if err := d.Apply(b.Context(), ops, done); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(count*b.N)/b.Elapsed().Seconds(), "routes/s")
		})
		b.Run(family+"/single", func(b *testing.B) {
			for b.Loop() {
				for i := range ops {
					if err := d.Apply(b.Context(), ops[i:i+1], done); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(count*b.N)/b.Elapsed().Seconds(), "routes/s")
		})
	}
}

func setReceiveBuffer(fd, size int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
}

// benchmarkRoutes reads 100 000 routes, and looks one up that discards: the kernel does not answer that, so the table is searched.
func benchmarkRoutes(b *testing.B, d *Dataplane) {
	const count = 100_000
	ops := put(kind("198.17.0.0/26", route.Drop))
	for i := range count {
		ops = append(ops, put(via(fmt.Sprintf("198.%d.%d.%d/32", 18+i>>16, i>>8&255, i&255), "10.0.1.2 eth1"))...)
	}
	if err := d.Apply(b.Context(), ops, func(_ int, err error) {
		if err != nil {
			b.Fatal(err)
		}
	}); err != nil {
		b.Fatal(err)
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if routes, err := d.Routes(b.Context()); err != nil || len(routes) != count+1 {
				b.Fatal(len(routes), err)
			}
		}
	})
	for name, key := range map[string]route.Key{"lookup": ops[77].Route.Key, "lookup drop": ops[0].Route.Key} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, ok, err := d.Lookup(b.Context(), key); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
	for i := range ops {
		ops[i].Delete = true
	}
	if err := d.Apply(b.Context(), ops, func(int, error) {}); err != nil {
		b.Fatal(err)
	}
}
