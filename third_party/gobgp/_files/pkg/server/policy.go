// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"
	"net/netip"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Policy decides which paths are used and which peer gets them, in place of GoBGP's own policies.
// It is called for each path, in the goroutine that owns all tables, so it never blocks.
type Policy interface {
	// Import decides about a path that a peer sent. Peers are named by their address; a further one
	// of an address has its port as well.
	Import(from netip.AddrPort, p Path) Decision
	// Group says how a peer is treated. Peers with equal groups are sent the same.
	Group(to netip.AddrPort) Group
	// Export decides about a path, as Import left it, for all peers with the group's Export. from
	// is not valid for a path of our own. It need not keep a path from going back to its sender.
	Export(export any, from netip.AddrPort, p Path) Decision
}

// Path is a path as far as a policy looks at it. What the methods return is not to be edited.
type Path interface {
	GetNlri() bgp.AddrPrefixInterface
	GetNexthop() net.IP
	GetLocalPref() (uint32, error)
	GetAsList() []uint32
	GetAsPath() *bgp.PathAttributeAsPath
	GetCommunities() []uint32
	GetLargeCommunities() []*bgp.LargeCommunity
	GetClusterList() []net.IP
}

// Change is what a policy does to a path. Equal changes should be one pointer: paths of one message
// that have it go out in one message.
type Change = table.Change

// Decision is what a policy says about a path.
type Decision struct {
	Accept bool
	Change *Change // nil: none
}

// Group is how a peer is treated.
type Group struct {
	Export any // handed to Policy.Export; it can be compared
	// NextHop is what becomes of the next hop of a learned path.
	NextHop NextHop
	// SessionNextHop: our own paths go out with the local address of the session.
	SessionNextHop bool
}

// NextHop says which next hop a learned path goes out with.
type NextHop uint8

const (
	// towards eBGP our address, towards iBGP as it came (RFC 4271 §5.1.3)
	NextHopAuto NextHop = iota
	NextHopSelf
	NextHopKeep
)

// SetPolicy makes p the policy. The paths of the peers for which again is true are evaluated by
// Import again. Peers are sent the difference; no session is reset.
func (s *BgpServer) SetPolicy(p Policy, again func(peer netip.AddrPort) bool) {
	s.mgmtOperation(func() error {
		if s.adjOut == nil {
			s.adjOut = newAdjOut()
		}
		s.adjOut.policy = p
		s.adjOut.batching = true
		for _, peer := range s.neighborMap {
			if again(peer.name()) {
				s.propagateUpdate(peer, peer.adjRibIn.PathList(peer.configuredRFlist(), true))
			}
		}
		s.adjOut.batching = false
		s.regroup()
		s.updateGroups()
		return nil
	}, false)
}

// SetUsable says which next hops can be used, by prefix. A path with another one is known and is
// neither best nor announced (RFC 4271 §9.1.2.1).
func (s *BgpServer) SetUsable(usable func(netip.Prefix, netip.Addr) bool) {
	s.mgmtOperation(func() error {
		s.usable = usable
		var changed []*table.Path
		for _, t := range s.globalRib.Tables {
			for _, d := range t.GetDestinations() {
				for _, p := range d.GetAllKnownPathList() {
					if q := s.markUsable(p); q != p {
						changed = append(changed, q)
					}
				}
			}
		}
		for _, p := range changed {
			if dsts := s.globalRib.Update(p); len(dsts) > 0 {
				s.propagateUpdateToNeighbors(s.globalRib, nil, p, dsts, true)
			}
		}
		s.updateGroups()
		return nil
	}, false)
}

// imported returns a path that peer sent as it goes into the table: changed, or as a withdrawal.
func (s *BgpServer) imported(peer *peer, path *table.Path) *table.Path {
	if peer == nil || path.IsWithdraw {
		return path
	}
	d := s.adjOut.policy.Import(path.GetSource().Name(), path)
	if !d.Accept {
		return path.Clone(true)
	}
	return s.markUsable(path.Changed(d.Change))
}

// markUsable returns a learned path with the mark that its next hop has now.
func (s *BgpServer) markUsable(p *table.Path) *table.Path {
	if s.usable == nil || p.IsLocal() {
		return p
	}
	name, ok := nameOf(p.GetNlri(), 0)
	if !ok {
		return p
	}
	return p.WithNexthopInvalid(!s.usable(name.prefix(), addrOf(p.GetNexthop())))
}

// address is the peer's. A session that comes up replaces its peerInfo.
func (peer *peer) name() netip.AddrPort {
	peer.fsm.lock.RLock()
	defer peer.fsm.lock.RUnlock()
	return peer.fsm.peerInfo.Name()
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
