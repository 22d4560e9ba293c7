package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// Routes implements fib.Dataplane, for all tables and both families.
func (d *Dataplane) Routes(ctx context.Context) ([]route.Route, error) {
	var found []route.Route
	ifaces, err := d.interfaces()
	if err == nil {
		err = d.each(ctx, selection{protocol: d.protocol}, func() { found = nil }, func(e entry) {
			if d.ours(e) {
				found = append(found, d.asPut(d.routeOf(e, ifaces)))
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("kernel: list routes: %w", err)
	}
	return found, nil
}

// each calls visit for the routes of a selection. If the table changed during the dump, it calls
// restart and begins again.
func (d *Dataplane) each(ctx context.Context, s selection, restart func(),
	visit func(entry)) error {
	const tries = 10
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var b batch
		b.list(s)
		var malformed error
		err := d.dump.query(&b, func(body []byte) bool {
			e, ok, err := decode(body)
			if err != nil {
				malformed = err
			}
			if ok && s.has(e) {
				visit(e)
			}
			return true
		})
		switch {
		case errors.Is(err, errInterrupted) && try < tries:
			restart()
		case errors.Is(err, unix.ENOENT): // a table that nothing was ever put into
			return nil
		default:
			return errors.Join(err, malformed)
		}
	}
}

// Lookup reads one of our routes, and names the owner of a route that hides it by a lower metric.
// In the main table one query mostly suffices (13 µs). Otherwise the table is listed: the kernel
// has no exact lookup, and skips routes without carrier (ignore_routes_with_linkdown) or with a
// failed neighbour (IPv6).
func (d *Dataplane) Lookup(ctx context.Context, k route.Key) (r route.Route, ok bool, err error) {
	table, err := d.kernelTable(k.Table)
	if err != nil {
		return route.Route{}, false, fmt.Errorf("kernel: look up %s: %w", k, err)
	}
	ifaces, err := d.interfaces()
	if err != nil {
		return route.Route{}, false, fmt.Errorf("kernel: look up %s: %w", k, err)
	}
	ours, before, err := d.exact(ctx, table, k.Prefix, d.metricFor(k))
	if err != nil {
		return route.Route{}, false, fmt.Errorf("kernel: look up %s: %w", k, err)
	}
	if !ours.exists() {
		return route.Route{}, false, nil
	}
	if before.exists() {
		err = fmt.Errorf("kernel: look up %s: %w", k, route.HiddenError{By: owner(before)})
	}
	return d.asPut(d.routeOf(ours, ifaces)), true, err
}

// exact finds our entry of a prefix and metric, and a foreign one that hides it.
func (d *Dataplane) exact(ctx context.Context, table uint32, p netip.Prefix,
	metric uint32) (ours, before entry, err error) {
	s := selection{family: entry{prefix: p}.family(), table: table}
	if table == unix.RT_TABLE_MAIN && p.Bits() > 0 { // 0.0.0.0 would mean ourselves
		e, answer := d.ask(p.Addr())
		switch {
		case answer == matched && e.table == table && e.prefix == p && d.ours(e) &&
			e.metric == metric:
			return e, entry{}, nil
		case answer == matched && e.table == table && e.prefix == p && d.hides(e, metric):
			s.protocol = d.protocol // who hides it is known
			ours, _, err = d.search(ctx, s, p, metric)
			return ours, e, err
		case answer == unclear && e.kind != 0:
			// probably this is the entry that discards, and there are few of them
			s.kind = e.kind
			if ours, before, err = d.search(ctx, s, p, metric); ours.exists() || err != nil {
				return ours, before, err
			}
			s.kind = 0
		}
	}
	return d.search(ctx, s, p, metric)
}

// search finds our entry of a prefix and metric in a selection, and a foreign one that hides it,
// preferably one that forwards.
func (d *Dataplane) search(ctx context.Context, s selection, p netip.Prefix,
	metric uint32) (ours, before entry, err error) {
	restart := func() { ours, before = entry{}, entry{} }
	err = d.each(ctx, s, restart, func(e entry) {
		switch {
		case e.prefix != p:
		case d.ours(e) && e.metric == metric:
			ours = e
		case d.hides(e, metric) && (!before.exists() || e.metric < before.metric):
			before = e
		}
	})
	return ours, before, err
}

// hides reports whether e takes precedence over our entry with this metric. Our own elevated entry
// hides nothing.
func (d *Dataplane) hides(e entry, metric uint32) bool { return !d.ours(e) && e.metric < metric }

// Hidden implements fib.Overseer. It reads the whole FIB once.
func (d *Dataplane) Hidden(ctx context.Context,
	routes []route.Route) (map[route.Key]string, error) {
	ours := make(map[route.Key]bool, len(routes))
	for _, r := range routes {
		ours[r.Key] = true
	}
	before := map[route.Key]entry{}
	err := d.each(ctx, selection{}, func() { clear(before) }, func(e entry) {
		for _, elevated := range []bool{false, true} {
			k := route.Key{Table: d.ourTable(e.table), Elevated: elevated, Prefix: e.prefix}
			if !ours[k] || !d.hides(e, d.metricFor(k)) {
				continue
			}
			if other, ok := before[k]; !ok || e.metric < other.metric {
				before[k] = e
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("kernel: list all owners' routes: %w", err)
	}
	by := make(map[route.Key]string, len(before))
	for k, e := range before {
		by[k] = owner(e)
	}
	return by, nil
}

// owner names the owner of a route, as `ip route` does.
func owner(e entry) string {
	return fmt.Sprintf("proto %s, metric %d", protocolName(e.protocol), e.metric)
}

// protocolName returns iproute2's name of a routing protocol (etc/iproute2/rt_protos).
func protocolName(protocol uint8) string {
	switch protocol {
	case unix.RTPROT_KERNEL:
		return "kernel"
	case unix.RTPROT_BOOT:
		return "boot"
	case unix.RTPROT_STATIC:
		return "static"
	case unix.RTPROT_RA:
		return "ra"
	case unix.RTPROT_ZEBRA:
		return "zebra"
	case unix.RTPROT_BIRD:
		return "bird"
	case unix.RTPROT_DHCP:
		return "dhcp"
	case unix.RTPROT_BGP:
		return "bgp"
	}
	return fmt.Sprint(protocol)
}

// Resolve returns the longest match for addr. Local addresses and routes that discard are unusable.
func (d *Dataplane) Resolve(ctx context.Context, table uint32,
	addr netip.Addr) (route.Resolution, error) {
	e, ok, err := d.longest(ctx, table, addr)
	if err != nil {
		return route.Resolution{}, fmt.Errorf("kernel: resolve %s: %w", addr, err)
	}
	if !ok {
		return route.Resolution{}, nil
	}
	ifaces, err := d.interfaces()
	if err != nil {
		return route.Resolution{}, fmt.Errorf("kernel: resolve %s: %w", addr, err)
	}
	r := route.Resolution{Prefix: e.prefix, Owner: owner(e), Ours: d.ours(e)}
	if r.Ours {
		return r, nil
	}
	for _, l := range alive(e, ifaces) {
		name, _ := ifaces.name(l.index)
		r.Forwards(name)
		r.Paths = append(r.Paths, route.Path{NextHop: l.gateway, Interface: name})
	}
	return r, nil
}

// alive returns the next hops of e that forward.
func alive(e entry, ifaces interfaces) (legs []leg) {
	if e.kind != unix.RTN_UNICAST {
		return nil
	}
	for _, l := range e.legs {
		if l.flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 && ifaces.up(l.index) {
			legs = append(legs, l)
		}
	}
	return legs
}

// longest finds the longest match for addr in one of our tables. The main table is queried in the
// kernel, with policy rules and local addresses; other tables are searched.
func (d *Dataplane) longest(ctx context.Context, table uint32,
	addr netip.Addr) (best entry, ok bool, err error) {
	kernelTable, err := d.kernelTable(table)
	if err != nil {
		return entry{}, false, err
	}
	addr = addr.Unmap().WithZone("")
	if kernelTable == unix.RT_TABLE_MAIN {
		switch e, answer := d.ask(addr); answer {
		case matched:
			return e, true, nil
		case nothing:
			return entry{}, false, nil
		}
	}
	s := selection{family: entry{prefix: route.HostPrefix(addr)}.family(), table: kernelTable}
	restart := func() { best, ok = entry{}, false }
	err = d.each(ctx, s, restart, func(e entry) {
		if !e.prefix.Contains(addr) {
			return
		}
		if !ok || e.prefix.Bits() > best.prefix.Bits() || e.prefix.Bits() == best.prefix.Bits() &&
			e.metric < best.metric {
			best, ok = e, true
		}
	})
	return best, ok, err
}

// answer is the outcome of ask.
type answer uint8

const (
	unclear answer = iota // the kernel did not say by which route
	matched
	nothing // there is no route
)

// ask queries the kernel for addr. For an IPv4 route that discards, the kernel returns the sender's
// error without the route (inet_rtm_getroute in net/ipv4/route.c): unclear, with only the kind in
// e.
func (d *Dataplane) ask(addr netip.Addr) (e entry, a answer) {
	var b batch
	b.match(addr)
	err := d.lookup.query(&b, func(body []byte) bool {
		var ok bool
		var malformed error
		if e, ok, malformed = decode(body); ok && malformed == nil {
			a = matched
		}
		return false
	})
	switch {
	case err == nil:
		return e, a
	case errors.Is(err, unix.ENETUNREACH):
		return entry{}, nothing
	case errors.Is(err, unix.EINVAL):
		return entry{kind: unix.RTN_BLACKHOLE}, unclear
	case errors.Is(err, unix.EHOSTUNREACH):
		return entry{kind: unix.RTN_UNREACHABLE}, unclear
	case errors.Is(err, unix.EACCES):
		return entry{kind: unix.RTN_PROHIBIT}, unclear
	}
	return entry{}, unclear
}

// keyOf returns the key of an entry of ours.
func (d *Dataplane) keyOf(e entry) route.Key {
	return route.Key{Table: d.ourTable(e.table), Elevated: e.metric == d.elevated, Prefix: e.prefix}
}

// routeOf converts an entry to a route whose paths are all attached.
func (d *Dataplane) routeOf(e entry, ifaces interfaces) route.Route {
	r := route.Route{Key: d.keyOf(e)}
	switch e.kind {
	case unix.RTN_BLACKHOLE:
		r.Kind = route.Drop
	case unix.RTN_UNREACHABLE:
		r.Kind = route.Unreachable
	case unix.RTN_PROHIBIT:
		r.Kind = route.Prohibit
	default:
		paths := make([]route.Path, len(e.legs))
		for i, l := range e.legs {
			name, ok := ifaces.name(l.index)
			if !ok {
				name = fmt.Sprintf("#%d", l.index) // gone since: equal to no wanted path
			}
			paths[i] = route.Path{NextHop: l.gateway, Interface: name, Weight: l.weight}
			switch encap := route.EncapBy(name); {
			case encap == route.IPIP && l.gateway.Is4():
				paths[i].NextHop = route.EndpointHop(l.gateway)
			case encap == route.VXLAN && l.gateway.IsValid():
				paths[i].NextHop = d.behindGateway(l.gateway)
			}
		}
		r.Paths = route.CanonicalPaths(paths)
	}
	return r
}
