package fib

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// How a packet leaves is part of its path, and depends on the pool of its destination: the same
// next hop is plain for one prefix and a tunnel for the next. So path sets are shared among the
// prefixes of one pool alone.

// poolOf returns the pool by which routes of an origin to k leave; the zero Pool: they leave plain.
// External configuration and this node itself say how their packets leave.
func (f Facts) poolOf(k route.Key, o route.Origin) (pool route.Pool) {
	if f.Encapsulation == nil || k.Table != 0 ||
		o != route.BGP && o != route.Etcd && o != route.Overlay {
		return pool
	}
	if p := f.Encapsulation.PoolOf(k.Prefix); p != nil && p.Encap != route.Plain {
		return *p
	}
	return pool
}

// leave makes of a path, resolved as a plain one, what leaves by a pool. The tunnel needs the way
// to the node that the plain path is.
func (v *view) leave(p resolved, pool *route.Pool) resolved {
	if pool.Encap == route.Plain || p.reason != (Reason{}) || p.waiting {
		return p
	}
	l := v.facts.Encapsulation.Leaves(pool, p.NextHop)
	if l.Refused {
		p.reason = Reason{what: cannotLeave, address: p.NextHop, name: l.Reason()}
	}
	if l.Refused || l.Encap == route.Plain {
		return p
	}
	by := route.Endpoint{Interface: l.Encap.Interface(l.To), Outer: l.To}
	i, there := v.facts.Interface(by.Interface)
	switch {
	case !there:
		p.reason = Reason{what: interfaceMissing, name: by.Interface}
	case !i.Up:
		p.reason = Reason{what: interfaceDown, name: by.Interface}
	default:
		p.near, p.outer, p.attached = p.Interface != "", l.To, nil
		p.NextHop, p.Interface, p.Table = by.NextHop(), by.Interface, 0
	}
	return p
}

// setEncapsulation takes how packets leave. Of a node that comes or goes only the path sets that
// name it hear.
func (s *selection) setEncapsulation(to *route.Encapsulation) {
	before := s.encapsulation
	if before == to {
		return
	}
	s.encapsulation = to
	s.noteSurroundings()
	if s.view != nil {
		s.rebuildView(s.view.facts.Facts)
	}
	if before == nil || to == nil || before.Own4 != to.Own4 || before.Own6 != to.Own6 ||
		!slices.Equal(before.Pools, to.Pools) {
		s.poolsChanged()
	} else {
		set, gone := before.Nodes.Changes(to.Nodes)
		for _, n := range set {
			s.leavesOtherwise(n.Address)
		}
		for _, a := range gone {
			s.leavesOtherwise(a)
		}
		for a, name := range to.Published {
			if before.Published[a] != name {
				s.leavesOtherwise(a)
			}
		}
		for a := range before.Published {
			if _, there := to.Published[a]; !there {
				s.leavesOtherwise(a)
			}
		}
	}
	s.refresh()
}

// poolsChanged moves each candidate in a pool, or that was in one, to another path set.
func (s *selection) poolsChanged() {
	s.sets.pools++
	facts := Facts{Encapsulation: s.encapsulation}
	for _, e := range slices.Clone(s.all) {
		for c := e.first; c != nil; c = c.next {
			if c.set == nil {
				continue
			}
			pool := facts.poolOf(e.key(), c.origin)
			if pool.Encap != route.Plain || c.set.pool.Encap != route.Plain {
				set := s.pathSet(c.set.paths, c.set.static, pool)
				s.leave(c)
				s.join(c, set)
				s.dirtyWithHops(e) // the guard may say something else
			}
		}
	}
}

// leavesOtherwise has the path sets resolved again that name a node that came, went or changed.
func (s *selection) leavesOtherwise(node netip.Addr) {
	hop := s.hops.byKey[NextHop{Address: node}]
	if hop == nil {
		return
	}
	for set := range hop.sets {
		if set.pool.Encap != route.Plain {
			s.staleSets = append(s.staleSets, set)
		}
	}
}
