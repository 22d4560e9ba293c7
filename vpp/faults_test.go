package vpp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.uber.org/goleak"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
	"vpp-route-agent/vpp/vpptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// await reads facts until ok holds.
func (a *agent) await(t testing.TB, what string, ok func(route.Facts) bool) route.Facts {
	t.Helper()
	var last route.Facts
	for deadline := time.After(patience); ; {
		select {
		case last = <-a.Facts():
			if ok(last) {
				return last
			}
		case <-deadline:
			t.Fatalf("%s: not within %s; facts are %+v", what, patience, last)
		}
	}
}

// awaitConnection reads the facts of the nth connection. Facts that are not read in time are
// replaced, so the loss before it may never be seen.
func (a *agent) awaitConnection(t testing.TB, n uint64) route.Facts {
	t.Helper()
	for deadline := time.Now().Add(patience); a.Stats().Connections < n; {
		if time.Now().After(deadline) {
			t.Fatalf("connection %d: not within %s", n, patience)
		}
		time.Sleep(time.Millisecond)
	}
	return a.await(t, fmt.Sprintf("connection %d", n), present)
}

// gate holds up dials while it is shut, so that nothing replaces the facts of a loss.
type gate struct{ shut atomic.Bool }

func (g *gate) dial(t testing.TB, socket string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		for g.shut.Load() && t.Context().Err() == nil { // a test that failed leaves it shut
			time.Sleep(time.Millisecond)
		}
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
}

func present(f route.Facts) bool { return f.Identity != "" }
func absent(f route.Facts) bool  { return f.Identity == "" }

// apply returns how often done was called for each op, with its last error, and the error of Apply.
func (a *agent) apply(ops ...route.Op) (calls []int, errs []error, err error) {
	calls, errs = make([]int, len(ops)), make([]error, len(ops))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = a.Apply(ctx, ops, func(i int, err error) { calls[i]++; errs[i] = err })
	return calls, errs, err
}

// mustApply fails the test unless every op succeeded.
func (a *agent) mustApply(t testing.TB, ops ...route.Op) {
	t.Helper()
	calls, errs, err := a.apply(ops...)
	check(t, errors.Join(append(errs, err)...))
	for i, n := range calls {
		if n != 1 {
			t.Fatalf("op %d: done was called %d times", i, n)
		}
	}
}

// hostRoutes returns puts of n host routes.
func hostRoutes(n int) []route.Op {
	ops := make([]route.Op, n)
	a := netip.MustParseAddr("198.18.0.0")
	for i := range ops {
		ops[i].Route = route.Route{
			Key: route.Key{Prefix: netip.PrefixFrom(a, 32)},
			Paths: []route.Path{{NextHop: netip.MustParseAddr("10.0.1.2"), Interface: "loop0",
				Weight: 1}},
		}
		a = a.Next()
	}
	return ops
}

func isRoute(prefix string) func(api.Message) bool {
	return func(m api.Message) bool {
		r, ok := m.(*ip.IPRouteAddDelV2)
		return ok && r.Route.Prefix.String() == prefix
	}
}

func TestRefusedOpsNameVPPsError(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	s.Refuse(func(m api.Message) int32 {
		if isRoute("198.18.0.1/32")(m) {
			return -171
		}
		return 0
	})
	_, errs, err := a.apply(hostRoutes(3)...)
	check(t, errors.Join(err, errs[0], errs[2]))
	if got, want := fmt.Sprint(errs[1]),
		"vpp: put 198.18.0.1/32: invalid prefix length (VPP error -171)"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if got := len(s.Routes("vpp-route-agent")); got != 2 {
		t.Errorf("VPP has %d routes, want 2", got)
	}
}

// VPP drops what it cannot read and answers what comes behind: no later reply may be taken for the
// missing one.
func TestDroppedRequestIsNoticed(t *testing.T) {
	for name, c := range map[string]struct{ window, ops, dropped int }{
		"first":            {1024, 5, 0},
		"middle":           {1024, 3000, 1500},
		"last":             {1024, 5, 4},
		"only":             {1024, 1, 0},
		"window of one":    {1, 5, 2},
		"last of a window": {4, 20, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			a := runAgent(t, vpp.Config{Socket: s.Socket(), Window: c.window})
			a.await(t, "connection", present)
			ops := hostRoutes(c.ops)
			s.Swallow(isRoute(ops[c.dropped].Route.Prefix.String()))
			calls, errs, err := a.apply(ops...)
			if err == nil || !strings.Contains(err.Error(), "unanswered") {
				t.Errorf("apply: %v", err)
			}
			for i, n := range calls {
				if want := 0; i < c.dropped {
					if n != 1 || errs[i] != nil {
						t.Errorf("op %d before the dropped one: done %d times, %v", i, n, errs[i])
					}
				} else if n != want {
					t.Errorf("op %d is not known, but done was called", i)
				}
			}
			s.Swallow(nil)
			a.await(t, "a new connection", present)
			a.mustApply(t, ops...)
			if got := len(s.Routes("vpp-route-agent")); got != c.ops {
				t.Errorf("VPP has %d routes, want %d", got, c.ops)
			}
		})
	}
}

