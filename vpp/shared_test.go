package vpp_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// newerMessages are what a VPP before 21.06 lacks.
var newerMessages = []string{"fib_source_add", "fib_source_dump", "ip_route_add_del_v2", "ip_route_v2_dump", "ip_route_lookup_v2"}

// oldVPP is a VPP that lacks the newer messages.
type oldVPP struct {
	t       *testing.T
	socket  string
	foreign func(r route.Route, add bool) // another program's route, under the API source
	dump    func() map[route.Key]string
	tables  func() []uint32
	restart func()
}

// TestSharedSource runs on vpptest and, where one is found, on a real VPP behind a relay that takes the newer messages away.
func TestSharedSource(t *testing.T) {
	t.Run("vpptest", func(t *testing.T) {
		s := newServer(t)
		s.Lack(newerMessages...)
		testSharedSource(t, &oldVPP{
			socket: s.Socket(),
			foreign: func(r route.Route, add bool) {
				if add {
					s.InjectForeignRoute("API", r)
				} else {
					s.RemoveForeignRoute("API", r.Key)
				}
			},
			dump:    s.Dump,
			tables:  s.Tables,
			restart: func() { check(t, s.Restart(equip)) },
		})
		if n := s.Requests("ip_route_add_del_v2") + s.Requests("ip_route_lookup_v2") + s.Requests("fib_source_add"); n != 0 {
			t.Errorf("%d requests of the newer kind", n)
		}
	})
	t.Run("real VPP", func(t *testing.T) {
		r := startVPP(t)
		old := &relay{path: r.path("old.sock"), hide: newerMessages}
		old.serve(t, r.path("api.sock"))
		t.Cleanup(old.close)
		testSharedSource(t, &oldVPP{
			socket: old.path,
			foreign: func(w route.Route, add bool) {
				m := message(route.Op{Delete: !add, Route: w})
				_, err := ip.NewServiceClient(r.conn).IPRouteAddDelV2(t.Context(), m)
				check(t, err)
			},
			dump:    func() map[route.Key]string { return r.dump(t) },
			tables:  func() []uint32 { return r.tables(t) },
			restart: func() { r.stop(); r.start(t) },
		})
	})
}

func (o *oldVPP) open() *agent {
	return runAgent(o.t, vpp.Config{Socket: o.socket, AllowSharedSource: true})
}

// refused applies op and returns whether it was refused.
func (o *oldVPP) refused(a *agent, op route.Op) bool {
	o.t.Helper()
	calls, errs, err := a.apply(op)
	check(o.t, err)
	if calls[0] != 1 {
		o.t.Fatalf("%v: done was called %d times", op, calls[0])
	}
	return errs[0] != nil
}

// shows fails the test unless VPP forwards exactly r at its key.
func (o *oldVPP) shows(a *agent, r route.Route) {
	o.t.Helper()
	if got, ok, err := a.Lookup(o.t.Context(), r.Key); err != nil || !ok || !got.SameForwarding(r) {
		o.t.Errorf("lookup: %v, %t, %v; want %v", got, ok, err, r)
	}
}

func (o *oldVPP) lacks(a *agent, k route.Key) {
	o.t.Helper()
	if got, ok, err := a.Lookup(o.t.Context(), k); err != nil || ok {
		o.t.Errorf("lookup of %s: %v, %v; want nothing", k, got, err)
	}
}

func hop(prefix string, next string, n int) route.Route {
	return route.Route{
		Key:   route.Key{Prefix: netip.MustParsePrefix(prefix)},
		Paths: []route.Path{{NextHop: netip.MustParseAddr(next), Interface: testLinks[n].Name, Weight: 1}},
	}
}

func put(r route.Route, was ...route.Route) route.Op { return op(r, false, was) }
func del(r route.Route, was ...route.Route) route.Op { return op(route.Route{Key: r.Key}, true, was) }
func op(r route.Route, isDelete bool, was []route.Route) route.Op {
	o := route.Op{Delete: isDelete, Route: r}
	for _, w := range was {
		o.Was = w.Digest()
	}
	return o
}

