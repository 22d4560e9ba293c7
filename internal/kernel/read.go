package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// Routes lists our routes of all tables and both families.
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

// each calls visit for the routes of a selection. When the kernel's table changed while it was read it calls restart and begins anew.
func (d *Dataplane) each(ctx context.Context, s selection, restart func(), visit func(entry)) error {
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

// Lookup reads one route of ours, and names who hides it by a lower metric; ours is returned then too, for the kernel keeps both. In the
// main table it mostly takes one question to the kernel (13 µs). Where that does not show our route, and in other tables, the routes of
// the table are listed: the kernel has no exact lookup, and passes over routes without carrier (ignore_routes_with_linkdown) or with a
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

// exact finds our entry of one prefix and metric, and another's before it.
func (d *Dataplane) exact(ctx context.Context, table uint32, p netip.Prefix, metric uint32) (ours, before entry, err error) {
	s := selection{family: entry{prefix: p}.family(), table: table}
	if table == unix.RT_TABLE_MAIN && p.Bits() > 0 { // 0.0.0.0 would mean ourselves
		e, answer := d.ask(p.Addr())
		switch {
		case answer == matched && e.table == table && e.prefix == p && d.ours(e) && e.metric == metric:
			return e, entry{}, nil
		case answer == matched && e.table == table && e.prefix == p && d.hides(e, metric):
			s.protocol = d.protocol // who hides it is known
			ours, _, err = d.search(ctx, s, p, metric)
			return ours, e, err
		case answer == unclear && e.kind != 0: // most likely it is this one that discards, and there are few such
			s.kind = e.kind
			if ours, before, err = d.search(ctx, s, p, metric); ours.exists() || err != nil {
				return ours, before, err
			}
			s.kind = 0
		}
	}
	return d.search(ctx, s, p, metric)
}

// search finds our entry of one prefix and metric in a selection, and another's before it: of several the one that forwards.
func (d *Dataplane) search(ctx context.Context, s selection, p netip.Prefix, metric uint32) (ours, before entry, err error) {
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

// hides reports whether e goes before an entry of ours with the same prefix and this metric. Our own elevated one hides nothing.
func (d *Dataplane) hides(e entry, metric uint32) bool { return !d.ours(e) && e.metric < metric }

// Hidden is fib.Overseer's: it reads the whole FIB once.
func (d *Dataplane) Hidden(ctx context.Context, routes []route.Route) (map[route.Key]string, error) {
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

// owner says whose route e is, in the words of `ip route`.
func owner(e entry) string {
	return fmt.Sprintf("proto %s, metric %d", protocolName(e.protocol), e.metric)
}

// protocolName is the name that iproute2 gives a protocol (etc/iproute2/rt_protos), of those that route beside us.
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

// Resolve says how the kernel would forward to addr. An own address and a route that discards are not usable.
func (d *Dataplane) Resolve(ctx context.Context, table uint32, addr netip.Addr) (route.Resolution, error) {
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
	r := route.Resolution{Prefix: e.prefix, Ours: d.ours(e)}
	if r.Ours {
		return r, nil
	}
	for _, l := range alive(e, ifaces) {
		name, _ := ifaces.name(l.index)
		r.Forwards(name)
	}
	return r, nil
}

// alive returns the legs of e that forward.
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

// longest finds the route by which a packet to addr would go from one of our tables. For the main table the kernel is asked, with its
// policy rules and own addresses; for others the table is searched.
func (d *Dataplane) longest(ctx context.Context, table uint32, addr netip.Addr) (best entry, ok bool, err error) {
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
		if !ok || e.prefix.Bits() > best.prefix.Bits() || e.prefix.Bits() == best.prefix.Bits() && e.metric < best.metric {
			best, ok = e, true
		}
	})
	return best, ok, err
}

// answer is what ask found out.
type answer uint8

const (
	unclear answer = iota // the kernel did not say by which route
	matched
	nothing // there is no route
)

// ask has the kernel look an address up. For an IPv4 route that discards it answers with the error that senders get and without the route
// (inet_rtm_getroute in net/ipv4/route.c): unclear, with only the kind in e.
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

// keyOf is the key of an entry of ours.
func (d *Dataplane) keyOf(e entry) route.Key {
	return route.Key{Table: d.ourTable(e.table), Elevated: e.metric == d.elevated, Prefix: e.prefix}
}

// routeOf converts from the kernel's form: every path attached.
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
		}
		r.Paths = route.CanonicalPaths(paths)
	}
	return r
}
