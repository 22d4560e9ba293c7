package reflector

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
)

// Choice says which nodes shall be reflectors, and why not the others.
type Choice struct {
	Nodes  int `json:"nodes"`  // with a BGP address
	Target int `json:"target"` // how many of them shall be reflectors
	// Reflectors are in the order in which they take the role, Others by name.
	Reflectors []Reason `json:"reflectors"`
	Others     []Reason `json:"others"`
	// Problems keep a migration from beginning.
	Problems []string `json:"problems"`
}

// Reason says why a node shall be a reflector, or why not.
type Reason struct {
	Node   string `json:"node"`
	Zone   string `json:"zone"`
	Reason string `json:"reason"`
}

// Has reports whether a node shall be a reflector.
func (c Choice) Has(node string) bool {
	return slices.ContainsFunc(c.Reflectors, func(r Reason) bool { return r.Node == node })
}

// candidate is a node that may be chosen.
type candidate struct {
	name, zone string
	created    time.Time
	current    bool // it is a reflector
	foreign    bool // a person made it one, and it is alive: it stays
	idle       bool // its agent forwards nothing
	bird       bool
	unfit      string // why it cannot be a reflector
	// What a reflector stays by, although it is unfit, until another node can take its role: it is
	// unfit by Kubernetes alone; it works, but is not wanted; it works, and its agent drains.
	movable, works, drains bool
	reason                 string // why it is chosen; empty: it is not
}

// choose says which nodes shall be reflectors. Present ones stay; the others are the oldest of the
// zones with the fewest reflectors.
func choose(w *World, r rules, dead map[string]bool) Choice {
	use := w.familiesInUse()
	all := make([]*candidate, 0, len(w.names))
	for _, name := range w.names {
		c := w.candidate(name, r, dead)
		if !c.current {
			c.unfit = cmp.Or(c.unfit, use.missing(w.snapshot.Nodes[name]))
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(first(b.bird, a.bird), older(a, b))
	})
	s := selection{all: all, zones: map[string]*zone{}}
	s.begin()
	s.target = r.count(len(all), s.current)
	if r.WholePool {
		s.target = s.chosen + s.fit
	}
	for s.chosen > s.target && s.dropOne() {
	}
	if s.mixed() && !s.hasIdle() { // the first in and the last out
		s.pick("the oldest agent without workloads, for the sessions with BIRD",
			func(c *candidate) bool { return c.idle })
	}
	for _, lost := range all {
		if lost.current && lost.reason == "" && lost.unfit != "" {
			s.pick(fmt.Sprintf("replaces %s in its zone", lost.name), func(c *candidate) bool {
				return c.zone == lost.zone
			})
		}
	}
	for s.chosen < s.target && s.pickInEmptiestZone() {
	}
	s.keep(max(s.target, r.Min), func(c *candidate) bool { return c.movable })
	if !w.meshIsOn() {
		few := min(fewReflectors, r.count(len(all), s.current))
		s.keep(few, func(c *candidate) bool { return c.works && !c.drains })
		s.keep(few, func(c *candidate) bool { return c.works })
	}
	return s.result(w, r)
}

func (w *World) candidate(name string, r rules, dead map[string]bool) *candidate {
	m := w.metadata[nodeKey(name)]
	created, _ := time.Parse(time.RFC3339, m.Created)
	current := w.isReflector(name)
	mayNot := w.bird(name) && r.Topology != Single
	return &candidate{
		name: name, zone: w.snapshot.Nodes[name].Labels[r.ZoneLabel], created: created,
		current: current, foreign: current && !w.isOurs(name) && !dead[name],
		idle: w.idle(name), bird: w.bird(name), unfit: w.unfit(name, r, dead),
		movable: current && w.unfitHere(name, r, dead) == "",
		works:   current && !dead[name] && !mayNot,
		drains:  w.known(name) && w.Agents[name].Status.Draining,
	}
}

// older compares by age, then by name. A node without a creation time counts as the youngest.
func older(a, b *candidate) int {
	return cmp.Or(first(b.created.IsZero(), a.created.IsZero()), a.created.Compare(b.created),
		cmp.Compare(a.name, b.name))
}

