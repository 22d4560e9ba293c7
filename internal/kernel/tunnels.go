package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// Tunnel devices are made as Felix makes its own, under its names (felix/dataplane/linux,
// vxlan_mgr.go and ipip_mgr.go). One that is there already is taken over if it is of that kind:
// the operator has said that there is no Felix.

// putTunnel makes a tunnel device, or gives the one that is there its settings.
func putTunnel(d *Dataplane, want route.Link) error {
	have, err := d.findLink(want.Name)
	if errors.Is(err, route.ErrNoLink) {
		have, err = nil, nil
	}
	switch {
	case err != nil:
		return err
	case have != nil && have.Type() != deviceTypes[want.Kind]:
		return fmt.Errorf("%s is another program's: a %s device", want.Name, have.Type())
	case want.Kind == route.VXLANTunnel:
		return d.putVXLAN(want, have)
	}
	return d.putIPIP(want, have)
}

// deviceTypes are the kernel's.
var deviceTypes = map[route.LinkKind]string{route.IPIPTunnel: "ipip", route.VXLANTunnel: "vxlan"}

func tunnelKind(name string) (kind route.LinkKind, ok bool) {
	switch route.EncapBy(name) {
	case route.IPIP:
		return route.IPIPTunnel, true
	case route.VXLAN:
		return route.VXLANTunnel, true
	}
	return "", false
}

// putIPIP: where the kernel has IPIP, each namespace has a tunl0 that cannot be deleted.
func (d *Dataplane) putIPIP(want route.Link, have netlink.Link) error {
	if have == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = want.Name
		err := d.links.LinkAdd(&netlink.Iptun{LinkAttrs: attrs})
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel has no IPIP (module ipip)")
		}
		if err == nil || errors.Is(err, unix.EEXIST) { // it may have come with the module
			have, err = d.findLink(want.Name)
		}
		if err != nil {
			return err
		}
	}
	return d.finishTunnel(have, want)
}

// finishTunnel sets what can be changed, and the mark last.
func (d *Dataplane) finishTunnel(link netlink.Link, want route.Link) error {
	if want.MTU != 0 {
		if err := d.links.LinkSetMTU(link, int(want.MTU)); err != nil {
			return fmt.Errorf("MTU %d: %w", want.MTU, err)
		}
	}
	return d.links.LinkSetAlias(link, aliasFor(want.Digest()))
}

// putVXLAN makes the device anew where it has other settings than can be changed.
func (d *Dataplane) putVXLAN(want route.Link, have netlink.Link) error {
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		return err
	}
	parent, err := d.linkWith(want.Source)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = unmarkedName(want.Name), mac
	device := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(want.VXLAN.VNI),
		Port: int(want.VXLAN.Port), VtepDevIndex: parent, SrcAddr: want.Source.AsSlice()}
	if v, ok := have.(*netlink.Vxlan); ok && !sameVXLAN(v, device) {
		if err := d.links.LinkDel(have); err != nil {
			return err
		}
		have = nil
	}
	if have == nil {
		d.vteps.forget() // they went with the last one, whoever deleted it
		if have, err = d.makeVXLAN(device, want.Name); err != nil {
			return err
		}
	}
	if have.Attrs().HardwareAddr.String() != want.MAC {
		if err := d.links.LinkSetHardwareAddr(have, mac); err != nil {
			return fmt.Errorf("MAC address %s: %w", want.MAC, err)
		}
	}
	if err := d.setOnlyAddress(have, want.VXLAN.Address); err != nil {
		return err
	}
	return d.finishTunnel(have, want)
}

// makeVXLAN makes a device under another name, until it has our mark.
func (d *Dataplane) makeVXLAN(device *netlink.Vxlan, name string) (netlink.Link, error) {
	if left, err := d.links.LinkByName(device.Name); err == nil {
		if err := d.links.LinkDel(left); err != nil {
			return nil, err
		}
	}
	if err := d.links.LinkAdd(device); err != nil {
		return nil, fmt.Errorf("VXLAN device: %w", err)
	}
	link, err := d.links.LinkByName(device.Name)
	if err == nil {
		err = d.links.LinkSetAlias(link, aliasFor(unfinished))
	}
	if err == nil {
		err = d.links.LinkSetName(link, name)
	}
	return link, err
}

