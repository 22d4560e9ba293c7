package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

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

func setReceiveBuffer(fd, size int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
}
