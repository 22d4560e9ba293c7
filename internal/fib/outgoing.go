package fib

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// Outgoing returns by which interface packets leave to the connected subnets of the default table,
// and to the next hops and addresses beyond them that are known to leave by one; sorted. It is nil
// until the data plane has been seen; while that is away the last answer stays.
func (e *Engine) Outgoing() []route.Outgoing {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.selection.view == nil {
		return nil
	}
	all := []route.Outgoing{}
	for k, name := range e.selection.view.connected {
		if k.Table == 0 {
			all = append(all, route.Outgoing{Prefix: k.Prefix, Interface: name})
		}
	}
	for _, hop := range e.hops.sorted {
		if by := e.selection.leaves(hop); by != "" && hop.Table == 0 {
			all = append(all, route.Outgoing{Prefix: route.HostPrefix(hop.Address), Interface: by})
		}
	}
	slices.SortFunc(all, func(a, b route.Outgoing) int {
		return route.ComparePrefixes(a.Prefix, b.Prefix)
	})
	return slices.CompactFunc(all, func(a, b route.Outgoing) bool { return a.Prefix == b.Prefix })
}

// OutgoingTo returns the interface by which packets to a next hop or followed address leave; "" as
// in Outgoing, or where it is connected.
func (e *Engine) OutgoingTo(a netip.Addr) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	hop := e.hops.byKey[NextHop{Address: a}]
	if hop == nil || e.selection.view == nil {
		return ""
	}
	return e.selection.leaves(hop)
}

// leaves returns the interface by which packets to a next hop leave; "" where that is not known, or
// what is connected tells it.
func (s *selection) leaves(hop *nextHop) string {
	if c, covered := s.hops.covered[hop.NextHop]; covered {
		var r route.Resolution
		for _, p := range c.Paths {
			r.Forwards(p.Interface)
		}
		return r.Interface
	}
	_, _, connected := s.view.connectedTo(hop.NextHop)
	if connected || !hop.answered {
		return ""
	}
	return hop.answer.Interface
}
