package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/interface_types"

	"vpp-route-agent/internal/route"
)

func readProxyARP(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	on, err := l.findLinkID(ctx, k.Interface)
	if err != nil || l.survivors.isOrphan(k, on) {
		return nil, err
	}
	var found route.Object
	err = dump(ctx, l.conn, []request{&arp.ProxyArpIntfcDump{}},
		func(_ int, d *arp.ProxyArpIntfcDetails) {
			if d.SwIfIndex == on.index {
				found = route.ProxyARP{Interface: k.Interface}
			}
		})
	return found, wrap(err, "read %s", k)
}

func putProxyARP(ctx context.Context, l *session, o route.Object) error {
	k := o.Key()
	on, err := l.findLinkID(ctx, k.Interface)
	if err == nil && l.survivors.isOrphan(k, on) {
		err = l.setProxyARP(ctx, on.index, false)
	}
	if err == nil {
		err = l.setProxyARP(ctx, on.index, true)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", k, err)
	}
	l.survivors.put(k, on)
	return nil
}

func removeProxyARP(ctx context.Context, l *session, k route.ObjectKey) error {
	on, err := l.findLinkID(ctx, k.Interface)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err == nil {
		err = l.setProxyARP(ctx, on.index, false)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", k, err)
	}
	l.survivors.removed(k)
	return nil
}

func (l *session) setProxyARP(ctx context.Context, index uint32, on bool) error {
	r, err := ask[arp.ProxyArpIntfcEnableDisableReply](ctx, l.conn,
		&arp.ProxyArpIntfcEnableDisable{SwIfIndex: interface_types.InterfaceIndex(index),
			Enable: on})
	return cmp.Or(err, vppError(r.Retval))
}

func readProxyARPRange(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	want, err := route.ProxyARPRangeOf(k)
	if err != nil {
		return nil, err
	}
	var found route.Object
	err = dump(ctx, l.conn, []request{&arp.ProxyArpDump{}}, func(_ int, d *arp.ProxyArpDetails) {
		if d.Proxy == encodeProxyARP(want) {
			found = want
		}
	})
	return found, wrap(err, "read %s", k)
}

func putProxyARPRange(ctx context.Context, l *session, o route.Object) error {
	return wrap(l.changeProxyARPRange(ctx, o.Key(), true), "make %s", o.Key())
}

func removeProxyARPRange(ctx context.Context, l *session, k route.ObjectKey) error {
	err := l.changeProxyARPRange(ctx, k, false)
	if errors.Is(err, noSuchEntry) || errors.Is(err, noSuchFIB) {
		err = nil
	}
	return wrap(err, "remove %s", k)
}

func (l *session) changeProxyARPRange(ctx context.Context, k route.ObjectKey, add bool) error {
	want, err := route.ProxyARPRangeOf(k)
	if err != nil {
		return err
	}
	r, err := ask[arp.ProxyArpAddDelReply](ctx, l.conn,
		&arp.ProxyArpAddDel{IsAdd: add, Proxy: encodeProxyARP(want)})
	return cmp.Or(err, vppError(r.Retval))
}

func encodeProxyARP(p route.ProxyARPRange) arp.ProxyArp {
	return arp.ProxyArp{TableID: p.Table.ID, Low: p.First.As4(), Hi: p.Last.As4()}
}
