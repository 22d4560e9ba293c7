package vpp

import (
	"cmp"
	"context"
	"errors"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"vpp-route-agent/internal/route"
)

func readInTable(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	in, index, err := l.inTableOf(ctx, k)
	if err != nil {
		return nil, err
	}
	in.Table.ID, err = l.tableOf(ctx, index, in.Table.IPv6)
	if err != nil || in.Table.ID == 0 {
		return nil, wrap(err, "read the table of %s", k.Interface)
	}
	return in, nil
}

func putInTable(ctx context.Context, l *session, o route.Object) error {
	in, index, err := l.inTableOf(ctx, o.Key())
	if err != nil {
		return err
	}
	to := o.(route.InTable).Table.ID
	return wrap(l.setTable(ctx, index, in.Table.IPv6, to), "put %s into table %d", in.Interface, to)
}

// removeInTable puts the interface into table 0.
func removeInTable(ctx context.Context, l *session, k route.ObjectKey) error {
	in, index, err := l.inTableOf(ctx, k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := l.tableOf(ctx, index, in.Table.IPv6)
	if err == nil && now != 0 {
		err = l.setTable(ctx, index, in.Table.IPv6, 0)
	}
	return wrap(err, "put %s into table 0", in.Interface)
}

func (l *session) inTableOf(ctx context.Context, k route.ObjectKey) (in route.InTable,
	index uint32, err error) {
	if in, err = route.InTableOf(k); err == nil {
		index, _, err = l.findLink(ctx, k.Interface)
	}
	return in, index, err
}

func (l *session) tableOf(ctx context.Context, index uint32, six bool) (uint32, error) {
	r, err := ask[interfaces.SwInterfaceGetTableReply](ctx, l.conn,
		&interfaces.SwInterfaceGetTable{
			SwIfIndex: interface_types.InterfaceIndex(index), IsIPv6: six,
		})
	return r.VrfID, cmp.Or(err, vppError(r.Retval))
}

func (l *session) setTable(ctx context.Context, index uint32, six bool, table uint32) error {
	if err := l.checkMove(ctx, index, six, table); err != nil {
		return err
	}
	r, err := ask[interfaces.SwInterfaceSetTableReply](ctx, l.conn,
		&interfaces.SwInterfaceSetTable{
			SwIfIndex: interface_types.InterfaceIndex(index), IsIPv6: six, VrfID: table,
		})
	return cmp.Or(err, vppError(r.Retval))
}
