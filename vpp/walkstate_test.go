package vpp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	vppfib "go.fd.io/govpp/binapi/fib"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/teib"
	"go.fd.io/govpp/binapi/vxlan"

	"vpp-route-agent/internal/route"
)

// seenLink is an interface in VPP.
type seenLink struct {
	index               interface_types.InterfaceIndex
	name, inVPP, device string // name is ours
	isOurs, isSub       bool
	hasTable            bool // not 0
	looks               string
	addresses           []string
	neighbours          []ip_neighbor.IPNeighbor
	tunnel              *vxlan.VxlanTunnelV2Details // nil: it is none
}

// isTunnels reports whether it is that of all tunnels of a kind.
func (l *seenLink) isTunnels() bool { return l.isOurs && route.EncapBy(l.name) != route.Plain }

// received reads a stream of GoVPP.
func received[T any](s interface{ Recv() (T, error) }, err error) (all []T, _ error) {
	if err != nil {
		return nil, err
	}
	for {
		switch d, err := s.Recv(); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		default:
			all = append(all, d)
		}
	}
}

const every = ^interface_types.InterfaceIndex(0)

// seeLinks returns the interfaces by their indexes. A tunnel of VXLAN has no addresses of its own.
func seeLinks(ctx context.Context, c api.Connection) (map[uint32]*seenLink, error) {
	ctx, cancel := context.WithTimeout(ctx, patience) // GoVPP waits for ever
	defer cancel()
	links, ips := interfaces.NewServiceClient(c), ip.NewServiceClient(c)
	out := map[uint32]*seenLink{}
	stream, err := links.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: every})
	details, err := received[*interfaces.SwInterfaceDetails](stream, err)
	for _, d := range details {
		text := func(s string) string { return strings.TrimRight(s, "\x00") }
		l := &seenLink{index: d.SwIfIndex, inVPP: text(d.InterfaceName),
			device: text(d.InterfaceDevType), isSub: d.Type == interface_types.IF_API_TYPE_SUB}
		l.name = l.inVPP
		if mark := strings.SplitN(text(d.Tag), ":", 3); len(mark) == 3 && mark[0] == "vra" {
			l.name, l.isOurs = mark[2], true
		}
		l.looks = fmt.Sprintf("up %t, MTU %d", d.Flags&1 != 0, d.Mtu[0])
		if l.isOurs && !l.isSub && l.name != "tunl0" {
			l.looks += ", " + d.L2Address.String()
		}
		out[uint32(d.SwIfIndex)] = l
	}
	if err != nil {
		return nil, err
	}
	tunnels, err := vxlan.NewServiceClient(c).VxlanTunnelV2Dump(ctx,
		&vxlan.VxlanTunnelV2Dump{SwIfIndex: every})
	ends, err := received[*vxlan.VxlanTunnelV2Details](tunnels, err)
	for _, d := range ends {
		if l := out[uint32(d.SwIfIndex)]; l != nil {
			l.tunnel = d
			l.looks += fmt.Sprintf(", %s to %s, VNI %d, port %d", d.SrcAddress, d.DstAddress, d.Vni,
				d.DstPort)
		}
	}
	for family, six := range []bool{false, true} {
		for _, l := range out {
			if err != nil || l.tunnel != nil {
				continue
			}
			var in *interfaces.SwInterfaceGetTableReply
			if in, err = links.SwInterfaceGetTable(ctx, &interfaces.SwInterfaceGetTable{
				SwIfIndex: l.index, IsIPv6: six}); err != nil {
				return nil, err
			}
			stream, e := ips.IPAddressDump(ctx, &ip.IPAddressDump{SwIfIndex: l.index, IsIPv6: six})
			var all []*ip.IPAddressDetails
			all, err = received[*ip.IPAddressDetails](stream, e)
			for _, d := range all {
				l.addresses = append(l.addresses, d.Prefix.String())
			}
			l.looks += fmt.Sprintf(", table %d", in.VrfID)
			l.hasTable = l.hasTable || in.VrfID != 0
		}
		if err != nil {
			return nil, err
		}
		stream, e := ip_neighbor.NewServiceClient(c).IPNeighborDump(ctx,
			&ip_neighbor.IPNeighborDump{SwIfIndex: every, Af: ip_types.AddressFamily(family)})
		var all []*ip_neighbor.IPNeighborDetails
		all, err = received[*ip_neighbor.IPNeighborDetails](stream, e)
		for _, d := range all {
			l := out[uint32(d.Neighbor.SwIfIndex)]
			if l != nil && d.Neighbor.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0 {
				l.neighbours = append(l.neighbours, d.Neighbor)
			}
		}
	}
	return out, err
}

