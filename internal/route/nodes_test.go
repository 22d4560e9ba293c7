package route_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/route"
)

// Lists of nodes are compared with maps by address, which say the same in another way.
func TestNodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
		netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("fd00::1"),
		netip.MustParseAddr("fd00::2")}
	some := func() (list route.Nodes) {
		for _, a := range addresses {
			n := route.Node{Address: a, Name: fmt.Sprint(rng.IntN(2))}
			if rng.IntN(2) == 0 {
				n.VXLAN = &route.VTEP{MAC: fmt.Sprint(rng.IntN(2))}
			}
			if rng.IntN(2) == 0 {
				list = append(list, n)
			}
		}
		return list
	}
	asMap := func(list route.Nodes) map[netip.Addr]route.Node {
		all := map[netip.Addr]route.Node{}
		for _, n := range list {
			all[n.Address] = n
		}
		return all
	}
	for range 10_000 {
		before, after := some(), some()
		was, is := asMap(before), asMap(after)
		set, gone := before.Changes(after)
		var wantSet route.Nodes
		var wantGone []netip.Addr
		for _, a := range addresses {
			x, wasThere := was[a]
			y, isThere := is[a]
			if isThere && !(wasThere && x.Equal(y)) {
				wantSet = append(wantSet, y)
			}
			if wasThere && !isThere {
				wantGone = append(wantGone, a)
			}
			if found, ok := before.Find(a); ok != wasThere || found != x {
				t.Fatalf("%s in %v: %v, %v", a, before, found, ok)
			}
		}
		if !slices.Equal(set, wantSet) || !slices.Equal(gone, wantGone) {
			t.Fatalf("from %v to %v: %v and without %v", before, after, set, gone)
		}
		if got := before.With(set, gone); !slices.EqualFunc(got, after, route.Node.Equal) {
			t.Fatalf("from %v to %v: %v", before, after, got)
		}
		both := maps.Clone(was)
		maps.Copy(both, is)
		if got := before.With(after, nil); !maps.Equal(asMap(got), both) ||
			len(got) != len(both) ||
			!slices.IsSortedFunc(got, func(a, b route.Node) int {
				return a.Address.Compare(b.Address)
			}) {
			t.Fatalf("%v with %v: %v", before, after, got)
		}
	}
}
