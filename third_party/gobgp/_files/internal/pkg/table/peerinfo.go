// This file is vpp-route-agent's, not GoBGP's.

package table

import (
	"net"
	"net/netip"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
)

// OfSession returns the PeerInfo of a new session with the peer. Paths of an earlier one keep
// theirs.
func (i *PeerInfo) OfSession(as uint32, id net.IP) *PeerInfo {
	session := *i
	session.AS, session.ID = as, id
	return &session
}

// samePeer reports whether both are of sessions with one peer, whose BGP identifier may be another
// after a restart. Equal reports whether it is the same.
func (i *PeerInfo) samePeer(o *PeerInfo) bool {
	return i == o || i.AS == o.AS && i.LocalID.Equal(o.LocalID) && i.Name() == o.Name()
}

// Name tells peers apart: by address and, but for the first one of an address, by port. It is not
// valid for this speaker.
func (i *PeerInfo) Name() netip.AddrPort {
	a, _ := netip.AddrFromSlice(i.Address)
	return netip.AddrPortFrom(a.Unmap(), i.Port)
}

func portOf(p *oc.Neighbor) uint16 {
	_, port := p.Peer()
	return port
}

// compareByPort prefers the lower port, where RFC 4271 §9.1.2.2 g has compared the addresses.
func compareByPort(path1, path2 *Path) *Path {
	switch a, b := path1.GetSource().Port, path2.GetSource().Port; {
	case a < b:
		return path1
	case b < a:
		return path2
	}
	return nil
}