// state is what VPP has of ours, with egress of each route.
func state(ctx context.Context, c api.Connection,
	egress func(route.Key) map[string]int) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	links, err := seeLinks(ctx, c)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	note := func(format string, args ...any) { all[fmt.Sprintf(format, args...)] = true }
	for _, l := range links {
		if !l.isOurs {
			continue
		}
		slices.Sort(l.addresses)
		note("%s: %s, %v", l.name, l.looks, l.addresses)
		for _, n := range l.neighbours {
			note("%s: neighbour %s %s", l.name, n.IPAddress, n.MacAddress)
		}
	}
	entries, err := teib.NewServiceClient(c).TeibDump(ctx, &teib.TeibDump{})
	ends, err := received[*teib.TeibDetails](entries, err)
	for _, d := range ends {
		if l := links[uint32(d.Entry.SwIfIndex)]; l != nil && l.isOurs {
			note("%s: %s by %s", l.name, d.Entry.Nh, d.Entry.Peer)
		}
	}
	if err != nil {
		return nil, err
	}
	stream, err := ip.NewServiceClient(c).IPTableDump(ctx, &ip.IPTableDump{})
	tables, err := received[*ip.IPTableDetails](stream, err)
	if err != nil {
		return nil, err
	}
	ours, err := ourSources(ctx, c)
	for _, t := range tables {
		if err != nil {
			return nil, err
		}
		note("table %d %t", t.Table.TableID, t.Table.IsIP6)
		stream, e := ip.NewServiceClient(c).IPRouteV2Dump(ctx, &ip.IPRouteV2Dump{Table: t.Table})
		var routes []*ip.IPRouteV2Details
		routes, err = received[*ip.IPRouteV2Details](stream, e)
		for _, d := range routes {
			if !ours[d.Route.Src] {
				continue
			}
			var paths []string
			for _, p := range d.Route.Paths {
				name := fmt.Sprint(p.SwIfIndex)
				if l := links[p.SwIfIndex]; l != nil {
					name = l.name
				}
				paths = append(paths, fmt.Sprintf("%x %s %d", p.Nh.Address.XXX_UnionData, name,
					p.Type))
			}
			slices.Sort(paths)
			k := route.Key{Table: t.Table.TableID,
				Prefix: netip.MustParsePrefix(d.Route.Prefix.String())}
			leaves := map[string]bool{} // names as far as realVPP.egress reads them
			for name := range egress(k) {
				leaves[regexp.MustCompile(`\W.*`).ReplaceAllString(name, "")] = true
			}
			note("route %s %v leaves by %v", k, paths, leaves)
		}
	}
	return all, err
}

func ourSources(ctx context.Context, c api.Connection) (map[uint8]bool, error) {
	stream, err := vppfib.NewServiceClient(c).FibSourceDump(ctx, &vppfib.FibSourceDump{})
	all, err := received[*vppfib.FibSourceDetails](stream, err)
	ours := map[uint8]bool{}
	for _, d := range all {
		ours[d.Src.ID] = strings.HasPrefix(d.Src.Name, "vpp-route-agent@")
	}
	return ours, err
}
