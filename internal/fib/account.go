package fib

import (
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// Account is all that decides about one key, for people.
type Account struct {
	Entry
	// Claims are what the sources want, in the order in which they are tried.
	Claims []Claim
}

// Claim is what one source wants for a key, and how it came out.
type Claim struct {
	Origin   route.Origin
	Distance uint8 // the lowest wins
	Kind     route.Kind
	Chosen   bool
	// Reason says why it is not chosen, "" where another source's is; or which path of a chosen
	// one is left out.
	Reason Reason
	Paths  []Way
}

// Way is one path of a claim, step by step.
type Way struct {
	Path route.Path // as the source gave it
	// Match is the prefix by which the next hop is reached: a connected subnet, else a route of
	// Owner. Invalid: it is not looked up, or there is none.
	Match     netip.Prefix
	Connected bool
	Owner     string // in the data plane's words; "ours" for a route of ours; "" if connected
	// Used are what is programmed for it; empty if it is left out. Reason says why.
	Used   []route.Path
	Reason Reason
}

// Account returns the account of each of these keys that has an entry, in this order. It looks at
// nothing else, so that its time does not grow with the routes.
func (e *Engine) Account(keys []route.Key) []Account {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Account
	for _, k := range keys {
		x := e.table.get(k)
		if x == nil {
			continue
		}
		by := e.selection.goesBy(x)
		shown := e.show(by, true)
		if x.is(isDirty) {
			shown.State = Pending
		}
		if shown.State == Any {
			continue
		}
		a := Account{Entry: shown}
		if e.selection.view != nil {
			a.Claims = e.selection.claims(x, by)
		}
		out = append(out, a)
	}
	return out
}

// claims are those for e; by is the entry that holds what was selected.
func (s *selection) claims(e, by *entry) (out []Claim) {
	var options []option
	for c := e.first; c != nil; c = c.next {
		options = append(options, s.option(c))
	}
	slices.SortFunc(options, s.view.compare)
	taken := false
	for _, o := range options {
		c := Claim{Origin: o.Origin, Distance: s.view.facts.distance(o.Origin), Kind: o.Kind}
		tried := s.view.try(e.key(), o)
		c.Chosen = !taken && (tried.forward != nil || tried.waiting || by.want != nil &&
			by.origin() == o.Origin)
		if c.Chosen || tried.forward == nil {
			c.Reason = tried.reason
		}
		taken = taken || c.Chosen
		if o.viable != nil {
			c.Paths = s.ways(e.key(), o)
		}
		out = append(out, c)
	}
	return out
}

// ways are the paths of an option as it is tried for k.
func (s *selection) ways(k route.Key, o option) (out []Way) {
	paths := slices.Clone(o.viable.paths)
	for i, p := range paths {
		if p.loops(k) {
			paths[i].reason = p.loopReason()
		}
	}
	if o.Origin == route.BGP {
		paths, _ = nearest(paths)
	}
	for i, p := range paths {
		w := Way{Path: o.Paths[i], Match: p.match, Reason: p.reason}
		n := NextHop{p.table, p.target()}
		if _, covered := s.hops.covered[n]; covered {
			w.Owner = "ours"
		} else if _, _, w.Connected = s.view.connectedTo(n); !w.Connected && p.match.IsValid() {
			w.Owner = s.hops.answers[n].Owner
		}
		switch {
		case p.reason != (Reason{}) || p.waiting:
		case p.attached != nil:
			w.Used = slices.Clone(p.attached)
		default:
			w.Used = []route.Path{p.Path}
		}
		out = append(out, w)
	}
	return out
}

// Inside counts the routes in the default table that lie inside a prefix and are longer, and
// returns the first of them by key. The table is walked a piece at a time.
func (e *Engine) Inside(p netip.Prefix, most int) (first []Entry, count int) {
	keys, count := e.firstKeys(route.Key{}, most, func(_ *entry, k route.Key) bool {
		return k.Table == 0 && !k.Elevated && k.Prefix.Bits() > p.Bits() &&
			p.Contains(k.Prefix.Addr())
	})
	first, _ = e.Find(keys)
	return first, count
}
