package route

import (
	"net/netip"
	"slices"
)

// Nodes are sorted by their addresses, of which each is there once. A list that is in use is not
// changed.
type Nodes []Node

// Find returns the node with an address.
func (n Nodes) Find(a netip.Addr) (found Node, ok bool) {
	i, ok := slices.BinarySearchFunc(n, a, func(n Node, a netip.Addr) int {
		return n.Address.Compare(a)
	})
	if ok {
		found = n[i]
	}
	return found, ok
}

// Changes are what after has otherwise than n: nodes that are new or not Equal, and the addresses
// of those that are gone.
func (n Nodes) Changes(after Nodes) (set Nodes, gone []netip.Addr) {
	for _, x := range after {
		for len(n) > 0 && n[0].Address.Less(x.Address) {
			gone, n = append(gone, n[0].Address), n[1:]
		}
		same := false
		if len(n) > 0 && n[0].Address == x.Address {
			same, n = n[0].Equal(x), n[1:]
		}
		if !same {
			set = append(set, x)
		}
	}
	for _, x := range n {
		gone = append(gone, x.Address)
	}
	return set, gone
}

// With are the nodes after changes: of two with one address that of set.
func (n Nodes) With(set Nodes, gone []netip.Addr) Nodes {
	switch {
	case len(set) == 0 && len(gone) == 0:
		return n
	case len(n) == 0:
		return set
	}
	out := make(Nodes, 0, len(n)+len(set))
	for _, x := range n {
		for len(set) > 0 && set[0].Address.Less(x.Address) {
			out, set = append(out, set[0]), set[1:]
		}
		for len(gone) > 0 && gone[0].Less(x.Address) {
			gone = gone[1:]
		}
		isSet := len(set) > 0 && set[0].Address == x.Address
		isGone := len(gone) > 0 && gone[0] == x.Address
		if !isSet && !isGone {
			out = append(out, x)
		}
	}
	return append(out, set...)
}
