package route

import (
	"net/netip"
	"slices"
)

// Disjoint returns prefixes sorted, without those that lie inside another.
func Disjoint(prefixes []netip.Prefix) (out []netip.Prefix) {
	if !slices.IsSortedFunc(prefixes, ComparePrefixes) {
		prefixes = slices.Clone(prefixes)
		SortPrefixes(prefixes)
	}
	for _, p := range prefixes {
		if len(out) == 0 || !Inside(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// Covering returns which of prefixes equals p or contains all of it. They are as Disjoint returns
// them.
func Covering(disjoint []netip.Prefix, p netip.Prefix) (netip.Prefix, bool) {
	i, found := slices.BinarySearchFunc(disjoint, p, ComparePrefixes)
	switch {
	case found:
		return p, true
	case i > 0 && Inside(p, disjoint[i-1]):
		return disjoint[i-1], true
	}
	return netip.Prefix{}, false
}

// Inside reports whether outer equals p or contains all of it.
func Inside(p, outer netip.Prefix) bool {
	return outer.Bits() <= p.Bits() && outer.Contains(p.Addr())
}
