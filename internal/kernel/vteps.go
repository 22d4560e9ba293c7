package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// A node that a VXLAN device leads to is, as Felix writes it, a neighbour with the node's tunnel
// address and MAC address, and an entry of the device's FDB that has the node's own address. Routes
// have the tunnel address as gateway. An IPIP device needs no such entries.

// vteps are these nodes, as read last and written since. The zero value is ready to use.
type vteps struct {
	mu       sync.Mutex
	known    bool
	byOuter  map[netip.Addr]vtep
	byTunnel map[netip.Addr]netip.Addr // the node's address
}

type vtep struct {
	tunnel netip.Addr
	mac    string
}

// forget has all read again.
func (v *vteps) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = false
}

// set is for who holds mu.
func (v *vteps) set(outer netip.Addr, is vtep) {
	v.unset(outer)
	v.byOuter[outer] = is
	if is.tunnel.IsValid() {
		v.byTunnel[is.tunnel] = outer
	}
}

func (v *vteps) unset(outer netip.Addr) {
	if was := v.byOuter[outer]; v.byTunnel[was.tunnel] == outer {
		delete(v.byTunnel, was.tunnel)
	}
	delete(v.byOuter, outer)
}

// withVTEPs has do use the nodes, whose mutex is held.
func (d *Dataplane) withVTEPs(do func(v *vteps) error) error {
	v := &d.vteps
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.known {
		if _, err := d.listVTEPs(); err != nil {
			return err
		}
	}
	return do(v)
}

// gatewayTo returns the gateway of routes to what is behind a node.
func (d *Dataplane) gatewayTo(outer netip.Addr) (gateway netip.Addr, err error) {
	err = d.withVTEPs(func(v *vteps) error {
		if gateway = v.byOuter[outer].tunnel; !gateway.IsValid() {
			return fmt.Errorf("there is no tunnel to %s", outer)
		}
		return nil
	})
	return gateway, err
}

// behindGateway is the inverse of gatewayTo; a gateway that belongs to no node is returned as it
// is.
func (d *Dataplane) behindGateway(gateway netip.Addr) netip.Addr {
	outer := gateway
	_ = d.withVTEPs(func(v *vteps) error { // what cannot be read is no node's
		if a, ok := v.byTunnel[gateway]; ok {
			outer = a
		}
		return nil
	})
	return outer
}

// listVTEPs reads the nodes of our devices. The caller holds vteps.mu.
func (d *Dataplane) listVTEPs() (all []route.Object, err error) {
	v := &d.vteps
	v.byOuter, v.byTunnel = map[netip.Addr]vtep{}, map[netip.Addr]netip.Addr{}
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		name := route.VXLAN.Interface(family)
		device, err := d.vxlanDevice(name)
		if errors.Is(err, route.ErrNoLink) {
			continue
		}
		if err != nil {
			return nil, err
		}
		is, err := d.asLink(device, name)
		if err != nil {
			return nil, err
		}
		tunnels := map[string]netip.Addr{} // by MAC address
		err = d.eachPermanent(device, familyOf(family), func(mac string, a netip.Addr) {
			tunnels[mac] = a
		})
		if err != nil {
			return nil, err
		}
		err = d.eachPermanent(device, unix.AF_BRIDGE, func(mac string, outer netip.Addr) {
			v.set(outer, vtep{tunnels[mac], mac})
			all = append(all, route.Endpoint{Interface: name, Outer: outer,
				VXLAN: route.VXLANSettings{Source: is.Source, VNI: is.VXLAN.VNI,
					Port: is.VXLAN.Port, MAC: mac, Tunnel: tunnels[mac]}})
		})
		if err != nil {
			return nil, err
		}
	}
	v.known = true
	return all, nil
}

// eachPermanent visits the permanent entries of a device that have both addresses.
func (d *Dataplane) eachPermanent(device netlink.Link, family int,
	visit func(mac string, a netip.Addr)) error {
	list, err := again(func() ([]netlink.Neigh, error) {
		return d.links.NeighList(device.Attrs().Index, family)
	})
	for _, n := range list {
		a, ok := netip.AddrFromSlice(n.IP)
		if ok && n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == 6 &&
			!a.IsMulticast() {
			visit(n.HardwareAddr.String(), a.Unmap())
		}
	}
	return err
}

// vxlanDevice returns a device of ours, and ErrNoLink where there is none.
func (d *Dataplane) vxlanDevice(name string) (*netlink.Vxlan, error) {
	link, err := d.findLink(name)
	if err != nil {
		return nil, err
	}
	v, ok := link.(*netlink.Vxlan)
	if !ok || markOf(link) == 0 {
		return nil, fmt.Errorf("%w %s of ours", route.ErrNoLink, name)
	}
	return v, nil
}

