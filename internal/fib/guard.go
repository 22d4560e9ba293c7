package fib

import (
	"cmp"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// reserved is where no route of ours may lie, whoever asks: this network, loopback, link-local,
// multicast and class E.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// view is Facts prepared for many decisions. It is immutable, and BGPCover aside it depends on
// Facts alone.
type view struct {
	facts     Facts
	connected map[route.Key]string // subnets of interfaces that are up
	lengths   [2][]int             // of these, of IPv4 and IPv6; the longest first
	own       map[NextHop]bool
	guarded   []guarded // by table, then address
	discards  [route.Prohibit + 1]*forward
	services  []netip.Prefix // Facts.Services, disjoint
}

// guarded is an address that must stay reachable the way it is now.
type guarded struct {
	NextHop
	// bits: a route at least this long that contains the address would be its longest match.
	bits int
	// unknown: what leads there has not been looked up yet, and bits is for the worst case: shorter
	// routes stay as they are.
	unknown bool
	why     what
	name    string // of the interface whose own address this is
}

func newView(f Facts) *view {
	v := &view{facts: f, connected: make(map[route.Key]string), own: make(map[NextHop]bool),
		services: route.Disjoint(f.Services)}
	for kind := route.Drop; kind <= route.Prohibit; kind++ {
		v.discards[kind] = newForward(kind, nil)
	}
	for _, i := range f.Interfaces {
		for _, a := range i.Addresses {
			v.guardInterface(i, a)
		}
	}
	for subnet := range v.connected {
		of := &v.lengths[familyOf(subnet.Prefix.Addr())]
		if !slices.Contains(*of, subnet.Prefix.Bits()) {
			*of = append(*of, subnet.Prefix.Bits())
		}
	}
	for _, of := range v.lengths {
		slices.SortFunc(of, func(a, b int) int { return b - a })
	}
	for _, a := range f.Own {
		if n := (NextHop{Address: a}); !v.own[n] {
			v.own[n] = true
			v.guarded = append(v.guarded, v.guardAddress(n, coversOwn))
		}
	}
	for _, a := range f.Peers {
		v.guarded = append(v.guarded, v.guardAddress(NextHop{Address: a}, coversPeer))
	}
	slices.SortStableFunc(v.guarded, func(a, b guarded) int {
		return compareNextHops(a.NextHop, b.NextHop)
	})
	return v
}

func (v *view) guardInterface(i route.Interface, a netip.Prefix) {
	n := NextHop{i.Table, a.Addr()}
	v.own[n] = true
	if !a.Addr().IsLinkLocalUnicast() {
		v.guarded = append(v.guarded, guarded{
			NextHop: n, bits: a.Bits(), why: coversOwn, name: i.Name,
		})
	}
	subnet := (route.Key{Table: i.Table, Prefix: a.Masked()})
	if i.Up && v.connected[subnet] == "" {
		v.connected[subnet] = i.Name
	}
}

// isComparable reports whether only next hops in subnets, or with addresses, that one of two views
// lacks are reached otherwise. With Facts.AttachedOnly the states of interfaces matter, too.
func (v *view) isComparable(other *view) bool {
	return v.facts.Identity == other.facts.Identity && !v.facts.AttachedOnly &&
		!other.facts.AttachedOnly
}

// connectedTo is Facts.Connected: what it takes does not grow with the interfaces.
func (v *view) connectedTo(n NextHop) (name string, subnet netip.Prefix, ok bool) {
	for _, bits := range v.lengths[familyOf(n.Address)] {
		subnet, _ = n.Address.Prefix(bits)
		if name, ok = v.connected[route.Key{Table: n.Table, Prefix: subnet}]; ok {
			return name, subnet, true
		}
	}
	return "", netip.Prefix{}, false
}

// familyOf is 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// guardAddress measures by the foreign route to n. An own address without such a route, as one that
// the kernel holds behind VPP, may be covered by a default route only. A peer without one, or
// reached by a route of ours, is not cut off by one. A host route for the peer itself is always
// refused.
func (v *view) guardAddress(n NextHop, why what) guarded {
	g := guarded{NextHop: n, bits: n.Address.BitLen(), why: why}
	if why == coversOwn {
		g.bits = 1
	}
	if _, subnet, ok := v.connectedTo(n); ok {
		g.bits = subnet.Bits()
	} else if r, ok := v.facts.Resolutions[n]; !ok {
		g.bits, g.unknown = n.Address.BitLen(), true
	} else if r.Usable && !r.Ours {
		g.bits = max(r.Prefix.Bits(), 1) // that ours may stand beside a DHCP default is wanted
	}
	return g
}

func compareNextHops(a, b NextHop) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), a.Address.Compare(b.Address))
}

// guard refuses a key that would harm the node whatever its paths are. What this node itself
// originates (drops of its own blocks) comes from its own configuration and is only held against
// the reserved ranges: a block may well contain an own tunnel address.
func (v *view) guard(k route.Key, origin route.Origin) Reason {
	for _, r := range reserved {
		if r.Bits() <= k.Prefix.Bits() && r.Contains(k.Prefix.Addr()) {
			return Reason{what: isReserved, prefix: r}
		}
	}
	if origin == route.Own {
		return Reason{}
	}
	if origin == route.BGP && k.Table == 0 {
		if p, ok := route.Covering(v.services, k.Prefix); ok {
			return Reason{what: isService, prefix: p}
		}
	}
	switch pool := v.facts.poolOf(k, origin); {
	case pool.Felix:
		return Reason{what: isFelix, name: pool.LeftToFelix()}
	case origin == route.BGP && pool.Encap == route.VXLAN:
		return Reason{what: inOverlay, name: pool.Name}
	}
	if name, ok := v.connected[route.Key{Table: k.Table, Prefix: k.Prefix}]; ok {
		return Reason{what: isConnected, prefix: k.Prefix, name: name}
	}
	first, _ := slices.BinarySearchFunc(v.guarded, NextHop{k.Table, k.Prefix.Addr()},
		func(g guarded, n NextHop) int {
			return compareNextHops(g.NextHop, n)
		})
	for _, g := range v.guarded[first:] {
		if g.Table != k.Table || !k.Prefix.Contains(g.Address) {
			break // a prefix is one contiguous range of addresses
		}
		switch {
		case k.Prefix.Bits() >= g.bits:
			return Reason{what: g.why, address: g.Address, name: g.name}
		case g.unknown && k.Prefix.Bits() > 0:
			return Reason{what: guardWaits, address: g.Address}
		}
	}
	return Reason{}
}
