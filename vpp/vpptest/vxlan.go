package vpptest

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vxlan"
)

// vxlanDevice is what VPP calls the device of a VXLAN tunnel (src/plugins/vxlan/vxlan.c).
const vxlanDevice = "VXLAN"

// Return values that GoVPP's list lacks, or has otherwise (src/vnet/error.h).
const (
	tunnelExist  = -75
	sameSrcDst   = -82
	invalidValue = -7
)

// vxlanTunnel is that of a link.
type vxlanTunnel struct {
	source, far      netip.Addr
	source16, dest16 uint16 // ports
	vni, instance    uint32
	decapNext        uint32
}

// key is by what VPP tells tunnels apart: in IPv6 not by the source.
func (t vxlanTunnel) key() string {
	if t.far.Is6() {
		return fmt.Sprint(t.far, t.source16, t.vni)
	}
	return fmt.Sprint(t.source, t.far, t.source16, t.vni)
}

// Where ethernet-input is among the next nodes of vxlan4-input and vxlan6-input.
const ethernetAfter4, ethernetAfter6 = 4, 3

func (s *Server) addNodeNext(m *vlib.AddNodeNext) (uint32, int32) {
	switch node := strings.TrimRight(m.NodeName, "\x00"); {
	case strings.TrimRight(m.NextName, "\x00") != "ethernet-input":
	case node == "vxlan4-input":
		return ethernetAfter4, 0
	case node == "vxlan6-input":
		return ethernetAfter6, 0
	}
	return math.MaxUint32, int32(api.NO_SUCH_NODE)
}

// changeVXLAN panics for tunnels whose packets would end in VPP, or in the other node.
func (s *Server) changeVXLAN(m *vxlan.VxlanAddDelTunnelV3) (uint32, int32) {
	six := m.DstAddress.Af == ip_types.ADDRESS_IP6
	t := vxlanTunnel{source: address(m.SrcAddress.Un, six), far: address(m.DstAddress.Un, six),
		source16: m.SrcPort, dest16: m.DstPort, vni: m.Vni, instance: m.Instance,
		decapNext: m.DecapNextIndex}
	switch {
	case t.vni >= 1<<24:
		return math.MaxUint32, invalidValue
	case t.source == t.far:
		return math.MaxUint32, sameSrcDst
	}
	for i, l := range s.links {
		switch {
		case l.vxlan == nil:
		case l.vxlan.key() == t.key() && m.IsAdd:
			return math.MaxUint32, tunnelExist
		case l.vxlan.key() == t.key():
			s.removeLink(i)
			return i, 0
		case l.vxlan.instance == t.instance && m.IsAdd:
			return math.MaxUint32, instanceInUse
		}
	}
	if !m.IsAdd {
		return math.MaxUint32, int32(api.NO_SUCH_ENTRY)
	}
	if m.IsL3 || six && t.decapNext != ethernetAfter6 || !six && t.decapNext != ethernetAfter4 {
		panic(fmt.Sprintf("vpptest: a VXLAN tunnel without Ethernet: %+v", m))
	}
	return s.addVXLAN(t), 0
}

func (s *Server) addVXLAN(t vxlanTunnel) uint32 {
	return s.addLink(&link{name: fmt.Sprintf("vxlan_tunnel%d", int32(t.instance)), up: true,
		device: vxlanDevice, vxlan: &t, mac: ethernet_types.MacAddress{2, 0xfe, 0, 0, 0, 1}})
}

func (s *Server) dumpVXLAN(a answer, m *vxlan.VxlanTunnelV2Dump) {
	for i, l := range s.links {
		if only := uint32(m.SwIfIndex); l.vxlan == nil || only != math.MaxUint32 && only != i {
			continue
		}
		af := ip_types.ADDRESS_IP4
		if l.vxlan.far.Is6() {
			af = ip_types.ADDRESS_IP6
		}
		a.send(&vxlan.VxlanTunnelV2Details{SwIfIndex: interface_types.InterfaceIndex(i),
			Instance: l.vxlan.instance, SrcPort: l.vxlan.source16, DstPort: l.vxlan.dest16,
			SrcAddress:     ip_types.Address{Af: af, Un: union(l.vxlan.source)},
			DstAddress:     ip_types.Address{Af: af, Un: union(l.vxlan.far)},
			McastSwIfIndex: math.MaxUint32, DecapNextIndex: l.vxlan.decapNext, Vni: l.vxlan.vni})
	}
}

func (s *Server) setUnnumbered(m *interfaces.SwInterfaceSetUnnumbered) int32 {
	from, to := s.links[uint32(m.SwIfIndex)], s.links[uint32(m.UnnumberedSwIfIndex)]
	if from == nil || to == nil {
		return int32(api.INVALID_SW_IF_INDEX)
	}
	to.borrows = from
	return 0
}

// VXLANTunnels lists the tunnels that are marked, sorted: the far address, VNI and port, the own
// and the far MAC address, the MTU, and whose address they borrow.
func (s *Server) VXLANTunnels() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.vxlan == nil || l.tag == "" {
			continue
		}
		text := fmt.Sprintf("%s>%s %d:%d %s %d", l.vxlan.source, l.vxlan.far, l.vxlan.vni,
			l.vxlan.source16, l.mac, l.mtu)
		for _, n := range l.neighbours {
			if !n.orphaned {
				text += " " + n.mac.String()
			}
		}
		if l.borrows != nil {
			text += fmt.Sprint(" ", l.borrows.addresses)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// AddVXLAN makes a tunnel as another program does, or as one of ours that was killed before it
// could mark it.
func (s *Server) AddVXLAN(instance uint32, source, far netip.Addr, vni uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addVXLAN(vxlanTunnel{source: source, far: far, source16: 4789, dest16: 4789, vni: vni,
		instance: instance, decapNext: ethernetAfter4})
}

// ChangeVXLAN is another program's hand on a tunnel: it has this neighbour ("": none), unless it
// gets this MAC address of its own.
func (s *Server) ChangeVXLAN(name, neighbourMAC, ownMAC string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[s.mustFind(name)]
	mac, _ := ethernet_types.ParseMacAddress(cmp.Or(ownMAC, neighbourMAC))
	if ownMAC != "" {
		l.mac = mac
		return
	}
	for a, n := range l.neighbours {
		if n.mac = mac; neighbourMAC != "" {
			l.neighbours[a] = n
		} else {
			delete(l.neighbours, a)
		}
	}
}

// VXLANFarEnds are the far addresses of all tunnels in VPP, by their names.
func (s *Server) VXLANFarEnds() map[string]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]netip.Addr{}
	for _, l := range s.links {
		if l.vxlan != nil {
			all[l.name] = l.vxlan.far
		}
	}
	return all
}
