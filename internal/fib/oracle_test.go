package fib

import (
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// world is what the sources want and what surrounds the data plane, said as plainly as possible.
type world struct {
	facts       route.Facts
	wants       map[route.Key]map[route.Origin]Candidate
	own, peers  []netip.Addr
	services    []netip.Prefix
	encap       *route.Encapsulation
	resolutions map[NextHop]route.Resolution // by foreign routes alone
}

func newWorld(f route.Facts) *world {
	return &world{
		facts: f, wants: make(map[route.Key]map[route.Origin]Candidate),
		resolutions: make(map[NextHop]route.Resolution),
	}
}

func (w *world) want(k route.Key, c Candidate) {
	if w.wants[k] == nil {
		w.wants[k] = make(map[route.Origin]Candidate)
	}
	w.wants[k][c.Origin] = c
	if c.Kind == route.Via && len(c.Paths) == 0 {
		delete(w.wants[k], c.Origin)
	}
}

// fib is the dumb loop over all keys: what shall be in the data plane.
func (w *world) fib() map[route.Key]route.Route {
	f := Facts{Facts: w.facts, Own: w.own, Peers: w.peers, Services: w.services,
		Resolutions: w.resolutions, Covered: w.covered(), Encapsulation: w.encap}
	out := make(map[route.Key]route.Route)
	// The first round knows this node's own routes, the second what BGP and external configuration
	// forward beside them, and the third what etcd does inside of all these.
	for range 3 {
		bgp := out
		out = make(map[route.Key]route.Route)
		f.BGPCover = func(k route.Key) (netip.Prefix, bool) {
			for bits := k.Prefix.Bits() - 1; bits > 0; bits-- {
				p, _ := k.Prefix.Addr().Prefix(bits)
				r, ok := bgp[route.Key{Table: k.Table, Prefix: p}]
				if ok && !f.yields(r.Origin) {
					return p, r.Origin == route.BGP
				}
			}
			return netip.Prefix{}, false
		}
		f.OwnCover = func(k route.Key) (netip.Prefix, bool) {
			for bits := k.Prefix.Bits() - 1; bits > 0; bits-- {
				p, _ := k.Prefix.Addr().Prefix(bits)
				if bgp[route.Key{Table: k.Table, Prefix: p}].Origin == route.Own {
					return p, true
				}
			}
			return netip.Prefix{}, false
		}
		for k, wants := range w.wants {
			if r, _ := Select(k, slices.Collect(maps.Values(wants)), f); r.Prefix.IsValid() {
				out[r.Key] = r
			}
		}
	}
	return out
}

// ownCover returns an own route that k lies in, as far as that does not depend on next hops that
// are covered themselves.
func (w *world) ownCover(k route.Key) (netip.Prefix, bool) {
	f := Facts{Facts: w.facts, Own: w.own, Peers: w.peers, Services: w.services,
		Resolutions: w.resolutions, Encapsulation: w.encap}
	for bits := k.Prefix.Bits() - 1; bits > 0; bits-- {
		p, _ := k.Prefix.Addr().Prefix(bits)
		k := route.Key{Table: k.Table, Prefix: p}
		r, _ := Select(k, slices.Collect(maps.Values(w.wants[k])), f)
		if r.Prefix.IsValid() && r.Origin == route.Own {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// covered finds the next hops that would be reached through what we want ourselves.
func (w *world) covered() map[NextHop]Cover {
	out := make(map[NextHop]Cover)
	f := Facts{Facts: w.facts, Own: w.own, Peers: w.peers, Services: w.services,
		Resolutions: w.resolutions, OwnCover: w.ownCover, Encapsulation: w.encap}
	for n, r := range w.resolutions {
		best := -1
		_, subnet, connected := w.facts.Connected(n.Table, n.Address)
		for k, wants := range w.wants {
			if k.Table != n.Table || !k.Prefix.Contains(n.Address) ||
				r.Prefix.IsValid() && k.Prefix.Bits() < r.Prefix.Bits() || k.Prefix.Bits() <= best {
				continue
			}
			if connected && (k.Prefix.Bits() <= subnet.Bits() || !w.static(k, f)) {
				continue
			}
			for _, c := range wants {
				if newView(f).guard(k, c.Origin) == (Reason{}) &&
					(c.Kind != route.Via || w.leadsOut(k, c, f)) {
					best = k.Prefix.Bits()
					out[n] = Cover{Prefix: k.Prefix, Carries: w.static(k, f)}
					if c := out[n]; c.Carries {
						r, _ := Select(k, slices.Collect(maps.Values(wants)), f)
						c.Paths = r.Paths
						out[n] = c
					}
				}
			}
		}
	}
	return out
}

// leadsOut: one of the paths does not lie behind k itself.
func (w *world) leadsOut(k route.Key, c Candidate, f Facts) bool {
	return slices.ContainsFunc(c.Paths, func(p route.Path) bool {
		_, subnet, connected := w.facts.Connected(p.Table, p.NextHop)
		return p.Interface != "" || p.Table != k.Table || !k.Prefix.Contains(p.NextHop) ||
			connected && subnet.Bits() > k.Prefix.Bits() || w.carriedInside(k, p.NextHop, f)
	})
}

// carriedInside: a route inside k, and longer, carries a.
func (w *world) carriedInside(k route.Key, a netip.Addr, f Facts) bool {
	for longer := range w.wants {
		if longer.Table == k.Table && longer.Prefix.Bits() > k.Prefix.Bits() &&
			longer.Prefix.Contains(a) && w.static(longer, f) {
			return true
		}
	}
	return false
}

// static: external configuration, or the node itself, wins k with nothing but attached paths.
func (w *world) static(k route.Key, f Facts) bool {
	r, _ := Select(k, slices.Collect(maps.Values(w.wants[k])), f)
	return (r.Origin == route.External || r.Origin == route.Own) && r.Kind == route.Via &&
		!slices.ContainsFunc(w.wants[k][r.Origin].Paths, func(p route.Path) bool {
			return newView(f).resolve(p, true).Interface == ""
		})
}

// Diff returns what turns actual into desired, puts first, by key. Diff(x, x) is empty.
func Diff(desired, actual map[route.Key]route.Route) []route.Op {
	var ops []route.Op
	for _, k := range slices.SortedFunc(maps.Keys(desired), route.CompareKeys) {
		if have, ok := actual[k]; !ok || !have.SameForwarding(desired[k]) {
			ops = append(ops, route.Op{Route: desired[k]})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(actual), route.CompareKeys) {
		if _, ok := desired[k]; !ok {
			ops = append(ops, route.Op{Delete: true, Route: route.Route{Key: k}})
		}
	}
	return ops
}
