package dataplanetest

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/uplink"
)

// uplinkCases are about interfaces that we set up: their addresses are the one thing besides routes
// that we change.
var uplinkCases = []testCase{
	{"a link is found by name and by index", "", func(t *testing.T, b *bench) {
		for _, i := range b.Interfaces {
			l := b.link(t, i.Name)
			if l.Name != i.Name || !l.AdminUp || !l.Up || l.Identity != b.facts.last.Identity ||
				!slices.Contains(l.Addresses, i.V4) || !slices.Contains(l.Addresses, i.V6) {
				t.Errorf("link %s is %+v", i.Name, l)
			}
			if again := b.link(t, routeIndex(l)); again.Name != i.Name {
				t.Errorf("link %d is %+v", l.Index, again)
			}
		}
		_, err := b.port().Link(b.context(t), "nothing0")
		if !errors.Is(err, route.ErrNoLink) || !strings.Contains(err.Error(), "nothing0") {
			t.Errorf("a link that does not exist: %v", err)
		}
	}},
	{"an address comes and goes, and brings its subnet", "", func(t *testing.T, b *bench) {
		for _, a := range []netip.Prefix{pfx("198.18.60.1/24"), pfx("2001:db8:60::1/64")} {
			l := b.link(t, b.Interfaces[0].Name)
			for range 2 { // the second time it is there already
				must(t, b.port().AddAddress(b.context(t), l.Index, a))
				b.hasAddresses(t, append(l.Addresses, a)...)
			}
			b.facts.await(t, "the new subnet", func(f route.Facts) bool {
				name, _, ok := f.Connected(0, a.Addr().Next())
				return ok && name == l.Name
			})
			for range 2 { // and then it is gone already
				must(t, b.port().RemoveAddress(b.context(t), l.Index, a))
				b.hasAddresses(t, l.Addresses...)
			}
			b.facts.await(t, "no new subnet", func(f route.Facts) bool {
				_, _, ok := f.Connected(0, a.Addr().Next())
				return !ok
			})
		}
	}},
	{"of two addresses in a subnet the first one stays", "", func(t *testing.T, b *bench) {
		l := b.link(t, b.Interfaces[0].Name)
		before := b.Dump(t)
		for _, second := range []netip.Prefix{
			netip.PrefixFrom(b.v4(0, 8), b.Interfaces[0].V4.Bits()),
			netip.PrefixFrom(b.v6(0, 8), b.Interfaces[0].V6.Bits()),
		} {
			must(t, b.port().AddAddress(b.context(t), l.Index, second))
			must(t, b.port().RemoveAddress(b.context(t), l.Index, second))
		}
		b.hasAddresses(t, l.Addresses...)
		if after := b.Dump(t); !sameEntries(before, after, false) {
			t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
		}
	}},
	{"an address with another length is another one", "", func(t *testing.T, b *bench) {
		l := b.link(t, b.Interfaces[0].Name)
		own := b.Interfaces[0].V4
		must(t, b.port().RemoveAddress(b.context(t), l.Index,
			netip.PrefixFrom(own.Addr(), own.Bits()+1)))
		b.hasAddresses(t, l.Addresses...)
	}},
	{"setting up what is up changes nothing", "", func(t *testing.T, b *bench) {
		before := b.Dump(t)
		must(t, b.port().SetUp(b.context(t), b.link(t, b.Interfaces[0].Name).Index))
		if after := b.Dump(t); !sameEntries(before, after, false) {
			t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
		}
	}},
	{"a link that is down comes up", Links, func(t *testing.T, b *bench) {
		name := b.Interfaces[1].Name
		b.SetLink(t, name, false)
		l := b.link(t, name)
		if l.AdminUp {
			t.Errorf("%+v is up", l)
		}
		must(t, b.port().SetUp(b.context(t), l.Index))
		b.eventually(t, "the link is up", func() bool {
			l := b.link(t, name)
			return l.AdminUp && l.Up
		})
		b.present(t)
	}},
	{"what cannot be is an error and changes nothing", "", func(t *testing.T, b *bench) {
		before := b.Dump(t)
		for _, err := range []error{
			b.port().SetUp(b.context(t), 4711),
			b.port().AddAddress(b.context(t), 4711, pfx("198.18.61.1/24")),
		} {
			if err == nil {
				t.Error("an interface that does not exist was changed")
			}
		}
		if after := b.Dump(t); !sameEntries(before, after, false) {
			t.Errorf("the FIB before:\n%safter:\n%s", printed(before), printed(after))
		}
	}},
	{"the uplink gets its address, keeps it, and gives it up for another", "",
		func(t *testing.T, b *bench) {
			dir := t.TempDir()
			l := b.link(t, b.Interfaces[0].Name)
			first, second := pfx("198.18.62.1/24"), pfx("198.18.62.2/24")
			stop := b.runUplink(t, dir, l.Name, first)
			b.eventually(t, "the first address", func() bool {
				return slices.Contains(b.link(t, l.Name).Addresses, first)
			})
			must(t, b.port().RemoveAddress(b.context(t), l.Index, first)) // somebody's hand
			b.eventually(t, "the first address again", func() bool {
				return slices.Contains(b.link(t, l.Name).Addresses, first)
			})
			stop()
			stop = b.runUplink(t, dir, l.Name, second)
			b.eventually(t, "the second address instead", func() bool {
				has := b.link(t, l.Name).Addresses
				return slices.Contains(has, second) && !slices.Contains(has, first)
			})
			stop()
			b.hasAddresses(t, append(l.Addresses, second)...)
			must(t, b.port().RemoveAddress(b.context(t), l.Index, second))
		}},
	{"the uplink is set up again after a restart", Connection, func(t *testing.T, b *bench) {
		a := pfx("198.18.63.1/24")
		name := b.Interfaces[0].Name
		stop := b.runUplink(t, t.TempDir(), name, a)
		defer stop()
		there := func() bool {
			l, err := b.port().Link(b.context(t), name)
			return err == nil && slices.Contains(l.Addresses, a)
		}
		b.eventually(t, "the address", there)
		b.restart(t)
		b.eventually(t, "the address after the restart", there)
		stop()
		must(t, b.port().RemoveAddress(b.context(t), b.link(t, name).Index, a))
	}},
}

