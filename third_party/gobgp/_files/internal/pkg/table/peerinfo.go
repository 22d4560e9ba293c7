// This file is vpp-route-agent's, not GoBGP's.

package table

import "net"

// OfSession returns the PeerInfo of a new session with the peer. Paths of an earlier one keep theirs.
func (i *PeerInfo) OfSession(as uint32, id net.IP) *PeerInfo {
	session := *i
	session.AS, session.ID = as, id
	return &session
}

// samePeer reports whether both are of sessions with one peer, whose BGP identifier may be another
// after a restart. Equal reports whether it is the same.
func (i *PeerInfo) samePeer(o *PeerInfo) bool {
	return i == o || i.AS == o.AS && i.LocalID.Equal(o.LocalID) && i.Address.Equal(o.Address)
}