func testSharedSource(t *testing.T, o *oldVPP) {
	o.t = t
	before := o.dump()
	a := o.open()
	f := a.await(t, "connection", present)
	if f.Preflight.Outcome != route.SharedSource || len(f.Preflight.Lacks) < len(newerMessages) || !strings.Contains(f.Problem, "API source") {
		t.Errorf("facts %+v", f)
	}
	ours, other := hop("198.18.0.0/24", "10.0.1.2", 0), hop("198.18.0.0/24", "10.0.2.2", 1)
	theirs := hop("198.18.0.0/24", "10.0.1.9", 0)

	step := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			o.t = t
			f(t)
			after := o.dump()
			for _, k := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
				if before[k] != after[k] {
					t.Errorf("%s was %q, is %q", k, before[k], after[k])
				}
			}
		})
		o.t = t
	}
	step("a route is put, replaced and deleted by what it was", func(t *testing.T) {
		a.mustApply(t, put(ours))
		o.shows(a, ours)
		a.mustApply(t, put(other, ours))
		o.shows(a, other)
		a.mustApply(t, del(other, ours)) // somebody changed it, as far as one can see
		a.mustApply(t, del(other))
		o.shows(a, other)
		a.mustApply(t, del(other, other))
		o.lacks(a, other.Key)
		a.mustApply(t, del(other, other))
	})
	step("nothing is listed, whosever it is", func(t *testing.T) {
		a.mustApply(t, put(ours))
		if rs, err := a.Routes(t.Context()); err != nil || len(rs) != 0 {
			t.Errorf("routes: %v, %v", rs, err)
		}
		a.mustApply(t, del(ours, ours))
	})
	step("somebody else's route is neither replaced nor deleted", func(t *testing.T) {
		o.foreign(theirs, true)
		for _, op := range []route.Op{put(ours), put(ours, other), put(ours, ours)} {
			if !o.refused(a, op) {
				t.Errorf("%+v was taken", op)
			}
		}
		a.mustApply(t, del(ours, ours), del(ours))
		o.shows(a, theirs)
		o.foreign(theirs, false)
	})
	step("somebody else took our prefix over", func(t *testing.T) {
		a.mustApply(t, put(ours))
		o.foreign(theirs, true)
		if !o.refused(a, put(other, ours)) {
			t.Error("it was taken back")
		}
		a.mustApply(t, del(ours, ours))
		o.shows(a, theirs)
		o.foreign(theirs, false)
	})
	step("what we want and stands there is ours: the journal was lost", func(t *testing.T) {
		a.mustApply(t, put(ours))
		b := o.open()
		b.await(t, "connection", present)
		b.mustApply(t, put(ours))
		b.mustApply(t, del(ours, ours))
	})
	step("a refused op holds up no other, and one key's ops happen in order", func(t *testing.T) {
		o.foreign(theirs, true)
		x, y := hop("198.18.1.0/24", "10.0.1.2", 0), hop("198.18.1.0/24", "10.0.2.2", 1)
		nowhere := x
		nowhere.Paths = []route.Path{{Interface: "no-such-link", Weight: 1}}
		_, errs, err := a.apply(put(x), put(ours), put(y, x), put(nowhere, y), del(y, y), put(x), route.Op{})
		check(t, err)
		for i, err := range errs {
			if bad := i == 1 || i == 3 || i == 6; (err != nil) != bad {
				t.Errorf("op %d: %v", i, err)
			}
		}
		o.shows(a, x)
		a.mustApply(t, del(x, x))
		o.foreign(theirs, false)
	})
	step("every kind of route is known again", func(t *testing.T) {
		for _, r := range routesOfAllKinds() {
			a.mustApply(t, put(r))
			o.shows(a, r)
			a.mustApply(t, put(route.Route{Key: r.Key, Kind: route.Drop}, r))
			a.mustApply(t, put(r, route.Route{Key: r.Key, Kind: route.Drop}))
			o.shows(a, r)
			a.mustApply(t, del(r, r))
			o.lacks(a, r.Key)
		}
	})
	step("many routes", func(t *testing.T) {
		ops := hostRoutes(3000)
		a.mustApply(t, ops...)
		for i := range ops {
			ops[i] = del(ops[i].Route, ops[i].Route)
		}
		a.mustApply(t, ops...)
	})
	step("resolve", func(t *testing.T) { resolveShared(t, o, a) })
	step("tables", func(t *testing.T) {
		r := hop("198.18.2.0/24", "10.0.1.2", 0)
		r.Table = missingTable
		a.mustApply(t, put(r))
		o.shows(a, r)
		if err := a.KeepTables(t.Context(), nil); err == nil {
			t.Error("no word about a table with a route in it")
		}
		a.mustApply(t, del(r, r))
		check(t, a.KeepTables(t.Context(), nil))
		if got := o.tables(); slices.Contains(got, missingTable) || !slices.Contains(got, otherTable) {
			t.Errorf("tables %d", got)
		}
	})
	step("the engine deletes what its journal names, and nothing else", func(t *testing.T) { engineShared(t, o) })

	b := o.open()
	if got := b.await(t, "connection", present).Identity; got != f.Identity {
		t.Errorf("identity was %s, is %s", f.Identity, got)
	}
	o.restart()
	if got := b.await(t, "another life", func(g route.Facts) bool { return present(g) && g.Identity != f.Identity }).Identity; got == f.Identity {
		t.Errorf("identity is still %s", got)
	}
}

