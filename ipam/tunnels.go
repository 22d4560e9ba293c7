package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

const (
	// What tunnels put before a packet, in bytes: an IPv4 header without options; for VXLAN the
	// inner Ethernet header, those of VXLAN and UDP, and one of IPv4 or IPv6.
	ipipHeader   = 20
	vxlanHeader  = 50
	vxlan6Header = 70
	// minMTU is what IPv4 asks of every link, in bytes (RFC 791 §3.2); below, a value is no MTU.
	minMTU = 68

	// Felix' defaults.
	vxlanPort = 4789
	vxlanVNI  = 4096
	maxVNI    = 1<<24 - 1
)

// MTUs are those of the interfaces that tunnelled packets of a family leave by, 0: not known.
type MTUs struct{ IPv4, IPv6 uint16 }

// Tunnels are what e needs in the data plane, sorted: of each kind the interface with its address,
// and an endpoint for each other node, also where packets leave plain, as they may come tunnelled.
// An IPIP device of Linux needs no endpoints. Those that last has, the tunnels of the plan before,
// are taken from it: a node that joins costs one allocation and not one for each node.
func Tunnels(self string, e *route.Encapsulation, s *calico.Snapshot, uplink MTUs,
	linux bool, last []route.Object) (all []route.Object) {
	felix, me := s.FelixOn(self), s.Nodes[self]
	if encapsulatesIn(e, route.IPIP, false) {
		link := route.Link{Name: route.IPIP.Interface(e.Own4.Addr()), Kind: route.IPIPTunnel,
			Source: e.Own4.Addr(), MTU: tunnelMTU(felix.IPIPMTU, uplink.IPv4, ipipHeader)}
		all = append(all, link, route.Address{Interface: link.Name,
			Address: netip.PrefixFrom(me.IPv4IPIPTunnelAddr, 32)}, route.Up{Interface: link.Name})
		if !linux {
			all = slices.Grow(all, len(e.Nodes))
			for _, n := range e.Nodes {
				if n.Address.Is4() {
					all = append(all,
						endpoint(route.Endpoint{Interface: link.Name, Outer: n.Address}, &last))
				}
			}
		}
	}
	if encapsulatesIn(e, route.VXLAN, false) {
		all = append(all, vxlanTunnels(e, e.Own4.Addr(), me, felix,
			tunnelMTU(felix.VXLANMTU, uplink.IPv4, vxlanHeader), linux, &last)...)
	}
	if encapsulatesIn(e, route.VXLAN, true) {
		all = append(all, vxlanTunnels(e, e.Own6.Addr(), me, felix,
			tunnelMTU(felix.VXLANMTUV6, uplink.IPv6, vxlan6Header), linux, &last)...)
	}
	return all
}

// TooLarge names the MTUs of tunnels, as configured, with which packets do not fit into the uplink.
func TooLarge(self string, e *route.Encapsulation, s *calico.Snapshot,
	uplink MTUs) (problems []calico.Problem) {
	felix := s.FelixOn(self)
	for _, x := range []struct {
		kind           route.Encap
		own            netip.Addr
		uplink, header uint16
		field          string
		set            func(calico.FelixConfiguration) int
	}{
		{route.IPIP, e.Own4.Addr(), uplink.IPv4, ipipHeader, "ipipMTU",
			func(f calico.FelixConfiguration) int { return f.IPIPMTU }},
		{route.VXLAN, e.Own4.Addr(), uplink.IPv4, vxlanHeader, "vxlanMTU",
			func(f calico.FelixConfiguration) int { return f.VXLANMTU }},
		{route.VXLAN, e.Own6.Addr(), uplink.IPv6, vxlan6Header, "vxlanMTUV6",
			func(f calico.FelixConfiguration) int { return f.VXLANMTUV6 }},
	} {
		mtu := tunnelMTU(x.set(felix), x.uplink, x.header)
		if encapsulatesIn(e, x.kind, x.own.Is6()) && x.uplink > 0 &&
			int(mtu)+int(x.header) > int(x.uplink) {
			problems = append(problems, calico.Problem{
				Resource: calico.FelixWith(s, self, x.set), Harmless: true,
				Err: fmt.Sprintf("%s %d: the MTU of the interface with %s is %d, of which %s "+
					"takes %d; larger packets may be lost", x.field, mtu, x.own, x.uplink, x.kind,
					x.header),
			})
		}
	}
	return problems
}

// encapsulatesIn reports whether a pool of a family has a kind, and this node can use it.
func encapsulatesIn(e *route.Encapsulation, kind route.Encap, v6 bool) bool {
	return slices.ContainsFunc(e.Pools, func(p route.Pool) bool {
		return p.Encap == kind && p.Waits == "" && p.Prefix.Addr().Is6() == v6
	})
}

// vxlanTunnels are those of the family of own, this node's address.
func vxlanTunnels(e *route.Encapsulation, own netip.Addr, me calico.Node,
	felix calico.FelixConfiguration, mtu uint16, linux bool,
	last *[]route.Object) []route.Object {
	port, vni := vxlanPort, vxlanVNI
	if p := felix.VXLANPort; p > 0 && p < 1<<16 {
		port = p
	}
	if n := felix.VXLANVNI; n > 0 && n <= maxVNI {
		vni = n
	}
	address, _ := vxlanAddress(me, own.Is6())
	mac, _ := me.VTEPMAC(own.Is6()) // checked: Pool.Waits
	link := route.Link{Name: route.VXLAN.Interface(own), Kind: route.VXLANTunnel, MAC: mac,
		MTU: mtu, Source: own,
		VXLAN: route.VXLANLink{Address: address, VNI: uint32(vni), Port: uint16(port)}}
	all := []route.Object{link, route.Up{Interface: link.Name}}
	all = slices.Grow(all, len(e.Nodes))
	for _, n := range e.Nodes {
		far := n.VXLAN
		if n.Address.Is6() == own.Is6() && far != nil && far.Problem == "" {
			x := route.VXLANSettings{Source: own, VNI: link.VXLAN.VNI, Port: link.VXLAN.Port,
				MAC: far.MAC}
			if linux {
				x.Tunnel = far.Address
			}
			all = append(all,
				endpoint(route.Endpoint{Interface: link.Name, Outer: n.Address, VXLAN: x},
					last))
		}
	}
	return all
}

// endpoint returns e, or its equal in last, which saves an allocation. It moves last past what
// sorts before e: callers ask in that order.
func endpoint(e route.Endpoint, last *[]route.Object) route.Object {
	for i, o := range *last {
		was, is := o.(route.Endpoint)
		switch {
		case !is, was.Interface < e.Interface,
			was.Interface == e.Interface && was.Outer.Less(e.Outer):
			continue
		case was == e:
			*last = (*last)[i+1:]
			return o
		}
		*last = (*last)[i:]
		return e
	}
	*last = nil
	return e
}

// tunnelMTU is what the operator set, else what fits into the uplink.
func tunnelMTU(set int, uplink, header uint16) uint16 {
	switch {
	case set >= minMTU && set <= 1<<16-1:
		return uint16(set)
	case uplink >= minMTU+header:
		return uplink - header
	}
	return 0
}
