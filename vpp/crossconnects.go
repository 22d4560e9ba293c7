package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/l3xc"

	"vpp-route-agent/internal/route"
)

func readL2CrossConnect(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	on, err := l.findLinkID(ctx, k.Interface)
	if err != nil || l.survivors.isOrphan(k, on) {
		return nil, err
	}
	var found route.Object
	err = dump(ctx, l.conn, []request{&l2.L2XconnectDump{}},
		func(_ int, d *l2.L2XconnectDetails) {
			if uint32(d.RxSwIfIndex) == on.index {
				found = route.L2CrossConnect{Interface: k.Interface,
					To: l.links.Load().name(uint32(d.TxSwIfIndex))}
			}
		})
	return found, wrap(err, "read %s", k)
}

// putL2CrossConnect refuses an interface of which VPP would take something away.
func putL2CrossConnect(ctx context.Context, l *session, o route.Object) error {
	x, k := o.(route.L2CrossConnect), o.Key()
	on, err := l.findLinkID(ctx, x.Interface)
	if err != nil {
		return err
	}
	to, _, err := l.findLink(ctx, x.To)
	if err == nil && l.survivors.isOrphan(k, on) {
		err = l.setL2CrossConnect(ctx, on.index, to, false)
	}
	if err == nil {
		err = l.isFreeForL2(ctx, on.index)
	}
	if err == nil {
		err = l.setL2CrossConnect(ctx, on.index, to, true)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", k, err)
	}
	l.survivors.put(k, on)
	return nil
}

// isFreeForL2 returns an error if the interface has addresses, whose packets would go the other way
// too, or is in a bridge domain.
func (l *session) isFreeForL2(ctx context.Context, index uint32) error {
	one := []route.Interface{{Index: index}}
	if err := readAddresses(ctx, l.conn, one); err != nil {
		return err
	}
	if all := one[0].Addresses; len(all) > 0 {
		return declined(fmt.Sprintf("it has the address %s", all[0]))
	}
	bridge, req := noBridge, &l2.BridgeDomainDump{BdID: noBridge, SwIfIndex: noInterface}
	err := dump(ctx, l.conn, []request{req}, func(_ int, d *l2.BridgeDomainDetails) {
		for _, i := range d.SwIfDetails {
			if uint32(i.SwIfIndex) == index {
				bridge = d.BdID
			}
		}
	})
	if err == nil && bridge != noBridge {
		err = declined(fmt.Sprintf("it is in bridge domain %d", bridge))
	}
	return err
}

const noBridge = ^uint32(0)

func removeL2CrossConnect(ctx context.Context, l *session, k route.ObjectKey) error {
	on, err := l.findLinkID(ctx, k.Interface)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err == nil {
		err = l.setL2CrossConnect(ctx, on.index, on.index, false)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", k, err)
	}
	l.survivors.removed(k)
	return nil
}

func (l *session) setL2CrossConnect(ctx context.Context, from, to uint32, on bool) error {
	r, err := ask[l2.SwInterfaceSetL2XconnectReply](ctx, l.conn, &l2.SwInterfaceSetL2Xconnect{
		RxSwIfIndex: interface_types.InterfaceIndex(from),
		TxSwIfIndex: interface_types.InterfaceIndex(to), Enable: on,
	})
	return cmp.Or(err, vppError(r.Retval))
}

var errNoL3XC = declined("this VPP lacks the plugin l3xc")

func (l *session) findL3CrossConnect(ctx context.Context, k route.ObjectKey) (
	x route.L3CrossConnect, on linkID, err error) {
	if x, err = route.L3CrossConnectOf(k); err != nil {
		return x, on, err
	}
	if _, ok := l.conn.id((*l3xc.L3xcUpdate)(nil)); !ok {
		return x, on, errNoL3XC
	}
	on, err = l.findLinkID(ctx, k.Interface)
	return x, on, err
}

func readL3CrossConnect(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	x, on, err := l.findL3CrossConnect(ctx, k)
	if err != nil || l.survivors.isOrphan(k, on) {
		return nil, err
	}
	var found route.Object
	req := &l3xc.L3xcDump{SwIfIndex: interface_types.InterfaceIndex(on.index)}
	err = dump(ctx, l.conn, []request{req}, func(_ int, d *l3xc.L3xcDetails) {
		// VPP 25.10 does not fill in IsIP6 (src/plugins/l3xc/l3xc_api.c, l3xc_send_details).
		family := protocol(anyOf(x.IPv6).Addr())
		if len(d.L3xc.Paths) == 0 || d.L3xc.Paths[0].Proto != family {
			return
		}
		for _, p := range d.L3xc.Paths {
			x.Paths = append(x.Paths, decodePath(p, anyOf(x.IPv6), l.links.Load().name))
		}
		x.Paths = route.CanonicalPaths(x.Paths)
		found = x
	})
	return found, wrap(err, "read %s", k)
}

// putL3CrossConnect deletes what is there first. An update alone would show the new paths, and go
// on forwarding by the old ones (src/plugins/l3xc/l3xc.c, l3xc_update does not restack).
func putL3CrossConnect(ctx context.Context, l *session, o route.Object) error {
	k := o.Key()
	_, on, err := l.findL3CrossConnect(ctx, k)
	if err != nil {
		return err
	}
	x := o.(route.L3CrossConnect)
	out := l3xc.L3xc{SwIfIndex: interface_types.InterfaceIndex(on.index), IsIP6: x.IPv6}
	for _, p := range x.Paths {
		to, _, err := l.findLink(ctx, p.Interface)
		if err != nil {
			return err
		}
		path, err := encodePath(p, anyOf(x.IPv6),
			func(string) (uint32, bool) { return to, true })
		if err != nil {
			return declined(err.Error())
		}
		out.Paths = append(out.Paths, path)
	}
	if err := removeL3CrossConnect(ctx, l, k); err != nil {
		return err
	}
	r, err := ask[l3xc.L3xcUpdateReply](ctx, l.conn, &l3xc.L3xcUpdate{L3xc: out})
	if err = cmp.Or(err, vppError(r.Retval)); err != nil {
		return fmt.Errorf("make %s: %w", k, err)
	}
	l.survivors.put(k, on)
	return nil
}

func removeL3CrossConnect(ctx context.Context, l *session, k route.ObjectKey) error {
	x, on, err := l.findL3CrossConnect(ctx, k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := ask[l3xc.L3xcDelReply](ctx, l.conn, &l3xc.L3xcDel{
		SwIfIndex: interface_types.InterfaceIndex(on.index), IsIP6: x.IPv6})
	err = cmp.Or(err, vppError(r.Retval))
	if err != nil && !errors.Is(err, noSuchCrossConnect) {
		return fmt.Errorf("remove %s: %w", k, err)
	}
	l.survivors.removed(k)
	return nil
}

func anyOf(six bool) netip.Prefix {
	if six {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}
