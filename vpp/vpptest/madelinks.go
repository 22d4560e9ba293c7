package vpptest

import (
	"fmt"
	"math"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
)

// loopback is what VPP calls the device of a loopback (src/vnet/ethernet/interface.c).
const loopback = "Loopback"

// invalidRegistration is what VPP says of an instance that there is already.
const invalidRegistration = -31

// createLoopback gives it the first free instance, unless one is asked for.
func (s *Server) createLoopback(m *interfaces.CreateLoopbackInstance) (uint32, int32) {
	n := m.UserInstance
	for !m.IsSpecified && s.hasLink(loopbackName(n)) {
		n++
	}
	if s.hasLink(loopbackName(n)) {
		return math.MaxUint32, invalidRegistration
	}
	mac := m.MacAddress
	if mac == (ethernet_types.MacAddress{}) {
		mac = ethernet_types.MacAddress{0xde, 0xad, 0, 0, 0, byte(n)}
	}
	return s.addLink(&link{name: loopbackName(n), device: loopback, mac: mac}), 0
}

func loopbackName(instance uint32) string { return fmt.Sprintf("loop%d", instance) }

func (s *Server) hasLink(name string) bool {
	for _, l := range s.links {
		if l.name == name {
			return true
		}
	}
	return false
}

// subInterface stands for the device of a sub-interface, which in VPP is that of its parent.
const subInterface = "sub-interface"

// vlanAlreadyExists is what VPP says of a second sub-interface with one number.
const vlanAlreadyExists = -56

// createSubInterface panics for a VLAN that another one has: VPP refuses it, but takes the other's
// frames away.
func (s *Server) createSubInterface(m *interfaces.CreateSubif) (uint32, int32) {
	parent := s.links[uint32(m.SwIfIndex)]
	if parent == nil {
		return math.MaxUint32, int32(api.INVALID_SW_IF_INDEX)
	}
	for _, l := range s.links {
		switch {
		case l.parent != uint32(m.SwIfIndex):
		case l.subID == m.SubID:
			return math.MaxUint32, vlanAlreadyExists
		case l.vlan == m.OuterVlanID:
			panic("vpptest: another sub-interface has the VLAN: " + l.name)
		}
	}
	return s.addLink(&link{name: fmt.Sprintf("%s.%d", parent.name, m.SubID), device: subInterface,
		mac: parent.mac, parent: uint32(m.SwIfIndex), subID: m.SubID, vlan: m.OuterVlanID}), 0
}

// AddSubInterface makes one as another program does, whose number is its VLAN.
func (s *Server) AddSubInterface(parent string, vlan uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.createSubInterface(&interfaces.CreateSubif{SubID: uint32(vlan), OuterVlanID: vlan,
		SwIfIndex: interface_types.InterfaceIndex(s.mustFind(parent))})
}

// deleteLink deletes an interface of a device.
func (s *Server) deleteLink(i interface_types.InterfaceIndex, device string) int32 {
	if l := s.links[uint32(i)]; l == nil || l.device != device {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	s.removeLink(uint32(i))
	return 0
}

func (s *Server) setTag(m *interfaces.SwInterfaceTagAddDel) int32 {
	l := s.links[uint32(m.SwIfIndex)]
	switch {
	case l == nil:
		return int32(api.INVALID_SW_IF_INDEX)
	case m.IsAdd:
		l.tag = strings.TrimRight(m.Tag, "\x00")
	default:
		l.tag = ""
	}
	return 0
}

// setMAC: the suite asks for that of loopbacks alone.
func (s *Server) setMAC(m *interfaces.SwInterfaceSetMacAddress) int32 {
	l := s.links[uint32(m.SwIfIndex)]
	if l == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	l.mac = m.MacAddress
	return 0
}

// defaultMTU is that of all interfaces but sub-interfaces, which have 0.
const defaultMTU = 9000

// setMTU takes any number (src/vnet/interface_api.c).
func (s *Server) setMTU(m *interfaces.SwInterfaceSetMtu) int32 {
	l := s.links[uint32(m.SwIfIndex)]
	if l == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	l.mtu = m.Mtu[interface_types.MTU_PROTO_API_L3]
	return 0
}

// Made returns the MAC address and the MTU of the interface whose tag ends with a name.
func (s *Server) Made(name string) (mac string, mtu uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if strings.HasSuffix(l.tag, ":"+name) {
			return l.mac.String(), l.mtu
		}
	}
	panic("vpptest: no interface has a tag that ends with :" + name)
}
