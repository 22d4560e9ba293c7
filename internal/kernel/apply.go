package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// window is the number of requests in one datagram. It bounds how late the end of ctx is noticed
// (some milliseconds) and how many refusals wait in the receive buffer.
const window = 256

// recall keeps a route that the kernel cannot express, with the form that was programmed instead.
type recall struct {
	put, programmed route.Route
	losses          uint32 // interfaces.losses when it was programmed, or was there
}

// lost reports whether the kernel may since have dropped the route with its interface.
func (r recall) lost(now interfaces) bool {
	return slices.ContainsFunc(r.programmed.Paths, func(p route.Path) bool {
		i, ok := route.Facts{Interfaces: now.list}.Interface(p.Interface)
		return !ok || i.Life > r.losses
	})
}

// asPut returns the route that was put, if r is its programmed form.
func (d *Dataplane) asPut(r route.Route) route.Route {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if m, ok := d.recalled[r.Key]; ok && m.programmed.SameForwarding(r) {
		m.put.Origin = route.Unknown
		return m.put
	}
	return r
}

// carries reports whether next hops may resolve through our route r: its gateways are neighbours,
// and it was not learned from BGP (see fib.Cover).
func carries(r route.Route) bool {
	recursive := func(p route.Path) bool { return p.Interface == "" }
	return r.Origin.IsStatic() && r.Kind == route.Via && !slices.ContainsFunc(r.Paths, recursive)
}

// carry records whether next hops may resolve through our route for k. A change resolves next hops
// again, since our own writes cause no event (see ignore).
func (d *Dataplane) carry(k route.Key, yes bool) {
	if yes || d.carriers[k] {
		signal(d.watch.routes)
	}
	if yes {
		d.carriers[k] = true
	} else {
		delete(d.carriers, k)
	}
}

// remember records the result of an acknowledged op.
func (d *Dataplane) remember(op route.Op, programmed route.Route, losses uint32) {
	d.carry(op.Route.Key, !op.Delete && carries(op.Route))
	_, known := d.recalled[op.Route.Key] // writing is held: nobody else changes it
	differs := !op.Delete && !programmed.SameForwarding(op.Route)
	if !known && !differs {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if differs {
		d.recalled[op.Route.Key] = recall{op.Route, programmed, losses}
	} else {
		delete(d.recalled, op.Route.Key)
	}
}

// Apply implements fib.Dataplane. It executes ops in order. It refuses a put if a foreign route has
// the same prefix and metric, which the kernel would replace (IPv4) or merge with ours (IPv6).
func (d *Dataplane) Apply(ctx context.Context, ops []route.Op, done func(i int, err error)) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	w := d.newWrite(ctx, done)
	for i, op := range ops {
		if err := ctx.Err(); err != nil && w.batch.count == 0 {
			return fmt.Errorf("kernel: %w", context.Cause(ctx))
		}
		if err := w.add(i, op); err != nil {
			return fmt.Errorf("kernel: %w", err)
		}
	}
	if err := w.flush(); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	return nil
}

// write is one call of Apply.
type write struct {
	d        *Dataplane
	ctx      context.Context
	done     func(i int, err error)
	batch    batch
	pending  []pendingOp // of batch, in its order
	resolved map[target][]leg
	ifaces   interfaces
}

type pendingOp struct {
	i          int
	op         route.Op
	programmed route.Route
	err        error
}

// target is a next hop to resolve.
type target struct {
	table uint32
	addr  netip.Addr
}

func (d *Dataplane) newWrite(ctx context.Context, done func(i int, err error)) *write {
	return &write{d: d, ctx: ctx, done: done, resolved: map[target][]leg{}}
}

// add adds an op to the batch. It returns an error only if the kernel cannot be reached.
func (w *write) add(i int, op route.Op) error {
	if w.batch.count == 0 {
		if err := w.catchUp(); err != nil {
			return err
		}
	}
	e, err := w.encode(&op)
	p := pendingOp{i: i, op: op}
	if err != nil {
		w.done(i, &OpError{op, err})
		return nil
	}
	if op.Delete {
		w.batch.delete(e)
	} else {
		p.programmed = w.d.routeOf(e, w.ifaces)
		w.batch.put(e)
	}
	w.pending = append(w.pending, p)
	if w.batch.count == window || carries(op.Route) { // what follows may resolve through it
		return w.flush()
	}
	return nil
}

