package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// tableID names a table of one family.
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

// makeTables makes the tables that puts among ops need, under the name of our FIB source: by that name KeepTables knows them again.
//
// A table of that name that is there already is added once more. The API holds one lock on it, however often it is added, and may have
// lost it: what keeps the table then, an interface for instance, can go at any time.
func (l *life) makeTables(ctx context.Context, ops []route.Op) error {
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
			if err := l.changeTable(ctx, t, true); err != nil {
				return fmt.Errorf("make %s: %w", t, err)
			}
		}
		l.tables[t] = true
	}
	return nil
}

// changeTable adds or deletes a table. The older form of the message, which every VPP has, makes the multicast table as well: an
// operator may put interfaces into the table.
func (l *life) changeTable(ctx context.Context, t tableID, add bool) error {
	r, err := ask[ip.IPTableAddDelReply](ctx, l.conn, &ip.IPTableAddDel{
		IsAdd: add, Table: ip.IPTable{TableID: t.id, IsIP6: t.six, Name: l.name},
	})
	if err != nil {
		return err
	}
	return vppError(r.Retval)
}

// KeepTables is fib.TableKeeper's. A table in which anything but VPP's own entries is left stays, with an error: VPP 25.10 deletes it all
// the same, keeps the entries in memory, and shows them in whatever table gets its place next. An interface, or a path that
// is resolved in the table, keeps it in VPP for as long as it is there, and with it our name.
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

func (l *life) removeTable(ctx context.Context, t tableID) error {
	left, err := l.occupant(ctx, t)
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("%s is in it", left)
	}
	delete(l.tables, t)
	return l.changeTable(ctx, t, false)
}

// occupant returns what is in a table besides what VPP puts into every table, or "".
func (l *life) occupant(ctx context.Context, t tableID) (string, error) {
	var left string
	var bad error
	err := l.dumpRoutes(ctx, ip.IPTable{TableID: t.id, IsIP6: t.six}, 0, func(r ip.IPRouteV2) {
		p, err := decodePrefix(r.Prefix)
		switch {
		case err != nil:
			bad = err
		case l.isFiller(p, r), l.roleOf(r.Src) == derived:
		default:
			left = p.String()
		}
	})
	return left, errors.Join(err, bad)
}
