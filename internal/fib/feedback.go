package fib

import (
	"net/netip"

	"vpp-route-agent/internal/route"
)

// What goes back to those who say what is wanted: facts, and how their routes stand.

// Changed is signalled (size one) when an own route was acknowledged or lost, when the facts
// changed, when adoption ended and when UnusableNextHops changed. There is one reader.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// ExternalChanged is signalled (size one) when external configuration's routes were selected anew,
// acknowledged or lost, and when its objects or the facts changed: Find, Objects or Facts may say
// something else. There is one reader.
func (e *Engine) ExternalChanged() <-chan struct{} { return e.external }

// Facts returns the newest facts of the data plane; the zero value before the first.
func (e *Engine) Facts() route.Facts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sync.facts
}

// Programmed reports whether the data plane has acknowledged exactly r, wanted by r's origin.
// Another origin's route for the same key, or what was wanted before, does not count; nor does what
// other programs did to it afterwards (Shadowed, Drifted): no block is withdrawn because of
// that.
func (e *Engine) Programmed(r route.Route) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.table.get(r.Key)
	return entry != nil && e.sync.stateOf(entry).IsAcknowledged() &&
		entry.origin() == r.Origin && entry.actual == r.Digest()
}

// Holds reports whether k waits for the sweep: an earlier run left it and it was not wanted
// since. It may, as long as it is not known what was left.
func (e *Engine) Holds(k route.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.table.get(k)
	return !e.sync.adopted || entry != nil && e.sync.stateOf(entry) == Held
}

// UnusableNextHop is a next hop that BGP should not choose now.
type UnusableNextHop struct {
	Address netip.Addr
	Reason  Reason
}

// UnusableNextHops lists the next hops in the default table that have not been usable for a second
// or more, by address. The list does not grow while the data plane is away.
func (e *Engine) UnusableNextHops() []UnusableNextHop {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hops.unusable()
}

// RefusedVia returns how many routes go by a next hop in the default table, and what the data
// plane said of one of them, if it refuses all of them; else 0 and nil.
func (e *Engine) RefusedVia(address netip.Addr) (routes int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	hop := e.hops.byKey[NextHop{Address: address}]
	if hop == nil {
		return 0, nil
	}
	for set := range hop.sets {
		for c := set.first; c != nil; c = c.nextInSet {
			switch by := e.selection.goesBy(c.entry); {
			case by.want == nil || by.origin() != c.origin: // it goes elsewhere, or nowhere
			case e.sync.stateOf(by) != Failed:
				return 0, nil
			default:
				routes, err = routes+1, e.sync.failures[by].err
			}
		}
	}
	return routes, err
}