func (b *bench) port() uplink.Port { return b.Dataplane.(uplink.Port) }

func (b *bench) link(t *testing.T, nameOrIndex string) route.Link {
	t.Helper()
	l, err := b.port().Link(b.context(t), nameOrIndex)
	must(t, err)
	return l
}

// hasAddresses compares the addresses of the first interface, but for link-local ones, which come
// by themselves.
func (b *bench) hasAddresses(t *testing.T, want ...netip.Prefix) {
	t.Helper()
	clean := func(all []netip.Prefix) []netip.Prefix {
		all = slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool {
			return p.Addr().IsLinkLocalUnicast()
		})
		slices.SortFunc(all, route.ComparePrefixes)
		return all
	}
	if got := b.link(t, b.Interfaces[0].Name).Addresses; !slices.Equal(clean(got), clean(want)) {
		t.Errorf("addresses are %v, want %v", got, want)
	}
}

// runUplink runs an uplink until stop.
func (b *bench) runUplink(t *testing.T, dir, name string, addresses ...netip.Prefix) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	u := uplink.New(uplink.Config{
		Port: b.port(), Interface: name, Addresses: addresses, StateDir: dir,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	var done sync.WaitGroup
	done.Go(func() {
		if err := u.Run(ctx); err != nil {
			t.Errorf("uplink: %v", err)
		}
	})
	return sync.OnceFunc(func() { cancel(); done.Wait() })
}

func (b *bench) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func routeIndex(l route.Link) string { return strconv.FormatUint(uint64(l.Index), 10) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
