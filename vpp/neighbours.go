package vpp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"vpp-route-agent/internal/route"
)

// readNeighbour returns a static entry. One that VPP has learned is nobody's, and gives way
// (src/vnet/ip-neighbor/ip_neighbor.c, ip_neighbor_add). VPP
// 25.10 flushes learned ones alone with an interface (mended by e5b3666c12f).
func readNeighbour(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	n, on, err := l.neighbourOf(ctx, k)
	if err != nil || l.survivors.isOrphan(k, on) {
		return nil, err
	}
	req := &ip_neighbor.IPNeighborDump{SwIfIndex: interface_types.InterfaceIndex(on.index)}
	if n.Address.Is6() {
		req.Af = ip_types.ADDRESS_IP6
	}
	var found route.Object
	err = dump(ctx, l.conn, []request{req}, func(_ int, d *ip_neighbor.IPNeighborDetails) {
		is := d.Neighbor
		if decodeUnion(is.IPAddress.Un, n.Address.Is6()) == n.Address &&
			is.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0 {
			n.MAC = net.HardwareAddr(is.MacAddress[:]).String()
			found = n
		}
	})
	return found, wrap(err, "read neighbours on %s", k.Interface)
}

// putNeighbour replaces what there is for the address.
func putNeighbour(ctx context.Context, l *session, o route.Object) error {
	k := o.Key()
	n, on, err := l.neighbourOf(ctx, k)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(o.(route.Neighbour).MAC)
	if err != nil {
		return declined(err.Error())
	}
	for _, was := range l.survivors.orphans(k, on) {
		err := l.setNeighbour(ctx, ip_neighbor.IPNeighbor{
			SwIfIndex: interface_types.InterfaceIndex(was.index),
			IPAddress: encodeAddress(n.Address)}, false)
		if err != nil && !errors.Is(err, noSuchEntry) && !errors.Is(err, noSuchInterface) {
			return fmt.Errorf("remove %s: %w", k, err)
		}
	}
	if err := l.checkNeighbour(ctx, on.index, n.Address, noInterface); err != nil {
		return fmt.Errorf("add %s: %w", k, err)
	}
	m := ip_neighbor.IPNeighbor{
		SwIfIndex: interface_types.InterfaceIndex(on.index), IPAddress: encodeAddress(n.Address),
		Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
	}
	m.MacAddress = ethernet_types.MacAddress(mac)
	if err := l.setNeighbour(ctx, m, true); err != nil {
		return fmt.Errorf("add %s: %w", k, err)
	}
	l.survivors.put(k, on)
	return nil
}

// checkNeighbour returns an error if VPP would crash as a neighbour comes or goes. What an earlier
// interface of the index but has left is no reason.
func (l *session) checkNeighbour(ctx context.Context, on uint32, a netip.Addr, but uint32) error {
	table, err := l.tableOf(ctx, on, a.Is6())
	if err != nil {
		return err
	}
	return l.checkNeighbourIn(ctx, table, a, but)
}

// checkNeighbourIn is checkNeighbour for a table. The route of a static neighbour outlives its
// interface, too. While no interface has that index, VPP 25.10 must neither make nor delete another
// path to the address (src/vnet/ip/ip_path_mtu.c, ip_pmtu_adj_delegate_adj_created), and does not
// delete the neighbour. Its command line alone shows paths of all sources of a route.
func (l *session) checkNeighbourIn(ctx context.Context, table uint32, a netip.Addr,
	but uint32) error {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return nil // each interface has a table of its own
	}
	p := route.HostPrefix(a)
	_, there, err := l.lookup(ctx, table, p, true)
	if err != nil || !there {
		return err
	}
	for line := range strings.Lines(l.showEntry(ctx, table, p, "")) {
		if index, ok := deletedLink(line, a); ok && index != fmt.Sprint(but) {
			return declined(fmt.Sprintf("VPP keeps such a neighbour of interface %s, which was "+
				"deleted, and would crash", index))
		}
	}
	return nil
}

