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

// steps returns the changes that turn link into what is wanted, in order. It removes only ours.
// Additions come first, so that a subnet that stays never lacks a route. An address of ours that
// conflicts with a new one (another length, overlapping subnets) is removed before it.
func steps(want []netip.Prefix, link route.Link, ours []netip.Prefix) []step {
	var first, last []step
	if !link.AdminUp {
		first = append(first, step{verb: setUp})
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(p netip.Prefix) bool {
		return slices.Contains(link.Addresses, p)
	})
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

// inTheWay is VPP's rule (src/vnet/ip/ip4_forward.c): subnets on one interface may be equal, but
// must not overlap.
func inTheWay(old, new netip.Prefix) bool {
	return old.Overlaps(new) && (old.Bits() != new.Bits() || old.Addr() == new.Addr())
}
