package route

import (
	"net/netip"
	"testing"
)

func TestConnected(t *testing.T) {
	f := Facts{Interfaces: []Interface{
		{Name: "a", Up: true, Addresses: []netip.Prefix{pfx("10.0.0.1/8"), pfx("fd00::1/64")}},
		{Name: "b", Up: true, Addresses: []netip.Prefix{pfx("10.1.0.1/16")}},
		{Name: "c", Up: true, Addresses: []netip.Prefix{pfx("10.1.0.2/16")}},
		{Name: "d", Up: false, Addresses: []netip.Prefix{pfx("10.1.2.1/24")}},
		{Name: "e", Up: true, Table: 7, Addresses: []netip.Prefix{pfx("10.1.2.1/24")}},
	}}
	for _, tc := range []struct {
		name      string
		table     uint32
		addr      string
		want      string
		connected bool
	}{
		{"one match", 0, "10.2.3.4", "a", true},
		{"the longest match, of equals the first; the interface that is down would be longer", 0,
			"10.1.2.3", "b", true},
		{"another table", 7, "10.1.2.3", "e", true},
		{"not in that table", 7, "10.2.3.4", "", false},
		{"IPv6", 0, "fd00::9", "a", true},
		{"none", 0, "192.0.2.1", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, subnet, ok := f.Connected(tc.table, addr(tc.addr))
			if got != tc.want || ok != tc.connected || ok &&
				(!subnet.Contains(addr(tc.addr)) || subnet != subnet.Masked()) {
				t.Errorf("got %q %v %v, want %q", got, subnet, ok, tc.want)
			}
		})
	}
}

func TestInterfaceByName(t *testing.T) {
	f := Facts{Interfaces: []Interface{{Name: "a", Index: 1}, {Name: "b", Index: 2},
		{Name: "d", Index: 4}}}
	for name, want := range map[string]uint32{"a": 1, "b": 2, "c": 0, "d": 4, "": 0, "e": 0} {
		if got, ok := f.Interface(name); got.Index != want || ok != (want != 0) {
			t.Errorf("%q: %+v %v", name, got, ok)
		}
	}
}

func TestOriginsAreOrderedByDistance(t *testing.T) {
	order := []Origin{Own, External, BGP, Etcd, Unknown}
	for i := 1; i < len(order); i++ {
		if order[i-1].DefaultDistance() >= order[i].DefaultDistance() {
			t.Errorf("%s (%d) does not come before %s (%d)", order[i-1],
				order[i-1].DefaultDistance(), order[i], order[i].DefaultDistance())
		}
	}
}
