package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// tableID is a table of one family.
type tableID struct {
	id  uint32
	six bool
}

func tableOfKey(k route.Key) tableID { return tableID{k.Table, k.Prefix.Addr().Unmap().Is6()} }

func (t tableID) String() string {
	if t.six {
		return fmt.Sprintf("IPv6 table %d", t.id)
	}
	return fmt.Sprintf("IPv4 table %d", t.id)
}

func compareTables(a, b tableID) int {
	return cmp.Or(cmp.Compare(a.id, b.id), strings.Compare(a.String(), b.String()))
}

// readTables returns the name of each table.
func readTables(ctx context.Context, c *conn) (map[tableID]string, error) {
	names := map[tableID]string{}
	err := dump(ctx, c, []request{&ip.IPTableDump{}}, func(_ int, d *ip.IPTableDetails) {
		names[tableID{d.Table.TableID, d.Table.IsIP6}] = strings.TrimRight(d.Table.Name, "\x00")
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// makeTables makes the tables that puts need, named after our FIB source, by which KeepTables
// recognizes them. It adds an existing one again: the API holds a single lock on a table, which
// KeepTables may have released while a path still resolved in it.
func (l *session) makeTables(ctx context.Context, ops []route.Op) error {
	var needed []tableID
	for _, op := range ops {
		if op.Delete || op.Route.Table == 0 || !op.Route.Prefix.IsValid() {
			continue
		}
		if t := tableOfKey(op.Route.Key); !l.tables[t] && !slices.Contains(needed, t) {
			needed = append(needed, t)
		}
	}
	if len(needed) == 0 {
		return nil
	}
	names, err := readTables(ctx, l.conn)
	if err != nil {
		return fmt.Errorf("read tables: %w", err)
	}
	for _, t := range needed {
		if name, ok := names[t]; !ok || name == l.name {
			if err := l.addTable(ctx, t, !ok); err != nil {
				return fmt.Errorf("make %s: %w", t, err)
			}
		}
		l.tables[t] = true
	}
	return nil
}

// addTable makes a table, with its multicast half if it is new. VPP 25.10 counts the API's locks on
// that half, so further ones would keep it for ever (mfib_table_lock). Older versions cannot avoid
// it.
func (l *session) addTable(ctx context.Context, t tableID, isNew bool) error {
	table := ip.IPTable{TableID: t.id, IsIP6: t.six, Name: l.name}
	if _, ok := l.conn.id((*ip.IPTableAddDelV2)(nil)); ok {
		r, err := ask[ip.IPTableAddDelV2Reply](ctx, l.conn,
			&ip.IPTableAddDelV2{IsAdd: true, CreateMfib: isNew, Table: table})
		return cmp.Or(err, vppError(r.Retval))
	}
	r, err := ask[ip.IPTableAddDelReply](ctx, l.conn, &ip.IPTableAddDel{IsAdd: true, Table: table})
	return cmp.Or(err, vppError(r.Retval))
}

func (l *session) deleteTable(ctx context.Context, t tableID) error {
	r, err := ask[ip.IPTableAddDelReply](ctx, l.conn,
		&ip.IPTableAddDel{Table: ip.IPTable{TableID: t.id, IsIP6: t.six}})
	return cmp.Or(err, vppError(r.Retval))
}

// KeepTables implements fib.TableKeeper. It keeps a table with foreign entries and returns an
// error: VPP 25.10 would delete it, keep the entries and show them in the next table in its place.
// So does a table with an interface, whose multicast half a second delete would remove. A table in
// which a path resolves stays in VPP under our name until the path is gone.
func (v *VPP) KeepTables(ctx context.Context, keep []uint32) error {
	l, err := v.current()
	if err != nil {
		return err
	}
	names, err := readTables(ctx, l.conn)
	if err != nil {
		return fmt.Errorf("vpp: read tables: %w", err)
	}
	var errs []error
	for _, t := range slices.SortedFunc(maps.Keys(names), compareTables) {
		if _, wanted := slices.BinarySearch(keep, t.id); wanted || names[t] != l.name || t.id == 0 {
			continue
		}
		if err := l.removeTable(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("vpp: remove %s: %w", t, err))
		}
	}
	return errors.Join(errs...)
}

func (l *session) removeTable(ctx context.Context, t tableID) error {
	left, err := l.occupant(ctx, t)
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("%s is in it", left)
	}
	delete(l.tables, t)
	return l.deleteTable(ctx, t)
}

// occupant describes an entry that VPP does not put into every table, or returns "".
func (l *session) occupant(ctx context.Context, t tableID) (string, error) {
	var left string
	var bad error
	err := l.dumpRoutes(ctx, ip.IPTable{TableID: t.id, IsIP6: t.six}, 0, func(r ip.IPRouteV2) {
		p, err := decodePrefix(r.Prefix)
		switch {
		case err != nil:
			bad = err
		case l.isFiller(r), l.roleOf(r.Src) == derived:
		default:
			left = "route " + p.String()
		}
	})
	if err := errors.Join(err, bad); err != nil || left != "" {
		return left, err
	}
	now, err := listLinks(ctx, l.conn)
	if err != nil {
		return "", err
	}
	for chunk := range slices.Chunk(now, linkBatch) {
		if left, err = l.interfaceIn(ctx, t, chunk); err != nil || left != "" {
			return left, err
		}
	}
	return "", nil
}

// interfaceIn returns one of these interfaces that is in t, or "". Interfaces with addresses show
// by their routes.
func (l *session) interfaceIn(ctx context.Context, t tableID,
	among []route.Interface) (string, error) {
	var reqs []request
	for _, i := range among {
		reqs = append(reqs, &interfaces.SwInterfaceGetTable{
			SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: t.six,
		})
	}
	var found string
	err := dump(ctx, l.conn, reqs, func(i int, r *interfaces.SwInterfaceGetTableReply) {
		if r.Retval == 0 && r.VrfID == t.id { // else it is gone
			found = "interface " + among[i].Name
		}
	})
	return found, err
}
