package vpp

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// noInterface is VPP's ~0: a path without an interface.
const noInterface = math.MaxUint32

// maxPaths is the limit of the 8-bit n_paths.
const maxPaths = 255

// encodeRoute converts r for FIB source src; it stores the paths in paths. index finds an interface
// by name.
func encodeRoute(r route.Route, src uint8, paths []fib_types.FibPath,
	index func(string) (uint32, bool)) (ip.IPRouteV2, error) {
	// VPP keeps host bits and shows them
	prefix, ok := route.Normalize(r.Prefix)
	if !ok {
		return ip.IPRouteV2{}, fmt.Errorf("prefix %s is not valid", r.Prefix)
	}
	out := ip.IPRouteV2{TableID: r.Table, Prefix: encodePrefix(prefix), Src: src}
	if r.Kind != route.Via {
		kind, ok := pathTypes[r.Kind]
		if !ok {
			return out, fmt.Errorf("VPP has no kind of route %s", r.Kind)
		}
		if r.Kind != route.Drop && r.Table != 0 {
			// fib_api_path_decode leaves such a path on sw_if_index 0, which is in table 0. VPP
			// then takes it for attached across tables and crashes (seen with 25.10,
			// fib_entry_post_flag_update_actions).
			return out, fmt.Errorf("VPP crashes on %s outside table 0: not sent, use drop", r.Kind)
		}
		out.Paths = append(paths, fib_types.FibPath{SwIfIndex: noInterface, Type: kind,
			Proto: protocol(prefix.Addr()), Weight: 1})
		return out, nil
	}
	if len(r.Paths) == 0 {
		return out, errors.New("a route needs a path")
	}
	if len(r.Paths) > maxPaths {
		return out, fmt.Errorf("%d paths, VPP's API can carry %d", len(r.Paths), maxPaths)
	}
	for _, p := range r.Paths {
		if p.IsLookup() && p.Table == r.Table {
			return out, errors.New("a look-up in the route's own table is a loop")
		}
		path, err := encodePath(p, prefix, index)
		if err != nil {
			return out, err
		}
		paths = append(paths, path)
	}
	out.Paths = paths
	return out, nil
}

var pathTypes = map[route.Kind]fib_types.FibPathType{
	route.Drop:        fib_types.FIB_API_PATH_TYPE_DROP,
	route.Unreachable: fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH,
	route.Prohibit:    fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT,
}

func encodePath(p route.Path, prefix netip.Prefix,
	index func(string) (uint32, bool)) (fib_types.FibPath, error) {
	p = ontoTunnel(p)
	out := fib_types.FibPath{
		SwIfIndex:  noInterface,
		Weight:     max(p.Weight, 1),
		Preference: p.Preference,
		Proto:      protocol(prefix.Addr()),
	}
	if p.NextHop.IsValid() {
		out.Proto = protocol(p.NextHop)
		out.Nh.Address = encodeAddress(p.NextHop).Un
	}
	switch {
	case p.Interface != "":
		i, ok := index(p.Interface)
		if !ok {
			return out, fmt.Errorf("no interface %s", p.Interface)
		}
		out.SwIfIndex = i
	case p.NextHop.IsValid():
		out.TableID = p.Table
	default:
		return out, errors.New("a path needs a next hop or an interface")
	}
	return out, nil
}

// decodeRoute converts VPP's route; name returns an interface's name.
func decodeRoute(in ip.IPRouteV2, name func(uint32) string) (route.Route, error) {
	prefix, err := decodePrefix(in.Prefix)
	if err != nil {
		return route.Route{}, err
	}
	r := route.Route{Key: route.Key{Table: in.TableID, Prefix: prefix}}
	var paths []route.Path
	kind := route.Via
	for _, p := range in.Paths {
		switch p.Type {
		case fib_types.FIB_API_PATH_TYPE_DROP:
			kind = route.Drop
		case fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH:
			kind = route.Unreachable
		case fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT:
			kind = route.Prohibit
		case fib_types.FIB_API_PATH_TYPE_NORMAL:
			paths = append(paths, decodePath(p, prefix, name))
		}
	}
	// Skip a path that VPP turned into a drop (a route that is its own next hop), and kinds that we
	// never write: the route then differs from any desired one and is written again.
	if len(paths) > 0 {
		kind = route.Via
	}
	r.Kind, r.Paths = kind, route.CanonicalPaths(paths)
	return r, nil
}

func decodePath(p fib_types.FibPath, prefix netip.Prefix, name func(uint32) string) route.Path {
	out := route.Path{Weight: p.Weight, Preference: p.Preference}
	a := decodeUnion(p.Nh.Address, p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)
	if p.SwIfIndex == noInterface {
		out.NextHop, out.Table = a, p.TableID
		return out
	}
	if !a.IsUnspecified() {
		out.NextHop = a
	}
	out.Interface = name(p.SwIfIndex)
	// VPP makes the destination the next hop of a host route to an interface
	// (fib_table_route_path_fixup).
	if prefix.IsSingleIP() && out.NextHop == prefix.Addr() {
		out.NextHop = netip.Addr{}
	}
	return offTunnel(out)
}

func protocol(a netip.Addr) fib_types.FibPathNhProto {
	if a.Unmap().Is4() {
		return fib_types.FIB_API_PATH_NH_PROTO_IP4
	}
	return fib_types.FIB_API_PATH_NH_PROTO_IP6
}

func encodeAddress(a netip.Addr) ip_types.Address {
	a = a.Unmap()
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}

func decodeUnion(u ip_types.AddressUnion, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16(u.XXX_UnionData)
	}
	return netip.AddrFrom4([4]byte(u.XXX_UnionData[:4]))
}

func encodePrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: encodeAddress(p.Addr()), Len: uint8(p.Bits())}
}

// decodePrefix masks the prefix: VPP keeps host bits. An IPv4-mapped prefix stays IPv6, unlike in
// route.Normalize: we never write one, and it must not appear as ours in the IPv4 table.
func decodePrefix(p ip_types.Prefix) (netip.Prefix, error) {
	a := decodeUnion(p.Address.Un, p.Address.Af == ip_types.ADDRESS_IP6)
	out, err := a.Prefix(int(p.Len))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("prefix %s/%d: %w", a, p.Len, err)
	}
	return out, nil
}

// decodeInterfaceAddress keeps the host bits, which are the interface's address.
func decodeInterfaceAddress(p ip_types.AddressWithPrefix) (netip.Prefix, bool) {
	a := decodeUnion(p.Address.Un, p.Address.Af == ip_types.ADDRESS_IP6)
	out := netip.PrefixFrom(a, int(p.Len))
	return out, out.IsValid()
}
