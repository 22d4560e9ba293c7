package vpp

import (
	"context"
	"net"
	"net/netip"
	"slices"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ipip"
	"go.fd.io/govpp/binapi/vxlan"

	"vpp-route-agent/internal/route"
)

// digestNow is markFor, but unfinished where another program has changed an interface of tunnels:
// its MTU or, of VXLAN, its MAC address or the address that the tunnels borrow.
func (l *session) digestNow(ctx context.Context, d *interfaces.SwInterfaceDetails,
	name string) (uint64, error) {
	m := markFor(d, name)
	if m == 0 || m == unfinished || route.EncapBy(name) == route.Plain {
		return m, nil
	}
	could, err := l.couldBe(ctx, d, name)
	isIt := func(is route.Link) bool { return is.Digest() == m }
	if err == nil && len(could) > 0 && !slices.ContainsFunc(could, isIt) {
		m = unfinished
	}
	return m, err
}

// couldBe returns the Links that an interface of tunnels, as it is now, may have been made of; none
// where VPP does not tell all settings, because there is no tunnel.
func (l *session) couldBe(ctx context.Context, d *interfaces.SwInterfaceDetails,
	name string) (all []route.Link, err error) {
	var is []route.Link
	if route.EncapBy(name) == route.IPIP {
		is, err = l.ipipAsMade(ctx, d.SwIfIndex)
	} else {
		is, err = l.vxlanAsMade(ctx, d, name)
	}
	for _, link := range is {
		byVPP := link // the MTU is VPP's choice
		link.MTU = uint16(d.Mtu[0])
		all = append(all, link, byVPP)
	}
	return all, err
}

func (l *session) ipipAsMade(ctx context.Context,
	on interface_types.InterfaceIndex) (is []route.Link, err error) {
	err = dump(ctx, l.conn, []request{&ipip.IpipTunnelDump{SwIfIndex: on}},
		func(_ int, d *ipip.IpipTunnelDetails) {
			if d.Tunnel.SwIfIndex == on {
				is = append(is, route.Link{Kind: route.IPIPTunnel,
					Source: decodeUnion(d.Tunnel.Src.Un, false)})
			}
		})
	if err != nil {
		return nil, err // the reader may still be in the handler
	}
	return is, nil
}

// vxlanAsMade returns one for each address of the interface. The rest is what any of the tunnels
// has.
func (l *session) vxlanAsMade(ctx context.Context, d *interfaces.SwInterfaceDetails,
	name string) (is []route.Link, err error) {
	outer, index, ok := l.vteps.some(name)
	if !ok {
		return nil, nil
	}
	tunnels, err := l.vxlanDetails(ctx, []request{&vxlan.VxlanTunnelV2Dump{
		SwIfIndex: interface_types.InterfaceIndex(index)}})
	if err != nil {
		return nil, err
	}
	one := []route.Interface{{Index: uint32(d.SwIfIndex)}}
	if err := readAddresses(ctx, l.conn, one); err != nil {
		return nil, err
	}
	addresses := append([]netip.Prefix{{}}, one[0].Addresses...) // it may have none
	for _, t := range tunnels {
		for _, a := range addresses {
			if decodeAddress(t.DstAddress) == outer && t.Instance == vxlanInstance(outer) {
				is = append(is, route.Link{Kind: route.VXLANTunnel,
					MAC:    net.HardwareAddr(d.L2Address[:]).String(),
					Source: decodeAddress(t.SrcAddress),
					VXLAN:  route.VXLANLink{Address: a.Addr(), VNI: t.Vni, Port: t.SrcPort}})
			}
		}
	}
	return is, nil
}
