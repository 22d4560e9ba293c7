package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// Link returns the current state of an interface by name or index.
func (d *Dataplane) Link(_ context.Context, nameOrIndex string) (route.Link, error) {
	list, err := d.listInterfaces()
	if err != nil {
		return route.Link{}, fmt.Errorf("kernel: %w", err)
	}
	i := route.FindLink(nameOrIndex, list)
	if i < 0 {
		return route.Link{}, fmt.Errorf("kernel: %w %s", route.ErrNoLink, nameOrIndex)
	}
	link, err := d.links.LinkByIndex(int(list[i].Index))
	if err != nil {
		return route.Link{}, fmt.Errorf("kernel: interface %s: %w", list[i].Name, err)
	}
	return route.Link{Interface: list[i], Identity: d.identity,
		AdminUp: link.Attrs().RawFlags&unix.IFF_UP != 0}, nil
}

// SetUp brings an interface up. It succeeds if the interface is up.
func (d *Dataplane) SetUp(_ context.Context, index uint32) error {
	return wrap(d.links.LinkSetUp(linkOf(index)), "set interface %d up", index)
}

// AddAddress adds an address. It succeeds if the interface has it with the same length.
func (d *Dataplane) AddAddress(_ context.Context, index uint32, a netip.Prefix) error {
	err := d.links.AddrAdd(linkOf(index), addrOf(a))
	if errors.Is(err, unix.EEXIST) {
		// IPv6 returns the same error for the address with another length.
		if has, lookErr := d.hasAddress(index, a); lookErr != nil || has {
			err = lookErr
		}
	}
	return wrap(err, "add address %s to interface %d", a, index)
}

// RemoveAddress removes an address. It succeeds if the interface does not have it with that length.
// With an IPv4 address the kernel removes those added to its subnet later, unless
// net.ipv4.conf.*.promote_secondaries is set.
func (d *Dataplane) RemoveAddress(_ context.Context, index uint32, a netip.Prefix) error {
	err := d.links.AddrDel(linkOf(index), addrOf(a))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		err = nil
	}
	return wrap(err, "remove address %s from interface %d", a, index)
}

func (d *Dataplane) hasAddress(index uint32, a netip.Prefix) (bool, error) {
	list, err := d.listInterfaces()
	return slices.ContainsFunc(list, func(i route.Interface) bool {
		return i.Index == index && slices.Contains(i.Addresses, a)
	}), err
}

func linkOf(index uint32) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: int(index)}}
}

func addrOf(a netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(),
		Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kernel: "+format+": %w", append(args, err)...)
}
