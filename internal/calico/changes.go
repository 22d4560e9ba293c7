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

// Apply returns before, which may be nil and stays as it is, with the changes.
func (c RecordedChanges) Apply(before *Snapshot) (*Snapshot, error) {
	return changes.Apply(c.Recorded, before)
}
