package route

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Covering among disjoint prefixes says the same as a look at each of all.
func TestCovering(t *testing.T) {
	some := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := rapid.SampledFrom([]string{"10.0.0.0", "10.0.0.1", "10.0.0.64", "10.1.0.0", "0.0.0.0",
			"fd00::", "fd00::1", "fd00:0:0:1::", "::"}).Draw(t, "address")
		addr := netip.MustParseAddr(a)
		bits := rapid.SampledFrom([]int{0, 8, 16, 24, 26, 31, 32, 64, 128}).Draw(t, "bits")
		return netip.PrefixFrom(addr, min(bits, addr.BitLen())).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(some, 0, 6).Draw(t, "all")
		before := slices.Clone(all)
		disjoint := Disjoint(all)
		if !slices.Equal(all, before) || !slices.IsSortedFunc(disjoint, ComparePrefixes) {
			t.Fatalf("%v became %v, and %v", before, all, disjoint)
		}
		for i, p := range disjoint {
			for _, q := range disjoint[i+1:] {
				if p.Overlaps(q) {
					t.Fatalf("%s and %s overlap", p, q)
				}
			}
		}
		p := some.Draw(t, "p")
		in := func(outer netip.Prefix) bool { return Inside(p, outer) }
		cover, found := Covering(disjoint, p)
		if found != slices.ContainsFunc(all, in) || found && (!in(cover) ||
			!slices.Contains(all, cover)) {
			t.Fatalf("%s in %v: %s, %t", p, all, cover, found)
		}
	})
}
