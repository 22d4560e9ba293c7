package uplink

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// verb is one kind of change to a link.
type verb uint8

const (
	setUp verb = iota
	add
	remove
)

// step is one change.
type step struct {
	verb    verb
	address netip.Prefix // of add and remove
}

// steps returns what turns link into what is wanted, in order. ours are the addresses on it that we set: of what is not wanted only they
// go. New ones come first, so that packets to a subnet that stays are not without a route; but an address of ours that is in the way
// of a new one (the same address with another length, or an overlapping subnet of another length) goes before it.
func steps(want []netip.Prefix, link route.Link, ours []netip.Prefix) []step {
	var first, last []step
	if !link.AdminUp {
		first = append(first, step{verb: setUp})
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(p netip.Prefix) bool { return slices.Contains(link.Addresses, p) })
	for _, p := range link.Addresses {
		if slices.Contains(want, p) || !slices.Contains(ours, p) {
			continue
		}
		if slices.ContainsFunc(missing, func(m netip.Prefix) bool { return inTheWay(p, m) }) {
			first = append(first, step{remove, p})
		} else {
			last = append(last, step{remove, p})
		}
	}
	for _, p := range missing {
		first = append(first, step{add, p})
	}
	return append(first, last...)
}

// inTheWay is VPP's rule (src/vnet/ip/ip4_forward.c): subnets on one interface may be equal, but not overlap.
func inTheWay(old, new netip.Prefix) bool {
	return old.Overlaps(new) && (old.Bits() != new.Bits() || old.Addr() == new.Addr())
}