func TestConnectionCutInTheMiddleOfAReply(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	before := a.await(t, "connection", present)
	s.CutAfter(700)
	ops := hostRoutes(2000)
	calls, _, err := a.apply(ops...)
	if err == nil {
		t.Fatal("apply over a cut connection succeeded")
	}
	known := 0
	for _, n := range calls {
		known += n
	}
	if known > 700 {
		t.Errorf("%d results from 700 replies", known)
	}
	after := a.await(t, "a new connection", present)
	if after.Identity != before.Identity {
		t.Errorf("identity was %s, is %s", before.Identity, after.Identity)
	}
	a.mustApply(t, ops...)
}

// With SIGSTOP sockets stay open and nothing is answered.
func TestSilentVPP(t *testing.T) {
	s := newServer(t)
	var g gate
	a := runAgent(t, vpp.Config{Dial: g.dial(t, s.Socket()), ReplyTimeout: time.Second})
	before := a.await(t, "connection", present)
	a.mustApply(t, hostRoutes(1)...)
	g.shut.Store(true)
	s.Stall()
	start := time.Now()
	if _, _, err := a.apply(hostRoutes(3000)...); err == nil {
		t.Error("apply to a silent VPP succeeded")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s to find out", took)
	}
	f := a.await(t, "absence", absent)
	if !strings.Contains(f.Problem, "silent") {
		t.Errorf("problem %q", f.Problem)
	}
	start = time.Now()
	if _, err := a.Routes(t.Context()); err == nil || time.Since(start) > time.Second {
		t.Errorf("routes while absent: %v after %s", err, time.Since(start))
	}
	s.Continue()
	g.shut.Store(false)
	if got := a.await(t, "recovery", present).Identity; got != before.Identity {
		t.Errorf("identity was %s, is %s", before.Identity, got)
	}
	a.mustApply(t, hostRoutes(10)...)
}

func TestSlowVPPIsNotLost(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket(), ReplyTimeout: 2 * time.Second, Window: 16})
	a.await(t, "connection", present)
	// 300 ops take half as long again as the time-out, but something always arrives
	s.Delay(10 * time.Millisecond)
	a.mustApply(t, hostRoutes(300)...)
}

// TestReadingsLeaveTime: VPP answers in order, so readings of the interfaces that follow each other
// without a rest would hold up whoever writes.
func TestReadingsLeaveTime(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	const each = 5 * time.Millisecond
	s.Delay(each)
	before, began := s.Delayed(), time.Now()
	// a fifth, and a poll; on a busy machine the first reading alone may take half of a second
	isMuch := func(reading, took time.Duration) bool { return reading == 0 || reading > took*2/5 }
	const patience = 10 * time.Second
	var reading, took time.Duration
	for up := false; took < time.Second || took < patience && isMuch(reading, took); up = !up {
		s.SetLink(testLinks[0].Name, up)
		time.Sleep(each)
		reading, took = s.Delayed()-before, time.Since(began)
	}
	if isMuch(reading, took) {
		t.Errorf("interfaces that change all the time were read for %s of %s", reading, took)
	}
	s.SetLink(testLinks[0].Name, false)
	a.await(t, "the last change", func(f route.Facts) bool {
		i, ok := f.Interface(testLinks[0].Name)
		return ok && !i.Up
	})
}

