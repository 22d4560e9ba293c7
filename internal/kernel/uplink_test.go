package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestLinkThatIsDownComesUp(t *testing.T) {
	b := newBed(t)
	link, err := b.ns.Handle().LinkByName("eth2")
	check(t, err)
	check(t, b.ns.Handle().LinkSetDown(link))
	l, err := b.Link(t.Context(), "eth2")
	check(t, err)
	if l.AdminUp || l.Up {
		t.Errorf("eth2 is %+v", l)
	}
	check(t, b.SetUp(t.Context(), l.Index))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if l, err = b.Link(t.Context(), "eth2"); err == nil && l.AdminUp && l.Up {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("eth2 is %+v, %v", l, err)
		}
	}
}

// Linux takes two lengths of one IPv4 address on an interface, and refuses the second one of IPv6
// with the same words as a repetition.
func TestAddressOfAnotherLength(t *testing.T) {
	b := newBed(t)
	l, err := b.Link(t.Context(), "eth1")
	check(t, err)
	check(t, b.AddAddress(t.Context(), l.Index, pfx("10.0.1.1/25")))
	if err := b.AddAddress(t.Context(), l.Index, pfx("fd00:1::1/80")); err == nil {
		t.Error("no word about an address that was not set")
	}
	link, err := b.ns.Handle().LinkByName("eth1")
	check(t, err)
	addrs, err := b.ns.Handle().AddrList(link, netlink.FAMILY_V4)
	check(t, err)
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return a.IPNet.String() == "10.0.1.1/25"
	}) {
		t.Errorf("addresses %v", addrs)
	}
}
