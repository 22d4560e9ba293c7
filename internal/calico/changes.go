package calico

import (
	"iter"

	"vpp-route-agent/internal/changes"
)

// ChangesOf yields what after has otherwise than before, which may be nil, see changes.Of.
func ChangesOf(before, after *Snapshot) iter.Seq[changes.Changes] {
	return changes.Of(before, after)
}

// RecordedChanges are those of a snapshot as JSON has them.
type RecordedChanges struct{ changes.Recorded }

// Apply makes the changes in to, also in its maps.
func (c RecordedChanges) Apply(to *Snapshot) error { return changes.Apply(c.Recorded, to) }
