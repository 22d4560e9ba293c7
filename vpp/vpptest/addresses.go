package vpptest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// What VPP answers about addresses (src/vnet/error.h, src/vnet/ip/ip4_forward.c and ip6_forward.c).
const (
	lengthMismatch   = -59
	addressNotFound  = -60
	addressInUse     = -105 // IPv4
	duplicateAddress = -127 // IPv6
)

// setFlags knows the one flag that the API can set.
func (s *Server) setFlags(m *interfaces.SwInterfaceSetFlags) int32 {
	i := uint32(m.SwIfIndex)
	l := s.links[i]
	if l == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	if up := m.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0; up != l.up {
		l.up = up
		s.setLinkRoutes(i, up)
		s.announce(i, false)
		s.announcePeers(l)
	}
	return 0
}

// changeAddress adds or removes one address, or removes all. VPP sends no event.
func (s *Server) changeAddress(m *interfaces.SwInterfaceAddDelAddress) int32 {
	i := uint32(m.SwIfIndex)
	l := s.links[i]
	if l == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	six := m.Prefix.Address.Af == ip_types.ADDRESS_IP6
	a := address(m.Prefix.Address.Un, six)
	switch {
	case m.DelAll:
		for _, p := range slices.Clone(l.addresses) {
			s.removeAddress(i, p)
		}
		return 0
	case m.IsAdd:
		return s.addAddress(i, a, int(m.Prefix.Len))
	}
	at := slices.IndexFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	if at < 0 {
		return addressNotFound
	}
	if l.addresses[at].Bits() != int(m.Prefix.Len) {
		panic(fmt.Sprintf("vpptest: %s is removed as /%d: a real VPP forgets the address and "+
			"keeps its routes", l.addresses[at], m.Prefix.Len))
	}
	s.removeAddress(i, l.addresses[at])
	return 0
}

// addAddress refuses subnets that overlap with another of the table, but for equal ones on one
// interface.
func (s *Server) addAddress(i uint32, a netip.Addr, bits int) int32 {
	p := netip.PrefixFrom(a, bits)
	l := s.links[i]
	for _, j := range slices.Sorted(maps.Keys(s.links)) {
		for _, x := range s.links[j].addresses {
			switch {
			case x.Addr().Is6() != a.Is6(), s.links[j].table(a) != l.table(a),
				!x.Masked().Overlaps(p.Masked()):
			case i == j && x.Bits() == bits && x.Addr() != a:
			case a.Is6():
				return duplicateAddress
			default:
				return addressInUse
			}
		}
	}
	if bits == 0 || !p.IsValid() {
		return lengthMismatch
	}
	l.addresses = append(l.addresses, p)
	s.setLinkRoutes(i, l.up)
	return 0
}

// removeAddress leaves the routes that other addresses of the interface have too.
func (s *Server) removeAddress(i uint32, a netip.Prefix) {
	l := s.links[i]
	l.addresses = slices.DeleteFunc(l.addresses, func(p netip.Prefix) bool { return p == a })
	left := map[netip.Prefix]bool{}
	for _, other := range l.addresses {
		for p := range addressRoutes(i, other) {
			left[p.Masked()] = true
		}
	}
	t := s.tables[tableKey{l.table(a.Addr()), a.Addr().Is6()}]
	for p := range addressRoutes(i, a) {
		if !left[p.Masked()] {
			t.remove(p, sourceIface)
		}
	}
	for at, n := range l.neighbours {
		if !n.static && !left[a.Masked()] && a.Contains(at) {
			t.remove(route.HostPrefix(at), sourceAdj)
		}
	}
}
