package recorder

import (
	"slices"
	"strings"

	"vpp-route-agent/internal/route"
)

// FactsChange is what facts have otherwise than those before. A node has an interface for each pod,
// and mostly one of them comes or goes.
type FactsChange struct {
	// Facts have of the interfaces only those that are new or differ.
	route.Facts
	// Gone and GoneElsewhere are the names of interfaces that are there no more.
	Gone, GoneElsewhere []string `json:",omitempty"`
}

// changeOf returns what after has otherwise than before.
func changeOf(before, after route.Facts) FactsChange {
	c := FactsChange{Facts: after}
	c.Interfaces, c.Gone = changedInterfaces(before.Interfaces, after.Interfaces)
	c.Elsewhere, c.GoneElsewhere = changedInterfaces(before.Elsewhere, after.Elsewhere)
	return c
}

// changedInterfaces compares two lists that are sorted by name.
func changedInterfaces(before, after []route.Interface) (changed []route.Interface,
	gone []string) {
	for _, i := range after {
		for len(before) > 0 && before[0].Name < i.Name {
			gone, before = append(gone, before[0].Name), before[1:]
		}
		if len(before) == 0 || before[0].Name != i.Name {
			changed = append(changed, i)
			continue
		}
		if !isSame(before[0], i) {
			changed = append(changed, i)
		}
		before = before[1:]
	}
	for _, i := range before {
		gone = append(gone, i.Name)
	}
	return changed, gone
}

func isSame(a, b route.Interface) bool {
	return a.Generation == b.Generation && a.Index == b.Index && a.Up == b.Up &&
		a.Table == b.Table && a.MTU == b.MTU && slices.Equal(a.Addresses, b.Addresses)
}

// After returns the facts after the change; those before stay as they are.
func (c FactsChange) After(before route.Facts) route.Facts {
	after := c.Facts
	after.Interfaces = mergedInterfaces(before.Interfaces, c.Interfaces, c.Gone)
	after.Elsewhere = mergedInterfaces(before.Elsewhere, c.Elsewhere, c.GoneElsewhere)
	return after
}

func mergedInterfaces(before, changed []route.Interface, gone []string) []route.Interface {
	without := make(map[string]bool, len(changed)+len(gone))
	for _, i := range changed {
		without[i.Name] = true
	}
	for _, name := range gone {
		without[name] = true
	}
	var out []route.Interface
	for _, i := range before {
		if !without[i.Name] {
			out = append(out, i)
		}
	}
	out = append(out, changed...)
	slices.SortStableFunc(out, func(a, b route.Interface) int {
		return strings.Compare(a.Name, b.Name)
	})
	return out
}
