package fib

import (
	"fmt"
	"net/netip"
)

// Reason says why a route is not programmed, or not whole. The zero value means that nothing is
// left out. It is built for every refused route and read for few, so it becomes text only when
// asked.
type Reason struct {
	what    what
	address netip.Addr
	prefix  netip.Prefix
	name    string // of an interface, or an error
}

type what uint8

const (
	nothing what = iota
	noPaths
	notUnicast
	linkLocalOnly
	ownAddress
	interfaceMissing
	interfaceDown
	notAsked
	noRoute
	matchDrops
	throughOurs
	farther
	ownNextHop
	isReserved
	isService
	isConnected
	coversOwn
	coversPeer
	guardWaits
	coveredByBGP
	insideOwnBlock
	noFacts
	keptByGuard
	cannotLeave
	inOverlay
	isFelix
)

// Waits reports whether something outside of the route is missing, which may come: an interface, a
// way to a next hop, BGP's withdrawal. Otherwise the guard refuses the route as it is.
func (r Reason) Waits() bool {
	switch r.what {
	case notUnicast, linkLocalOnly, ownAddress, ownNextHop, isReserved, isService, isConnected,
		coversOwn, coversPeer, insideOwnBlock, inOverlay, isFelix:
		return false
	}
	return true
}

// Kept reports that the guard alone keeps the route: its source lists it no more.
func (r Reason) Kept() bool { return r.what == keptByGuard }

func (r Reason) String() string {
	switch r.what {
	case nothing:
		return ""
	case noPaths:
		return "it has no path"
	case notUnicast:
		return fmt.Sprintf("next hop %v is not a unicast address", r.address)
	case linkLocalOnly:
		return fmt.Sprintf("next hop %v is link-local and came without an interface", r.address)
	case ownAddress:
		return fmt.Sprintf("next hop %v is an address of this node", r.address)
	case interfaceMissing:
		return fmt.Sprintf("there is no interface %s", r.name)
	case interfaceDown:
		return fmt.Sprintf("interface %s is down", r.name)
	case notAsked:
		return fmt.Sprintf("next hop %v has not been looked up yet", r.address)
	case noRoute:
		return fmt.Sprintf("there is no route to next hop %v", r.address)
	case matchDrops:
		return fmt.Sprintf("next hop %v is reached by %v, which does not forward",
			r.address, r.prefix)
	case throughOurs:
		return fmt.Sprintf("next hop %v would be reached through our own route %v",
			r.address, r.prefix)
	case farther:
		return fmt.Sprintf("next hop %v is behind a gateway, and others are not", r.address)
	case ownNextHop:
		return fmt.Sprintf(
			"it would be the longest match for its own next hop %v, now reached by %v",
			r.address, r.prefix)
	case isReserved:
		return fmt.Sprintf("it lies in %v, where no route may be", r.prefix)
	case isService:
		return fmt.Sprintf(
			"it lies in %v, a range of service addresses, which are not reached by BGP routes",
			r.prefix)
	case isConnected:
		return fmt.Sprintf("%v is the connected subnet of %s", r.prefix, r.name)
	case coversOwn:
		if r.name != "" {
			return fmt.Sprintf("it would be the longest match for %v, this node's address on %s",
				r.address, r.name)
		}
		return fmt.Sprintf("it would be the longest match for %v, this node's address", r.address)
	case coversPeer:
		return fmt.Sprintf("it would be the longest match for %v, the address of a peer", r.address)
	case guardWaits:
		return fmt.Sprintf("it covers %v, and what leads there now has not been looked up yet",
			r.address)
	case coveredByBGP:
		return fmt.Sprintf("BGP covers it with %v", r.prefix)
	case insideOwnBlock:
		return fmt.Sprintf("it lies in %v, a block of this node", r.prefix)
	case noFacts:
		return "the data plane has not been seen yet"
	case inOverlay:
		return fmt.Sprintf("IPPool(%s) has VXLAN: its routes come from blocks and Nodes, not from "+
			"BGP", r.name)
	case cannotLeave, isFelix:
		return r.name
	case keptByGuard:
		return "its source lists it no more, along with so many others that the guard keeps " +
			"them for a while"
	}
	panic(fmt.Sprintf("fib: reason %d has no text", r.what))
}