// catchUp reads, before a batch, the events since the last one.
func (w *write) catchUp() (err error) {
	if w.ifaces, err = w.d.interfaces(); err != nil {
		return err
	}
	return w.d.listClashes(w.ctx)
}

// OpError names the op that the kernel or this package refused.
type OpError struct {
	Op  route.Op
	Err error
}

func (e *OpError) Error() string {
	verb := "put"
	if e.Op.Delete {
		verb = "delete"
	}
	return fmt.Sprintf("kernel: %s %s: %v", verb, e.Op.Route.Key, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// flush sends the batch to the kernel.
func (w *write) flush() error {
	if w.batch.count == 0 {
		return nil
	}
	err := w.d.writer.exchange(&w.batch, func(n int, err error) { w.pending[n].err = err })
	if err != nil {
		return err
	}
	for _, p := range w.pending {
		if p.op.Delete && errors.Is(p.err, unix.ESRCH) {
			p.err = nil // it was not there
		}
		if errors.Is(p.err, unix.EPERM) {
			p.err = fmt.Errorf("%w: changing routes needs CAP_NET_ADMIN", p.err)
		}
		if p.err != nil {
			w.done(p.i, &OpError{p.op, p.err})
			continue
		}
		w.d.remember(p.op, p.programmed, w.ifaces.losses)
		w.done(p.i, nil)
	}
	w.batch.reset()
	w.pending = w.pending[:0]
	clear(w.resolved)
	return nil
}

var (
	errForeign = errors.New("a foreign route has the same prefix and metric")
	errNoPath  = errors.New("no path")
	errPrefix  = errors.New("not a prefix")
)

// encode normalizes an op's prefix and converts the op to the kernel's form.
func (w *write) encode(op *route.Op) (entry, error) {
	prefix, ok := route.Normalize(op.Route.Prefix)
	if !ok {
		return entry{}, errPrefix
	}
	op.Route.Prefix = prefix
	table, err := w.d.kernelTable(op.Route.Table)
	if err != nil {
		return entry{}, err
	}
	e := entry{table: table, prefix: op.Route.Prefix, protocol: w.d.protocol,
		metric: w.d.metricFor(op.Route.Key)}
	if op.Delete {
		return e, nil
	}
	if w.d.watch.clashes(e.clashKey()) {
		return entry{}, errForeign
	}
	switch op.Route.Kind {
	case route.Via:
		e.kind = unix.RTN_UNICAST
		e.legs, err = w.legs(op.Route)
	case route.Drop:
		e.kind = unix.RTN_BLACKHOLE
	case route.Unreachable:
		e.kind = unix.RTN_UNREACHABLE
	case route.Prohibit:
		e.kind = unix.RTN_PROHIBIT
	default:
		err = fmt.Errorf("unknown kind %s", op.Route.Kind)
	}
	return e, err
}

// legs converts the paths of the best preference to next hops. It merges paths with one neighbour
// and adds their weights: the kernel refuses duplicates for IPv6.
func (w *write) legs(r route.Route) (legs []leg, err error) {
	if len(r.Paths) == 0 {
		return nil, errNoPath
	}
	for _, p := range r.Paths {
		if p.Preference != r.Paths[0].Preference { // canonical paths are sorted by it
			break
		}
		found, err := w.pathLegs(p)
		if err != nil {
			return nil, err
		}
		for _, l := range found {
			legs = merge(legs, l)
		}
	}
	if len(legs) == 1 {
		legs[0].weight = 1 // the kernel keeps none: there is nothing to share with
	}
	return legs, nil
}

func merge(legs []leg, l leg) []leg {
	for i, have := range legs {
		if have.gateway == l.gateway && have.index == l.index {
			legs[i].weight = uint8(min(int(have.weight)+int(l.weight), 255))
			return legs
		}
	}
	return append(legs, l)
}

func (w *write) pathLegs(p route.Path) ([]leg, error) {
	if p.Interface == "" {
		return w.resolve(p)
	}
	i, ok := route.Facts{Interfaces: w.ifaces.list}.Interface(p.Interface)
	if !ok {
		return nil, fmt.Errorf("no interface %s", p.Interface)
	}
	l := leg{gateway: p.NextHop, index: i.Index, weight: max(p.Weight, 1)}
	if !p.NextHop.IsValid() {
		return []leg{l}, nil
	}
	if slices.ContainsFunc(i.Addresses, func(own netip.Prefix) bool {
		return own.Addr() == p.NextHop
	}) {
		// the kernel would take it
		return nil, fmt.Errorf("next hop %s: an address of this node", p.NextHop)
	}
	l.flags = onLinkFlag(i, p.NextHop)
	return []leg{l}, nil
}

// onLinkFlag makes the kernel accept a neighbour outside the interface's subnets.
func onLinkFlag(i route.Interface, neighbour netip.Addr) uint8 {
	if neighbour.IsLinkLocalUnicast() ||
		slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool {
			return p.Contains(neighbour)
		}) {
		return 0
	}
	return unix.RTNH_F_ONLINK
}

// resolve resolves a recursive next hop as BIRD does: the longest match must forward, and must be a
// foreign route or one that carries next hops.
func (w *write) resolve(p route.Path) ([]leg, error) {
	t := target{p.Table, p.NextHop}
	legs, known := w.resolved[t]
	if !known {
		var err error
		if legs, err = w.d.neighbours(w.ctx, t, w.ifaces); err != nil {
			return nil, err
		}
		w.resolved[t] = legs
	}
	out := make([]leg, len(legs))
	for i, l := range legs {
		l.weight = max(p.Weight, 1)
		out[i] = l
	}
	return out, nil
}

// neighbours returns the directly connected next hops of a recursive one.
func (d *Dataplane) neighbours(ctx context.Context, t target, ifaces interfaces) ([]leg, error) {
	if !t.addr.IsValid() {
		return nil, errNoPath
	}
	e, ok, err := d.longest(ctx, t.table, t.addr)
	switch {
	case err != nil:
		return nil, fmt.Errorf("next hop %s: %w", t.addr, err)
	case !ok:
		return nil, fmt.Errorf("next hop %s: no route to it", t.addr)
	case d.ours(e) && !d.carriers[d.keyOf(e)]:
		return nil, fmt.Errorf("next hop %s: reached only through our own route %s", t.addr,
			e.prefix)
	case e.kind == unix.RTN_LOCAL:
		return nil, fmt.Errorf("next hop %s: an address of this node", t.addr)
	}
	legs := alive(e, ifaces)
	if len(legs) == 0 {
		return nil, fmt.Errorf("next hop %s: route %s does not forward", t.addr, e.prefix)
	}
	for i := range legs {
		l := &legs[i]
		if !l.gateway.IsValid() {
			l.gateway = t.addr
		}
		// alive knows the interface
		l.flags = onLinkFlag(ifaces.list[ifaces.byIndex[l.index]], l.gateway)
	}
	return legs, nil
}

// listClashes lists the foreign routes with our metric when events alone do not give all of them.
func (d *Dataplane) listClashes(ctx context.Context) error {
	d.watch.mu.Lock()
	listed := d.watch.listed
	if !listed { // events from here on add to the set
		d.watch.listed = true
		clear(d.watch.clash)
	}
	d.watch.mu.Unlock()
	if listed {
		return nil
	}
	var found []clashKey
	err := d.each(ctx, selection{}, func() { found = nil }, func(e entry) {
		if d.clashing(e) {
			found = append(found, e.clashKey())
		}
	})
	d.watch.mu.Lock()
	defer d.watch.mu.Unlock()
	for _, k := range found {
		d.watch.clash[k] = struct{}{}
	}
	d.watch.listed = d.watch.listed && err == nil
	return err
}

func (w *watch) clashes(k clashKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.clash[k]
	return ok
}
