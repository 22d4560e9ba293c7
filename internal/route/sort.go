package route

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Thousands of blocks and nodes are sorted for each change. IPv4 is sorted as numbers, which takes
// a third of the time.

// SortPrefixes sorts valid prefixes as ComparePrefixes has them.
func SortPrefixes(all []netip.Prefix) {
	sortIPv4First(all, netip.Prefix.Addr, netip.Prefix.Bits, ComparePrefixes)
}

// SortRoutes sorts routes of one table by CompareKeys.
func SortRoutes(all []Route) {
	sortIPv4First(all, func(r Route) netip.Addr { return r.Prefix.Addr() },
		func(r Route) int { return r.Prefix.Bits() },
		func(a, b Route) int { return CompareKeys(a.Key, b.Key) })
}

// SortAddrs sorts valid addresses.
func SortAddrs(all []netip.Addr) {
	sortIPv4First(all, func(a netip.Addr) netip.Addr { return a },
		func(netip.Addr) int { return 0 }, netip.Addr.Compare)
}

// SortNodes sorts nodes by their addresses, which are valid, and those with one address by name.
func SortNodes(all []Node) {
	sortIPv4First(all, func(n Node) netip.Addr { return n.Address }, func(Node) int { return 0 },
		func(a, b Node) int {
			return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Name, b.Name))
		})
}

// placeBits is how many bits of a number say where an item is; bits of a prefix take 6, its address
// 32.
const placeBits = 26

// sortIPv4First sorts as compare does, which has IPv4 first, by address and bits.
func sortIPv4First[T any](all []T, addr func(T) netip.Addr, bits func(T) int,
	compare func(a, b T) int) {
	if len(all) > 1<<placeBits {
		slices.SortFunc(all, compare)
		return
	}
	numbers := make([]uint64, len(all)) // those of IPv6, which are the largest, are in no order
	for i, x := range all {
		numbers[i] = 1<<64 - 1<<placeBits | uint64(i)
		if a := addr(x); a.Is4() {
			b := a.As4()
			numbers[i] = (uint64(binary.BigEndian.Uint32(b[:]))<<6|uint64(bits(x)))<<placeBits |
				uint64(i)
		}
	}
	slices.Sort(numbers)
	place(all, numbers)
	for i := 0; i < len(all); {
		n := i + 1 // of those with one number
		for n < len(all) && numbers[n]>>placeBits == numbers[i]>>placeBits {
			n++
		}
		slices.SortFunc(all[i:n], compare)
		i = n
	}
}

// place moves to each index of all the item that is now where the low bits of its number say.
func place[T any](all []T, numbers []uint64) {
	const mask = 1<<placeBits - 1
	for i := range all {
		first := all[i]
		for at := i; ; {
			from := int(numbers[at] & mask)
			numbers[at] = numbers[at]&^mask | uint64(at) // it is done
			if from == i {
				all[at] = first
				break
			}
			all[at], at = all[from], from
		}
	}
}
