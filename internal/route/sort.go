package route

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Thousands of blocks and nodes are sorted for each change. IPv4 is sorted as numbers, which takes
// a third of the time.

// SortPrefixes sorts valid prefixes as ComparePrefixes has them.
func SortPrefixes(all []netip.Prefix) {
	sortIPv4First(all, netip.Prefix.Addr, func(p netip.Prefix) uint8 { return uint8(p.Bits()) },
		func(a netip.Addr, bits uint8) netip.Prefix { return netip.PrefixFrom(a, int(bits)) },
		ComparePrefixes)
}

// SortAddrs sorts valid addresses.
func SortAddrs(all []netip.Addr) {
	sortIPv4First(all, func(a netip.Addr) netip.Addr { return a },
		func(netip.Addr) uint8 { return 0 }, func(a netip.Addr, _ uint8) netip.Addr { return a },
		netip.Addr.Compare)
}

func sortIPv4First[T any](all []T, addr func(T) netip.Addr, bits func(T) uint8,
	of func(netip.Addr, uint8) T, compare func(a, b T) int) {
	four := make([]uint64, 0, len(all))
	var six []T
	for _, x := range all {
		if a := addr(x); a.Is4() {
			b := a.As4()
			four = append(four, uint64(binary.BigEndian.Uint32(b[:]))<<8|uint64(bits(x)))
		} else {
			six = append(six, x)
		}
	}
	slices.Sort(four)
	for i, n := range four {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(n>>8))
		all[i] = of(netip.AddrFrom4(b), uint8(n))
	}
	slices.SortFunc(six, compare)
	copy(all[len(four):], six)
}
