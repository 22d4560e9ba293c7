package vpptest

import (
	"vpp-route-agent/internal/route"
)

// maxRecursion ends loops, which a real VPP finds and drops.
const maxRecursion = 32

// Egress says by which interfaces packets that match the entry of k leave, and in what proportion;
// empty where none leave.
func (s *Server) Egress(k route.Key) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[keyOf(k)]
	if t == nil {
		return nil
	}
	e := t.entries[k.Prefix]
	if e == nil {
		return nil
	}
	return lowestTerms(s.egress(e, maxRecursion))
}

// egress counts shares by interface. Of the paths that are resolved those of the lowest preference
// forward.
func (s *Server) egress(e *entry, depth int) map[string]int {
	out := map[string]int{}
	if depth == 0 {
		return out
	}
	src, paths := e.best(s.sources) // sorted by preference
	for i, p := range paths {
		if len(out) > 0 && p.Preference != paths[i-1].Preference {
			break
		}
		if p.Type != isNormal || e.dead[deadPath{src, p.SwIfIndex}] {
			continue
		}
		if l := s.links[p.SwIfIndex]; l != nil && p.SwIfIndex != noInterface {
			if l.up {
				out[l.name] += int(p.Weight)
			}
			continue
		}
		next := address(p.Nh.Address, p.Proto == protoIP6)
		if next.IsUnspecified() { // the packet itself is looked up again
			next = e.shown.Addr()
		}
		t := s.tables[tableKey{p.TableID, p.Proto == protoIP6}]
		if p.SwIfIndex != noInterface || t == nil {
			continue
		}
		for name := range s.egress(t.match(route.HostPrefix(next), s.sources), depth-1) {
			out[name] += int(p.Weight)
		}
	}
	return out
}

func lowestTerms(shares map[string]int) map[string]int {
	divisor := 0
	for _, n := range shares {
		for n != 0 {
			divisor, n = n, divisor%n
		}
	}
	for name := range shares {
		shares[name] /= divisor
	}
	return shares
}