func routesOfAllKinds() []route.Route {
	paths := func(prefix string, ps ...route.Path) route.Route {
		return route.Route{Key: route.Key{Prefix: netip.MustParsePrefix(prefix)}, Paths: route.CanonicalPaths(ps)}
	}
	v4, v6 := netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("fe80::9")
	via0, via1 := route.Path{NextHop: v4, Interface: "loop0"}, route.Path{NextHop: v6, Interface: "loop1", Weight: 3}
	standby := route.Path{NextHop: v4, Interface: "loop0", Preference: 7}
	rs := []route.Route{
		paths("198.18.3.0/24", via0, via1), paths("198.18.3.1/32", via0), paths("198.18.3.2/32", route.Path{Interface: "loop0"}),
		paths("2001:db8:3::/64", via1, standby), paths("2001:db8:3::1/128", via1), paths("0.0.0.0/0", via0), paths("::/0", via1),
		paths("198.18.4.0/24", route.Path{NextHop: netip.MustParseAddr("10.0.2.7")}),
		paths("198.18.5.0/24", route.Path{NextHop: netip.MustParseAddr("198.18.6.1"), Table: otherTable}),
	}
	for i, kind := range []route.Kind{route.Drop, route.Unreachable, route.Prohibit} {
		for _, p := range []string{"198.18.%d.0/24", "2001:db8:%d::/64"} {
			rs = append(rs, route.Route{Key: route.Key{Prefix: netip.MustParsePrefix(fmt.Sprintf(p, 10+i))}, Kind: kind})
		}
	}
	return rs
}

func resolveShared(t *testing.T, o *oldVPP, a *agent) {
	drop := route.Route{Key: route.Key{Prefix: netip.MustParsePrefix("198.18.21.0/24")}, Kind: route.Drop}
	theirs := hop("198.18.20.0/24", "10.0.1.9", 0)
	o.foreign(theirs, true)
	next := func(prefix, to string) route.Route {
		return route.Route{Key: route.Key{Prefix: netip.MustParsePrefix(prefix)}, Paths: []route.Path{{NextHop: netip.MustParseAddr(to), Weight: 1}}}
	}
	rs := []route.Route{
		drop, next("198.18.22.0/24", "10.0.2.5"), next("2001:db8:22::/64", "fd00:2::5"), next("198.18.23.0/24", "198.18.20.1"),
		next("198.18.24.0/24", "198.19.255.1"),
	}
	for _, r := range rs {
		a.mustApply(t, put(r))
	}
	for to, want := range map[string]route.Resolution{
		"10.0.1.5":     {Prefix: testLinks[0].V4.Masked(), Usable: true, Interface: testLinks[0].Name},
		"10.0.2.5":     {Prefix: testLinks[1].V4.Masked(), Usable: true, Interface: testLinks[1].Name}, // VPP has an entry of its own for it
		"fd00:2::5":    {Prefix: testLinks[1].V6.Masked(), Usable: true, Interface: testLinks[1].Name},
		"198.18.20.1":  {Prefix: theirs.Prefix, Usable: true, Interface: testLinks[0].Name},
		"198.18.21.1":  {Prefix: drop.Prefix},
		"198.18.22.1":  {Prefix: rs[1].Prefix, Usable: true, Interface: testLinks[1].Name},
		"198.19.255.1": {},
		"2001:db9::1":  {},
		"10.0.1.1":     {Prefix: netip.MustParsePrefix("10.0.1.1/32")},
	} {
		if got, err := a.Resolve(t.Context(), 0, netip.MustParseAddr(to)); err != nil || got != want {
			t.Errorf("resolve %s: %+v, %v; want %+v", to, got, err, want)
		}
	}
	for _, r := range rs {
		a.mustApply(t, del(r, r))
	}
	o.foreign(theirs, false)
}

