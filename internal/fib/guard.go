package fib

import (
	"cmp"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// reserved is where no route of ours may lie, whoever asks: this network, loopback, link-local, multicast and class E.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// view is Facts prepared for many decisions. It is immutable, and BGPCover aside it depends on Facts alone.
type view struct {
	facts     Facts
	connected map[route.Key]string // subnets of interfaces that are up
	own       map[NextHop]bool
	guarded   []guarded // by table, then address
	discards  [route.Prohibit + 1]*forward
}

// guarded is an address that must stay reachable the way it is now.
type guarded struct {
	NextHop
	// bits: a route at least this long that contains the address would be its longest match.
	bits int
	why  what
	name string // of the interface whose own address this is
}

func newView(f Facts) *view {
	v := &view{facts: f, connected: make(map[route.Key]string), own: make(map[NextHop]bool)}
	for kind := route.Drop; kind <= route.Prohibit; kind++ {
		v.discards[kind] = newForward(kind, nil)
	}
	for _, i := range f.Interfaces {
		for _, a := range i.Addresses {
			v.guardInterface(i, a)
		}
	}
	for _, a := range f.Own {
		if n := (NextHop{Address: a}); !v.own[n] {
			v.own[n] = true
			v.guarded = append(v.guarded, guarded{NextHop: n, bits: v.ownBits(n), why: coversOwn})
		}
	}
	for _, a := range f.Peers {
		n := NextHop{Address: a}
		v.guarded = append(v.guarded, guarded{NextHop: n, bits: v.peerBits(n), why: coversPeer})
	}
	slices.SortStableFunc(v.guarded, func(a, b guarded) int { return compareNextHops(a.NextHop, b.NextHop) })
	return v
}

func (v *view) guardInterface(i route.Interface, a netip.Prefix) {
	n := NextHop{i.Table, a.Addr()}
	v.own[n] = true
	if !a.Addr().IsLinkLocalUnicast() {
		v.guarded = append(v.guarded, guarded{NextHop: n, bits: a.Bits(), why: coversOwn, name: i.Name})
	}
	if subnet := (route.Key{Table: i.Table, Prefix: a.Masked()}); i.Up && v.connected[subnet] == "" {
		v.connected[subnet] = i.Name
	}
}

// ownBits is for an own address that is on no interface of the data plane, as a node address that the kernel holds behind VPP: whatever is
// longer than what leads there now would take it away, and so would any route but a default where nothing is known.
func (v *view) ownBits(n NextHop) int {
	if bits, ok := v.matchBits(n); ok {
		return bits
	}
	return 1
}

// peerBits: where nothing leads to a peer yet a route cannot cut it off: in a fabric without a default route the reflector of another
// rack is reached by what the ToR announces. A host route for the peer itself is refused all the same.
func (v *view) peerBits(n NextHop) int {
	if bits, ok := v.matchBits(n); ok {
		return bits
	}
	return n.Address.BitLen()
}

// matchBits is the length of the foreign route that leads to n now. A default route counts as one bit longer than it is: that ours
// may stand beside a DHCP default is wanted.
func (v *view) matchBits(n NextHop) (int, bool) {
	if _, subnet, ok := v.facts.Connected(n.Table, n.Address); ok {
		return subnet.Bits(), true
	}
	if r := v.facts.Resolutions[n]; r.Usable && !r.Ours && r.Prefix.IsValid() {
		return max(r.Prefix.Bits(), 1), true
	}
	return 0, false
}

func compareNextHops(a, b NextHop) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), a.Address.Compare(b.Address))
}

// guard refuses a key that would harm the node whatever its paths are. What this node itself originates (drops of its own blocks)
// comes from its own configuration and is only held against the reserved ranges: a block may well contain an own tunnel address.
func (v *view) guard(k route.Key, origin route.Origin) Reason {
	for _, r := range reserved {
		if r.Bits() <= k.Prefix.Bits() && r.Contains(k.Prefix.Addr()) {
			return Reason{what: isReserved, prefix: r}
		}
	}
	if origin == route.Own {
		return Reason{}
	}
	if name, ok := v.connected[k]; ok {
		return Reason{what: isConnected, prefix: k.Prefix, name: name}
	}
	first, _ := slices.BinarySearchFunc(v.guarded, NextHop{k.Table, k.Prefix.Addr()}, func(g guarded, n NextHop) int {
		return compareNextHops(g.NextHop, n)
	})
	for _, g := range v.guarded[first:] {
		if g.Table != k.Table || !k.Prefix.Contains(g.Address) {
			break // a prefix is one contiguous range of addresses
		}
		if k.Prefix.Bits() >= g.bits {
			return Reason{what: g.why, address: g.Address, name: g.name}
		}
	}
	return Reason{}
}