// first is negative if only the first of two is set, positive if only the second is.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// zone counts the nodes of a zone.
type zone struct {
	name   string
	chosen int
	free   []*candidate // can still be chosen, in the order of selection.all
}

// selection is a Choice in the making.
type selection struct {
	all             []*candidate // agents before BIRD, the oldest first
	zones           map[string]*zone
	target, current int
	chosen, fit     int // fit: can still be chosen
}

// begin chooses the reflectors that stay.
func (s *selection) begin() {
	for _, c := range s.all {
		z := s.zones[c.zone]
		if z == nil {
			z = &zone{name: c.zone}
			s.zones[c.zone] = z
		}
		if c.current {
			s.current++
		}
		switch {
		case c.foreign:
			s.choose(c, z, "a person made it a reflector")
		case c.unfit != "":
		case c.current:
			s.choose(c, z, "it is a reflector already")
		default:
			z.free = append(z.free, c)
			s.fit++
		}
	}
}

func (s *selection) choose(c *candidate, z *zone, reason string) {
	c.reason = reason
	z.chosen++
	s.chosen++
}

// fewReflectors is how many do not give the role up before others have it, with the mesh off.
const fewReflectors = 2

// dropOne takes the role from the youngest reflector of the zone with the most. A person's stays;
// agents without workloads go last, as one may be needed beside BIRD.
func (s *selection) dropOne() bool {
	var drop *candidate
	for _, c := range slices.Backward(s.all) {
		if c.reason == "" || c.foreign {
			continue
		}
		fuller := drop != nil && s.zones[c.zone].chosen > s.zones[drop.zone].chosen
		if drop == nil || drop.idle && !c.idle || drop.idle == c.idle && fuller {
			drop = c
		}
	}
	if drop == nil {
		return false
	}
	drop.reason = ""
	s.zones[drop.zone].chosen--
	s.chosen--
	return true
}

// pick chooses the oldest fit node that is meant, unless enough are chosen.
func (s *selection) pick(reason string, meant func(*candidate) bool) {
	if s.chosen >= s.target {
		return
	}
	for _, c := range s.all {
		if !meant(c) { // to find it among thousands takes long
			continue
		}
		z := s.zones[c.zone]
		if i := slices.Index(z.free, c); i >= 0 {
			z.free = slices.Delete(z.free, i, i+1)
			s.fit--
			s.choose(c, z, reason)
			return
		}
	}
}

const keptText = "no other node can take its role"

// keep keeps the oldest reflectors that are meant until so many are chosen. What Kubernetes says
// moves roles; it ends none, however many Nodes it has cordoned or lost. What persons say ends
// some, but not the last two: without the mesh, nodes would lose their routes when one dies.
func (s *selection) keep(many int, meant func(*candidate) bool) {
	for _, c := range s.all {
		if s.chosen < many && c.reason == "" && meant(c) {
			s.choose(c, s.zones[c.zone], keptText+": "+c.unfit)
		}
	}
}

// pickInEmptiestZone chooses the oldest node of the zone with the fewest reflectors; of several
// such zones it takes the one with the most candidates.
func (s *selection) pickInEmptiestZone() bool {
	var best *zone
	for _, z := range s.zones {
		if len(z.free) > 0 && (best == nil || cmp.Or(cmp.Compare(z.chosen, best.chosen),
			cmp.Compare(len(best.free), len(z.free)), cmp.Compare(z.name, best.name)) < 0) {
			best = z
		}
	}
	if best == nil {
		return false
	}
	c := best.free[0]
	best.free = best.free[1:]
	s.fit--
	s.choose(c, best, fmt.Sprintf("the oldest of %s", zoneName(best.name)))
	return true
}

func zoneName(zone string) string {
	if zone == "" {
		return "the nodes without a zone"
	}
	return "zone " + zone
}

// mixed reports whether some nodes run BIRD.
func (s *selection) mixed() bool {
	return slices.ContainsFunc(s.all, func(c *candidate) bool { return c.bird })
}

