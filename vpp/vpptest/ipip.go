package vpptest

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipip"
	"go.fd.io/govpp/binapi/teib"
	"go.fd.io/govpp/binapi/tunnel_types"
)

// ipipDevice is what VPP calls the device of an IPIP interface (src/vnet/ipip/ipip.c).
const ipipDevice = "IPIP tunnel device"

// Return values that GoVPP's list lacks (src/vnet/error.h).
const (
	ifAlreadyExists    = -79
	entryAlreadyExists = -116
	instanceInUse      = -147
)

// createIPIP makes an interface of IPv4 in table 0. The far end of a multipoint one is 0.0.0.0.
func (s *Server) createIPIP(t ipip.IpipTunnel) (uint32, int32) {
	name := fmt.Sprintf("ipip%d", t.Instance)
	l := &link{name: name, device: ipipDevice, source: address(t.Src.Un, false),
		far: address(t.Dst.Un, false)}
	for _, o := range s.links {
		if o.device == ipipDevice && o.source == l.source && o.far == l.far {
			return math.MaxUint32, ifAlreadyExists
		}
	}
	for _, e := range s.teib { // whose arriving packets are told by both addresses, too
		if o := s.links[uint32(e.SwIfIndex)]; o != nil && o.source == l.source &&
			address(e.Nh.Un, false) == l.far {
			return math.MaxUint32, ifAlreadyExists
		}
	}
	if s.hasLink(name) {
		return math.MaxUint32, instanceInUse
	}
	return s.addLink(l), 0
}

// ipipTunnels lists the IPIP interfaces.
func (s *Server) ipipTunnels() (all []ipip.IpipTunnel) {
	for index, l := range s.links {
		if l.device != ipipDevice {
			continue
		}
		t := ipip.IpipTunnel{SwIfIndex: interface_types.InterfaceIndex(index),
			Src: ip_types.Address{Un: union(l.source)}, Dst: ip_types.Address{Un: union(l.far)}}
		if l.far.IsUnspecified() {
			t.Mode = tunnel_types.TUNNEL_API_MODE_MP
		}
		all = append(all, t)
	}
	return all
}

// deleteIPIP leaves the interface's TEIB entries, which are those of the next one with its index.
func (s *Server) deleteIPIP(i interface_types.InterfaceIndex) int32 {
	if s.deleteLink(i, ipipDevice) != 0 {
		return int32(api.NO_SUCH_ENTRY)
	}
	return 0
}

// changeTEIB panics for a next hop that a neighbour on another interface may have: VPP 25.10
// crashes when such an entry goes.
func (s *Server) changeTEIB(m *teib.TeibEntryAddDel) int32 {
	e := m.Entry
	peer := address(e.Peer.Un, e.Peer.Af == ip_types.ADDRESS_IP6)
	if !peer.IsLinkLocalUnicast() {
		panic(fmt.Sprintf("vpptest: a TEIB entry for %s, whose route VPP mixes up with those of "+
			"other interfaces", peer))
	}
	if s.links[uint32(e.SwIfIndex)] == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	at := slices.IndexFunc(s.teib, func(o teib.TeibEntry) bool {
		return o.SwIfIndex == e.SwIfIndex && o.Peer == e.Peer
	})
	switch {
	case m.IsAdd != 0 && s.tables[tableKey{id: e.NhTableID}] == nil:
		return int32(api.NO_SUCH_FIB)
	case m.IsAdd != 0 && at >= 0:
		return entryAlreadyExists
	case m.IsAdd != 0:
		s.teib = append(s.teib, e)
	case at < 0:
		return int32(api.NO_SUCH_ENTRY)
	default:
		s.teib = slices.Delete(s.teib, at, at+1)
	}
	return 0
}

// Endpoints lists the nodes to which the IPIP interface whose tag ends with a name leads, sorted.
func (s *Server) Endpoints(name string) (all []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.teib {
		l := s.links[uint32(e.SwIfIndex)]
		if l == nil || strings.HasSuffix(l.tag, ":"+name) {
			all = append(all, address(e.Nh.Un, false))
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// AddIPIP makes an interface to a far end as another program does. To 0.0.0.0 it is a multipoint
// one, which one of ours that was killed before it could mark it may have made, too.
func (s *Server) AddIPIP(instance uint32, source, far netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, retval := s.createIPIP(ipip.IpipTunnel{Instance: instance,
		Src: ip_types.Address{Un: union(source)}, Dst: ip_types.Address{Un: union(far)}})
	if retval != 0 {
		panic(fmt.Sprintf("vpptest: IPIP interface %d: %d", instance, retval))
	}
}
