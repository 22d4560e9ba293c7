package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// RouteQuery asks for some of the routes of the FIB engine.
type RouteQuery struct {
	// Words must all fit: a prefix or an address, which a route covers or lies inside of, or which
	// is its next hop; how a prefix or a next hop begins, as "10.1."; or a part of the name of an
	// interface, a kind of route, or the node that is the next hop.
	Words  []string
	State  fib.State
	Origin *route.Origin // nil: any
	After  route.Key     // the last route that is known; the zero Key: none
	Most   int
}

// RouteList is the answer: all that fit are counted, and the first of them after a route listed.
type RouteList struct {
	Count  int
	Routes []RouteStatus
	Nodes  map[netip.Addr]string // the nodes that are next hops of the routes
}

// SearchRoutes does not hold up anything: the table is walked a piece at a time.
func (a *Agent) SearchRoutes(q RouteQuery) RouteList {
	out := RouteList{Routes: []RouteStatus{}, Nodes: map[netip.Addr]string{}}
	if a.cfg.FIB == nil {
		return out
	}
	a.mu.Lock()
	names := nodeNames(a.shown.inputs.snapshot)
	a.mu.Unlock()
	match := q.matcher(names)
	found, count := a.cfg.FIB.Search(q.After, q.Most, match)
	out.Count = count
	for _, e := range found {
		status := routeStatus(e)
		status.Source = a.externalOwner(e.Key, e.Origin)
		out.Routes = append(out.Routes, status)
		for _, p := range e.Paths {
			if name := names[hopOf(p)]; name != "" {
				out.Nodes[hopOf(p)] = name
			}
		}
	}
	return out
}

// nodeNames are the nodes by their addresses. Of two with the same, the first name counts.
func nodeNames(s *calico.Snapshot) map[netip.Addr]string {
	names := map[netip.Addr]string{}
	if s == nil {
		return names
	}
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		for _, address := range []netip.Addr{n.IPv4.Addr(), n.IPv6.Addr(), n.HostIPv4,
			n.HostIPv6} {
			if address.IsValid() && names[address] == "" {
				names[address] = name
			}
		}
	}
	return names
}

// hopOf is the next hop as pathStatus shows it.
func hopOf(p route.Path) netip.Addr {
	if outer, ok := route.EndpointBehind(p); ok {
		return outer
	}
	return p.NextHop
}

// matcher prepares the question, since it is asked for every route.
func (q RouteQuery) matcher(names map[netip.Addr]string) func(fib.Entry) bool {
	words := make([]func(fib.Entry) bool, len(q.Words))
	for i, w := range q.Words {
		words[i] = wordMatcher(strings.ToLower(w), names)
	}
	return func(e fib.Entry) bool {
		return (q.State == fib.Any || e.State == q.State) &&
			(q.Origin == nil || e.Origin == *q.Origin) &&
			!slices.ContainsFunc(words, func(fits func(fib.Entry) bool) bool { return !fits(e) })
	}
}

func wordMatcher(word string, names map[netip.Addr]string) func(fib.Entry) bool {
	if p, err := ParsePrefixOrAddr(word); err == nil {
		return func(e fib.Entry) bool {
			return p.Overlaps(e.Key.Prefix) || p.IsSingleIP() && slices.ContainsFunc(e.Paths,
				func(path route.Path) bool { return hopOf(path) == p.Addr() })
		}
	}
	named := map[netip.Addr]bool{}
	for address, name := range names {
		if strings.Contains(strings.ToLower(name), word) { // Calico's names may have upper case
			named[address] = true
		}
	}
	begins := func(text []byte) bool {
		return len(text) >= len(word) && string(text[:len(word)]) == word
	}
	return func(e fib.Entry) bool {
		var text [64]byte
		if begins(e.Key.Prefix.AppendTo(text[:0])) || strings.Contains(e.Kind.String(), word) {
			return true
		}
		for _, p := range e.Paths {
			hop := hopOf(p)
			if named[hop] || begins(hop.AppendTo(text[:0])) ||
				strings.Contains(strings.ToLower(p.Interface), word) {
				return true
			}
		}
		return false
	}
}
