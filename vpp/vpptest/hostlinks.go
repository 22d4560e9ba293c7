package vpptest

import (
	"fmt"
	"math"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"
)

// What VPP calls the devices of a TAP and of an AF_PACKET interface.
const (
	virtio   = "virtio"
	afPacket = "af-packet"
)

// systemCall1 and the next ones are the same for all system calls that fail.
const (
	systemCall1 = -11
	systemCall3 = -13
	initFailed  = -144
)

// AddHostInterface makes an interface in the kernel that this server sees, outside of VPP.
func (s *Server) AddHostInterface(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostLinks[name] = true
}

// createTAP makes the kernel's end as well.
func (s *Server) createTAP(m *tapv2.TapCreateV3) (uint32, int32) {
	for _, size := range []uint16{m.RxRingSz, m.TxRingSz} {
		if !isPowerOf2(uint32(size)) {
			return math.MaxUint32, initFailed
		}
	}
	n, host := 0, text(m.HostIfName)
	for s.hasLink(fmt.Sprintf("tap%d", n)) {
		n++
	}
	if !m.HostIfNameSet {
		host = fmt.Sprintf("tap%d", n)
	}
	if s.hostLinks[host] {
		return math.MaxUint32, systemCall3
	}
	s.hostLinks[host] = true
	return s.addLink(&link{name: fmt.Sprintf("tap%d", n), device: virtio, mac: m.MacAddress,
		host: host, tag: text(m.Tag)}), 0
}

// endKernelSide: the kernel's end of a TAP goes with it.
func (s *Server) endKernelSide(l *link) {
	if l.device == virtio {
		delete(s.hostLinks, l.host)
	}
}

func (s *Server) createAFPacket(m *af_packet.AfPacketCreateV3) (uint32, int32) {
	host := text(m.HostIfName)
	switch {
	case m.Mode != af_packet.AF_PACKET_API_MODE_ETHERNET:
		return math.MaxUint32, int32(api.INVALID_VALUE)
	case s.boundTo(host) != nil:
		return math.MaxUint32, int32(api.IF_ALREADY_EXISTS)
	case !s.hostLinks[host]:
		return math.MaxUint32, int32(api.INVALID_INTERFACE)
	}
	return s.addLink(&link{name: "host-" + host, device: afPacket, mac: m.HwAddr, host: host}), 0
}

func (s *Server) deleteAFPacket(m *af_packet.AfPacketDelete) int32 {
	for i, l := range s.links {
		if l == s.boundTo(text(m.HostIfName)) {
			s.removeLink(i)
			return 0
		}
	}
	return systemCall1
}

// boundTo returns the AF_PACKET interface that has an interface of the kernel, nil: none.
func (s *Server) boundTo(host string) *link {
	for _, l := range s.links {
		if l.device == afPacket && l.host == host {
			return l
		}
	}
	return nil
}

func (s *Server) dumpAFPackets(a answer) {
	for i, l := range s.links {
		if l.device == afPacket {
			a.send(&af_packet.AfPacketDetails{SwIfIndex: interface_types.InterfaceIndex(i),
				HostIfName: l.host})
		}
	}
}
