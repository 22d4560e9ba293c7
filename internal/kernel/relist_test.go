package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// failing lets lists of interfaces fail on demand, and counts those that did.
type failing struct {
	on    atomic.Bool
	count atomic.Int32
}

func (f *failing) wrap(list func() ([]route.Interface, error)) func() ([]route.Interface, error) {
	return func() ([]route.Interface, error) {
		if f.on.Load() {
			f.count.Add(1)
			return nil, errors.New("no buffer space")
		}
		return list()
	}
}

// newFailingBed is a bed whose lists of interfaces can be made to fail.
func newFailingBed(t *testing.T) (*bed, *failing) {
	t.Helper()
	_, node, peer := newNamespaces(t)
	d, f := create(t, Config{Namespace: node.Path()}), &failing{}
	d.list = f.wrap(d.list)
	t.Cleanup(run(t, d))
	return &bed{t: t, ns: node, peer: peer, Dataplane: d}, f
}

// TestFactsAfterAListThatFailed: the one event that there was is spent.
func TestFactsAfterAListThatFailed(t *testing.T) {
	b, list := newFailingBed(t)
	facts(t, b.Dataplane)
	list.on.Store(true)
	check(t, b.ns.AddAddress("eth1", pfx("10.9.0.1/24")))
	eventually(t, "the list fails", func() bool { return list.count.Load() > 0 })
	var f route.Facts
	eventually(t, "the problem is shown", func() bool {
		f = facts(t, b.Dataplane)
		return f.Problem != ""
	})
	if f.Identity == "" || len(f.Interfaces) == 0 {
		t.Errorf("while lists fail: %+v", f)
	}
	list.on.Store(false)
	eventually(t, "the problem is over", func() bool {
		f = facts(t, b.Dataplane)
		return f.Problem == ""
	})
	if eth1, _ := f.Interface("eth1"); !slices.Contains(eth1.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("after lists work again: %+v", f)
	}
}

// TestNextHopsAreFollowedAfterAListThatFailed: the event of the new route is spent too.
func TestNextHopsAreFollowedAfterAListThatFailed(t *testing.T) {
	b, list := newFailingBed(t)
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	r := via("198.18.1.0/24", "172.16.0.1")
	e, stop := engineOn(t, b.Dataplane, fib.Config{})
	defer stop()
	learn(e, r)
	eventually(t, "the route is programmed", func() bool { return e.Stats().Put == 1 })
	eventually(t, "all is quiet", func() bool {
		time.Sleep(2 * settle)
		return len(b.watch.links)+len(b.watch.routes) == 0
	})
	list.on.Store(true)
	b.watch.setStale(true) // as by an event of which the loop has not heard yet
	b.ip("route add 172.16.0.0/24 via 10.0.2.2")
	eventually(t, "the list fails", func() bool { return list.count.Load() > 0 })
	list.on.Store(false)
	eventually(t, "the route moves to eth2", func() bool {
		return strings.Contains(b.ip("route show 198.18.1.0/24"), "via 10.0.2.2 dev eth2")
	})
}

// slow is a kernel whose first list is delivered late.
type slow struct {
	listed, deliver chan struct{}
	first           atomic.Bool
}

func (s *slow) wrap(list func() ([]route.Interface, error)) func() ([]route.Interface, error) {
	return func() ([]route.Interface, error) {
		l, err := list()
		if s.first.CompareAndSwap(false, true) {
			close(s.listed)
			<-s.deliver
		}
		return l, err
	}
}

// TestListsOfInterfacesAtOnce: the event loop, a writer and the resolver may list at the same time.
// None of them may go on with a list from before an event that has been read, nor leave such a list
// behind.
func TestListsOfInterfacesAtOnce(t *testing.T) {
	_, node, _ := newNamespaces(t)
	d := create(t, Config{Namespace: node.Path()}) // nobody runs it: only what happens here
	t.Cleanup(d.Close)
	s := &slow{listed: make(chan struct{}), deliver: make(chan struct{})}
	d.list = s.wrap(d.list)

	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- d.refresh() }()
	<-s.listed
	check(t, node.AddAddress("eth1", pfx("10.9.0.1/24")))
	go func() {
		l, err := d.interfaces()
		if i, _ := (route.Facts{Interfaces: l.list}).Interface("eth1"); err == nil &&
			!slices.Contains(i.Addresses, pfx("10.9.0.1/24")) {
			err = errors.New("the second list is from before the event")
		}
		second <- err
	}()
	select {
	case err := <-second: // not held up by the first
		second <- err
	case <-time.After(50 * time.Millisecond):
	}
	close(s.deliver)
	check(t, <-first)
	check(t, <-second)
	if eth1, _ := d.currentFacts().Interface("eth1"); !slices.Contains(eth1.Addresses,
		pfx("10.9.0.1/24")) {
		t.Errorf("the older list was stored last: %+v", eth1)
	}
}

