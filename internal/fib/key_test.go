package fib

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"vpp-route-agent/internal/route"
)

// Whatever comes and goes, the index finds what a map finds. So many keys meet in each part of it,
// which grows, and whose slots are left and taken again.
func TestIndexFindsWhatAMapFinds(t *testing.T) {
	var keys []route.Key
	for i := range 30_000 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if i%3 == 0 {
			a = netip.AddrFrom16([16]byte{0: 0x20, 14: byte(i >> 8), 15: byte(i)})
		}
		keys = append(keys, route.Key{
			Prefix: route.HostPrefix(a), Table: uint32(i % 2), Elevated: i%5 == 0,
		})
	}
	table, all := newTable(), map[route.Key]*entry{}
	check := func(k route.Key) *entry {
		e := table.get(k)
		if e != all[k] {
			t.Fatalf("%v: found %v, want %v", k, e, all[k])
		}
		return e
	}
	for _, n := range []int{len(keys), 5000} { // then most go
		for range 10 * len(keys) {
			i := rand.IntN(len(keys))
			k := keys[i]
			switch e := check(k); {
			case e != nil:
				table.forget(e)
				delete(all, k)
			case i < n:
				all[k] = table.entry(k)
			}
		}
		for _, k := range keys {
			check(k)
		}
		for i, e := range table.all {
			if int(e.index) != i {
				t.Fatalf("entry %d has index %d", i, e.index)
			}
		}
		if len(table.all) != len(all) {
			t.Fatalf("%d entries, want %d", len(table.all), len(all))
		}
	}
}
