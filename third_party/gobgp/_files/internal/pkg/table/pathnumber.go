// This file is vpp-route-agent's, not GoBGP's.

package table

// takeNumber gives path the number of the one that it replaces or withdraws in its peer's
// Adj-RIB-In.
func (path *Path) takeNumber(old *Path) {
	if id := old.GetNlri().PathLocalIdentifier(); id != path.GetNlri().PathLocalIdentifier() {
		path.GetNlri().SetPathLocalIdentifier(id)
	}
}

// giveBackNumber is called with a withdrawal after it was carried out. One by policy leaves the
// path its number: the peer still has it, and it may come back. Our own routes have no Adj-RIB-In
// to come back from.
func (dest *Destination) giveBackNumber(withdrawn *Path) {
	id := uint(withdrawn.GetNlri().PathLocalIdentifier())
	if id != 0 && id/64 < uint(len(dest.localIdMap.bitmap)) &&
		(withdrawn.IsDropped() || withdrawn.IsLocal()) {
		dest.localIdMap.Unflag(id)
	}
}
