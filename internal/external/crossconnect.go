package external

import (
	"net/netip"
	"strings"

	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/route"
)

func checkXConnectPair(x *vpp.XConnectPair) Problem {
	switch {
	case x.ReceiveInterface == "" || !isName(x.ReceiveInterface):
		return invalid("receive_interface %.80q is no name of an interface", x.ReceiveInterface)
	case x.TransmitInterface == "" || !isName(x.TransmitInterface):
		return invalid("transmit_interface %.80q is no name of an interface", x.TransmitInterface)
	case x.ReceiveInterface == x.TransmitInterface:
		return invalid("receive_interface and transmit_interface are one interface")
	}
	return Problem{}
}

func xConnectPairOf(x *vpp.XConnectPair) route.L2CrossConnect {
	return route.L2CrossConnect{Interface: x.ReceiveInterface, To: x.TransmitInterface}
}

func checkL3XConnect(x *l3.L3XConnect) Problem {
	switch {
	case x.Interface == "" || !isName(x.Interface):
		return invalid("interface %.80q is no name of an interface", x.Interface)
	case l3.L3XConnect_Protocol_name[int32(x.Protocol)] == "":
		return invalid("protocol %d is none", x.Protocol)
	case len(x.Paths) == 0 || len(x.Paths) > maxUint8:
		return invalid("it has %d paths: there must be 1 to %d", len(x.Paths), maxUint8)
	}
	for _, p := range x.Paths {
		hop, problem := addressOf("next_hop_addr", p.NextHopAddr)
		switch {
		case !problem.ok():
			return problem
		case p.OutgoingInterface == "" || !isName(p.OutgoingInterface):
			return invalid("outgoing_interface %.80q of a path is no name of an interface",
				p.OutgoingInterface)
		case hop.IsValid() && hop.Is6() != (x.Protocol == l3.L3XConnect_IPV6):
			return invalid("next_hop_addr %s is not of protocol %s", hop, x.Protocol)
		case p.Weight > maxUint8:
			return invalid("weight %d is above %d", p.Weight, maxUint8)
		case p.Preference > maxUint8:
			return invalid("preference %d is above %d", p.Preference, maxUint8)
		}
	}
	return Problem{}
}

func l3XConnectOf(x *l3.L3XConnect) route.L3CrossConnect {
	out := route.L3CrossConnect{Interface: x.Interface, IPv6: x.Protocol == l3.L3XConnect_IPV6}
	for _, p := range x.Paths {
		hop, _ := addressOf("", p.NextHopAddr)
		out.Paths = append(out.Paths, route.Path{NextHop: hop, Interface: p.OutgoingInterface,
			Weight: uint8(p.Weight), Preference: uint8(p.Preference)})
	}
	out.Paths = route.CanonicalPaths(out.Paths)
	return out
}

// addressOf reads the address of a next hop; empty or unspecified: none.
func addressOf(field, text string) (netip.Addr, Problem) {
	if text == "" {
		return netip.Addr{}, Problem{}
	}
	a, err := netip.ParseAddr(text)
	switch {
	case strings.HasPrefix(text, "alloc:"):
		return netip.Addr{}, unimplemented("alloc: (model netalloc)")
	case err != nil || a.Zone() != "":
		return netip.Addr{}, invalid("%s %.80q is no address", field, text)
	case a.IsUnspecified():
		return netip.Addr{}, Problem{}
	}
	return a.Unmap(), Problem{}
}
