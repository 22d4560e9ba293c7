package fib

import (
	"net/netip"

	"vpp-route-agent/internal/route"
)

// Candidate is what one source wants for a key.
type Candidate struct {
	Origin route.Origin
	Kind   route.Kind
	// Paths as the source knows them: canonical, next hops without interface where the source does not know it.
	Paths []route.Path
}

// NextHop is an address and the table where it is looked up.
type NextHop struct {
	Table   uint32
	Address netip.Addr
}

// Facts is everything besides the candidates that Select decides by.
type Facts struct {
	route.Facts
	Own, Peers  []netip.Addr // what the guard protects, in the default table
	Resolutions map[NextHop]route.Resolution
	Distances   map[route.Origin]uint8
}

// Reason says why a route is not programmed, or not whole. The zero value means that nothing is left out.
type Reason struct{ text string }

func (r Reason) String() string { return r.text }

// Select picks what one prefix should forward by, and says why.
func Select(k route.Key, candidates []Candidate, f Facts) (route.Route, Reason) {
	return route.Route{}, Reason{}
}
