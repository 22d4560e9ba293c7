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

func (d *Dataplane) findLink(name string) (netlink.Link, error) {
	_, device := route.SplitNamespace(name) // d is in that namespace
	link, err := d.links.LinkByName(device)
	switch {
	case errors.As(err, &netlink.LinkNotFoundError{}):
		return nil, fmt.Errorf("%w %s", route.ErrNoLink, name)
	case err != nil:
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	return link, nil
}

func readUp(d *Dataplane, k route.ObjectKey) (route.Object, error) {
	link, err := d.findLink(k.Interface)
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil, err
	}
	return route.Up{Interface: k.Interface}, nil
}

func putUp(d *Dataplane, o route.Object) error {
	link, err := d.findLink(o.Key().Interface)
	if err != nil {
		return err
	}
	return wrap(d.links.LinkSetUp(link), "set interface %s up", o.Key().Interface)
}

// leaveUp leaves an interface up that nobody wants up any more, unless we have made it.
func leaveUp(d *Dataplane, k route.ObjectKey) error {
	link, err := d.findLink(k.Interface)
	if errors.Is(err, route.ErrNoLink) || err == nil && markOf(link) == 0 {
		return nil
	}
	if err == nil {
		err = d.links.LinkSetDown(link)
	}
	return wrap(err, "set interface %s down", k.Interface)
}

func readAddress(d *Dataplane, k route.ObjectKey) (route.Object, error) {
	a, link, err := d.addressOf(k)
	if err != nil {
		return nil, err
	}
	has, err := d.hasAddress(link, a.Address)
	if err != nil || !has {
		return nil, wrap(err, "read addresses of %s", k.Interface)
	}
	return a, nil
}

// putAddress succeeds if the interface has the address with the same length.
func putAddress(d *Dataplane, o route.Object) error {
	a, link, err := d.addressOf(o.Key())
	if err != nil {
		return err
	}
	err = d.links.AddrAdd(link, addrOf(a.Address))
	if errors.Is(err, unix.EEXIST) {
		// IPv6 returns the same error for the address with another length.
		if has, lookErr := d.hasAddress(link, a.Address); lookErr != nil || has {
			err = lookErr
		}
	}
	return wrap(err, "add address %s to interface %d", a.Address, link.Attrs().Index)
}

// removeAddress with an IPv4 address has the kernel remove those added to its subnet later, unless
// net.ipv4.conf.*.promote_secondaries is set. They may be another program's, and are put back.
func removeAddress(d *Dataplane, k route.ObjectKey) error {
	a, link, err := d.addressOf(k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := d.listAddresses(link)
	if err == nil {
		err = d.links.AddrDel(link, addrOf(a.Address))
	}
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL):
		err = nil
	case err == nil && a.Address.Addr().Is4():
		err = d.restore(link, before, a.Address)
	}
	return wrap(err, "remove address %s from interface %d", a.Address, link.Attrs().Index)
}

// restore adds the IPv4 addresses of before that went with another.
func (d *Dataplane) restore(link netlink.Link, before []netlink.Addr, gone netip.Prefix) error {
	now, err := d.listAddresses(link)
	for _, was := range before {
		p, ok := prefixOf(was.IPNet)
		if ok && p.Addr().Is4() && p != gone && !isAmong(p, now) && err == nil {
			err = d.links.AddrAdd(link, &was)
		}
	}
	return err
}

func (d *Dataplane) addressOf(k route.ObjectKey) (a route.Address, link netlink.Link, err error) {
	if a, err = route.AddressOf(k); err == nil {
		link, err = d.findLink(k.Interface)
	}
	return a, link, err
}

func (d *Dataplane) hasAddress(link netlink.Link, a netip.Prefix) (bool, error) {
	list, err := d.listAddresses(link)
	return isAmong(a, list), err
}

func (d *Dataplane) listAddresses(link netlink.Link) ([]netlink.Addr, error) {
	return again(func() ([]netlink.Addr, error) {
		return d.links.AddrList(link, netlink.FAMILY_ALL)
	})
}

func isAmong(a netip.Prefix, list []netlink.Addr) bool {
	return slices.ContainsFunc(list, func(x netlink.Addr) bool {
		p, ok := prefixOf(x.IPNet)
		return ok && p == a
	})
}

func addrOf(a netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: ipNet(a)}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
