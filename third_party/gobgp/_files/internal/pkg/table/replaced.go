// This file is vpp-route-agent's, not GoBGP's.

package table

// Uses reports whether the peer's present route of this name (its prefix and, with ADD-PATH, its
// identifier) is given to policies.
func (adj *AdjRib) Uses(path *Path) bool {
	t, ok := adj.table[path.GetRouteFamily()]
	if !ok {
		return false
	}
	d := t.GetDestination(path.GetNlri())
	if d == nil {
		return false
	}
	for _, p := range d.knownPathList {
		if p.GetNlri().PathIdentifier() == path.GetNlri().PathIdentifier() {
			return !p.IsRejected()
		}
	}
	return false
}
