package vpp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// Routes is fib.Dataplane's. VPP shows an entry under its best source only: a route of ours that another source hides is missing
// here, and in Lookup. Putting or deleting it works all the same. VPP's workers stand still while it writes the dump.
func (v *VPP) Routes(ctx context.Context) ([]route.Route, error) {
	l, err := v.current()
	if err != nil {
		return nil, err
	}
	routes, err := l.routes(ctx)
	if err != nil {
		return nil, fmt.Errorf("vpp: dump routes: %w", err)
	}
	return routes, nil
}

func (l *life) routes(ctx context.Context) ([]route.Route, error) {
	var tables []ip.IPTable
	err := dump(ctx, l.conn, []request{&ip.IPTableDump{}}, func(_ int, d *ip.IPTableDetails) { tables = append(tables, d.Table) })
	if err != nil {
		return nil, err
	}
	links := l.links.Load()
	var routes []route.Route
	for _, t := range tables { // one call each: VPP serves others in between
		var part []route.Route
		var bad error
		err := dump(ctx, l.conn, []request{&ip.IPRouteV2Dump{Src: l.source, Table: t}}, func(_ int, d *ip.IPRouteV2Details) {
			if d.Route.Src != l.source {
				return
			}
			r, err := decodeRoute(d.Route, links.name)
			if err != nil {
				bad = errors.Join(bad, err)
				return
			}
			part = append(part, r)
		})
		if err := errors.Join(err, bad); err != nil {
			return nil, err
		}
		routes = append(routes, part...)
	}
	return routes, nil
}

// Lookup is fib.Dataplane's. ok is false also where another source hides ours, which VPP cannot show; to put the route again
// is then harmless.
func (v *VPP) Lookup(ctx context.Context, k route.Key) (route.Route, bool, error) {
	l, err := v.current()
	if err != nil {
		return route.Route{}, false, err
	}
	found, ok, err := l.lookup(ctx, k.Table, k.Prefix, true)
	if err == nil && (!ok || found.Src != l.source) {
		return route.Route{}, false, nil
	}
	var r route.Route
	if err == nil {
		r, err = decodeRoute(found, l.links.Load().name)
	}
	if err != nil {
		return route.Route{}, false, fmt.Errorf("vpp: look up %s: %w", k, err)
	}
	return r, true, nil
}

// lookup asks VPP for the entry of exactly that prefix, or for the longest match of an address. ok is false where there is none.
func (l *life) lookup(ctx context.Context, table uint32, p netip.Prefix, exact bool) (ip.IPRouteV2, bool, error) {
	p, ok := route.Normalize(p)
	if !ok {
		return ip.IPRouteV2{}, false, errors.New("the prefix is not valid")
	}
	req := &ip.IPRouteLookupV2{TableID: table, Prefix: encodePrefix(p)}
	if exact {
		req.Exact = 1
	}
	r, err := ask[ip.IPRouteLookupV2Reply](ctx, l.conn, req)
	if err == nil {
		err = vppError(r.Retval)
	}
	if errors.Is(err, noSuchEntry) || errors.Is(err, noSuchFIB) {
		return ip.IPRouteV2{}, false, nil
	}
	return r.Route, err == nil, err
}

// maxRecursion is how many routes one after the other may stand between an address and an interface. VPP allows more; deeper
// ones count as unusable.
const maxRecursion = 8

// Resolve is fib.Dataplane's. A match that recurses through other routes is usable if one of its ends is an interface that is up.
func (v *VPP) Resolve(ctx context.Context, table uint32, addr netip.Addr) (route.Resolution, error) {
	l, err := v.current()
	if err != nil {
		return route.Resolution{}, err
	}
	res, err := l.resolve(ctx, table, addr, maxRecursion)
	if err != nil {
		return route.Resolution{}, fmt.Errorf("vpp: resolve %s: %w", addr, err)
	}
	return res, nil
}

func (l *life) resolve(ctx context.Context, table uint32, addr netip.Addr, depth int) (route.Resolution, error) {
	r, ok, err := l.match(ctx, table, addr)
	if err != nil || !ok {
		return route.Resolution{}, err
	}
	prefix, err := decodePrefix(r.Prefix)
	if err != nil {
		return route.Resolution{}, err
	}
	res := route.Resolution{Prefix: prefix, Ours: r.Src == l.source}
	if res.Ours {
		return res, nil
	}
	for _, p := range r.Paths {
		usable, err := l.forwards(ctx, p, depth)
		if err != nil {
			return route.Resolution{}, err
		}
		res.Usable = res.Usable || usable
	}
	return res, nil
}

// match returns the longest match of addr among routes that somebody wants. VPP itself makes an entry for each next hop that a
// recursive route needs; it forwards as its cover does, and it is the cover that counts.
func (l *life) match(ctx context.Context, table uint32, addr netip.Addr) (ip.IPRouteV2, bool, error) {
	for p := route.HostPrefix(addr); ; {
		r, ok, err := l.lookup(ctx, table, p, false)
		if err != nil || !ok || l.roles[r.Src] == noRoute {
			return ip.IPRouteV2{}, false, err
		}
		found, err := decodePrefix(r.Prefix)
		if err != nil {
			return ip.IPRouteV2{}, false, err
		}
		if l.roles[r.Src] != derived || found.Bits() == 0 {
			return r, true, nil
		}
		p = netip.PrefixFrom(found.Addr(), found.Bits()-1)
	}
}

// forwards reports whether packets leave VPP along p.
func (l *life) forwards(ctx context.Context, p fib_types.FibPath, depth int) (bool, error) {
	switch p.Type {
	case fib_types.FIB_API_PATH_TYPE_DROP, fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT,
		fib_types.FIB_API_PATH_TYPE_LOCAL: // an own address: packets end here
		return false, nil
	}
	if p.SwIfIndex != noInterface {
		return l.links.Load().up(p.SwIfIndex), nil
	}
	next := decodeUnion(p.Nh.Address, p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)
	if p.Type != fib_types.FIB_API_PATH_TYPE_NORMAL || next.IsUnspecified() {
		return true, nil // a tunnel or another table: what is behind cannot be seen from here
	}
	if depth == 0 {
		return false, nil
	}
	res, err := l.resolve(ctx, p.TableID, next, depth-1)
	return res.Usable, err
}
