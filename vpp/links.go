package vpp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// links is what VPP's interfaces were when they were read. It is not changed afterwards.
type links struct {
	list    []route.Interface // by name
	byIndex map[uint32]string
	turn    string // the interface up to which polls have asked for tables
}

// index finds an interface by name.
func (l *links) index(name string) (uint32, bool) {
	i, ok := route.Facts{Interfaces: l.list}.Interface(name)
	return i.Index, ok
}

// name of an interface; of one that is gone something that no interface is called.
func (l *links) name(index uint32) string {
	if name, ok := l.byIndex[index]; ok {
		return name
	}
	return fmt.Sprintf("deleted interface %d", index)
}

// up reports whether the interface with that index forwards.
func (l *links) up(index uint32) bool {
	i, ok := route.Facts{Interfaces: l.list}.Interface(l.byIndex[index])
	return ok && i.Up
}

// linkBatch bounds the questions in one call: of addresses there are two for each interface.
const linkBatch = 1000

// tablesPerPoll bounds the questions of a poll that stop VPP's workers, for some microseconds each: 2/s, where spot checks are 5/s.
const tablesPerPoll = 10

// readLinks reads the interfaces with their addresses and tables; lives are route.Interface.Life, by index. VPP is asked for the table of an
// interface only where old does not show the same life of it with the same addresses, for that question stops its workers. VPP moves no
// interface with addresses, but one may lose them, be moved and get them back between two readings, and VPP has no event for any of that.
// So a poll asks for the tables of tablesPerPoll others too, in turn: of n interfaces with addresses, one that has moved is found out after
// n/tablesPerPoll polls, rounded up.
func readLinks(ctx context.Context, c *conn, old *links, lives map[uint32]uint32, poll bool) (*links, error) {
	list, err := listLinks(ctx, c)
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(list, linkBatch) {
		if err := readAddresses(ctx, c, chunk); err != nil {
			return nil, err
		}
	}
	for n := range list {
		list[n].Life = lives[list[n].Index]
	}
	slices.SortFunc(list, func(a, b route.Interface) int { return cmp.Compare(a.Name, b.Name) })
	if old == nil {
		old = &links{}
	}
	ask, turn := old.carryTables(list, poll)
	gone := map[uint32]bool{}
	for chunk := range slices.Chunk(ask, linkBatch) {
		if err := askTables(ctx, c, chunk, gone); err != nil {
			return nil, err
		}
	}
	l := &links{byIndex: make(map[uint32]string, len(list)), turn: turn}
	l.list = slices.DeleteFunc(list, func(i route.Interface) bool { return gone[i.Index] })
	for _, i := range l.list {
		l.byIndex[i.Index] = i.Name
	}
	return l, nil
}

// listLinks reads the interfaces alone.
func listLinks(ctx context.Context, c *conn) ([]route.Interface, error) {
	var list []route.Interface
	req := &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	err := dump(ctx, c, []request{req}, func(_ int, d *interfaces.SwInterfaceDetails) {
		const both = interface_types.IF_STATUS_API_FLAG_ADMIN_UP | interface_types.IF_STATUS_API_FLAG_LINK_UP
		list = append(list, route.Interface{
			Name:  strings.TrimRight(d.InterfaceName, "\x00"),
			Index: uint32(d.SwIfIndex),
			Up:    d.Flags&both == both,
		})
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// readAddresses fills in the addresses of list, in one round trip.
func readAddresses(ctx context.Context, c *conn, list []route.Interface) error {
	reqs := make([]request, 0, 2*len(list))
	for _, i := range list {
		index := interface_types.InterfaceIndex(i.Index)
		reqs = append(reqs, &ip.IPAddressDump{SwIfIndex: index}, &ip.IPAddressDump{SwIfIndex: index, IsIPv6: true})
	}
	addresses := make([][]netip.Prefix, len(list))
	err := dump(ctx, c, reqs, func(i int, d *ip.IPAddressDetails) {
		if p, ok := decodeInterfaceAddress(d.Prefix); ok {
			addresses[i/2] = append(addresses[i/2], p)
		}
	})
	if err != nil {
		return err
	}
	for i := range list {
		slices.SortFunc(addresses[i], route.ComparePrefixes)
		list[i].Addresses = addresses[i]
	}
	return nil
}

// carryTables fills in the tables that old knows, and returns the interfaces of list that VPP is to be asked about, and the turn after that.
func (old *links) carryTables(list []route.Interface, poll bool) (ask []*route.Interface, turn string) {
	var known []*route.Interface
	for n := range list {
		i := &list[n]
		was, ok := route.Facts{Interfaces: old.list}.Interface(i.Name)
		switch {
		case len(i.Addresses) == 0: // it connects nothing
		case ok && was.Index == i.Index && was.Life == i.Life && slices.Equal(was.Addresses, i.Addresses):
			i.Table = was.Table
			known = append(known, i)
		default:
			ask = append(ask, i)
		}
	}
	turn = old.turn
	if !poll || len(known) == 0 {
		return ask, turn
	}
	next := max(0, slices.IndexFunc(known, func(i *route.Interface) bool { return i.Name > turn }))
	known = slices.Concat(known[next:], known[:next])
	for _, i := range known[:min(len(known), tablesPerPoll)] {
		ask, turn = append(ask, i), i.Name
	}
	return ask, turn
}

// askTables fills in the tables of list, which have addresses, in one round trip. In gone it notes the index of one that is not there any
// more; its event follows.
func askTables(ctx context.Context, c *conn, list []*route.Interface, gone map[uint32]bool) error {
	reqs := make([]request, len(list))
	for n, i := range list {
		six := !i.Addresses[0].Addr().Is4() // an interface's families may be in tables of different numbers: IPv4's counts
		reqs[n] = &interfaces.SwInterfaceGetTable{SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: six}
	}
	answers := 0
	var bad error
	err := dump(ctx, c, reqs, func(n int, r *interfaces.SwInterfaceGetTableReply) {
		answers++
		switch retval := apiError(r.Retval); retval {
		case 0:
			list[n].Table = r.VrfID
		case noSuchInterface:
			gone[list[n].Index] = true
		default:
			bad = fmt.Errorf("table of %s: %w", list[n].Name, retval)
		}
	})
	switch {
	case err != nil:
		return err
	case answers < len(list):
		return fmt.Errorf("VPP told the tables of %d interfaces out of %d", answers, len(list))
	}
	return bad
}

// deletions counts for each index how often VPP has said that its interface went. The zero value is ready.
type deletions struct {
	mu sync.Mutex
	of map[uint32]uint32
}

func (d *deletions) add(index uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[uint32]uint32{}
	}
	d.of[index]++
}

func (d *deletions) counts() map[uint32]uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.of)
}
