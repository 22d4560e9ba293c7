package vpptest

import (
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// The translation between VPP's words and route's is written here a second time, on purpose:
// package vpp must not be its own judge.

func address(u ip_types.AddressUnion, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16(u.GetIP6())
	}
	return netip.AddrFrom4(u.GetIP4())
}

func union(a netip.Addr) ip_types.AddressUnion {
	if a.Is4() {
		return ip_types.AddressUnionIP4(a.As4())
	}
	return ip_types.AddressUnionIP6(a.As16())
}

func protoOf(a netip.Addr) fib_types.FibPathNhProto {
	if a.Is4() {
		return protoIP4
	}
	return protoIP6
}

func prefixMessage(p netip.Prefix) ip_types.Prefix {
	out := ip_types.Prefix{Address: ip_types.Address{Un: union(p.Addr())}, Len: uint8(p.Bits())}
	if p.Addr().Is6() {
		out.Address.Af = ip_types.ADDRESS_IP6
	}
	return out
}

// route returns what paths of a prefix mean.
func (s *Server) route(table uint32, p netip.Prefix, paths []fib_types.FibPath) route.Route {
	r := route.Route{Key: route.Key{Table: table, Prefix: p}}
	for _, in := range paths {
		switch in.Type {
		case isDrop:
			r.Kind = route.Drop
			continue
		case isUnreach:
			r.Kind = route.Unreachable
			continue
		case isProhibit:
			r.Kind = route.Prohibit
			continue
		}
		out := route.Path{Weight: in.Weight, Preference: in.Preference, Table: in.TableID}
		next := address(in.Nh.Address, in.Proto == protoIP6)
		if !next.IsUnspecified() || in.SwIfIndex == noInterface {
			out.NextHop = next
		}
		if l := s.links[in.SwIfIndex]; l != nil {
			out.Interface = l.name
			if p.IsSingleIP() && out.NextHop == p.Addr() {
				out.NextHop = netip.Addr{}
			}
		}
		r.Paths = append(r.Paths, out)
	}
	r.Paths = route.CanonicalPaths(r.Paths)
	return r
}

// paths is the other way.
func (s *Server) paths(r route.Route) []fib_types.FibPath {
	types := map[route.Kind]fib_types.FibPathType{route.Drop: isDrop, route.Unreachable: isUnreach,
		route.Prohibit: isProhibit}
	if r.Kind != route.Via {
		return []fib_types.FibPath{{SwIfIndex: noInterface, Type: types[r.Kind],
			Proto: protoOf(r.Prefix.Addr()), Weight: 1}}
	}
	var out []fib_types.FibPath
	for _, p := range r.Paths {
		path := fib_types.FibPath{SwIfIndex: noInterface, TableID: p.Table, Weight: p.Weight,
			Preference: p.Preference, Proto: protoOf(r.Prefix.Addr())}
		if p.NextHop.IsValid() {
			path.Nh.Address, path.Proto = union(p.NextHop), protoOf(p.NextHop)
		}
		if p.Interface != "" {
			path.SwIfIndex = s.mustFind(p.Interface)
		}
		if s.decodePath(&path) != 0 {
			panic("vpptest: VPP refuses " + r.String())
		}
		fixup(&path, r.Prefix)
		out = append(out, path)
	}
	return out
}

func sortRoutes(rs []route.Route) {
	slices.SortFunc(rs, func(a, b route.Route) int { return route.CompareKeys(a.Key, b.Key) })
}
