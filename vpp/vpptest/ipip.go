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

// createIPIP makes multipoint interfaces alone: nothing here uses others.
func (s *Server) createIPIP(t ipip.IpipTunnel) (uint32, int32) {
	if t.Mode != tunnel_types.TUNNEL_API_MODE_MP {
		panic("vpptest: an IPIP interface that is not multipoint")
	}
	source, name := address(t.Src.Un, false), fmt.Sprintf("ipip%d", t.Instance)
	for _, l := range s.links {
		if l.source == source {
			return math.MaxUint32, ifAlreadyExists
		}
	}
	if s.hasLink(name) {
		return math.MaxUint32, instanceInUse
	}
	return s.addLink(&link{name: name, device: ipipDevice, source: source}), 0
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

// AddIPIP makes a multipoint interface as another program does, or as one of ours that was killed
// before it could mark it.
func (s *Server) AddIPIP(instance uint32, source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, retval := s.createIPIP(ipip.IpipTunnel{Instance: instance,
		Src: ip_types.Address{Un: union(source)}, Mode: tunnel_types.TUNNEL_API_MODE_MP})
	if retval != 0 {
		panic(fmt.Sprintf("vpptest: IPIP interface %d: %d", instance, retval))
	}
}