// Objects implements fib.Bulk.
func (d *Dataplane) Objects(_ context.Context, kind route.ObjectKind) ([]route.Object, error) {
	switch kind {
	case route.TunnelEndpoint:
	case route.MadeLink:
		all, err := d.tunnelLinks()
		return all, wrap(err, "kernel: list interfaces")
	default:
		return nil, nil
	}
	d.vteps.mu.Lock()
	defer d.vteps.mu.Unlock()
	all, err := d.listVTEPs()
	return all, wrap(err, "kernel: read tunnels")
}

// ApplyObjects implements fib.Bulk.
func (d *Dataplane) ApplyObjects(ctx context.Context, ops []route.ObjectOp,
	done func(i int, err error)) {
	for i, op := range ops {
		switch {
		case ctx.Err() != nil:
			done(i, context.Cause(ctx))
		case op.Put != nil:
			done(i, d.PutObject(ctx, op.Put))
		default:
			done(i, d.DeleteObject(ctx, op.Key))
		}
	}
}

func readVTEP(d *Dataplane, k route.ObjectKey) (route.Object, error) {
	d.vteps.mu.Lock()
	defer d.vteps.mu.Unlock()
	all, err := d.listVTEPs()
	for _, o := range all {
		if o.Key() == k {
			return o, nil
		}
	}
	return nil, err
}

// putVTEP: the entry of the FDB comes first and goes last, since it says what node this is.
func putVTEP(d *Dataplane, o route.Object) error {
	e := o.(route.Endpoint)
	device, err := d.vxlanDevice(e.Interface)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(e.VXLAN.MAC)
	if err != nil || !e.VXLAN.Tunnel.IsValid() {
		return fmt.Errorf("%s: neither MAC address nor tunnel address may be missing", e.Key())
	}
	if e.Outer == e.VXLAN.Source {
		return fmt.Errorf("%s is this node's own address", e.Outer)
	}
	return d.withVTEPs(func(v *vteps) error {
		for outer, is := range v.byOuter {
			if outer != e.Outer && outer.Is4() == e.Outer.Is4() &&
				(is.mac == e.VXLAN.MAC || is.tunnel == e.VXLAN.Tunnel) {
				return fmt.Errorf("the node %s has the MAC address %s or the tunnel address %s, "+
					"too", outer, e.VXLAN.MAC, e.VXLAN.Tunnel)
			}
		}
		was, there := v.byOuter[e.Outer]
		if there && was != (vtep{e.VXLAN.Tunnel, e.VXLAN.MAC}) {
			if err := d.deleteVTEP(device, e.Outer, was); err != nil {
				return err
			}
		}
		v.set(e.Outer, vtep{mac: e.VXLAN.MAC}) // if only one is put
		if err := d.links.NeighSet(fdbEntry(device, mac, e.Outer)); err != nil {
			return fmt.Errorf("FDB: %w", err)
		}
		err := d.links.NeighSet(&netlink.Neigh{LinkIndex: device.Index,
			Family: familyOf(e.VXLAN.Tunnel), State: netlink.NUD_PERMANENT,
			IP: e.VXLAN.Tunnel.AsSlice(), HardwareAddr: mac})
		if err == nil {
			v.set(e.Outer, vtep{e.VXLAN.Tunnel, e.VXLAN.MAC})
		}
		return wrap(err, "neighbour %s", e.VXLAN.Tunnel)
	})
}

func fdbEntry(device netlink.Link, mac net.HardwareAddr, outer netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: device.Attrs().Index, Family: unix.AF_BRIDGE,
		State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: outer.AsSlice(),
		HardwareAddr: mac}
}

func removeVTEP(d *Dataplane, k route.ObjectKey) error {
	e, err := route.EndpointOf(k)
	if err != nil {
		return err
	}
	device, err := d.vxlanDevice(k.Interface)
	if errors.Is(err, route.ErrNoLink) {
		return nil // it went with the device
	}
	if err != nil {
		return err
	}
	return d.withVTEPs(func(v *vteps) error {
		is, there := v.byOuter[e.Outer]
		if !there {
			return nil
		}
		err := d.deleteVTEP(device, e.Outer, is)
		if err == nil {
			v.unset(e.Outer)
		}
		return err
	})
}

func (d *Dataplane) deleteVTEP(device netlink.Link, outer netip.Addr, is vtep) error {
	if is.tunnel.IsValid() {
		err := d.links.NeighDel(&netlink.Neigh{LinkIndex: device.Attrs().Index,
			Family: familyOf(is.tunnel), IP: is.tunnel.AsSlice()})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("neighbour %s: %w", is.tunnel, err)
		}
	}
	mac, err := net.ParseMAC(is.mac)
	if err == nil {
		err = d.links.NeighDel(fdbEntry(device, mac, outer))
	}
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return wrap(err, "FDB")
}
