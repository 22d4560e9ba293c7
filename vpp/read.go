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

// Routes implements fib.Dataplane. VPP shows an entry only under its best source, so our hidden
// routes are missing here, but can be put and deleted. VPP's workers stop during the dump.
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

func (l *session) routes(ctx context.Context) ([]route.Route, error) {
	tables, err := readTables(ctx, l.conn)
	if err != nil {
		return nil, err
	}
	links := l.links.Load()
	var routes []route.Route
	for t := range tables { // two calls each: VPP serves others in between
		for _, s := range []source{l.own, l.elevated} {
			part, err := l.routesOf(ctx, t, s, links)
			if err != nil {
				return nil, err
			}
			routes = append(routes, part...)
		}
	}
	return routes, nil
}

// routesOf lists the routes of s in t.
func (l *session) routesOf(ctx context.Context, t route.TableID, s source,
	links *links) (routes []route.Route, err error) {
	var bad error
	err = l.dumpRoutes(ctx, ip.IPTable{TableID: t.ID, IsIP6: t.IPv6}, s.id,
		func(found ip.IPRouteV2) {
			if found.Src != s.id {
				return
			}
			r, err := decodeRoute(found, l.nameIn(links))
			if err != nil {
				bad = errors.Join(bad, err)
				return
			}
			r.Elevated = s == l.elevated
			routes = append(routes, r)
		})
	return routes, errors.Join(err, bad)
}

// dumpRoutes calls each, on the reader, for every entry of a table whose best source is src, or for
// all entries if src is 0.
func (l *session) dumpRoutes(ctx context.Context, t ip.IPTable, src uint8,
	each func(ip.IPRouteV2)) error {
	return dump(ctx, l.conn, []request{&ip.IPRouteV2Dump{Src: src, Table: t}},
		func(_ int, d *ip.IPRouteV2Details) {
			each(d.Route)
		})
}

// Lookup implements fib.Dataplane.
func (v *VPP) Lookup(ctx context.Context, k route.Key) (route.Route, bool, error) {
	l, err := v.current()
	if err != nil {
		return route.Route{}, false, err
	}
	r, ok, err := l.find(ctx, k)
	if err != nil {
		err = fmt.Errorf("vpp: look up %s: %w", k, err)
	}
	return r, ok, err
}

func (l *session) find(ctx context.Context, k route.Key) (route.Route, bool, error) {
	found, ok, err := l.lookup(ctx, k.Table, k.Prefix, true)
	if err != nil || !ok {
		return route.Route{}, false, err
	}
	if own := l.sourceFor(k); found.Src != own.id {
		other, err := l.sourceOf(ctx, found.Src)
		if err == nil && other.before(own) {
			err = route.HiddenError{By: other.name}
		}
		return route.Route{}, false, err
	}
	r, err := decodeRoute(found, l.nameIn(l.links.Load()))
	r.Elevated = k.Elevated
	if err != nil {
		return r, false, err
	}
	return r, true, l.checkPaths(ctx, found, r)
}

// lookup returns VPP's entry of a prefix, or the longest match of an address. ok is false without
// one.
func (l *session) lookup(ctx context.Context, table uint32, p netip.Prefix,
	exact bool) (ip.IPRouteV2,
	bool, error) {
	p, ok := route.Normalize(p)
	if !ok {
		return ip.IPRouteV2{}, false, errors.New("the prefix is not valid")
	}
	found, retval, err := l.askRoute(ctx, table, p, exact)
	if err == nil {
		err = vppError(retval)
	}
	if isMissing(err) {
		return ip.IPRouteV2{}, false, nil
	}
	return found, err == nil, err
}

// isMissing reports whether a look-up found nothing.
func isMissing(err error) bool {
	return errors.Is(err, noSuchEntry) || errors.Is(err, noSuchFIB)
}