// TestAddressIsSeenInItsTable: in another table it would be another object, of another program. VPP
// has no event for an address, so the reading of the interfaces may be from before it came, and the
// table that is read is IPv4's where there are addresses of both families.
func TestAddressIsSeenInItsTable(t *testing.T) {
	s := newServer(t)
	s.AddInterface("tenant")
	s.AddInterface("half", netip.MustParsePrefix("198.18.78.1/24"))
	s.Bind("tenant", otherTable)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	is := func(want route.Address) {
		t.Helper()
		elsewhere := want
		elsewhere.Table = 0
		got, err := a.Object(t.Context(), elsewhere.Key())
		if err != nil || got != route.Object(want) {
			t.Errorf("found %+v, %v, want %+v", got, err, want)
		}
	}
	four := route.Address{Interface: "tenant", Address: netip.MustParsePrefix("198.18.77.1/24"),
		Table: otherTable}
	s.AddAddress(four.Interface, four.Address)
	is(four)
	six := route.Address{Interface: "half", Address: netip.MustParsePrefix("2001:db8:78::1/64"),
		Table: otherTable}
	check(t, a.PutObject(t.Context(), route.InTable{Interface: six.Interface,
		Table: route.Table{TableID: route.TableID{ID: otherTable, IPv6: true}}}))
	check(t, a.PutObject(t.Context(), six))
	a.await(t, "both families", func(f route.Facts) bool {
		i, _ := f.Interface(six.Interface)
		return slices.Contains(i.Addresses, six.Address)
	})
	is(six)
}

func TestVPPWithoutOurMessagesIsRefused(t *testing.T) {
	for name, lacks := range map[string][]string{
		"those that know FIB sources": {"ip_route_add_del_v2", "fib_source_dump"},
		"an older one":                {"sw_interface_get_table"},
		"both":                        {"ip_route_lookup_v2", "want_interface_events"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.Lack(lacks...)
			a := runAgent(t, vpp.Config{Socket: s.Socket()})
			f := a.await(t, "a problem", func(f route.Facts) bool { return f.Problem != "" })
			for _, want := range append(lacks, "VPP 25.10-vpptest") {
				if !strings.Contains(f.Problem, want) {
					t.Errorf("problem %q does not name %s", f.Problem, want)
				}
			}
			if p := f.Preflight; p.Outcome != route.RefusedAPI || len(p.Lacks) != len(lacks) ||
				!strings.HasPrefix(p.Lacks[0], slices.Min(lacks)) {
				t.Errorf("preflight %+v", p)
			}
			if _, err := a.Routes(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "lacks") {
				t.Errorf("routes: %v", err)
			}
			if n := s.Requests("ip_route_add_del"); n != 0 {
				t.Errorf("%d writes to the source that all share", n)
			}
			s.Lack()
			if p := a.await(t, "connection", present).Preflight; p.Outcome != route.FullAPI ||
				len(p.Lacks) != 0 {
				t.Errorf("preflight %+v", p)
			}
		})
	}
}

func TestSocketThatAppearsLater(t *testing.T) {
	dir, err := os.MkdirTemp("", "vpp")
	check(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "api.sock")
	a := runAgent(t, vpp.Config{Socket: socket})
	f := a.await(t, "a problem", absent)
	if want := "there is no VPP API socket " + socket; f.Problem != want {
		t.Errorf("problem %q, want %q", f.Problem, want)
	}
	if calls, _, err := a.apply(hostRoutes(1)...); err == nil || calls[0] != 0 {
		t.Errorf("apply without VPP: %v, done %d times", err, calls[0])
	}
	s, err := vpptest.Start(socket)
	check(t, err)
	defer s.Close()
	a.await(t, "connection", present)
}

