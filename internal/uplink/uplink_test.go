package uplink

import (
	"context"
	"errors"
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
	// taken by the methods of a data plane, and by a test that changes something while Run runs
	mu       sync.Mutex
	identity string
	links    []*route.Link
	away     error
}

func newMachine() *machine {
	return &machine{identity: "first", links: []*route.Link{
		{Interface: route.Interface{Name: "eth0", Index: 1}},
		{Interface: route.Interface{Name: "eth1", Index: 2}},
	}}
}

func (m *machine) at(index uint32) *route.Link { return m.links[index-1] }

func (m *machine) Link(_ context.Context, nameOrIndex string) (route.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []route.Interface
	for _, l := range m.links {
		list = append(list, l.Interface)
	}
	i := route.FindLink(nameOrIndex, list)
	if m.away != nil || i < 0 {
		return route.Link{}, errors.Join(m.away, route.ErrNoLink)
	}
	link := *m.links[i]
	link.Identity, link.Addresses = m.identity, slices.Clone(link.Addresses)
	return link, nil
}

func (m *machine) SetUp(_ context.Context, index uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at(index).AdminUp, m.at(index).Up = true, true
	return nil
}

func (m *machine) AddAddress(_ context.Context, index uint32, a netip.Prefix) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		for _, x := range l.Addresses {
			switch {
			case l.Index == index && x == a:
				return nil
			case x.Overlaps(a) && (l.Index != index || inTheWay(x, a)):
				return fmt.Errorf("%s is in the way of %s", x, a)
			}
		}
	}
	m.at(index).Addresses = append(m.at(index).Addresses, a)
	return nil
}

func (m *machine) RemoveAddress(_ context.Context, index uint32, a netip.Prefix) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at(index).Addresses = slices.DeleteFunc(m.at(index).Addresses, func(p netip.Prefix) bool {
		return p == a
	})
	return nil
}

func (m *machine) restart() {
	m.identity += "'"
	for i, l := range newMachine().links {
		m.links[i] = l
	}
}

func (m *machine) uplink(dir, name string, addresses ...string) *Uplink {
	return New(Config{Port: m, Interface: name, Addresses: pfxs(addresses...), StateDir: dir,
		Log: slog.New(slog.DiscardHandler)})
}

func (m *machine) check(t *testing.T, index uint32, want ...string) {
	t.Helper()
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

func look(t *testing.T, u *Uplink) {
	t.Helper()
	if err := u.look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestUplinkComesUpAndGetsItsAddress(t *testing.T) {
	m := newMachine()
	look(t, m.uplink(t.TempDir(), "eth0", "192.168.4.7/24", "fd00::7/64"))
	m.check(t, 1, "192.168.4.7/24", "fd00::7/64")
	m.check(t, 2)
	if !m.at(1).AdminUp || m.at(2).AdminUp {
		t.Error("not eth0 alone is up")
	}
	m = newMachine()
	look(t, m.uplink(t.TempDir(), "2", "192.168.4.7/24")) // by index
	m.check(t, 2, "192.168.4.7/24")
}

func TestAddressThatIsThereIsKept(t *testing.T) {
	m, dir := newMachine(), t.TempDir()
	m.at(1).Addresses = pfxs("192.168.4.7/24")
	look(t, m.uplink(dir, "eth0", "192.168.4.7/24"))
	m.check(t, 1, "192.168.4.7/24")
	// It was there before us, so it is not ours to remove.
	look(t, m.uplink(dir, "eth0", "192.168.5.7/24"))
	m.check(t, 1, "192.168.4.7/24", "192.168.5.7/24")
}

func TestEarlierAddressIsReplacedAndOthersStay(t *testing.T) {
	m, dir := newMachine(), t.TempDir()
	m.at(1).Addresses = pfxs("10.0.0.1/24")
	look(t, m.uplink(dir, "eth0", "192.168.4.7/24"))
	for _, next := range []string{"192.168.4.8/24", "192.168.4.8/25", "192.168.4.8/16",
		"172.16.0.1/12"} {
		look(t, m.uplink(dir, "eth0", next))
		m.check(t, 1, "10.0.0.1/24", next)
	}
}

func TestUplinkMovesToAnotherInterface(t *testing.T) {
	m, dir := newMachine(), t.TempDir()
	look(t, m.uplink(dir, "eth0", "192.168.4.7/24"))
	look(t, m.uplink(dir, "eth1", "192.168.4.7/24"))
	m.check(t, 1)
	m.check(t, 2, "192.168.4.7/24")
}

func TestAddressComesBackAfterARestart(t *testing.T) {
	m, dir := newMachine(), t.TempDir()
	u := m.uplink(dir, "eth0", "192.168.4.7/24")
	look(t, u)
	m.restart()
	look(t, u)
	m.check(t, 1, "192.168.4.7/24")
	// An address of ours in another generation may now be foreign.
	m.restart()
	m.at(1).Addresses = pfxs("192.168.4.7/24")
	look(t, m.uplink(dir, "eth0", "192.168.5.7/24"))
	m.check(t, 1, "192.168.4.7/24", "192.168.5.7/24")
}

func TestAddressInTheWayOfOthersIsAProblem(t *testing.T) {
	m := newMachine()
	m.at(2).Addresses = pfxs("192.168.4.1/24")
	if err := m.uplink(t.TempDir(), "eth0", "192.168.4.7/24").look(t.Context()); err == nil {
		t.Error("no word about an address that cannot be set")
	}
	m.check(t, 2, "192.168.4.1/24")
}

// A refused address is tried every second; the log must not say each time that it is set.
func TestWhatIsRefusedIsNotLoggedAsSet(t *testing.T) {
	m := newMachine()
	m.at(2).Addresses = pfxs("192.168.4.1/24")
	var log strings.Builder
	u := m.uplink(t.TempDir(), "eth0", "192.168.4.7/24")
	u.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := u.look(t.Context()); err == nil || strings.Contains(log.String(), "address set") {
		t.Errorf("%v; logged %q", err, log.String())
	}
	m.at(2).Addresses = nil
	look(t, u)
	if !strings.Contains(log.String(), "address set") {
		t.Errorf("logged %q", log.String())
	}
}

func TestUplinkWithoutADisk(t *testing.T) {
	m := newMachine()
	look(t, m.uplink("/nowhere", "eth0", "192.168.4.7/24"))
	m.check(t, 1, "192.168.4.7/24")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "uplink.json"), []byte(`{"addr`), 0o600); err != nil {
		t.Fatal(err)
	}
	look(t, m.uplink(dir, "eth0", "192.168.5.7/24"))
	m.check(t, 1, "192.168.4.7/24", "192.168.5.7/24")
}

func TestRunTellsHowItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.away = errors.New("not connected")
		u := m.uplink(t.TempDir(), "eth0", "192.168.4.7/24")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		synctest.Wait()
		if s := u.State(); s.OK || s.Problem == "" {
			t.Errorf("away: %+v", s)
		}
		select {
		case <-u.Ready():
			t.Error("ready before the data plane was there")
		default:
		}
		m.mu.Lock()
		m.away = nil
		m.mu.Unlock()
		<-u.Ready()
		if s := u.State(); !s.OK || s.Problem != "" {
			t.Errorf("there: %+v", s)
		}
		m.mu.Lock()
		m.at(1).Addresses = nil
		m.at(1).Up = false // no carrier, although brought up
		m.mu.Unlock()
		time.Sleep(2 * interval)
		synctest.Wait()
		if s := u.State(); s.OK || s.Problem != "uplink: eth0 has no carrier" {
			t.Errorf("without carrier: %+v", s)
		}
		m.check(t, 1, "192.168.4.7/24")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Whatever is configured one after the other, whoever else sets and removes addresses, with
// restarts of both sides: what is wanted is there unless somebody is in the way, what was ours is
// gone, and nobody else's address is ever removed.
func TestUplinkWalk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, dir := newMachine(), t.TempDir()
		address := rapid.SampledFrom(pfxs("192.168.4.7/24", "192.168.4.8/24", "192.168.4.7/25",
			"192.168.4.9/32", "10.0.0.1/24", "fd00::7/64", "fd00::8/64"))
		others := map[setting]bool{}
		var u *Uplink
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			index := rapid.Uint32Range(1, 2).Draw(rt, "interface")
			a := address.Draw(rt, "address")
			key := setting{m.at(index).Name, index, a}
			switch rapid.SampledFrom([]string{"configure", "configure", "others add",
				"others remove", "restart", "look"}).Draw(rt, "step") {
			case "configure":
				u = m.uplink(dir, m.at(index).Name, a.String())
			case "others add":
				if !slices.Contains(m.at(index).Addresses, a) && m.AddAddress(t.Context(), index,
					a) == nil {
					others[key] = true
				}
			case "others remove":
				if others[key] {
					m.RemoveAddress(t.Context(), index, a)
					delete(others, key)
				}
			case "restart":
				m.restart()
				clear(others)
			}
			if u == nil {
				continue
			}
			err := u.look(t.Context())
			for _, l := range m.links {
				for _, a := range l.Addresses {
					wanted := l.Name == u.cfg.Interface && slices.Contains(u.cfg.Addresses, a)
					if !wanted && !others[setting{l.Name, l.Index, a}] && err == nil {
						rt.Fatalf("%s is on %s and nobody's", a, l.Name)
					}
				}
			}
			for s := range others {
				if !slices.Contains(m.at(s.Index).Addresses, s.Address) {
					rt.Fatalf("somebody else's %s is gone from %s", s.Address, s.Interface)
				}
			}
			link, _ := m.Link(t.Context(), u.cfg.Interface)
			if has := slices.Contains(link.Addresses, u.cfg.Addresses[0]); err == nil &&
				(!has || !link.AdminUp) {
				rt.Fatalf("all is well, they say, with %+v", link)
			}
		}
	})
}