func sameVXLAN(a, b *netlink.Vxlan) bool {
	return a.VxlanId == b.VxlanId && a.Port == b.Port && a.VtepDevIndex == b.VtepDevIndex &&
		a.SrcAddr.Equal(b.SrcAddr) && !a.Learning && a.Group == nil && !a.FlowBased
}

// linkWith returns the index of the interface with an address.
func (d *Dataplane) linkWith(a netip.Addr) (int, error) {
	list, err := again(func() ([]netlink.Addr, error) {
		return d.links.AddrList(nil, familyOf(a))
	})
	for _, x := range list {
		if p, ok := prefixOf(x.IPNet); ok && p.Addr() == a {
			return x.LinkIndex, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("no interface has %s, this node's address", a)
	}
	return 0, err
}

// setOnlyAddress gives a device an address, and takes those of its family that it has besides.
func (d *Dataplane) setOnlyAddress(link netlink.Link, a netip.Addr) error {
	want, there := netip.PrefixFrom(a, a.BitLen()), false
	list, err := d.listAddresses(link)
	if err != nil {
		return err
	}
	for _, x := range list {
		p, ok := prefixOf(x.IPNet)
		switch {
		case !ok || p.Addr().Is4() != a.Is4() || p.Addr().IsLinkLocalUnicast():
		case p == want:
			there = true
		default:
			if err := d.links.AddrDel(link, &x); err != nil {
				return err
			}
		}
	}
	if there {
		return nil
	}
	return wrap(d.links.AddrAdd(link, addrOf(want)), "address %s", want)
}

// readTunnel returns what is there under the name of a tunnel device. That of VXLAN is compared
// whole, so that what another program changes is mended.
func readTunnel(d *Dataplane, link netlink.Link, name string) (route.Object, error) {
	kind, _ := tunnelKind(name)
	found := route.FoundLink{Name: name, Mark: markOf(link)}
	switch v, ok := link.(*netlink.Vxlan); {
	case link.Type() != deviceTypes[kind]:
		found.Mark = 0
		return found, nil
	case found.Mark == 0:
		return nil, nil // it is taken over
	case ok:
		is, err := d.asLink(v, name)
		found.Mark = is.Digest()
		return found, err
	}
	return found, nil
}

// tunnelLinks are the devices of tunnels that have our mark.
func (d *Dataplane) tunnelLinks() (all []route.Object, err error) {
	links, err := again(d.links.LinkList)
	for _, link := range links {
		name := link.Attrs().Name
		if _, ok := tunnelKind(name); err != nil || !ok {
			continue
		}
		var found route.Object
		if found, err = readTunnel(d, link, name); found != nil && found.Marked() {
			all = append(all, found)
		}
	}
	return all, err
}

// asLink is the Link that a device has been made of.
func (d *Dataplane) asLink(v *netlink.Vxlan, name string) (route.Link, error) {
	source, _ := netip.AddrFromSlice(v.SrcAddr)
	out := route.Link{Name: name, Kind: route.VXLANTunnel, MAC: v.HardwareAddr.String(),
		MTU: uint16(v.MTU), Source: source.Unmap(),
		VXLAN: route.VXLANLink{VNI: uint32(v.VxlanId), Port: uint16(v.Port)}}
	list, err := d.listAddresses(v)
	i := slices.IndexFunc(list, func(x netlink.Addr) bool {
		p, ok := prefixOf(x.IPNet)
		return ok && p.Addr().Is4() == source.Unmap().Is4() && !p.Addr().IsLinkLocalUnicast()
	})
	if i >= 0 {
		p, _ := prefixOf(list[i].IPNet)
		out.VXLAN.Address = p.Addr()
	}
	return out, err
}

// removeTunnel deletes a device of ours. tunl0 stays where it is the namespace's own, as it was.
func removeTunnel(d *Dataplane, link netlink.Link) error {
	d.vteps.forget()
	if link.Type() == deviceTypes[route.IPIPTunnel] {
		err := errors.Join(d.links.LinkSetDown(link), d.links.LinkSetAlias(link, ""))
		if err != nil {
			return err
		}
	}
	return d.links.LinkDel(link)
}
