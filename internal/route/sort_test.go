package route_test

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/route"
)

func sameKey(a, b route.Route) bool { return a.Key == b.Key }

func TestSortsAsCompared(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var routes []route.Route
		var nodes []route.Node
		var addrs []netip.Addr
		for range r.IntN(40) {
			a := netip.AddrFrom4([4]byte{byte(r.IntN(3)), byte(r.IntN(256)), 0, byte(r.IntN(256))})
			if r.IntN(3) == 0 {
				a = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(r.IntN(256))})
			}
			p, _ := a.Prefix(r.IntN(a.BitLen() + 1))
			routes, addrs = append(routes, route.Route{Key: route.Key{Prefix: p,
				Elevated: r.IntN(2) == 0}}), append(addrs, a)
			nodes = append(nodes, route.Node{Address: a, Name: string(rune('a' + r.IntN(3)))})
		}
		wantRoutes, wantAddrs := slices.Clone(routes), slices.Clone(addrs)
		wantNodes := slices.Clone(nodes)
		slices.SortFunc(wantRoutes, func(a, b route.Route) int {
			return route.CompareKeys(a.Key, b.Key)
		})
		slices.SortFunc(wantAddrs, netip.Addr.Compare)
		slices.SortFunc(wantNodes, func(a, b route.Node) int {
			return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Name, b.Name))
		})
		route.SortRoutes(routes)
		route.SortAddrs(addrs)
		route.SortNodes(nodes)
		if !slices.EqualFunc(routes, wantRoutes, sameKey) || !slices.Equal(addrs, wantAddrs) ||
			!slices.Equal(nodes, wantNodes) {
			t.Fatalf("sorted as %v, %v and %v, want %v, %v and %v", routes, addrs, nodes,
				wantRoutes, wantAddrs, wantNodes)
		}
	}
}
