// This file is vpp-route-agent's, not GoBGP's.

package table

import "encoding/binary"

// originator is the BGP identifier by which two paths are told apart: that of ORIGINATOR_ID, in
// place of the peer's, for a path that was reflected (RFC 4456 §9).
func originator(path *Path) uint32 {
	id := path.GetOriginatorID().To4()
	if id == nil || !path.IsIBGP() {
		id = path.GetSource().ID.To4()
	}
	if id == nil { // our own
		return 0
	}
	return binary.BigEndian.Uint32(id)
}

// compareByClusterList prefers the path that went through fewer reflectors (RFC 4456 §9).
func compareByClusterList(path1, path2 *Path) *Path {
	switch a, b := len(path1.GetClusterList()), len(path2.GetClusterList()); {
	case a < b:
		return path1
	case b < a:
		return path2
	}
	return nil
}
