package route_test

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/route"
)

func TestSortsAsCompared(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var prefixes []netip.Prefix
		var keys []route.Key
		var nodes []route.Node
		var addrs []netip.Addr
		for range r.IntN(40) {
			a := netip.AddrFrom4([4]byte{byte(r.IntN(3)), byte(r.IntN(256)), 0, byte(r.IntN(256))})
			if r.IntN(3) == 0 {
				a = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(r.IntN(256))})
			}
			p, _ := a.Prefix(r.IntN(a.BitLen() + 1))
			prefixes, addrs = append(prefixes, p), append(addrs, a)
			keys = append(keys, route.Key{Prefix: p, Elevated: r.IntN(2) == 0})
			nodes = append(nodes, route.Node{Address: a, Name: string(rune('a' + r.IntN(3)))})
		}
		checkSorted(t, prefixes, route.SortPrefixes, route.ComparePrefixes)
		checkSorted(t, addrs, route.SortAddrs, netip.Addr.Compare)
		checkSorted(t, keys, func(all []route.Key) {
			var routes []route.Route
			for _, k := range all {
				routes = append(routes, route.Route{Key: k})
			}
			route.SortRoutes(routes)
			for i := range all {
				all[i] = routes[i].Key
			}
		}, route.CompareKeys)
		checkSorted(t, nodes, route.SortNodes, func(a, b route.Node) int {
			return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Name, b.Name))
		})
	}
}

func checkSorted[T comparable](t *testing.T, all []T, sort func([]T), compare func(a, b T) int) {
	t.Helper()
	want := slices.SortedFunc(slices.Values(all), compare)
	if sort(all); !slices.Equal(all, want) {
		t.Errorf("sorted as %v, want %v", all, want)
	}
}
