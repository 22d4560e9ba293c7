package vpptest

import (
	"net/netip"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// neighbour is an entry of an interface (src/vnet/ip-neighbor/ip_neighbor.c).
type neighbour struct {
	mac    ethernet_types.MacAddress
	static bool
	// orphaned: it outlived its interface, and leads nowhere, also with the next of that index.
	orphaned bool
	moved    bool // to table 0, when its interface was deleted
}

// changeNeighbour: a static entry replaces any, and a learned one no static one.
func (s *Server) changeNeighbour(m *ip_neighbor.IPNeighborAddDel) int32 {
	i := uint32(m.Neighbor.SwIfIndex)
	l := s.links[i]
	if l == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	a := address(m.Neighbor.IPAddress.Un, m.Neighbor.IPAddress.Af == ip_types.ADDRESS_IP6)
	was, there := l.neighbours[a]
	static := m.Neighbor.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0
	switch {
	case !m.IsAdd && !there:
		return int32(api.NO_SUCH_ENTRY)
	case !m.IsAdd:
		delete(l.neighbours, a)
		s.tables[tableKey{l.table(a), a.Is6()}].remove(route.HostPrefix(a), sourceAdj)
	case was.static && !static && was.mac != m.Neighbor.MacAddress:
		return int32(api.INVALID_SW_IF_INDEX)
	default:
		s.addNeighbour(i, a,
			neighbour{mac: m.Neighbor.MacAddress, static: static || was.static})
	}
	return 0
}

// addNeighbour makes what VPP makes of a resolved neighbour: a host route of source "adjacency". Of
// an entry that is there already only the MAC address changes.
func (s *Server) addNeighbour(i uint32, a netip.Addr, n neighbour) {
	l := s.links[i]
	if l.neighbours == nil {
		l.neighbours = map[netip.Addr]neighbour{}
	}
	was, there := l.neighbours[a]
	n.orphaned = was.orphaned
	if l.neighbours[a] = n; !there {
		s.putAdjacency(i, a)
	}
}

// putAdjacency: VPP has link-local addresses in tables of their own.
func (s *Server) putAdjacency(i uint32, a netip.Addr) {
	if a.IsLinkLocalUnicast() {
		return
	}
	p := fib_types.FibPath{SwIfIndex: i, Proto: protoOf(a), Weight: 1}
	p.Nh.Address = union(a)
	s.tables[tableKey{s.links[i].table(a), a.Is6()}].put(route.HostPrefix(a), sourceAdj,
		[]fib_types.FibPath{p})
}

// setNeighbourRoutes: static neighbours and their routes outlive the time that their interface is
// down, and the interface.
func (s *Server) setNeighbourRoutes(i uint32, there bool) {
	l := s.links[i]
	for a, n := range l.neighbours {
		switch {
		case !there && !n.static:
			delete(l.neighbours, a)
			s.tables[tableKey{l.table(a), a.Is6()}].remove(route.HostPrefix(a), sourceAdj)
		case there && !n.orphaned:
			s.putAdjacency(i, a)
		}
	}
}

// orphan keeps static neighbours of an interface that is about to go for the next one with that
// index, as VPP 25.10 does (src/vnet/ip-neighbor/ip_neighbor.c, ip_neighbor_flush).
func (s *Server) orphan(i uint32) {
	for a, n := range s.links[i].neighbours {
		n.orphaned, n.moved = true, s.links[i].table(a) != 0
		s.links[i].neighbours[a] = n
	}
	s.orphans[i] = s.links[i].neighbours
}

// AddNeighbor makes a neighbour that VPP has learned.
func (s *Server) AddNeighbor(name string, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addNeighbour(s.mustFind(name), a, neighbour{})
}

func (s *Server) dumpNeighbours(a answer, m *ip_neighbor.IPNeighborDump) {
	if m.SwIfIndex == noInterface { // all
		for i := range s.links {
			s.dumpNeighbours(a, &ip_neighbor.IPNeighborDump{Af: m.Af,
				SwIfIndex: interface_types.InterfaceIndex(i)})
		}
		return
	}
	l := s.links[uint32(m.SwIfIndex)]
	if l == nil {
		return
	}
	for at, n := range l.neighbours {
		if at.Is6() != (m.Af == ip_types.ADDRESS_IP6) {
			continue
		}
		d := &ip_neighbor.IPNeighborDetails{Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex: m.SwIfIndex, MacAddress: n.mac,
			IPAddress: ip_types.Address{Af: m.Af, Un: union(at)}}}
		if n.static {
			d.Neighbor.Flags = ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC
		}
		a.send(d)
	}
}
