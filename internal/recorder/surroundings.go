package recorder

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/changes"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// SurroundingsChange is what surroundings have otherwise than those before. A cluster may have
// thousands of services and nodes, and mostly one of them comes or goes.
type SurroundingsChange struct {
	// Surroundings are without what follows.
	fib.Surroundings
	NewServices, ServicesGone []netip.Prefix `json:",omitempty"`
	// NewNodes are those of Encapsulation that are new or differ.
	NewNodes  route.Nodes  `json:",omitempty"`
	NodesGone []netip.Addr `json:",omitempty"`
	// EncapsulationChanges are changes.Changes of the rest; Plain: there is no encapsulation.
	EncapsulationChanges json.RawMessage `json:",omitempty"`
	Plain                bool            `json:",omitempty"`
}

// surroundingsChange returns what after has otherwise than before.
func surroundingsChange(before, after fib.Surroundings) (c SurroundingsChange, err error) {
	c.Surroundings = after
	c.Services, c.Encapsulation = nil, nil
	was, is := asSet(before.Services), asSet(after.Services)
	c.NewServices, c.ServicesGone = without(is, was), without(was, is)
	switch {
	case after.Encapsulation == nil:
		c.Plain = true
	case after.Encapsulation != before.Encapsulation:
		was, is := encapsulationOf(before), encapsulationOf(after)
		c.NewNodes, c.NodesGone = was.Nodes.Changes(is.Nodes)
		was.Nodes, is.Nodes = nil, nil
		c.EncapsulationChanges, err = json.Marshal(slices.Collect(changes.Of(&was, &is)))
	}
	return c, err
}

// encapsulationOf is a copy.
func encapsulationOf(s fib.Surroundings) (e route.Encapsulation) {
	if s.Encapsulation != nil {
		e = *s.Encapsulation
	}
	return e
}

// asSet is a list of prefixes, sorted.
func asSet(list []netip.Prefix) []netip.Prefix {
	if !slices.IsSortedFunc(list, route.ComparePrefixes) {
		list = slices.SortedFunc(slices.Values(list), route.ComparePrefixes)
	}
	return list
}

// without is what of a sorted list another one lacks.
func without(list, other []netip.Prefix) (left []netip.Prefix) {
	for _, p := range list {
		for len(other) > 0 && route.ComparePrefixes(other[0], p) < 0 {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != p {
			left = append(left, p)
		}
	}
	return left
}

// After returns the surroundings after the change; those before stay as they are.
func (c SurroundingsChange) After(before fib.Surroundings) (fib.Surroundings, error) {
	after := c.Surroundings
	after.Services = asSet(append(without(asSet(before.Services), c.ServicesGone),
		c.NewServices...))
	if c.Plain {
		return after, nil
	}
	after.Encapsulation = before.Encapsulation
	if c.EncapsulationChanges == nil {
		return after, nil
	}
	e := encapsulationOf(before)
	e.Nodes, e.Published = e.Nodes.With(c.NewNodes, c.NodesGone), maps.Clone(e.Published)
	var all []changes.Recorded
	err := json.Unmarshal(c.EncapsulationChanges, &all)
	for _, one := range all {
		if err == nil {
			err = changes.Apply(one, &e)
		}
	}
	after.Encapsulation = &e
	return after, err
}