func (s *selection) hasIdle() bool {
	return slices.ContainsFunc(s.all, func(c *candidate) bool { return c.idle && c.reason != "" })
}

func (s *selection) result(w *World, r rules) Choice {
	out := Choice{
		Nodes: len(s.all), Target: s.target,
		Reflectors: []Reason{}, Others: []Reason{}, Problems: []string{},
	}
	order := slices.Clone(s.all)
	slices.SortStableFunc(order, func(a, b *candidate) int {
		return w.entry(a.name) - w.entry(b.name)
	})
	for _, c := range order {
		if c.reason != "" {
			out.Reflectors = append(out.Reflectors, Reason{c.name, c.zone, c.reason})
			continue
		}
		reason := cmp.Or(c.unfit, fmt.Sprintf("%d reflectors are enough", s.target))
		out.Others = append(out.Others, Reason{c.name, c.zone, reason})
	}
	slices.SortFunc(out.Others, func(a, b Reason) int { return cmp.Compare(a.Node, b.Node) })
	if r.Pool != "" {
		out.Problems = append(out.Problems, s.poolProblems()...)
	}
	if s.chosen > maxReflectors {
		out.Problems = append(out.Problems, fmt.Sprintf("%d reflectors would be chosen, and %d "+
			"are the most", s.chosen, maxReflectors))
	}
	if s.chosen == 0 {
		out.Problems = append(out.Problems, "no node can be a reflector")
	} else {
		out.Problems = append(out.Problems, w.familyProblems(out.Reflectors)...)
	}
	return out
}

// entry orders nodes as they take the role: first an agent without workloads, which has no flows to
// lose, last a node that runs BIRD.
func (w *World) entry(node string) int {
	switch {
	case w.idle(node):
		return 0
	case w.bird(node):
		return 2
	}
	return 1
}

// families counts nodes by the address families that they have.
type families struct{ v4, v6 int }

func (w *World) familiesInUse() (f families) {
	for _, name := range w.names {
		f.add(w.snapshot.Nodes[name])
	}
	return f
}

func (f *families) add(n calico.Node) {
	if n.IPv4.IsValid() {
		f.v4++
	}
	if n.IPv6.IsValid() {
		f.v6++
	}
}

// missing names a family that the node lacks and that two nodes or more have. With this node as
// their reflector they would have no session in it.
func (f families) missing(n calico.Node) string {
	switch {
	case f.v4 > 1 && !n.IPv4.IsValid():
		return fmt.Sprintf("it has no IPv4 address, and %d nodes do", f.v4)
	case f.v6 > 1 && !n.IPv6.IsValid():
		return fmt.Sprintf("it has no IPv6 address, and %d nodes do", f.v6)
	}
	return ""
}

// familyProblems says in which family nodes would have no reflector, or one alone.
func (w *World) familyProblems(reflectors []Reason) (all []string) {
	use, have := w.familiesInUse(), families{}
	for _, r := range reflectors {
		have.add(w.snapshot.Nodes[r.Node])
	}
	least := min(2, len(reflectors))
	for _, f := range []struct {
		name      string
		use, have int
	}{{"IPv4", use.v4, have.v4}, {"IPv6", use.v6, have.v6}} {
		if f.use > 1 && f.have < least {
			all = append(all, fmt.Sprintf("%d nodes have an %s address, and %d of %d reflectors",
				f.use, f.name, f.have, len(reflectors)))
		}
	}
	return all
}

// poolProblems says what a pool lacks: three nodes, and one in each zone.
func (s *selection) poolProblems() []string {
	var all []string
	if s.chosen+s.fit < minReflectors && len(s.all) > minReflectors {
		all = append(all, fmt.Sprintf("the pool has %d nodes that can be reflectors, and needs %d",
			s.chosen+s.fit, minReflectors))
	}
	for _, z := range s.zones {
		if z.chosen+len(z.free) == 0 {
			all = append(all, fmt.Sprintf("the pool has no node that can be a reflector in %s",
				zoneName(z.name)))
		}
	}
	slices.Sort(all)
	return all
}
