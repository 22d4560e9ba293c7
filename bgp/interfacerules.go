package bgp

import (
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
	leaves := func(o route.Outgoing) bool {
		ok, _ := path.Match(pattern, o.Interface)
		return ok
	}
	for _, o := range all {
		if !leaves(o) {
			continue
		}
		parts := []netip.Prefix{o.Prefix}
		for _, longer := range all { // one that leaves by the pattern too has its own turn
			if longer.Prefix.Bits() > o.Prefix.Bits() && o.Prefix.Overlaps(longer.Prefix) {
				parts = cutOut(parts, longer.Prefix)
			}
		}
		out = append(out, parts...)
	}
	return sortedPrefixes(out)
}

// cutOut takes what lies in hole out of prefixes, which splits the one around it.
func cutOut(prefixes []netip.Prefix, hole netip.Prefix) (out []netip.Prefix) {
	for _, p := range prefixes {
		for p.Overlaps(hole) && p.Bits() < hole.Bits() {
			low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
			high := netip.PrefixFrom(lastAddr(low).Next(), low.Bits())
			if high.Overlaps(hole) {
				low, high = high, low
			}
			p, out = low, append(out, high)
		}
		if !p.Overlaps(hole) {
			out = append(out, p)
		}
	}
	return out
}

// lastAddr is the last address of a masked prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
