package route

import (
	"net/netip"
	"testing"
)

func TestAddressesAndTheirTables(t *testing.T) {
	at := func(name, address string, table uint32) Address {
		return Address{Interface: name, Address: netip.MustParsePrefix(address), Table: table}
	}
	in4 := InTable{"eth0", Table{TableID: TableID{ID: 7}, Name: "x"}}
	in6 := InTable{"eth0", Table{TableID: TableID{ID: 7, IPv6: true}, Name: "x"}}
	for _, a := range []Address{at("eth0", "10.0.0.1/24", 0), at("eth0", "fd00::1/64", 7)} {
		if got, err := AddressOf(a.Key()); got != a || err != nil {
			t.Errorf("%v of %v (%v)", got, a.Key(), err)
		}
	}
	for _, i := range []InTable{in4, in6} {
		got, err := InTableOf(i.Key())
		if want := (InTable{"eth0", Table{TableID: TableID{IPv6: i.Table.IPv6}}}); got != want ||
			err != nil {
			t.Errorf("%v of %v (%v)", got, i.Key(), err)
		}
	}
	four := at("eth0", "10.0.0.1/24", 0)
	for _, c := range []struct {
		object Excluder
		other  ObjectKey
		want   bool
	}{
		{four, at("eth1", "10.0.0.2/24", 0).Key(), true},
		{four, at("eth1", "10.0.0.2/24", 7).Key(), false},
		{four, at("eth0", "10.0.0.2/24", 0).Key(), false},
		{four, at("eth0", "10.0.0.1/24", 7).Key(), true},
		{four, in4.Key(), true},
		{four, in6.Key(), false},
		{at("eth0", "10.0.0.1/24", 7), in4.Key(), false},
		{in4, four.Key(), true},
		{in6, four.Key(), false},
		{in4, at("eth1", "10.0.0.1/24", 0).Key(), false},
	} {
		if got := c.object.Excludes(c.other); got != c.want {
			t.Errorf("%v excludes %v: %v", c.object, c.other, got)
		}
	}
}