// checkMove returns an error if VPP would crash as it moves neighbours to a table with their
// interface.
func (l *session) checkMove(ctx context.Context, on uint32, six bool, table uint32) error {
	req := &ip_neighbor.IPNeighborDump{SwIfIndex: interface_types.InterfaceIndex(on)}
	if six {
		req.Af = ip_types.ADDRESS_IP6
	}
	var all []netip.Addr
	err := dump(ctx, l.conn, []request{req}, func(_ int, d *ip_neighbor.IPNeighborDetails) {
		all = append(all, decodeUnion(d.Neighbor.IPAddress.Un, six))
	})
	if err != nil || len(all) == 0 {
		return err
	}
	from, err := l.tableOf(ctx, on, six)
	if err != nil {
		return err
	}
	for _, a := range all {
		for _, in := range []uint32{from, table} {
			if err := l.checkNeighbourIn(ctx, in, a, on); err != nil {
				return fmt.Errorf("neighbour %s: %w", a, err)
			}
		}
	}
	return nil
}

// deletedLink returns the index of an interface that is not there, if the line is of a path over it
// to a. VPP shows "if_index:3" in place of a name, or "DELETED (3) (p2p)" of one that was not in
// table 0.
func deletedLink(line string, a netip.Addr) (index string, ok bool) {
	words := shownDeleted.FindStringSubmatch(line)
	if words == nil {
		return "", false
	}
	hop, err := netip.ParseAddr(words[1])
	return words[2], err == nil && hop == a
}

var shownDeleted = regexp.MustCompile(`^\s*(\S+) (?:if_index:|DELETED \()(\d+)`)

func removeNeighbour(ctx context.Context, l *session, k route.ObjectKey) error {
	n, on, err := l.neighbourOf(ctx, k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.checkNeighbour(ctx, on.index, n.Address, on.index); err != nil {
		return fmt.Errorf("remove %s: %w", k, err)
	}
	err = l.setNeighbour(ctx, ip_neighbor.IPNeighbor{
		SwIfIndex: interface_types.InterfaceIndex(on.index), IPAddress: encodeAddress(n.Address),
	}, false)
	if err != nil && !errors.Is(err, noSuchEntry) {
		return fmt.Errorf("remove %s: %w", k, err)
	}
	l.survivors.removed(k)
	return nil
}

// deleteNeighbours deletes all static ones on interfaces.
func (l *session) deleteNeighbours(ctx context.Context,
	on ...interface_types.InterfaceIndex) error {
	if len(on) == 0 {
		return nil
	}
	var dumps []request
	var all []ip_neighbor.IPNeighbor
	for _, index := range on {
		dumps = append(dumps, &ip_neighbor.IPNeighborDump{SwIfIndex: index},
			&ip_neighbor.IPNeighborDump{SwIfIndex: index, Af: ip_types.ADDRESS_IP6})
	}
	err := dump(ctx, l.conn, dumps, func(_ int, d *ip_neighbor.IPNeighborDetails) {
		if d.Neighbor.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0 {
			all = append(all, d.Neighbor)
		}
	})
	if err != nil {
		return err // the reader may still be in the handler
	}
	for _, n := range all { // one by one: what is deleted has gone if time is up
		a, index := decodeAddress(n.IPAddress), uint32(n.SwIfIndex)
		err := l.checkNeighbour(ctx, index, a, index)
		if err == nil {
			err = l.setNeighbour(ctx, n, false)
		}
		if err != nil && !errors.Is(err, noSuchEntry) {
			return fmt.Errorf("remove neighbour %s: %w", a, err)
		}
	}
	l.survivors.removedFrom(on, route.StaticNeighbour)
	return nil
}

func (l *session) neighbourOf(ctx context.Context, k route.ObjectKey) (n route.Neighbour,
	on linkID, err error) {
	if n, err = route.NeighbourOf(k); err == nil {
		on, err = l.findLinkID(ctx, k.Interface)
	}
	return n, on, err
}

func (l *session) setNeighbour(ctx context.Context, n ip_neighbor.IPNeighbor, add bool) error {
	r, err := ask[ip_neighbor.IPNeighborAddDelReply](ctx, l.conn,
		&ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: n})
	if err != nil {
		return err
	}
	return vppError(r.Retval)
}
