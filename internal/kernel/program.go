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

// reduced is a route that the kernel holds in another form than it was put.
type reduced struct{ put, programmed route.Route }

// asPut returns the route that was put, if r is its programmed form.
func (d *Dataplane) asPut(r route.Route) route.Route {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if m, ok := d.reduced[r.Key]; ok && m.programmed.SameForwarding(r) {
		m.put.Origin = route.Unknown
		return m.put
	}
	return r
}

// remember records the result of an acknowledged op.
func (d *Dataplane) remember(op route.Op, programmed route.Route) {
	_, known := d.reduced[op.Route.Key] // writing is held: nobody else changes it
	differs := !op.Delete && !programmed.SameForwarding(op.Route)
	if !known && !differs {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if differs {
		d.reduced[op.Route.Key] = reduced{op.Route, programmed}
	} else {
		delete(d.reduced, op.Route.Key)
	}
}

// Apply implements fib.Dataplane. It executes ops in order. It refuses a put if a foreign route has
// the same prefix and metric, which the kernel would replace (IPv4) or merge with ours (IPv6).
func (d *Dataplane) Apply(ctx context.Context, ops []route.Op, done func(i int, err error)) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	w := write{d: d, ctx: ctx, done: done}
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
	d       *Dataplane
	ctx     context.Context
	done    func(i int, err error)
	batch   batch
	pending []pendingOp // of batch, in its order
	ifaces  interfaces
}

type pendingOp struct {
	i          int
	op         route.Op
	programmed route.Route
	err        error
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
	if w.batch.count == window {
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
		w.d.remember(p.op, p.programmed)
		w.done(p.i, nil)
	}
	w.batch.reset()
	w.pending = w.pending[:0]
	return nil
}

var (
	errForeign   = errors.New("a foreign route has the same prefix and metric")
	errNoPath    = errors.New("no path")
	errPrefix    = errors.New("not a prefix")
	errRecursive = errors.New("a path without an interface")
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
		if len(e.legs) == 1 && !e.legs[0].gateway.IsValid() {
			e.scope = unix.RT_SCOPE_LINK
		}
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

// legs converts the paths of the best preference to next hops.
func (w *write) legs(r route.Route) (legs []leg, err error) {
	if len(r.Paths) == 0 {
		return nil, errNoPath
	}
	for _, p := range r.Paths {
		if p.Preference != r.Paths[0].Preference { // canonical paths are sorted by it
			break
		}
		l, err := w.leg(p)
		if err != nil {
			return nil, err
		}
		legs = append(legs, l)
	}
	if len(legs) == 1 {
		legs[0].weight = 1 // the kernel keeps none: there is nothing to share with
	}
	return legs, nil
}

func (w *write) leg(p route.Path) (leg, error) {
	if p.Interface == "" {
		return leg{}, errRecursive
	}
	i, ok := route.Facts{Interfaces: w.ifaces.list}.Interface(p.Interface)
	if !ok {
		return leg{}, fmt.Errorf("no interface %s", p.Interface)
	}
	if outer, ok := route.EndpointBehind(p); ok { // tunl0 sends to the gateway
		var err error
		if p.NextHop = outer; route.EncapBy(p.Interface) == route.VXLAN {
			p.NextHop, err = w.d.gatewayTo(outer)
		}
		if err != nil {
			return leg{}, err
		}
	}
	l := leg{gateway: p.NextHop, index: i.Index, weight: max(p.Weight, 1)}
	if !p.NextHop.IsValid() {
		return l, nil
	}
	if slices.ContainsFunc(i.Addresses, func(own netip.Prefix) bool {
		return own.Addr() == p.NextHop
	}) {
		// the kernel would take it
		return leg{}, fmt.Errorf("next hop %s: an address of this node", p.NextHop)
	}
	l.flags = onLinkFlag(i, p.NextHop)
	return l, nil
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
