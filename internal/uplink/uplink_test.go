package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func pfxs(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, pfx(s))
	}
	return out
}

// machine is a data plane with two interfaces and VPP's rules about addresses.
type machine struct {
	fib.Dataplane // no routes
	facts         chan route.Facts

	// taken by the methods of a data plane, and by a test that changes something while Run runs
	mu       sync.Mutex
	identity string // "": away
	restarts int
	links    []*link
}

type link struct {
	route.Interface
	adminUp bool
}

func newMachine() *machine {
	m := &machine{facts: make(chan route.Facts, 1), identity: "first", links: twoLinks()}
	m.tell()
	return m
}

func twoLinks() []*link {
	return []*link{
		{Interface: route.Interface{Name: "eth0", Index: 1}},
		{Interface: route.Interface{Name: "eth1", Index: 2}},
	}
}

// tell publishes facts.
func (m *machine) tell() {
	f := route.Facts{Identity: m.identity}
	if m.identity == "" {
		f.Problem = "not connected"
	}
	for _, l := range m.links {
		i := l.Interface
		i.Addresses = slices.Clone(i.Addresses)
		f.Interfaces = append(f.Interfaces, i)
	}
	select {
	case <-m.facts:
	default:
	}
	m.facts <- f
}

// change changes the machine, which tells.
func (m *machine) change(f func()) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.tell()
}

func (m *machine) at(index uint32) *link { return m.links[index-1] }

func (m *machine) named(name string) *link {
	i := slices.IndexFunc(m.links, func(l *link) bool { return l.Name == name })
	if m.identity == "" || i < 0 {
		return nil
	}
	return m.links[i]
}

func (m *machine) Facts() <-chan route.Facts { return m.facts }

func (m *machine) Routes(context.Context) ([]route.Route, error) { return nil, nil }

func (m *machine) Object(_ context.Context, k route.ObjectKey) (route.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.named(k.Interface)
	switch a, err := route.AddressOf(k); {
	case l == nil:
		return nil, route.ErrNoLink
	case k.Kind == route.AdminUp && l.adminUp:
		return route.Up{Interface: l.Name}, nil
	case err == nil && slices.Contains(l.Addresses, a.Address):
		return a, nil
	}
	return nil, nil
}

func (m *machine) PutObject(_ context.Context, o route.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.named(o.Key().Interface)
	if l == nil {
		return route.ErrNoLink
	}
	a, isAddress := o.(route.Address)
	if isAddress {
		return m.add(l, a.Address)
	}
	l.adminUp, l.Up = true, true
	m.tell()
	return nil
}

func (m *machine) add(l *link, a netip.Prefix) error {
	for _, x := range m.links {
		for _, old := range x.Addresses {
			if x == l && old == a {
				return nil
			}
			if (route.Address{Interface: l.Name, Address: a}).Excludes(
				route.Address{Interface: x.Name, Address: old}.Key()) {
				return fmt.Errorf("%s is in the way of %s", old, a)
			}
		}
	}
	l.Addresses = append(l.Addresses, a)
	return nil
}

func (m *machine) DeleteObject(_ context.Context, k route.ObjectKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, err := route.AddressOf(k); err == nil {
		m.remove(m.named(k.Interface), a.Address)
	}
	return nil
}

func (m *machine) remove(l *link, a netip.Prefix) {
	l.Addresses = slices.DeleteFunc(l.Addresses, func(p netip.Prefix) bool { return p == a })
}

func (m *machine) restart() {
	m.change(func() {
		m.restarts++
		m.identity, m.links = fmt.Sprint("restart ", m.restarts), twoLinks()
	})
}

// running is an uplink on a machine.
type running struct {
	*Uplink
	stop func()
}

// uplink starts an uplink as a new process would.
func (m *machine) uplink(dir, name string, addresses ...string) *running {
	return m.logged(slog.New(slog.DiscardHandler), dir, name, addresses...)
}