func lookupRequest(table uint32, p netip.Prefix, exact bool) *ip.IPRouteLookupV2 {
	req := &ip.IPRouteLookupV2{TableID: table, Prefix: encodePrefix(p)}
	if exact {
		req.Exact = 1
	}
	return req
}

func (l *session) askRoute(ctx context.Context, table uint32, p netip.Prefix,
	exact bool) (found ip.IPRouteV2, retval int32, err error) {
	r, err := ask[ip.IPRouteLookupV2Reply](ctx, l.conn, lookupRequest(table, p, exact))
	return r.Route, r.Retval, err
}

// maxRecursion bounds the routes between an address and an interface. VPP allows more; deeper ones
// count as unusable here.
const maxRecursion = 8

// Resolve implements fib.Dataplane. A recursive match is usable if one of its ends is an interface
// that is up.
func (v *VPP) Resolve(ctx context.Context, table uint32,
	addr netip.Addr) (route.Resolution, error) {
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

func (l *session) resolve(ctx context.Context, table uint32, addr netip.Addr,
	depth int) (route.Resolution, error) {
	r, ok, err := l.match(ctx, table, addr)
	if err != nil || !ok {
		return route.Resolution{}, err
	}
	prefix, err := decodePrefix(r.Prefix)
	if err != nil {
		return route.Resolution{}, err
	}
	res := route.Resolution{Prefix: prefix, Ours: l.isOurs(r.Src),
		Owner: "source " + (*l.sources.Load())[r.Src].name}
	if res.Ours {
		return res, nil
	}
	for _, p := range r.Paths {
		usable, by, err := l.forwards(ctx, p, depth)
		if err != nil {
			return route.Resolution{}, err
		}
		if usable {
			res.Forwards(by)
		}
	}
	return res, nil
}

// match returns the longest match of addr that a source wants. VPP makes an entry for each
// recursive next hop. It forwards as its cover does, so the cover counts.
func (l *session) match(ctx context.Context, table uint32,
	addr netip.Addr) (ip.IPRouteV2, bool, error) {
	for p := route.HostPrefix(addr); ; {
		r, ok, err := l.lookup(ctx, table, p, false)
		if err != nil || !ok {
			return ip.IPRouteV2{}, false, err
		}
		found, err := decodePrefix(r.Prefix)
		if err != nil || l.isGap(r) {
			return ip.IPRouteV2{}, false, err
		}
		if l.roleOf(r.Src) != derived || found.Bits() == 0 {
			return r, true, nil
		}
		p = netip.PrefixFrom(found.Addr(), found.Bits()-1)
	}
}

// isGap reports whether r is the drop that VPP shows where there is no route.
func (l *session) isGap(r ip.IPRouteV2) bool { return l.roleOf(r.Src) == noRoute }

// isFiller reports whether VPP has r in every table.
func (l *session) isFiller(r ip.IPRouteV2) bool { return l.roleOf(r.Src) == special || l.isGap(r) }

// forwards reports whether packets leave VPP along p, and over which interface.
func (l *session) forwards(ctx context.Context, p fib_types.FibPath,
	depth int) (usable bool, by string, err error) {
	switch p.Type {
	case fib_types.FIB_API_PATH_TYPE_DROP, fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH,
		fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT,
		fib_types.FIB_API_PATH_TYPE_LOCAL: // an own address: packets end here
		return false, "", nil
	}
	if links := l.links.Load(); p.SwIfIndex != noInterface {
		return links.up(p.SwIfIndex), links.name(p.SwIfIndex), nil
	}
	next := decodeUnion(p.Nh.Address, p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)
	if p.Type != fib_types.FIB_API_PATH_TYPE_NORMAL || next.IsUnspecified() {
		return true, "", nil // a tunnel or another table: what is behind cannot be seen from here
	}
	if depth == 0 {
		return false, "", nil
	}
	res, err := l.resolve(ctx, p.TableID, next, depth-1)
	return res.Usable, res.Interface, err
}