func TestPathOfSomethingElse(t *testing.T) {
	dir, err := os.MkdirTemp("", "vpp")
	check(t, err)
	defer os.RemoveAll(dir)
	file, stats, cli := filepath.Join(dir, "file"), filepath.Join(dir, "stats.sock"),
		filepath.Join(dir, "cli.sock")
	check(t, os.WriteFile(file, nil, 0o600))
	l, err := net.Listen("unixpacket", stats)
	check(t, err)
	defer l.Close()
	prompts, err := net.Listen("unix", cli)
	check(t, err)
	defer prompts.Close()
	go func() {
		for {
			c, err := prompts.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("\xff\xfb\x03\xff\xfb\x01\xff\xfd\x18\xff\xfd\x1f\r\nvpp# "))
			go func() { // until the client closes, as VPP does: an early close can hide the prompt
				io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	for path, want := range map[string]string{
		file:  " is not a socket, and so not VPP's API socket",
		stats: " is not VPP's API socket: dial unix " + stats + ": connect: protocol wrong type",
		cli:   " is not VPP's API socket: received something other than a message (length ",
	} {
		a := runAgent(t, vpp.Config{Socket: path})
		if f := a.await(t, "a problem", absent); !strings.HasPrefix(f.Problem, path+want) {
			t.Errorf("problem %q, want %q", f.Problem, path+want)
		}
	}
}

func TestSourcesAreAddedOnceAndAdopted(t *testing.T) {
	s := newServer(t)
	var identity string
	for range 3 {
		a := runAgent(t, vpp.Config{Socket: s.Socket()})
		for n := range uint64(2) {
			f := a.awaitConnection(t, n+1)
			if identity == "" {
				identity = f.Identity
			}
			if f.Identity != identity {
				t.Errorf("identity was %s, is %s", identity, f.Identity)
			}
			s.DropConnections()
		}
		a.stop()
	}
	if n := s.Requests("fib_source_add"); n != 2 { // for normal and for elevated routes
		t.Errorf("%d sources were added", n)
	}
	check(t, s.Restart(equip))
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	if f := a.await(t, "connection", present); f.Identity == identity {
		t.Errorf("identity is still %s", identity)
	}
}

func TestPriorityIsFixedUntilVPPRestarts(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	a.mustApply(t, hostRoutes(3)...)
	a.stop()
	a = runAgent(t, vpp.Config{Socket: s.Socket(), Priority: 0x70})
	f := a.await(t, "connection", present)
	if !strings.Contains(f.Problem, "0x88") || !strings.Contains(f.Problem, "0x70") {
		t.Errorf("problem %q", f.Problem)
	}
	rs, err := a.Routes(t.Context())
	if check(t, err); len(rs) != 3 {
		t.Errorf("%d routes of the old source are left, want 3", len(rs))
	}
}

func TestNoSourceLeft(t *testing.T) {
	s := newServer(t)
	for i := 0; ; i++ {
		a := runAgent(t, vpp.Config{Socket: s.Socket(), Source: fmt.Sprintf("other-%d", i)})
		f := a.await(t, "an answer", func(route.Facts) bool { return true })
		a.stop()
		if f.Identity != "" {
			continue
		}
		if i < 100 || !strings.Contains(f.Problem, "no FIB source left") { // each agent has two
			t.Errorf("after %d agents: %q", i, f.Problem)
		}
		return
	}
}

// An operator's static route beats ours; ours is there all the same, unseen, and forwards when the
// other goes.
func TestHiddenRoute(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	op := hostRoutes(1)[0]
	static := op.Route
	static.Paths = []route.Path{{NextHop: netip.MustParseAddr("10.0.2.9"), Interface: "loop1",
		Weight: 1}}
	s.InjectForeignRoute("CLI", static)
	a.mustApply(t, op)
	if _, _, err := a.Lookup(t.Context(), op.Route.Key); !errors.Is(err,
		route.HiddenError{By: "CLI"}) {
		t.Errorf("lookup of a hidden route: %v", err)
	}
	s.RemoveForeignRoute("CLI", static.Key)
	r, ok, err := a.Lookup(t.Context(), op.Route.Key)
	if err != nil || !ok || !r.SameForwarding(op.Route) {
		t.Errorf("lookup of the route that came to light: %v, %t, %v", r, ok, err)
	}
	// A neighbour's host route is beaten by ours.
	s.AddNeighbor("loop1", op.Route.Prefix.Addr())
	if _, ok, _ := a.Lookup(t.Context(), op.Route.Key); !ok {
		t.Error("a neighbour entry hides our route")
	}
	// So is another agent's of the same priority, which came later; of a better one it is named
	// although it came after us.
	for _, c := range []struct {
		name     string
		priority uint8
		hides    bool
	}{{"twin", 0x88, false}, {"better", 0x87, true}} {
		other := runAgent(t, vpp.Config{Socket: s.Socket(), Source: c.name, Priority: c.priority})
		other.await(t, "connection", present)
		other.mustApply(t, op)
		_, ok, err := a.Lookup(t.Context(), op.Route.Key)
		var hidden route.HiddenError
		if errors.As(err, &hidden); ok == c.hides ||
			strings.HasPrefix(hidden.By, c.name+"@") != c.hides {
			t.Errorf("%s with priority %#x: lookup %t, %v", c.name, c.priority, ok, err)
		}
	}
}

func TestInterfacesComeAndGo(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	subnet := netip.MustParsePrefix("10.0.3.1/24")
	index := s.AddInterface("tap7", subnet)
	f := a.await(t, "the new interface with its address", func(f route.Facts) bool {
		i, ok := f.Interface("tap7")
		return ok && i.Up && len(i.Addresses) == 1
	})
	if name, p, ok := f.Connected(0, netip.MustParseAddr("10.0.3.9")); !ok || name != "tap7" ||
		p != subnet.Masked() {
		t.Errorf("connected: %s %s %t", name, p, ok)
	}
	s.SetLink("tap7", false)
	a.await(t, "the interface down", func(f route.Facts) bool {
		i, _ := f.Interface("tap7")
		return !i.Up
	})

	through := hostRoutes(1)[0]
	through.Route.Paths = []route.Path{{NextHop: netip.MustParseAddr("10.0.3.2"), Interface: "tap7",
		Weight: 1}}
	a.mustApply(t, through)
	s.RemoveInterface("tap7")
	a.await(t, "the interface gone", func(f route.Facts) bool {
		_, ok := f.Interface("tap7")
		return !ok
	})
	if r, ok, err := a.Lookup(t.Context(), through.Route.Key); err != nil || !ok ||
		r.SameForwarding(through.Route) {
		t.Errorf("route through an interface that is gone: %v, %t, %v", r, ok, err)
	}
	if got := s.AddInterface("tap8"); got != index {
		t.Fatalf("index %d was not handed out again", index)
	}
	a.await(t, "the other interface", func(f route.Facts) bool {
		_, ok := f.Interface("tap8")
		return ok
	})
	if _, errs, _ := a.apply(through); errs[0] == nil {
		t.Error("a put through a name that is gone reached the interface that has its index now")
	}
}

// An interface that goes and comes back at once, with the same name, index and address, has lost
// its routes all the same. Another connection to the same VPP takes nothing more away.
func TestInterfaceMadeAnewIsSeen(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	subnet := netip.MustParsePrefix("10.0.3.1/24")
	index := s.AddInterface("tap7", subnet)
	before := a.await(t, "the interface", func(f route.Facts) bool {
		i, ok := f.Interface("tap7")
		return ok && len(i.Addresses) == 1
	})
	s.RemoveInterface("tap7")
	if again := s.AddInterface("tap7", subnet); again != index {
		t.Fatalf("index %d, then %d: not the case that is meant", index, again)
	}
	was, _ := before.Interface("tap7")
	f := a.await(t, "another generation of the interface", func(f route.Facts) bool {
		i, ok := f.Interface("tap7")
		return ok && i.Index == was.Index && i.Generation != was.Generation
	})
	anew, _ := f.Interface("tap7")
	s.DropConnections()
	f = a.awaitConnection(t, 2)
	if i, _ := f.Interface("tap7"); i.Generation != anew.Generation {
		t.Errorf("generation %d, and over the next connection %d", anew.Generation, i.Generation)
	}
}

// Nor has it to be in the same table.
func TestInterfaceMadeAnewInAnotherTable(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	subnet := netip.MustParsePrefix("10.0.3.1/24")
	s.AddInterface("tap7", subnet)
	before := a.await(t, "the interface", func(f route.Facts) bool {
		_, ok := f.Interface("tap7")
		return ok
	})
	s.Stall()
	s.RemoveInterface("tap7")
	s.AddInterface("tap7")
	s.Bind("tap7", otherTable)
	s.AddAddress("tap7", subnet)
	s.Continue()
	was, _ := before.Interface("tap7")
	f := a.await(t, "another generation of the interface", func(f route.Facts) bool {
		i, _ := f.Interface("tap7")
		return i.Generation != was.Generation
	})
	if i, _ := f.Interface("tap7"); i.Index != was.Index || i.Table != otherTable {
		t.Errorf("was %+v, is %+v, want it in table %d", was, i, otherTable)
	}
}

// What goes over an interface that was made anew looks as before, and leads nowhere. VPP's command
// line is asked once for each set of next hops, and again when an interface was deleted.
func TestDeadPaths(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	ops := hostRoutes(3)
	ops[2].Route.Paths = []route.Path{{NextHop: netip.MustParseAddr("10.0.2.9"),
		Interface: "loop1", Weight: 1}}
	a.mustApply(t, ops...)
	for range 2 {
		for _, op := range ops {
			_, ok, err := a.Lookup(t.Context(), op.Route.Key)
			if check(t, err); !ok {
				t.Errorf("%s is not there", op.Route)
			}
		}
	}
	if n := s.Requests("cli_inband"); n != 2 {
		t.Errorf("%d commands for 2 sets of next hops", n)
	}
	s.RemoveInterface("loop1")
	s.AddInterface("loop1", testLinks[1].V4)
	a.await(t, "the other interface", func(f route.Facts) bool {
		i, there := f.Interface("loop1")
		return there && i.Generation > 0
	})
	for _, connected := range []string{"before", "after"} {
		for i, op := range ops {
			_, ok, err := a.Lookup(t.Context(), op.Route.Key)
			if !ok || errors.Is(err, route.DeadPathError{Interface: "loop1"}) != (i == 2) {
				t.Errorf("connected %s: %s: %t, %v", connected, op.Route, ok, err)
			}
		}
		a.stop()
		a = runAgent(t, vpp.Config{Socket: s.Socket()})
		a.await(t, "VPP", present)
	}
}

// An interface may go after VPP has listed it and before it is asked for its table.
func TestInterfaceGoesWhileItIsRead(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	s.Refuse(func(m api.Message) int32 {
		if _, ok := m.(*interfaces.SwInterfaceGetTable); ok {
			return -2
		}
		return 0
	})
	s.AddInterface("tap7", netip.MustParsePrefix("10.0.3.1/24"))
	s.AddInterface("tap8") // nothing is asked about this one
	f := a.await(t, "the one that stays", func(f route.Facts) bool {
		_, ok := f.Interface("tap8")
		return ok || absent(f)
	})
	if i, ok := f.Interface("tap7"); ok || absent(f) || a.Stats().Connections != 1 {
		t.Errorf("problem %q after %d connections; the one that is gone: %+v", f.Problem,
			a.Stats().Connections, i)
	}
}

// A question that VPP drops is no answer: table 0 would be a guess.
func TestUnansweredQuestionForATableIsNoticed(t *testing.T) {
	s := newServer(t)
	var g gate
	a := runAgent(t, vpp.Config{Dial: g.dial(t, s.Socket())})
	a.await(t, "connection", present)
	g.shut.Store(true)
	s.Swallow(func(m api.Message) bool { _, ok := m.(*interfaces.SwInterfaceGetTable); return ok })
	s.AddInterface("tap7", netip.MustParsePrefix("10.0.3.1/24"))
	f := a.await(t, "loss", absent)
	if f.Problem != "read interfaces: VPP returned the tables of 0 "+
		"interfaces out of 1" {
		t.Errorf("problem %q", f.Problem)
	}
	s.Swallow(nil)
	g.shut.Store(false)
	a.await(t, "a new connection", present)
}

// VPP's own sources are others', whatever our source is called.
func TestBuiltInSourceIsNeverAdopted(t *testing.T) {
	s := newServer(t)
	foreign := route.Route{Key: route.Key{Prefix: netip.MustParsePrefix("10.66.0.0/24")},
		Kind: route.Drop}
	s.InjectForeignRoute("API", foreign)
	a := runAgent(t, vpp.Config{Socket: s.Socket(), Source: "API"})
	a.await(t, "connection", present)
	if ours, err := a.Routes(t.Context()); err != nil || len(ours) != 0 {
		t.Errorf("ours are %v, %v; want none of the API's", ours, err)
	}
}

// VPP has no event for addresses.
func TestNewAddressIsSeenByPolling(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	s.AddAddress("loop1", netip.MustParsePrefix("172.16.0.1/16"))
	a.await(t, "the new address", func(f route.Facts) bool {
		_, _, ok := f.Connected(0, netip.MustParseAddr("172.16.9.9"))
		return ok
	})
}

// VPP has no event for MTUs. Those of tunnels follow the uplink's.
func TestNewMTUIsSeenByPolling(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	s.SetMTU("loop1", 1600)
	a.await(t, "the new MTU", func(f route.Facts) bool {
		i, _ := f.Interface("loop1")
		return i.MTU == 1600
	})
}

// VPP has no event for tables either, and moves only what has no addresses. One that had none for
// less than a poll looks as before.
func TestMoveToAnotherTableIsSeenByPolling(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	subnet := netip.MustParsePrefix("10.0.3.1/24")
	s.AddInterface("tap7", subnet)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	other := runAgent(t, vpp.Config{Socket: s.Socket(), ClientName: "other", Source: "other"})
	other.await(t, "connection", present)
	check(t, other.DeleteObject(t.Context(),
		route.Address{Interface: "tap7", Address: subnet}.Key()))
	s.Bind("tap7", otherTable)
	s.AddAddress("tap7", subnet)
	a.await(t, "the other table", func(f route.Facts) bool {
		i, _ := f.Interface("tap7")
		return i.Table == otherTable
	})
}

func TestRoutesOfOthersAreNeverWritten(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	a.mustApply(t, hostRoutes(300)...)
	for _, name := range []string{"ip_table_replace_begin", "ip_table_replace_end",
		"ip_table_flush", "ip_route_add_del", "ip_table_add_del", "ip_table_add_del_v2"} {
		if n := s.Requests(name); n != 0 {
			t.Errorf("%d times %s", n, name)
		}
	}
	if got := s.Routes("API"); len(got) != 0 {
		t.Errorf("under the API source: %v", got)
	}
}

// Many callers at once: each gets its own answer.
func TestCallsBesideApply(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	ops := hostRoutes(5000)
	a.mustApply(t, ops...)
	done := make(chan error, 8)
	for w := range 8 {
		go func() {
			for i := w; i < 400; i += 8 {
				k := ops[i].Route.Key
				r, ok, err := a.Lookup(context.Background(), k)
				if err != nil || !ok || r.Key != k {
					done <- fmt.Errorf("lookup %s: %v %t %v", k, r, ok, err)
					return
				}
			}
			done <- nil
		}()
	}
	a.mustApply(t, ops...)
	for range 8 {
		check(t, <-done)
	}
}

// The server drops what a real VPP drops, without a word, and goes on.
func TestServerDropsWhatItCannotRead(t *testing.T) {
	s := newServer(t)
	nc, err := net.Dial("unix", s.Socket())
	check(t, err)
	defer nc.Close()
	send := func(msg ...byte) {
		t.Helper()
		_, err := nc.Write(append(binary.BigEndian.AppendUint32(make([]byte, 8), uint32(len(msg))),
			append(make([]byte, 4), msg...)...))
		check(t, err)
	}
	send()                                   // nothing at all
	send(0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 9) // unknown id
	send(0, 15, 1, 2)                        // truncated greeting
	send(0, 23, 0, 0)                        // truncated ping
	send(0, 23, 0, 0, 0, 0, 0, 0, 0, 77)     // a whole one
	check(t, nc.SetReadDeadline(time.Now().Add(patience)))
	reply := make([]byte, 16+6+(&memclnt.ControlPingReply{}).Size())
	_, err = nc.Read(reply)
	check(t, err)
	if id, context := binary.BigEndian.Uint16(reply[16:]),
		binary.BigEndian.Uint32(reply[18:]); id != 24 || context != 77 {
		t.Errorf("reply %d to context %d", id, context)
	}
}

// The connection ends after an interface was made, and before it is marked; for a memif also before
// it is made. The agent then wants it still, or no more.
func TestInterfaceThatIsNotMarkedYet(t *testing.T) {
	const mac = "02:fe:00:00:00:07"
	atSocket := route.MemifSettings{Socket: memifSocket, Master: true}
	claimed := route.Link{Name: "tenant", Kind: route.AFPacket, HostName: hostLink, MAC: mac}
	tunnel := route.Link{Name: "tunl0", Kind: route.IPIPTunnel, Source: testLinks[0].V4.Addr(),
		MTU: 1480}
	for _, c := range []struct {
		link route.Link
		cut  string // the message that is answered no more
	}{
		{link: route.Link{Name: "tenant", Kind: route.Loopback}, cut: "create_loopback_instance"},
		{link: route.Link{Name: "loop7", Kind: route.Loopback}, cut: "create_loopback_instance"},
		{link: route.Link{Name: "tenant", Kind: route.Memif, Memif: atSocket},
			cut: "memif_socket_filename_add_del_v2"},
		{link: route.Link{Name: "tenant", Kind: route.Memif, Memif: atSocket},
			cut: "memif_create_v2"},
		{link: route.Link{Name: "tenant", Kind: route.Memif, Memif: atSocket, MAC: mac},
			cut: "memif_create_v2"},
		{link: route.Link{Name: "tenant", Kind: route.TAP}, cut: "tap_create_v3"},
		{link: route.Link{Name: "tenant", Kind: route.TAP, MAC: mac}, cut: "tap_create_v3"},
		{link: route.Link{Name: "tenant", Kind: route.TAP, MAC: mac, MTU: 1400},
			cut: "tap_create_v3"},
		{link: route.Link{Name: "tenant", Kind: route.Loopback, MAC: mac},
			cut: "create_loopback_instance"},
		{link: route.Link{Name: "tenant", Kind: route.Loopback, MAC: mac},
			cut: "sw_interface_set_mac_address"},
		{link: route.Link{Name: "tenant", Kind: route.SubInterface, Parent: "loop0", VLAN: 7},
			cut: "create_subif"},
		{link: route.Link{Name: "tenant", Kind: route.Loopback, MTU: 1400},
			cut: "sw_interface_set_mtu"},
		{link: route.Link{Name: "tenant", Kind: route.AFPacket, HostName: hostLink},
			cut: "af_packet_create_v3"},
		{link: tunnel, cut: "ipip_add_tunnel"},
		{link: tunnel, cut: "teib_dump"},
		{link: tunnel, cut: "sw_interface_set_mtu"},
		{link: claimed, cut: "create_loopback_instance"},
		{link: claimed, cut: "sw_interface_tag_add_del"},
		{link: claimed, cut: "sw_interface_set_mac_address"},
		{link: claimed, cut: "af_packet_create_v3"},
		{link: claimed, cut: "delete_loopback"},
	} {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %s %s %v", c.link.Name, c.cut, c.link.MAC, wanted),
				func(t *testing.T) {
					s := newServer(t)
					a := runAgent(t, vpp.Config{Socket: s.Socket()})
					a.await(t, "VPP", present)
					before, sockets := len(testLinks)+1, len(s.MemifSockets()) // and local0
					s.CutAt(func(m api.Message) bool { return m.GetMessageName() == c.cut })
					err := a.PutObject(t.Context(), c.link)
					if !errors.Is(err, route.ErrUnanswered) {
						t.Errorf("put: %v", err)
					}
					s.CutAt(nil)
					back, left := a.awaitConnection(t, 2), 0
					if k := c.link.Key(); wanted {
						left = 1
						found, err := a.Object(t.Context(), k)
						if check(t, err); found != nil && !found.Marked() {
							t.Errorf("%v counts as another program's", found)
						}
						check(t, a.PutObject(t.Context(), c.link))
						found, err = a.Object(t.Context(), k)
						want := route.FoundLink{Name: c.link.Name, Mark: c.link.Digest()}
						if found != want || err != nil {
							t.Errorf("found %v (%v)", found, err)
						}
						mac, mtu := s.Made(c.link.Name)
						if c.link.MAC != "" && mac != c.link.MAC ||
							c.link.MTU != 0 && mtu != uint32(c.link.MTU) {
							t.Errorf("MAC address %s, MTU %d", mac, mtu)
						}
					} else {
						check(t, a.DeleteObject(t.Context(), k))
						if n := len(s.MemifSockets()); n != sockets {
							t.Errorf("%d sockets of memifs are left", n-sockets)
						}
					}
					asWanted := func(f route.Facts) bool {
						_, ok := f.Interface(c.link.Name)
						return ok == wanted && len(f.Interfaces) == before+left
					}
					if !asWanted(back) {
						a.await(t, "no other interface", asWanted)
					}
				})
		}
	}
}