func (m *machine) logged(log *slog.Logger, dir, name string, addresses ...string) *running {
	m.change(func() {})
	engine := fib.New(fib.Config{
		Dataplane: m, Journal: filepath.Join(dir, "journal"), ListRoutes: true,
		Earlier: Earlier(dir, log), Log: log,
	})
	u := New(Config{
		FIB: engine, Dataplane: "machine", Interface: name, Addresses: pfxs(addresses...),
		StateDir: dir, Log: log,
		Want: func(all fib.Source) {
			var w fib.Wanted
			w.Sources[route.Uplink] = all
			engine.Set(w)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for _, run := range []func(context.Context) error{engine.Run, u.Run} {
		done.Go(func() {
			if err := run(ctx); err != nil {
				panic(err)
			}
		})
	}
	return &running{u, func() { cancel(); done.Wait() }}
}

// configured has an uplink set up and ended.
func (m *machine) configured(t *testing.T, dir, name string, addresses ...string) {
	t.Helper()
	u := m.uplink(dir, name, addresses...)
	defer u.stop()
	u.check(t, "")
}

// check waits for the state and compares its problem; "": none.
func (r *running) check(t *testing.T, problem string) {
	t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if s := r.State(); s.OK != (problem == "") || s.Problem != problem {
		t.Errorf("%+v, want %q", s, problem)
	}
}

func (m *machine) check(t *testing.T, index uint32, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, a := range m.at(index).Addresses {
		got = append(got, a.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("interface %d has %v, want %v", index, got, want)
	}
}

func bubble(t *testing.T, f func(*testing.T, *machine, string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { f(t, newMachine(), dir) })
}

func TestUplinkComesUpAndGetsItsAddress(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.configured(t, dir, "eth0", "192.168.4.7/24", "fd00::7/64")
		m.check(t, 1, "192.168.4.7/24", "fd00::7/64")
		m.check(t, 2)
		if !m.at(1).adminUp || m.at(2).adminUp {
			t.Error("not eth0 alone is up")
		}
	})
	bubble(t, func(t *testing.T, m *machine, dir string) { // what takes a moment is no trouble
		var log strings.Builder
		u := m.logged(slog.New(slog.NewTextHandler(&log, nil)), dir, "eth0", "192.168.4.7/24")
		u.check(t, "")
		u.stop()
		if strings.Contains(log.String(), "WARN") {
			t.Errorf("logged %q", log.String())
		}
	})
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.configured(t, dir, "2", "192.168.4.7/24") // by index
		m.check(t, 2, "192.168.4.7/24")
	})
}

func TestAddressThatIsThereIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.at(1).Addresses = pfxs("192.168.4.7/24")
		m.configured(t, dir, "eth0", "192.168.4.7/24")
		m.check(t, 1, "192.168.4.7/24")
		// It was there before us, so it is not ours to remove.
		m.configured(t, dir, "eth0", "192.168.5.7/24")
		m.check(t, 1, "192.168.4.7/24", "192.168.5.7/24")
	})
}

func TestEarlierAddressIsReplacedAndOthersStay(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.at(1).Addresses = pfxs("10.0.0.1/24")
		m.configured(t, dir, "eth0", "192.168.4.7/24")
		for _, next := range []string{"192.168.4.8/24", "192.168.4.8/25", "192.168.4.8/16",
			"172.16.0.1/12"} {
			m.configured(t, dir, "eth0", next)
			m.check(t, 1, "10.0.0.1/24", next)
		}
	})
}

func TestUplinkMovesToAnotherInterface(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.configured(t, dir, "eth0", "192.168.4.7/24")
		m.configured(t, dir, "2", "192.168.4.7/24")
		m.check(t, 1)
		m.check(t, 2, "192.168.4.7/24")
		u := m.uplink(dir, "eth9", "192.168.4.7/24")
		u.check(t, "machine: there is no interface eth9")
		u.stop()
		m.check(t, 2, "192.168.4.7/24") // until the new one is there
	})
}

func TestAddressComesBackAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		u := m.uplink(dir, "eth0", "192.168.4.7/24")
		u.check(t, "")
		m.restart()
		u.check(t, "")
		m.check(t, 1, "192.168.4.7/24")
		u.stop()
		// An address of ours in another generation may now be foreign.
		m.restart()
		m.at(1).Addresses = pfxs("192.168.4.7/24")
		m.configured(t, dir, "eth0", "192.168.5.7/24")
		m.check(t, 1, "192.168.4.7/24", "192.168.5.7/24")
	})
}

func TestAddressInTheWayOfOthersIsAProblem(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.at(2).Addresses = pfxs("192.168.4.1/24")
		u := m.uplink(dir, "eth0", "192.168.4.7/24")
		u.check(t, "192.168.4.1/24 is in the way of 192.168.4.7/24")
		m.check(t, 2, "192.168.4.1/24")
		u.stop()
	})
}

// A refused address is tried again and again; the log must not say each time that it is set.
func TestWhatIsRefusedIsNotLoggedAsSet(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.at(2).Addresses = pfxs("192.168.4.1/24")
		var log strings.Builder
		u := m.logged(slog.New(slog.NewTextHandler(&log, nil)), dir, "eth0", "192.168.4.7/24")
		u.check(t, "192.168.4.1/24 is in the way of 192.168.4.7/24")
		const set = `msg="object set" object="address 192.168.4.7/24 of eth0"`
		if strings.Contains(log.String(), set) {
			t.Errorf("logged %q", log.String())
		}
		m.change(func() { m.at(2).Addresses = nil })
		u.check(t, "")
		u.stop()
		if !strings.Contains(log.String(), set) {
			t.Errorf("logged %q", log.String())
		}
	})
}

