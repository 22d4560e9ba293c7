package vpptest

import (
	"cmp"
	"net/netip"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"vpp-route-agent/internal/route"
)

type link struct {
	name       string
	up         bool
	tables     map[bool]uint32 // of IPv6, or not
	addresses  []netip.Prefix
	neighbours map[netip.Addr]neighbour

	device, tag string
	mac         ethernet_types.MacAddress
	mtu         uint32 // of all protocols (VNET_MTU_L3)
	parent      uint32 // of a sub-interface; 0: it is none
	subID       uint32 // of a sub-interface, among those of its parent
	vlan        uint16 // and the tag of its frames
	host        string // the kernel's interface of a TAP or AF_PACKET interface
	memif       memifLink
	source, far netip.Addr // of outer headers, of an IPIP interface
	vxlan       *vxlanTunnel
	borrows     *link // that it is unnumbered to

	received, sent route.Counts
}

func (s *Server) flags(l *link) (flags interface_types.IfStatusFlags) {
	if l.up {
		flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	if s.isLinkUp(l) {
		flags |= interface_types.IF_STATUS_API_FLAG_LINK_UP
	}
	return flags
}

func (s *Server) isLinkUp(l *link) bool {
	return l.up && (l.device != memifDevice || s.isConnected(l))
}

// AddInterface makes an interface that is up, in table 0, with addresses and what comes with them:
// a route for each subnet and one for each address itself. It returns the sw_if_index.
func (s *Server) AddInterface(name string, addresses ...netip.Prefix) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.addLink(&link{name: name, up: true})
	s.links[i].addresses = addresses
	s.setLinkRoutes(i, true)
	return i
}

func (s *Server) addLink(l *link) uint32 {
	i := s.nextLink
	if last := len(s.freed) - 1; last >= 0 {
		i, s.freed = s.freed[last], s.freed[:last]
	} else {
		s.nextLink++
	}
	if l.parent == 0 {
		l.mtu = defaultMTU
	}
	l.neighbours = s.orphans[i]
	delete(s.orphans, i)
	s.links[i] = l
	s.announce(i, false)
	return i
}

// Bind puts an interface without addresses into a table, which exists.
func (s *Server) Bind(name string, table uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.mustFind(name)
	for _, six := range []bool{false, true} {
		s.bind(i, tableKey{table, six})
	}
}

// bind moves the routes of neighbours, too (src/vnet/ip-neighbor/ip_neighbor.c,
// ip_neighbor_table_bind_v4).
func (s *Server) bind(i uint32, k tableKey) {
	l := s.links[i]
	was := tableKey{l.tables[k.six], k.six}
	if l.tables == nil {
		l.tables = map[bool]uint32{}
	}
	l.tables[k.six] = k.id
	for a := range l.neighbours {
		if a.Is6() == k.six && !a.IsLinkLocalUnicast() {
			s.tables[was].remove(route.HostPrefix(a), sourceAdj)
			s.putAdjacency(i, a)
		}
	}
	s.destroyUnlocked(was)
}

// table is the one for addresses like a.
func (l *link) table(a netip.Addr) uint32 { return l.tables[a.Is6()] }

// setTable refuses to move an interface with an address (src/vnet/interface_api.c, ip_table_bind).
func (s *Server) setTable(m *interfaces.SwInterfaceSetTable) int32 {
	l, k := s.links[uint32(m.SwIfIndex)], tableKey{m.VrfID, m.IsIPv6}
	switch {
	case l == nil:
		return int32(api.INVALID_SW_IF_INDEX)
	case s.tables[k] == nil:
		return int32(api.NO_SUCH_FIB)
	case slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool {
		return p.Addr().Is6() == m.IsIPv6
	}):
		return int32(api.ADDRESS_FOUND_FOR_INTERFACE)
	}
	s.bind(uint32(m.SwIfIndex), k)
	return 0
}

// AddAddress gives an interface one more address. As VPP, the server sends no event.
func (s *Server) AddAddress(name string, a netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.mustFind(name)
	s.links[i].addresses = append(s.links[i].addresses, a)
	s.setLinkRoutes(i, s.links[i].up)
}

// SetMTU sets the MTU of an interface's packets, in bytes. As VPP, the server sends no event.
func (s *Server) SetMTU(name string, mtu uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[s.mustFind(name)].mtu = mtu
}

