package vpp

import (
	"net/netip"
	"testing"
)

// A listing does not undo what was changed since it began, and what came before is forgotten.
func TestListingOfTunnels(t *testing.T) {
	var v vteps
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	v.set(one, 1)
	began := v.count()
	v.set(two, 2)
	v.remove(one)
	v.read(map[netip.Addr]uint32{one: 1}, began)
	if _, ok := v.index(one); ok {
		t.Error("what was removed is back")
	}
	if i, ok := v.index(two); !ok || i != 2 {
		t.Error("what was made is lost")
	}
	v.read(map[netip.Addr]uint32{two: 2}, v.count())
	if _, ok := v.outer(2); !ok || len(v.changed) != 0 {
		t.Errorf("%v are noted", v.changed)
	}
	v.read(nil, v.count())
	if _, ok := v.index(two); ok {
		t.Error("what another program has deleted is there")
	}
}
