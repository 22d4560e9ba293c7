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

// vlanAlreadyExists is what VPP says of a second sub-interface for a VLAN.
const vlanAlreadyExists = -56

func (s *Server) createSubInterface(m *interfaces.CreateVlanSubif) (uint32, int32) {
	parent := s.links[uint32(m.SwIfIndex)]
	if parent == nil {
		return math.MaxUint32, int32(api.INVALID_SW_IF_INDEX)
	}
	name := fmt.Sprintf("%s.%d", parent.name, m.VlanID)
	if s.hasLink(name) {
		return math.MaxUint32, vlanAlreadyExists
	}
	return s.addLink(&link{name: name, device: subInterface, mac: parent.mac,
		parent: uint32(m.SwIfIndex)}), 0
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
