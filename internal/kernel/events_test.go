package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

func facts(t *testing.T, d *Dataplane) route.Facts {
	t.Helper()
	select {
	case f := <-d.Facts():
		return f
	case <-time.After(30 * time.Second):
		t.Fatal("no facts in 30 s")
		return route.Facts{}
	}
}

func TestFactsShowInterfaces(t *testing.T) {
	b := newBed(t)
	f := facts(t, b.Dataplane)
	eth1, ok := f.Interface("eth1")
	if !ok || !eth1.Up || eth1.Index == 0 || !slices.Contains(eth1.Addresses, pfx("10.0.1.1/24")) ||
		!slices.Contains(eth1.Addresses, pfx("fd00:1::1/64")) {
		t.Errorf("eth1: %+v", eth1)
	}
	if name, subnet, ok := f.Connected(0, addr("10.0.2.9")); !ok || name != "eth2" ||
		subnet != pfx("10.0.2.0/24") {
		t.Errorf("10.0.2.9 is connected to %s %s %v", name, subnet, ok)
	}
	if !strings.HasPrefix(f.Version, "Linux ") || f.Problem != "" {
		t.Errorf("version %q, problem %q", f.Version, f.Problem)
	}
	check(t, b.ns.AddAddress("eth1", pfx("10.9.0.1/24")))
	eventually(t, "eth1 has a new address", func() bool { // facts of changed routes may come first
		eth1, _ = facts(t, b.Dataplane).Interface("eth1")
		return slices.Contains(eth1.Addresses, pfx("10.9.0.1/24"))
	})
	check(t, b.peer.SetLink("eth2", false))
	eventually(t, "eth2 is without carrier", func() bool {
		eth2, _ := facts(t, b.Dataplane).Interface("eth2")
		return !eth2.Up
	})
	check(t, b.ns.DeleteLink("eth2"))
	eventually(t, "eth2 is gone", func() bool {
		_, there := facts(t, b.Dataplane).Interface("eth2")
		return !there
	})
}

// TestLossIsSeenByASlowReader: the routes are gone, and all looks as before.
func TestLossIsSeenByASlowReader(t *testing.T) {
	address := pfx("10.0.1.1/24")
	for name, c := range map[string]struct {
		blink func(t *testing.T, b *bed)
		lost  bool
	}{
		"down and up": {func(t *testing.T, b *bed) {
			check(t, b.ns.SetLink("eth1", false))
			check(t, b.ns.SetLink("eth1", true))
		}, true},
		"down and up, its addresses stay": {func(t *testing.T, b *bed) {
			check(t, b.ns.Sysctl("net.ipv6.conf.eth1.keep_addr_on_down", "1"))
			check(t, b.ns.SetLink("eth1", false))
			check(t, b.ns.SetLink("eth1", true))
		}, true},
		"the last IPv4 address goes and comes": {func(t *testing.T, b *bed) {
			check(t, b.ns.DeleteAddress("eth1", address))
			check(t, b.ns.AddAddress("eth1", address))
		}, true},
		"another comes when it has gone": {func(t *testing.T, b *bed) {
			check(t, b.ns.DeleteAddress("eth1", address))
			check(t, b.ns.AddAddress("eth1", pfx("10.0.1.9/24")))
		}, true},
		"a second address comes and goes": {func(t *testing.T, b *bed) {
			check(t, b.ns.AddAddress("eth1", pfx("10.9.0.1/24")))
			check(t, b.ns.DeleteAddress("eth1", pfx("10.9.0.1/24")))
		}, false},
		"no carrier for a moment": {func(t *testing.T, b *bed) {
			check(t, b.peer.SetLink("eth1", false))
			check(t, b.peer.SetLink("eth1", true))
		}, false},
		"out of a bridge": {func(t *testing.T, b *bed) {
			b.ip("link add br0 type bridge")
			b.ip("link set eth1 master br0")
			b.ip("link set eth1 nomaster")
		}, false},
		"another interface": {func(t *testing.T, b *bed) {
			check(t, b.ns.SetLink("eth2", false))
			check(t, b.ns.SetLink("eth2", true))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			r := via("198.18.1.0/24", "10.0.1.2 eth1")
			b.apply(put(r))
			before, _ := facts(t, b.Dataplane).Interface("eth1")
			c.blink(t, b)
			if _, there, err := b.Lookup(t.Context(), r.Key); there == c.lost || err != nil {
				t.Fatalf("the route is there: %t, %v", there, err)
			}
			time.Sleep(100 * time.Millisecond) // until all is over for a reader who now looks
			patience := 30 * time.Second
			if !c.lost {
				patience = 200 * time.Millisecond // for what does not come
			}
			lost := false
			for waiting := true; waiting && !lost; {
				select {
				case f := <-b.Facts():
					after, _ := f.Interface("eth1")
					lost = after.Generation != before.Generation
				case <-time.After(patience):
					waiting = false
				}
			}
			if lost != c.lost {
				t.Errorf("the facts show the loss: %t, want %t", lost, c.lost)
			}
		})
	}
}