func TestSubInterfaceThatVPPCannotMake(t *testing.T) {
	s := newServer(t)
	s.AddSubInterface("loop0", 7)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "VPP", present)
	for want, link := range map[string]route.Link{
		"loop0.7 has VLAN 7":                {Parent: "loop0", VLAN: 7},
		"loop0.7 is a sub-interface itself": {Parent: "loop0.7", VLAN: 8},
	} {
		link.Name, link.Kind = "tenant", route.SubInterface
		if err := a.PutObject(t.Context(), link); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An item has the same name on every node, and AF_PACKET interfaces share the network outside.
func TestNodesShareNoMACAddress(t *testing.T) {
	link := route.Link{Name: "uplink2", Kind: route.AFPacket, HostName: hostLink}
	chosen := make(chan ethernet_types.MacAddress, 2)
	for range cap(chosen) {
		s := newServer(t)
		a := runAgent(t, vpp.Config{Socket: s.Socket()})
		a.await(t, "connection", present)
		s.Refuse(func(m api.Message) int32 {
			if create, ok := m.(*af_packet.AfPacketCreateV3); ok {
				chosen <- create.HwAddr
			}
			return 0
		})
		check(t, a.PutObject(t.Context(), link))
	}
	if one, other := <-chosen, <-chosen; one == other {
		t.Errorf("both nodes chose %s", one)
	}
}

// Workers of VPP stop while it tells an interface's table, and there may be thousands of both.
func TestTableWithoutInterfacesIsDeletedWithoutAskingThem(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket()})
	a.await(t, "connection", present)
	table := route.Table{TableID: route.TableID{ID: 42}, Name: "red"}
	check(t, a.PutObject(t.Context(), table))
	s.AddInterface("in42")
	s.Bind("in42", 42)
	if err := a.DeleteObject(t.Context(), table.Key()); err == nil {
		t.Error("a table with an interface in it was deleted")
	}
	s.RemoveInterface("in42")
	before := s.Requests("sw_interface_get_table")
	check(t, a.DeleteObject(t.Context(), table.Key()))
	if n := s.Requests("sw_interface_get_table") - before; n > 0 {
		t.Errorf("%d interfaces were asked for their tables", n)
	}
}
