package fib

import (
	"encoding/binary"
	"slices"

	"vpp-route-agent/internal/route"
)

// pathSet is a set of paths as sources give them, kept once however many keys use it: a node has as
// many as it has peers and combinations of peers, not as many as routes. Its candidates are a list,
// so that a next hop that changes touches its keys alone.
type pathSet struct {
	id     string // the map key of pathSets
	paths  []route.Path
	static bool       // see view.resolve
	pool   route.Pool // see Facts.poolOf
	hops   []*nextHop // of the paths without interface
	first  *candidate // nil: unused, about to be forgotten
	seen   *viable    // paths in the light of the present view; nil: to be computed
}

func (s *pathSet) add(c *candidate) {
	c.nextInSet, c.prevInSet = s.first, nil
	if s.first != nil {
		s.first.prevInSet = c
	}
	s.first = c
}

// leavesBy reports whether a path leaves, or would, by one of these interfaces: the source has
// named it, or it is that of the pool's tunnels.
func (s *pathSet) leavesBy(interfaces map[string]bool) bool {
	if p := &s.pool; p.Encap != route.Plain && interfaces[p.Encap.Interface(p.Prefix.Addr())] {
		return true
	}
	return slices.ContainsFunc(s.paths, func(p route.Path) bool { return interfaces[p.Interface] })
}

// changedStates returns the names of the interfaces that came, went, or changed their state.
func changedStates(before, after []route.Interface) map[string]bool {
	changed, up := make(map[string]bool), make(map[string]bool, len(before))
	for _, i := range before {
		up[i.Name], changed[i.Name] = i.Up, true
	}
	for _, i := range after {
		if was, there := up[i.Name]; there && was == i.Up {
			delete(changed, i.Name)
		} else {
			changed[i.Name] = true
		}
	}
	return changed
}

func (s *pathSet) remove(c *candidate) {
	if c.prevInSet != nil {
		c.prevInSet.nextInSet = c.nextInSet
	} else {
		s.first = c.nextInSet
	}
	if c.nextInSet != nil {
		c.nextInSet.prevInSet = c.prevInSet
	}
	c.nextInSet, c.prevInSet = nil, nil
}

// pathSets finds equal sets. It is part of selection.
type pathSets struct {
	byID    map[string]*pathSet
	scratch []byte
	pools   uint32 // counts changes of pools: a pool's sets are of one
}

// get returns the one set equal to paths, and whether it is new.
func (s *pathSets) get(paths []route.Path, static bool,
	pool route.Pool) (set *pathSet, isNew bool) {
	var one [1]route.Path
	if len(paths) == 1 { // nearly always: no allocation
		one[0] = paths[0]
		one[0].Weight = max(one[0].Weight, 1)
		if one[0].NextHop.IsValid() {
			one[0].NextHop = one[0].NextHop.Unmap().WithZone("")
		}
		s.encode(one[:], static, pool)
	} else {
		paths = route.CanonicalPaths(paths)
		s.encode(paths, static, pool)
	}
	if set, ok := s.byID[string(s.scratch)]; ok {
		return set, false
	}
	set = &pathSet{
		id: string(s.scratch), paths: route.CanonicalPaths(paths), static: static, pool: pool,
	}
	s.byID[set.id] = set
	return set, true
}

// encode writes paths to scratch so that different sets have different bytes.
func (s *pathSets) encode(paths []route.Path, static bool, pool route.Pool) {
	b := s.scratch[:0]
	switch { // no path begins so: BitLen is 0, 32 or 128
	case static:
		b = append(b, 1)
	case pool.Encap != route.Plain:
		a := pool.Prefix.Addr().As16()
		b = binary.BigEndian.AppendUint32(append(b, 2, byte(pool.Prefix.Bits())), s.pools)
		b = append(b, a[:]...)
	}
	for _, p := range paths {
		a := p.NextHop.As16() // zeros for the zero Addr, which BitLen tells apart
		b = append(b, byte(p.NextHop.BitLen()), p.Preference, p.Weight)
		b = append(b, a[:]...)
		b = binary.BigEndian.AppendUint32(b, p.Table)
		b = binary.AppendUvarint(b, uint64(len(p.Interface)))
		b = append(b, p.Interface...)
	}
	s.scratch = b
}
