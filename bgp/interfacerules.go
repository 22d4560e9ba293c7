package bgp

import (
	"maps"
	"net/netip"
	"path"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// AsksInterface reports whether an import rule of a BGPFilter asks for the interface of routes.
func AsksInterface(s *calico.Snapshot) bool {
	for _, f := range s.BGPFilters {
		for _, r := range slices.Concat(f.ImportV4, f.ImportV6) {
			if !anyInterface(r.Interface) {
				return true
			}
		}
	}
	return false
}

// behind makes Policies.Behind.
func (p Policies) behind(all []route.Outgoing) map[string][]netip.Prefix {
	if all == nil {
		return nil
	}
	out := map[string][]netip.Prefix{}
	for _, f := range p.Filters {
		for _, r := range slices.Concat(f.Import4, f.Import6) {
			if pattern := r.Match.Interface; pattern != "" {
				out[pattern] = leavingBy(pattern, all)
			}
		}
	}
	return out
}

// leavingBy returns what leaves by the interfaces of a pattern, in prefixes that do not overlap.
func leavingBy(pattern string, all []route.Outgoing) (out []netip.Prefix) {
	by := make(map[netip.Prefix]string, len(all))
	for _, o := range all {
		by[o.Prefix] = o.Interface
	}
	prefixes := slices.SortedFunc(maps.Keys(by), route.ComparePrefixes)
	for i, p := range prefixes {
		if ok, _ := path.Match(pattern, by[p]); !ok {
			continue
		}
		end := i + 1
		for end < len(prefixes) && p.Overlaps(prefixes[end]) {
			end++
		}
		out = append(out, rest(p, prefixes[i+1:end])...) // the longer ones have their own turns
	}
	return sortedPrefixes(out)
}

// rest returns what of p is in none of the prefixes inside it, which are sorted.
func rest(p netip.Prefix, inside []netip.Prefix) []netip.Prefix {
	switch {
	case len(inside) == 0:
		return []netip.Prefix{p}
	case inside[0] == p:
		return nil
	}
	low, high := halves(p)
	i, _ := slices.BinarySearchFunc(inside, high, route.ComparePrefixes)
	return append(rest(low, inside[:i]), rest(high, inside[i:])...)
}

// halves of a masked prefix, which is no host's.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(a, p.Bits()+1)
}