// TestListUnderWay: who finds that another is listing waits for that list.
func TestListUnderWay(t *testing.T) {
	_, node, _ := newNamespaces(t)
	d := create(t, Config{Namespace: node.Path()})
	t.Cleanup(d.Close)
	s := &slow{listed: make(chan struct{}), deliver: make(chan struct{})}
	d.list = s.wrap(d.list)

	check(t, node.AddAddress("eth1", pfx("10.9.0.1/24")))
	first, second := make(chan error, 1), make(chan interfaces, 1)
	go func() {
		_, err := d.interfaces()
		first <- err
	}()
	<-s.listed
	go func() {
		l, _ := d.interfaces()
		second <- l
	}()
	time.Sleep(50 * time.Millisecond) // in which the second would answer from the old list
	close(s.deliver)
	check(t, <-first)
	if i, _ := (route.Facts{Interfaces: (<-second).list}).Interface("eth1"); !slices.Contains(
		i.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("got the old list: %+v", i)
	}
}

// TestEventDuringTheListAfterMissedEvents: the list may be from before that event, so later losses
// are not to be told by it. No kernel takes part.
func TestEventDuringTheListAfterMissedEvents(t *testing.T) {
	// that events were missed shows by known, which is nil
	w := &watch{links: make(chan struct{}, 1), routes: make(chan struct{}, 1)}
	event := func(kind uint16, a netip.Addr) {
		// struct ifaddrmsg of interface 1
		body := binary.NativeEndian.AppendUint32([]byte{unix.AF_INET, 24, 0, 0}, 1)
		body = binary.NativeEndian.AppendUint16(body, 8)
		body = binary.NativeEndian.AppendUint16(body, unix.IFA_LOCAL)
		w.note(message{kind: kind, body: append(body, a.AsSlice()...)})
	}
	d := &Dataplane{watch: w}
	eth1 := func(addresses ...netip.Prefix) []route.Interface {
		return []route.Interface{{Name: "eth1", Index: 1, Up: true, Addresses: addresses}}
	}
	generations := func(list func() []route.Interface) uint32 {
		t.Helper()
		d.list = func() ([]route.Interface, error) { return list(), nil }
		check(t, d.refresh())
		i, _ := d.currentFacts().Interface("eth1")
		return i.Generation
	}
	stays, goes := pfx("10.0.1.1/24"), pfx("10.9.0.1/24")
	raced := func() []route.Interface {
		list := eth1(stays, goes)
		event(unix.RTM_DELADDR, goes.Addr())
		return list
	}
	now := func() []route.Interface { return eth1(stays) }
	blink := func() {
		event(unix.RTM_DELADDR, stays.Addr())
		event(unix.RTM_NEWADDR, stays.Addr())
	}
	for name, list := range map[string]func() []route.Interface{"after the list that raced": raced,
		"after the next one": now} {
		w.known = nil
		generations(raced)
		before := generations(list)
		blink()
		if after := generations(now); after == before {
			t.Errorf("%s: the loss of the last address is not shown", name)
		} else if generations(now) != after {
			t.Errorf("%s: a loss is shown that was none", name)
		}
	}
	w.known = nil
	before := generations(raced)
	for range 3 {
		if generations(func() []route.Interface {
			event(unix.RTM_NEWADDR, goes.Addr())
			return now()
		}) != before {
			t.Error("while events come, each list shows a loss")
		}
	}
	if generations(now) != before {
		t.Error("the last list shows a loss")
	}
	event(unix.RTM_DELADDR, goes.Addr())
	if generations(now) != before {
		t.Error("the loss of an address that is not the last is shown as more, though the list " +
			"raced no event")
	}
}
