package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"vpp-route-agent/internal/route"
)

func TestLinkThatIsDownComesUp(t *testing.T) {
	b := newBed(t)
	link, err := b.ns.Handle().LinkByName("eth2")
	check(t, err)
	check(t, b.ns.Handle().LinkSetDown(link))
	up := route.Up{Interface: "eth2"}
	if o, err := b.Object(t.Context(), up.Key()); o != nil || err != nil {
		t.Errorf("eth2 is %+v, %v", o, err)
	}
	check(t, b.PutObject(t.Context(), up))
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		o, err := b.Object(t.Context(), up.Key())
		list, listErr := b.listInterfaces()
		l, _ := route.Facts{Interfaces: list}.Interface("eth2")
		if err == nil && o == up && listErr == nil && l.Up {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("eth2 is %+v, %+v, %v", o, l, err)
		}
	}
}

// Linux takes two lengths of one IPv4 address on an interface, and refuses the second one of IPv6
// with the same words as a repetition.
func TestAddressOfAnotherLength(t *testing.T) {
	b := newBed(t)
	check(t, b.PutObject(t.Context(), route.Address{
		Interface: "eth1", Address: pfx("10.0.1.1/25"),
	}))
	if err := b.PutObject(t.Context(), route.Address{
		Interface: "eth1", Address: pfx("fd00:1::1/80"),
	}); err == nil {
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
