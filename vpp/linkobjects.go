package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// findLink returns the index of an interface as VPP has it now, and whether it is administratively
// up.
func (l *session) findLink(ctx context.Context, name string) (index uint32, up bool, err error) {
	d, err := l.linkDetails(ctx, name)
	switch {
	case err != nil:
		return 0, false, err
	case d == nil:
		return 0, false, l.noLink(name)
	}
	return uint32(d.SwIfIndex), d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0, nil
}

// noLink is the error for an interface that is not there.
func (l *session) noLink(name string) error {
	l.readSoon()
	return fmt.Errorf("%w %s", route.ErrNoLink, name)
}

// indexToPut is findLink for those who write. That an IPIP interface was deleted, and another one
// has its index, is known when VPP's event has come.
func (l *session) indexToPut(ctx context.Context, name string) (index uint32, err error) {
	if route.EncapBy(name) == route.IPIP {
		return l.ipipIndex(ctx, name)
	}
	index, _, err = l.findLink(ctx, name)
	return index, err
}

// onLink is the error for what VPP says of an interface that may have gone a moment ago. It is for
// those who write.
func (l *session) onLink(name string, err error) error {
	if !errors.Is(err, noSuchInterface) {
		return err
	}
	clear(l.ipips)
	return l.noLink(name)
}

func readUp(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	_, up, err := l.findLink(ctx, k.Interface)
	if err != nil || !up {
		return nil, err
	}
	return route.Up{Interface: k.Interface}, nil
}

func putUp(ctx context.Context, l *session, o route.Object) error {
	name := o.Key().Interface
	index, err := l.indexToPut(ctx, name)
	if err != nil {
		return err
	}
	err = l.setFlags(ctx, index, interface_types.IF_STATUS_API_FLAG_ADMIN_UP)
	return wrap(l.onLink(name, err), "set interface %s up", name)
}

// removeUp leaves an interface up that nobody wants up any more, unless we have made it.
func removeUp(ctx context.Context, l *session, k route.ObjectKey) error {
	d, err := l.linkDetails(ctx, k.Interface)
	if err == nil && d != nil && markFor(d, k.Interface) != 0 {
		err = l.setFlags(ctx, uint32(d.SwIfIndex), 0)
	}
	return wrap(err, "set interface %s down", k.Interface)
}

func (l *session) setFlags(ctx context.Context, index uint32,
	flags interface_types.IfStatusFlags) error {
	r, err := ask[interfaces.SwInterfaceSetFlagsReply](ctx, l.conn,
		&interfaces.SwInterfaceSetFlags{
			SwIfIndex: interface_types.InterfaceIndex(index), Flags: flags,
		})
	return cmp.Or(err, vppError(r.Retval))
}

// readAddress asks for the table only where the last reading of the interfaces cannot tell it: it
// is from before the address, or has the other family's table. Each question stops VPP's workers.
func readAddress(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	a, index, err := l.addressOf(ctx, k)
	if err != nil {
		return nil, err
	}
	has, err := l.hasAddress(ctx, index, a.Address)
	if err != nil || !has {
		return nil, wrap(err, "read addresses of %s", k.Interface)
	}
	six := a.Address.Addr().Is6()
	known, _ := route.Facts{Interfaces: l.links.Load().list}.Interface(k.Interface)
	if a.Table = known.Table; !slices.Contains(known.Addresses, a.Address) ||
		known.Addresses[0].Addr().Is6() != six {
		a.Table, err = l.tableOf(ctx, index, six)
	}
	return a, wrap(err, "read the table of %s", k.Interface)
}

// putAddress succeeds if the interface has the address with the same length. VPP refuses subnets
// that overlap with another in the table, unless they are equal and on one interface. An interface
// that is in another table would keep the address there: VPP moves none that has one. One without a
// table is left where another program has put it.
func putAddress(ctx context.Context, l *session, o route.Object) error {
	a := o.(route.Address)
	index, err := l.indexToPut(ctx, a.Interface)
	if err != nil {
		return err
	}
	if a.Table != 0 {
		var in uint32
		in, err = l.tableOf(ctx, index, a.Address.Addr().Is6())
		if err == nil && in != a.Table {
			err = declined(fmt.Sprintf("the interface is in table %d", in))
		}
	}
	if err == nil {
		err = l.setAddress(ctx, index, a.Address, true)
	}
	// VPP returns the same error for an existing address and a conflicting one
	// (src/vnet/ip/ip4_forward.c).
	if errors.Is(err, addressInUse) || errors.Is(err, duplicateAddress) {
		if has, lookErr := l.hasAddress(ctx, index, a.Address); lookErr == nil && has {
			return nil
		}
	}
	return wrap(l.onLink(a.Interface, err), "add address %s to interface %d", a.Address, index)
}

// removeAddress looks first. Given another length than the address has, VPP would remove the
// address but leave its subnet's route (ip_interface_address_find does not compare it).
func removeAddress(ctx context.Context, l *session, k route.ObjectKey) error {
	a, index, err := l.addressOf(ctx, k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	has, err := l.hasAddress(ctx, index, a.Address)
	if err == nil && has {
		err = l.setAddress(ctx, index, a.Address, false)
	}
	return wrap(err, "remove address %s from interface %d", a.Address, index)
}

func (l *session) addressOf(ctx context.Context, k route.ObjectKey) (a route.Address, index uint32,
	err error) {
	if a, err = route.AddressOf(k); err == nil {
		index, _, err = l.findLink(ctx, k.Interface)
	}
	return a, index, err
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
	return fmt.Errorf(format+": %w", append(args, err)...)
}
