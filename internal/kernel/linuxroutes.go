package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// linuxRoute is a route to look for, and the place where it belongs.
type linuxRoute struct {
	route.LinuxRoute
	link   netlink.Link
	table  uint32 // of the VRF that the interface is in
	ifaces interfaces
}

// readLinuxRoute returns the route of that network and metric, over whichever interface it is. One
// with our protocol is ours.
func readLinuxRoute(d *Dataplane, k route.ObjectKey) (route.Object, error) {
	r, err := d.linuxRouteOf(k)
	if err != nil {
		return nil, err
	}
	found, err := d.findLinuxRoute(r)
	switch {
	case err != nil:
		return nil, err
	case !found.exists() && r.link.Attrs().RawFlags&unix.IFF_UP == 0:
		return nil, route.NotReadyError{Why: fmt.Sprintf("interface %s is down", r.Interface)}
	case !found.exists():
		return nil, nil
	}
	out := route.FoundLinuxRoute{LinuxRoute: r.LinuxRoute, Ours: found.protocol == d.protocol}
	out.Scope, out.Interface = found.scope, ""
	if len(found.legs) == 1 {
		namespace, _ := route.SplitNamespace(r.Interface)
		name, _ := r.ifaces.name(found.legs[0].index)
		out.Gateway = found.legs[0].gateway
		out.Interface = route.InNamespace(namespace, name)
	}
	return out, nil
}

// findLinuxRoute finds the route of r's network and metric. The table is read as a whole where the
// longest match for the network's address does not say that: another metric or a longer prefix goes
// first, or the kernel may pass over routes of an interface without carrier.
func (d *Dataplane) findLinuxRoute(r linuxRoute) (found entry, err error) {
	is := func(e entry) bool {
		return e.table == r.table && e.prefix == r.Network && e.metric == r.Metric
	}
	if r.table == unix.RT_TABLE_MAIN && r.Network.Bits() > 0 {
		e, answer := d.ask(r.Network.Addr())
		shorter := answer == nothing || answer == matched && e.table == r.table &&
			e.prefix.Bits() < r.Network.Bits()
		switch {
		case answer == matched && is(e):
			return e, nil
		case shorter && r.link.Attrs().RawFlags&unix.IFF_RUNNING != 0:
			return entry{}, nil
		}
	}
	s := selection{family: entry{prefix: r.Network}.family(), table: r.table}
	err = d.each(context.Background(), s, func() { found = entry{} }, func(e entry) {
		if is(e) {
			found = e
		}
	})
	return found, err
}

// isOver reports whether e is a route over r's interface alone.
func (r linuxRoute) isOver(e entry) bool {
	return len(e.legs) == 1 && int(e.legs[0].index) == r.link.Attrs().Index
}

// reaches returns an error unless the gateway is on the link, by a route of whomever. The kernel
// refuses the route until then.
func (d *Dataplane) reaches(r linuxRoute) error {
	leads := func(e entry) bool { return r.isOver(e) && !e.legs[0].gateway.IsValid() }
	if !r.Gateway.IsValid() {
		return nil
	}
	if e, answer := d.ask(r.Gateway); answer == matched && e.table == r.table && leads(e) {
		return nil
	}
	s := selection{family: entry{prefix: r.Network}.family(), table: r.table}
	reached := false
	err := d.each(context.Background(), s, func() {}, func(e entry) {
		reached = reached || leads(e) && e.prefix.Contains(r.Gateway)
	})
	if err == nil && !reached {
		err = route.NotReadyError{Why: fmt.Sprintf("gateway %s is not reachable over %s",
			r.Gateway, r.Interface)}
	}
	return err
}

// putLinuxRoute adds a route, or changes ours.
func putLinuxRoute(d *Dataplane, o route.Object) error {
	r, err := d.linuxRouteOf(o.Key())
	if err != nil {
		return err
	}
	r.LinuxRoute = o.(route.LinuxRoute)
	found, err := d.findLinuxRoute(r)
	if err != nil {
		return err
	}
	n := &netlink.Route{LinkIndex: r.link.Attrs().Index, Dst: ipNet(r.Network),
		Scope: netlink.Scope(r.Scope), Priority: int(r.Metric), Table: int(r.table),
		Protocol: netlink.RouteProtocol(d.protocol)}
	if r.Gateway.IsValid() {
		n.Gw = r.Gateway.AsSlice()
	}
	if found.exists() && found.protocol == d.protocol {
		return wrap(d.links.RouteReplace(n), "change %s", o.Key())
	}
	if err := d.reaches(r); err != nil {
		return err
	}
	return wrap(d.links.RouteAdd(n), "add %s", o.Key())
}

// removeLinuxRoute deletes our route. One over another interface has taken its place.
func removeLinuxRoute(d *Dataplane, k route.ObjectKey) error {
	r, err := d.linuxRouteOf(k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := d.findLinuxRoute(r)
	if err != nil || found.protocol != d.protocol || !r.isOver(found) {
		return err
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	var b batch
	var refused error
	b.delete(found)
	err = d.writer.exchange(&b, func(_ int, err error) { refused = err })
	if errors.Is(refused, unix.ESRCH) {
		refused = nil // it was not there
	}
	return wrap(cmp.Or(err, refused), "delete %s", k)
}

// linuxRouteOf says where the route that k identifies belongs.
func (d *Dataplane) linuxRouteOf(k route.ObjectKey) (r linuxRoute, err error) {
	if r.LinuxRoute, err = route.LinuxRouteOf(k); err != nil {
		return r, err
	}
	if r.link, err = d.findLink(k.Interface); err != nil {
		return r, err
	}
	if r.ifaces, err = d.interfaces(); err != nil {
		return r, err
	}
	i, _ := route.Facts{Interfaces: r.ifaces.list}.Interface(r.link.Attrs().Name)
	if r.table = i.Table; r.table == 0 {
		r.table = unix.RT_TABLE_MAIN
	}
	return r, nil
}
