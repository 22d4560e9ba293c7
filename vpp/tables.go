package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// readTables returns the name of each table.
func readTables(ctx context.Context, c *conn) (map[route.TableID]string, error) {
	names := map[route.TableID]string{}
	err := dump(ctx, c, []request{&ip.IPTableDump{}}, func(_ int, d *ip.IPTableDetails) {
		id := route.TableID{ID: d.Table.TableID, IPv6: d.Table.IsIP6}
		names[id] = strings.TrimRight(d.Table.Name, "\x00")
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// tableNow returns a table as VPP has it; found is false without one. A dump of all tables is the
// only way to a name, so it asks for a route first.
func (l *session) tableNow(ctx context.Context, id route.TableID) (t route.Table, found bool,
	err error) {
	_, retval, err := l.askRoute(ctx, id.ID, anyOf(id.IPv6), true)
	if err != nil || apiError(retval) == noSuchFIB {
		return t, false, err
	}
	names, err := readTables(ctx, l.conn)
	name, found := names[id]
	return route.Table{TableID: id, Name: name}, found, err
}

func readTable(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	want, err := route.TableOf(k)
	if err != nil {
		return nil, err
	}
	t, found, err := l.tableNow(ctx, want.TableID)
	if err != nil || !found {
		return nil, wrap(err, "read %s", want.TableID)
	}
	return t, nil
}

// putTable makes a table, with its multicast half if it is new. VPP 25.10 counts the API's locks on
// that half, so further ones would keep it for ever (mfib_table_lock). Older versions cannot avoid
// it. It adds an existing table again: the API holds a single lock on it, which removeTable may
// have released while a path still resolved in it.
func putTable(ctx context.Context, l *session, o route.Object) error {
	want, err := route.TableOf(o.Key())
	if err != nil {
		return err
	}
	now, found, err := l.tableNow(ctx, want.TableID)
	if err == nil && found && now != want {
		err = declined(fmt.Sprintf("it has the name %q", now.Name))
	}
	if err == nil {
		err = l.addTable(ctx, want, !found)
	}
	return wrap(err, "make %s", want.TableID)
}

func (l *session) addTable(ctx context.Context, t route.Table, isNew bool) error {
	table := ip.IPTable{TableID: t.ID, IsIP6: t.IPv6, Name: t.Name}
	if _, ok := l.conn.id((*ip.IPTableAddDelV2)(nil)); ok {
		r, err := ask[ip.IPTableAddDelV2Reply](ctx, l.conn,
			&ip.IPTableAddDelV2{IsAdd: true, CreateMfib: isNew, Table: table})
		return cmp.Or(err, vppError(r.Retval))
	}
	r, err := ask[ip.IPTableAddDelReply](ctx, l.conn, &ip.IPTableAddDel{IsAdd: true, Table: table})
	return cmp.Or(err, vppError(r.Retval))
}

// removeTable keeps a table with foreign entries and returns an error: VPP 25.10 would delete it,
// keep the entries and show them in the next table in its place. So does a table with an interface,
// whose multicast half a second delete would remove. A table in which a path resolves stays in VPP
// until the path is gone. What has another name is another program's.
func removeTable(ctx context.Context, l *session, k route.ObjectKey) error {
	t, err := route.TableOf(k)
	if err != nil {
		return err
	}
	now, found, err := l.tableNow(ctx, t.TableID)
	if err == nil && found && now == t {
		err = l.deleteTable(ctx, t.TableID)
	}
	return wrap(err, "remove %s", t.TableID)
}

func (l *session) deleteTable(ctx context.Context, t route.TableID) error {
	left, err := l.occupant(ctx, t)
	switch {
	case err != nil:
		return err
	case left != "":
		return declined(left + " is in it")
	}
	r, err := ask[ip.IPTableAddDelReply](ctx, l.conn,
		&ip.IPTableAddDel{Table: ip.IPTable{TableID: t.ID, IsIP6: t.IPv6}})
	return cmp.Or(err, vppError(r.Retval))
}

// occupant describes an entry that VPP does not put into every table, or returns "".
func (l *session) occupant(ctx context.Context, t route.TableID) (string, error) {
	var left string
	var bad error
	hops := 0
	err := l.dumpRoutes(ctx, ip.IPTable{TableID: t.ID, IsIP6: t.IPv6}, 0, func(r ip.IPRouteV2) {
		p, err := decodePrefix(r.Prefix)
		switch {
		case err != nil:
			bad = err
		case l.isFiller(r):
		case l.roleOf(r.Src) == derived:
			hops++
		default:
			left = "route " + p.String()
		}
	})
	if err := errors.Join(err, bad); err != nil || left != "" {
		return left, err
	}
	shown := l.showEntry(ctx, t.ID, anyOf(t.IPv6), "detail")
	if !hasNoInterface(shown) {
		left, err = l.someInterfaceIn(ctx, t)
	}
	if err == nil && left == "" && covers(shown) > hops {
		left = "an export to another table"
	}
	return left, err
}

// covers counts the entries that the default route of a table covers. Where nothing else is in the
// table, these are next hops, and routes of other tables to an interface that was in it when they
// were put: VPP 25.10 lets them stay, and crashes when the table goes
// (src/vnet/fib/fib_attached_export.c). Its command line alone shows them.
func covers(shown string) int { return strings.Count(shown, "{entry:") }

// hasNoInterface reports whether VPP shows by its locks on a table that no interface is in it. Else
// each interface must be asked for its table, and VPP's workers stop for each answer. The line
// begins with the table's name, which may be any text.
func hasNoInterface(shown string) bool {
	line, _, _ := strings.Cut(shown, "\n")
	at := strings.LastIndex(line, " locks:[")
	return at >= 0 && strings.Contains(line[at:], "]") && !strings.Contains(line[at:], "interface:")
}

func (l *session) someInterfaceIn(ctx context.Context, t route.TableID) (string, error) {
	now, err := listLinks(ctx, l.conn)
	if err != nil {
		return "", err
	}
	for chunk := range slices.Chunk(now.list, linkBatch) {
		if in, err := l.interfaceIn(ctx, t, chunk); err != nil || in != "" {
			return in, err
		}
	}
	return "", nil
}

// interfaceIn returns one of these interfaces that is in t, or "". Interfaces with addresses show
// by their routes.
func (l *session) interfaceIn(ctx context.Context, t route.TableID,
	among []route.Interface) (string, error) {
	var reqs []request
	for _, i := range among {
		reqs = append(reqs, &interfaces.SwInterfaceGetTable{
			SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: t.IPv6,
		})
	}
	var found string
	err := dump(ctx, l.conn, reqs, func(i int, r *interfaces.SwInterfaceGetTableReply) {
		if r.Retval == 0 && r.VrfID == t.ID { // else it is gone
			found = "interface " + among[i].Name
		}
	})
	return found, err
}