// engineShared: an engine with a journal, ended and started again while another program takes one of its routes over.
func engineShared(t *testing.T, o *oldVPP) {
	cfg := fib.Config{Journal: filepath.Join(t.TempDir(), "journal")}
	kept, left, taken := hop("198.18.30.0/24", "10.0.1.2", 0), hop("198.18.31.0/24", "10.0.1.2", 0), hop("198.18.32.0/24", "10.0.1.2", 0)
	theirs := hop("198.18.32.0/24", "10.0.1.9", 0)
	never := hop("198.18.33.0/24", "10.0.1.9", 0)
	o.foreign(never, true)

	end := runEngine(t, o, cfg, []route.Route{kept, left, taken}, func(e *fib.Engine) bool { return e.Stats().Put == 3 })
	end()
	o.foreign(theirs, true)
	end = runEngine(t, o, cfg, []route.Route{kept}, func(e *fib.Engine) bool {
		s := e.Stats()
		return s.Adopted == "journal" && s.AdoptedRoutes == 3 && s.Deleted == 2 && s.Put == 0
	})
	end()
	a := o.open()
	a.await(t, "connection", present)
	o.shows(a, kept)
	o.shows(a, theirs)
	o.shows(a, never)
	o.lacks(a, left.Key)
	end = runEngine(t, o, cfg, nil, func(e *fib.Engine) bool { return e.Stats().Deleted == 1 })
	end()
	o.foreign(theirs, false)
	o.foreign(never, false)
}

// runEngine runs an engine on o until it does what ok says, and on until the returned function is called.
func runEngine(t *testing.T, o *oldVPP, cfg fib.Config, want []route.Route, ok func(*fib.Engine) bool) (end func()) {
	t.Helper()
	a := o.open()
	cfg.Dataplane, cfg.Log = a.VPP, slog.New(slog.NewTextHandler(t.Output(), nil))
	e := fib.New(cfg)
	e.SetRoutes(route.External, want)
	e.AllowSweep()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	end = func() { cancel(); <-done; a.stop() }
	for deadline := time.Now().Add(patience); !ok(e); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not within %s; %+v", patience, e.Stats())
			break
		}
	}
	return end
}

// A put whose reply was lost may have happened: what stands there then is ours, though the engine does not know it.
func TestSharedSourceKnowsItsUnsettledPuts(t *testing.T) {
	s := newServer(t)
	s.Lack(newerMessages...)
	a := runAgent(t, vpp.Config{Socket: s.Socket(), AllowSharedSource: true})
	a.await(t, "connection", present)
	first, second, third := hop("198.18.0.0/24", "10.0.1.2", 0), hop("198.18.0.0/24", "10.0.1.3", 0), hop("198.18.0.0/24", "10.0.1.4", 0)
	a.mustApply(t, put(first))
	s.CutAt(func(m api.Message) bool { _, ok := m.(*ip.IPRouteAddDel); return ok })
	if _, _, err := a.apply(put(second, first)); err == nil {
		t.Fatal("apply over a cut connection succeeded")
	}
	a.await(t, "a new connection", present)
	if rs := s.Routes("API"); len(rs) != 1 || !rs[0].SameForwarding(second) {
		t.Fatalf("VPP has %v", rs)
	}
	a.mustApply(t, put(third, first))
	a.mustApply(t, del(third, third))
	if rs := s.Routes("API"); len(rs) != 0 {
		t.Errorf("VPP has %v", rs)
	}
}

// A look-up that VPP refuses is no licence.
func TestSharedSourceWithoutLookup(t *testing.T) {
	s := newServer(t)
	s.Lack(newerMessages...)
	a := runAgent(t, vpp.Config{Socket: s.Socket(), AllowSharedSource: true})
	a.await(t, "connection", present)
	s.Refuse(func(m api.Message) int32 {
		if _, ok := m.(*ip.IPRouteLookup); ok {
			return -1
		}
		return 0
	})
	if _, _, err := a.apply(put(hop("198.18.0.0/24", "10.0.1.2", 0))); err == nil {
		t.Error("apply succeeded")
	}
	if n := s.Requests("ip_route_add_del"); n != 0 {
		t.Errorf("%d writes without a look", n)
	}
}