// Interface returns whether an interface is up, and its addresses in the order in which they were
// set.
func (s *Server) Interface(name string) (up bool, addresses []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[s.mustFind(name)]
	return l.up, slices.Clone(l.addresses)
}

// Interfaces returns the tags of all interfaces, or their names where they have none.
func (s *Server) Interfaces() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		all = append(all, cmp.Or(l.tag, l.name))
	}
	return all
}

// SetLink brings an interface up or down, with an event. Down, it has no routes of its own; those
// of others over it stay.
func (s *Server) SetLink(name string, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.mustFind(name)
	s.links[i].up = up
	s.setLinkRoutes(i, up)
	s.announce(i, false)
}

// RemoveInterface deletes the interface of that name or tag with its own routes; routes of others
// through it stay. The next one gets its index.
func (s *Server) RemoveInterface(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLink(s.mustFind(name))
}

// removeLink takes sub-interfaces along.
func (s *Server) removeLink(i uint32) {
	for sub, l := range s.links {
		if l.parent == i && i != 0 {
			s.removeLink(sub)
		}
	}
	s.setLinkRoutes(i, false)
	s.orphan(i)
	for _, six := range []bool{false, true} { // with the routes of its static neighbours
		s.bind(i, tableKey{0, six})
	}
	s.killPaths(i)
	s.endKernelSide(s.links[i])
	s.leaveMemifSocket(s.links[i])
	gone := s.links[i]
	delete(s.links, i)
	s.freed = append(s.freed, i)
	s.announce(i, true)
	s.announcePeers(gone)
}

// killPaths: an interface goes, and VPP drops the packets of paths over it for good.
func (s *Server) killPaths(i uint32) {
	for _, t := range s.tables {
		for _, e := range t.entries {
			for src, paths := range e.bySource {
				if slices.ContainsFunc(paths, func(p fib_types.FibPath) bool {
					return p.SwIfIndex == i
				}) {
					if e.dead == nil {
						e.dead = map[deadPath]bool{}
					}
					e.dead[deadPath{src, i}] = true
				}
			}
		}
	}
}

func (s *Server) mustFind(name string) uint32 {
	for i, l := range s.links {
		if l.name == name || l.tag == name {
			return i
		}
	}
	panic("vpptest: no interface " + name)
}

// setLinkRoutes adds the entries that VPP derives from an interface's addresses, or takes them
// away.
func (s *Server) setLinkRoutes(index uint32, there bool) {
	l := s.links[index]
	for _, a := range l.addresses {
		t := s.tables[tableKey{l.table(a.Addr()), a.Addr().Is6()}]
		for p, path := range addressRoutes(index, a) {
			if there {
				t.put(p, sourceIface, []fib_types.FibPath{path})
			} else {
				t.remove(p, sourceIface)
			}
		}
	}
	s.setNeighbourRoutes(index, there)
}

// addressRoutes are the subnet, the address itself, and for IPv4 the subnet's first and last
// address, or the other one of two.
func addressRoutes(index uint32, a netip.Prefix) map[netip.Prefix]fib_types.FibPath {
	proto := protoOf(a.Addr())
	out := map[netip.Prefix]fib_types.FibPath{}
	if a.Bits() < a.Addr().BitLen() {
		subnet := a // IPv4's shows the address' host bits
		if a.Addr().Is6() {
			subnet = a.Masked()
		}
		out[subnet] = fib_types.FibPath{SwIfIndex: index, Proto: proto, Weight: 1}
	}
	if a.Addr().Is4() && a.Bits() < 31 {
		drop := fib_types.FibPath{SwIfIndex: noInterface, Type: isDrop, Proto: proto, Weight: 1}
		first := a.Masked().Addr()
		out[route.HostPrefix(first)] = drop
		last := first.As4()
		for i := a.Bits(); i < 32; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		out[route.HostPrefix(netip.AddrFrom4(last))] = drop
	}
	if a.Addr().Is4() && a.Bits() == 31 { // the other end
		other := a.Masked().Addr()
		if other == a.Addr() {
			other = other.Next()
		}
		path := fib_types.FibPath{SwIfIndex: index, Proto: proto, Weight: 1}
		path.Nh.Address = union(other)
		out[route.HostPrefix(other)] = path
	}
	own := fib_types.FibPath{SwIfIndex: index, Type: isLocal, Proto: proto, Weight: 1}
	own.Nh.Address = union(a.Addr())
	out[route.HostPrefix(a.Addr())] = own
	return out
}
