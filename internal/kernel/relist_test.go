package kernel

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	eventually(t, "the problem is told", func() bool { f = facts(t, b.Dataplane); return f.Problem != "" })
	if f.Identity == "" || len(f.Interfaces) == 0 {
		t.Errorf("while lists fail: %+v", f)
	}
	list.on.Store(false)
	eventually(t, "the problem is over", func() bool { f = facts(t, b.Dataplane); return f.Problem == "" })
	if eth1, _ := f.Interface("eth1"); !slices.Contains(eth1.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("after lists work again: %+v", f)
	}
}

// TestNextHopsAreFollowedAfterAListThatFailed: the event of the new route is spent too.
func TestNextHopsAreFollowedAfterAListThatFailed(t *testing.T) {
	b, list := newFailingBed(t)
	b.ip("route add 172.16.0.0/16 via 10.0.1.2")
	r := via("198.18.1.0/24", "172.16.0.1")
	b.apply(put(r))
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
	b.want(r)
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

// TestListsOfInterfacesAtOnce: the event loop, a writer and the resolver may list at the same time. None of them may go on with a list
// from before an event that has been read, nor leave such a list behind.
func TestListsOfInterfacesAtOnce(t *testing.T) {
	_, node, _ := newNamespaces(t)
	d := create(t, Config{Namespace: node.Path()}) // nobody runs it: only what happens here
	t.Cleanup(d.close)
	s := &slow{listed: make(chan struct{}), deliver: make(chan struct{})}
	d.list = s.wrap(d.list)

	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- d.refresh() }()
	<-s.listed
	check(t, node.AddAddress("eth1", pfx("10.9.0.1/24")))
	go func() {
		l, err := d.interfaces()
		if i, _ := (route.Facts{Interfaces: l.list}).Interface("eth1"); err == nil && !slices.Contains(i.Addresses, pfx("10.9.0.1/24")) {
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
	if eth1, _ := d.currentFacts(nil).Interface("eth1"); !slices.Contains(eth1.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("the older list was stored last: %+v", eth1)
	}
}

// TestListUnderWay: who finds that another is listing waits for that list.
func TestListUnderWay(t *testing.T) {
	_, node, _ := newNamespaces(t)
	d := create(t, Config{Namespace: node.Path()})
	t.Cleanup(d.close)
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
	if i, _ := (route.Facts{Interfaces: (<-second).list}).Interface("eth1"); !slices.Contains(i.Addresses, pfx("10.9.0.1/24")) {
		t.Errorf("got the old list: %+v", i)
	}
}