// TestLostRoutesComeBack: the engine puts again what the kernel dropped, however short the
// interface was away and however much there is.
func TestLostRoutesComeBack(t *testing.T) {
	const routes = 3000 // more than the engine selects at once
	for name, blink := range map[string]func(t *testing.T, b *bed){
		"down and up": func(t *testing.T, b *bed) {
			check(t, b.ns.SetLink("eth1", false))
			check(t, b.ns.SetLink("eth1", true))
		},
		"down for a while": func(t *testing.T, b *bed) {
			check(t, b.ns.SetLink("eth1", false))
			time.Sleep(300 * time.Millisecond)
			check(t, b.ns.SetLink("eth1", true))
		},
		"the address goes and comes": func(t *testing.T, b *bed) {
			check(t, b.ns.DeleteAddress("eth1", pfx("10.0.1.1/24")))
			check(t, b.ns.AddAddress("eth1", pfx("10.0.1.1/24")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, node, peer := newNamespaces(t)
			b := &bed{t: t, ns: node, peer: peer}
			// no spot checks: what is not noticed stays away
			e, stop := agent(t, b, fib.Config{})
			defer stop()
			programmed := func() int {
				return strings.Count(b.ip("-4 route show proto 179"), "via 10.0.1.2 dev eth1")
			}
			for i := range routes {
				learn(e, via(fmt.Sprintf("198.18.%d.%d/32", i>>8, i&255), "10.0.1.2"))
			}
			eventually(t, "all are programmed", func() bool { return programmed() == routes })
			blink(t, b)
			eventually(t, "all are programmed again", func() bool { return programmed() == routes })
			if s := e.Stats(); s.Drift.Missing != 0 {
				t.Errorf("by the drift check: %+v", s.Drift)
			}
		})
	}
}

func TestRecreatedInterfaceIsUsedByItsNewIndex(t *testing.T) {
	l, node, peer := newNamespaces(t)
	b := &bed{t: t, ns: node, peer: peer, Dataplane: start(t, Config{Namespace: node.Path()})}
	r := via("198.18.1.0/24", "10.0.1.2 eth1")
	b.apply(put(r))
	check(t, node.DeleteLink("eth1"))
	check(t, l.Veth(netlab.End{Namespace: node, Device: "eth1",
		Addresses: []netip.Prefix{pfx("10.0.1.1/24")}},
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
	before, _ := facts(t, b.Dataplane).Interface("eth2")
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
	eventually(t, "the facts show the new address, and that any interface may have been "+
		"down meanwhile", func() bool {
		f := facts(t, b.Dataplane)
		eth1, _ := f.Interface("eth1")
		eth2, _ := f.Interface("eth2")
		return slices.Contains(eth1.Addresses, pfx("10.9.0.1/24")) &&
			eth2.Generation != before.Generation
	})
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

func setReceiveBuffer(fd, size int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
}
