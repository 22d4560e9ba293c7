package vpp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// Link returns the current state of an interface by name or sw_if_index.
func (v *VPP) Link(ctx context.Context, nameOrIndex string) (route.Link, error) {
	l, err := v.current()
	if err != nil {
		return route.Link{}, err
	}
	link, err := l.link(ctx, nameOrIndex)
	if err != nil {
		return route.Link{}, fmt.Errorf("vpp: %w", err)
	}
	return link, nil
}

func (l *session) link(ctx context.Context, nameOrIndex string) (route.Link, error) {
	var found []route.Link
	req := &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	err := dump(ctx, l.conn, []request{req}, func(_ int, d *interfaces.SwInterfaceDetails) {
		const both = interface_types.IF_STATUS_API_FLAG_ADMIN_UP |
			interface_types.IF_STATUS_API_FLAG_LINK_UP
		found = append(found, route.Link{
			Interface: route.Interface{Name: strings.TrimRight(d.InterfaceName, "\x00"),
				Index: uint32(d.SwIfIndex), Up: d.Flags&both == both},
			Identity: l.facts.Identity,
			AdminUp:  d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0,
		})
	})
	if err != nil {
		return route.Link{}, fmt.Errorf("read interfaces: %w", err)
	}
	names := make([]route.Interface, len(found))
	for i, f := range found {
		names[i] = f.Interface
	}
	i := route.FindLink(nameOrIndex, names)
	if i < 0 {
		return route.Link{}, fmt.Errorf("%w %s", route.ErrNoLink, nameOrIndex)
	}
	if err := readAddresses(ctx, l.conn, names[i:i+1]); err != nil {
		return route.Link{}, fmt.Errorf("addresses of %s: %w", names[i].Name, err)
	}
	found[i].Addresses = names[i].Addresses
	return found[i], nil
}

// SetUp brings an interface up. It succeeds if the interface is up.
func (v *VPP) SetUp(ctx context.Context, index uint32) error {
	return v.changeLink(func(l *session) error {
		r, err := ask[interfaces.SwInterfaceSetFlagsReply](ctx, l.conn,
			&interfaces.SwInterfaceSetFlags{
				SwIfIndex: interface_types.InterfaceIndex(index),
				Flags:     interface_types.IF_STATUS_API_FLAG_ADMIN_UP,
			})
		if err == nil {
			err = vppError(r.Retval)
		}
		return wrap(err, "set interface %d up", index)
	})
}

// AddAddress adds an address. It succeeds if the interface has it with the same length. VPP refuses
// subnets that overlap with another in the table, unless they are equal and on one interface.
func (v *VPP) AddAddress(ctx context.Context, index uint32, a netip.Prefix) error {
	return v.changeLink(func(l *session) error {
		err := l.setAddress(ctx, index, a, true)
		// VPP returns the same error for an existing address and a conflicting one
		// (src/vnet/ip/ip4_forward.c).
		if errors.Is(err, addressInUse) || errors.Is(err, duplicateAddress) {
			if has, lookErr := l.hasAddress(ctx, index, a); lookErr == nil && has {
				return nil
			}
		}
		return wrap(err, "add address %s to interface %d", a, index)
	})
}

// RemoveAddress removes an address. It succeeds if the interface does not have it with that length.
// Given another length, VPP would remove the address but leave its subnet's route
// (ip_interface_address_find does not compare it).
func (v *VPP) RemoveAddress(ctx context.Context, index uint32, a netip.Prefix) error {
	return v.changeLink(func(l *session) error {
		has, err := l.hasAddress(ctx, index, a)
		if err == nil && has {
			err = l.setAddress(ctx, index, a, false)
		}
		return wrap(err, "remove address %s from interface %d", a, index)
	})
}

// changeLink runs change and triggers a reading of the facts: VPP has no event for addresses.
func (v *VPP) changeLink(change func(*session) error) error {
	l, err := v.current()
	if err != nil {
		return err
	}
	err = change(l)
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return err
}

func (l *session) setAddress(ctx context.Context, index uint32, a netip.Prefix, add bool) error {
	r, err := ask[interfaces.SwInterfaceAddDelAddressReply](ctx, l.conn,
		&interfaces.SwInterfaceAddDelAddress{
			SwIfIndex: interface_types.InterfaceIndex(index), IsAdd: add,
			Prefix: ip_types.AddressWithPrefix(encodePrefix(a)),
		})
	if err != nil {
		return err
	}
	return vppError(r.Retval)
}

func (l *session) hasAddress(ctx context.Context, index uint32, a netip.Prefix) (bool, error) {
	one := []route.Interface{{Index: index}}
	if err := readAddresses(ctx, l.conn, one); err != nil {
		return false, err
	}
	return slices.Contains(one[0].Addresses, a), nil
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("vpp: "+format+": %w", append(args, err)...)
}