func TestUplinkWithoutADisk(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.configured(t, "/nowhere", "eth0", "192.168.4.7/24")
		m.check(t, 1, "192.168.4.7/24")
		if err := os.WriteFile(recordOf(dir), []byte(`{"addr`), 0o600); err != nil {
			t.Fatal(err)
		}
		m.configured(t, dir, "eth0", "192.168.5.7/24")
		m.check(t, 1, "192.168.4.7/24", "192.168.5.7/24")
	})
}

// What an agent from before the journal had objects has set is ours. Its record is read once.
func TestUpgradeFromARecord(t *testing.T) {
	const record = `{"identity":%q,"addresses":[` +
		`{"interface":"eth0","index":1,"address":"192.168.4.7/24"},` +
		`{"interface":"eth1","index":7,"address":"192.168.6.7/24"}]}`
	for identity, left := range map[string][]string{
		"first": nil, "another": {"192.168.4.7/24"},
	} {
		bubble(t, func(t *testing.T, m *machine, dir string) {
			m.at(1).Addresses = pfxs("192.168.4.7/24")
			m.at(2).Addresses = pfxs("192.168.6.7/24") // of another interface eth1
			raw := fmt.Appendf(nil, record, identity)
			if err := os.WriteFile(recordOf(dir), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			m.configured(t, dir, "eth0", "192.168.4.7/24")
			m.check(t, 1, "192.168.4.7/24")
			if _, err := os.Stat(recordOf(dir)); err == nil {
				t.Error("the record is still there")
			}
			m.configured(t, dir, "eth0", "192.168.5.7/24")
			m.check(t, 1, append(left, "192.168.5.7/24")...)
			m.check(t, 2, "192.168.6.7/24")
		})
	}
}

func TestRunTellsHowItStands(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine, dir string) {
		m.identity = ""
		u := m.uplink(dir, "eth0", "192.168.4.7/24")
		u.check(t, "not connected")
		select {
		case <-u.Ready():
			t.Error("ready before the data plane was there")
		default:
		}
		m.change(func() { m.identity = "first" })
		<-u.Ready()
		u.check(t, "")
		m.change(func() {
			m.at(1).Addresses = nil
			m.at(1).Up = false // no carrier, although brought up
		})
		u.check(t, "uplink: eth0 has no carrier")
		m.check(t, 1, "192.168.4.7/24")
		u.stop()
	})
}

// Whatever is configured one after the other, whoever else sets and removes addresses, with
// restarts of both sides: what is wanted is there unless somebody is in the way, what was ours is
// gone, and nobody else's address is ever removed.
func TestUplinkWalk(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		var failed any // rapid stops a run by a panic, which must not end in the bubble
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			walk(rt, filepath.Join(dir, fmt.Sprint(n)))
		})
		if failed != nil {
			panic(failed)
		}
	})
}

func walk(rt *rapid.T, dir string) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		rt.Fatal(err)
	}
	m := newMachine()
	address := rapid.SampledFrom(pfxs("192.168.4.7/24", "192.168.4.8/24", "192.168.4.7/25",
		"192.168.4.9/32", "10.0.0.1/24", "fd00::7/64", "fd00::8/64"))
	type setting struct {
		index   uint32
		address netip.Prefix
	}
	others := map[setting]bool{}
	var u *running
	defer func() {
		if u != nil {
			u.stop()
		}
	}()
	for range rapid.IntRange(1, 12).Draw(rt, "steps") {
		index := rapid.Uint32Range(1, 2).Draw(rt, "interface")
		a := address.Draw(rt, "address")
		key := setting{index, a}
		switch rapid.SampledFrom([]string{"configure", "configure", "others add",
			"others remove", "restart", "look"}).Draw(rt, "step") {
		case "configure":
			if u != nil {
				u.stop()
			}
			u = m.uplink(dir, m.at(index).Name, a.String())
		case "others add":
			m.change(func() {
				if !slices.Contains(m.at(index).Addresses, a) && m.add(m.at(index), a) == nil {
					others[key] = true
				}
			})
		case "others remove":
			m.change(func() {
				if others[key] {
					m.remove(m.at(index), a)
					delete(others, key)
				}
			})
		case "restart":
			m.restart()
			clear(others)
		}
		if u == nil {
			continue
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		ok := u.State().OK
		for _, l := range m.links {
			for _, a := range l.Addresses {
				wanted := l.Name == u.cfg.Interface && slices.Contains(u.cfg.Addresses, a)
				if ok && !wanted && !others[setting{l.Index, a}] {
					rt.Fatalf("%s is on %s and nobody's", a, l.Name)
				}
			}
		}
		for s := range others {
			if !slices.Contains(m.at(s.index).Addresses, s.address) {
				rt.Fatalf("somebody else's %s is gone from interface %d", s.address, s.index)
			}
		}
		l := m.named(u.cfg.Interface)
		if has := slices.Contains(l.Addresses, u.cfg.Addresses[0]); ok && (!has || !l.adminUp) {
			rt.Fatalf("all is well, they say, with %+v", l)
		}
	}
}
