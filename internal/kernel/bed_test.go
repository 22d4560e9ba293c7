package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
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
	l, err := netlab.New("kernel", testlog.New(t))
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
	d = create(t, c)
	return d, run(t, d)
}

func create(t *testing.T, c Config) *Dataplane {
	t.Helper()
	c.Log = testlog.New(t)
	d, err := New(c)
	check(t, err)
	return d
}

func run(t *testing.T, d *Dataplane) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		d.Close()
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
		ops = append(ops, route.Op{Delete: true,
			Route: route.Route{Key: route.Key{Prefix: pfx(k)}}})
	}
	return ops
}

// try applies ops and returns each one's result.
func (b *bed) try(ops []route.Op) []error {
	b.t.Helper()
	results := make([]error, len(ops))
	calls := make([]int, len(ops))
	check(b.t, b.Apply(b.t.Context(), ops, func(i int, err error) {
		results[i], calls[i] = err, calls[i]+1
	}))
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

// behind fails the test unless r is there as it was put and another's goes before it.
func (b *bed) behind(by string, r route.Route) {
	b.t.Helper()
	found, ok, err := b.Lookup(b.t.Context(), r.Key)
	if !ok || !found.SameForwarding(r) || !errors.Is(err, route.HiddenError{By: by}) {
		b.t.Errorf("lookup of %s: %s, %v, %v; want it behind %s", r, found, ok, err, by)
	}
}

func show(routes []route.Route) string {
	routes = slices.SortedFunc(slices.Values(routes), func(a, b route.Route) int {
		return route.CompareKeys(a.Key, b.Key)
	})
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
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}
