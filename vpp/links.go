package vpp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// links is an immutable reading of VPP's interfaces.
type links struct {
	list    []route.Interface // by name
	byIndex map[uint32]string
	turn    string                // the interface up to which polls have asked for tables
	tunnels map[netip.Addr]uint32 // of VXLAN, which list lacks
	// othersIPIP: another program has an IPIP interface.
	othersIPIP bool
}

// index finds an interface by name.
func (l *links) index(name string) (uint32, bool) {
	i, ok := route.Facts{Interfaces: l.list}.Interface(name)
	return i.Index, ok
}

// name returns an interface's name, or one that no interface has if it is gone.
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

// linkBatch bounds the requests in a call. Addresses need two for each interface.
const linkBatch = 1000

// tablesPerPoll bounds the requests of a poll that stop VPP's workers for some microseconds: 2/s,
// where spot checks are 5/s.
const tablesPerPoll = 10

// readLinks reads the interfaces with their addresses and tables; generations are
// route.Interface.Generation by index. Reading a table stops VPP's workers, so it is skipped for an
// unchanged generation and addresses. VPP has no event for some moves, so a poll also reads
// tablesPerPoll tables in turn.
func readLinks(ctx context.Context, c *conn, old *links, generations map[uint32]uint32,
	poll bool) (*links, error) {
	l, err := listLinks(ctx, c)
	if err != nil {
		return nil, err
	}
	list := l.list
	for chunk := range slices.Chunk(list, linkBatch) {
		if err := readAddresses(ctx, c, chunk); err != nil {
			return nil, err
		}
	}
	for n := range list {
		list[n].Generation = generations[list[n].Index]
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
	l.byIndex, l.turn = make(map[uint32]string, len(list)), turn
	l.list = slices.DeleteFunc(list, func(i route.Interface) bool { return gone[i.Index] })
	for _, i := range l.list {
		l.byIndex[i.Index] = i.Name
	}
	return l, nil
}

// listLinks reads the interfaces without addresses and tables. Tunnels of VXLAN, of which there may
// be thousands, are no interfaces to anyone else.
func listLinks(ctx context.Context, c *conn) (*links, error) {
	all, err := readDetails(ctx, c)
	if err != nil {
		return nil, err
	}
	l := &links{tunnels: map[netip.Addr]uint32{}}
	all = slices.DeleteFunc(all, func(d *interfaces.SwInterfaceDetails) bool {
		if outer, t, ok := markedTunnel(d); ok && t.mark != unfinished {
			l.tunnels[outer] = t.index
		}
		return isOwnVXLAN(d)
	})
	names := namesOf(all)
	l.list = make([]route.Interface, len(all))
	for i, d := range all {
		const both = interface_types.IF_STATUS_API_FLAG_ADMIN_UP |
			interface_types.IF_STATUS_API_FLAG_LINK_UP
		l.list[i] = route.Interface{
			Name: names[i], Index: uint32(d.SwIfIndex), Up: d.Flags&both == both,
			MTU: uint16(d.Mtu[0]),
		}
		l.othersIPIP = l.othersIPIP || text(d.InterfaceDevType) == ipipDevice && !isOwnIPIP(d)
	}
	return l, nil
}

func readDetails(ctx context.Context, c *conn) ([]*interfaces.SwInterfaceDetails, error) {
	var all []*interfaces.SwInterfaceDetails
	req := &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	err := dump(ctx, c, []request{req}, func(_ int, d *interfaces.SwInterfaceDetails) {
		all = append(all, d)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readAddresses adds the addresses to list, in one round trip.
func readAddresses(ctx context.Context, c *conn, list []route.Interface) error {
	reqs := make([]request, 0, 2*len(list))
	for _, i := range list {
		index := interface_types.InterfaceIndex(i.Index)
		reqs = append(reqs, &ip.IPAddressDump{SwIfIndex: index},
			&ip.IPAddressDump{SwIfIndex: index, IsIPv6: true})
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

// carryTables copies the tables known from old. It returns the interfaces whose table must be read,
// and the next turn.
func (old *links) carryTables(list []route.Interface,
	poll bool) (ask []*route.Interface, turn string) {
	var known []*route.Interface
	for n := range list {
		i := &list[n]
		was, ok := route.Facts{Interfaces: old.list}.Interface(i.Name)
		switch {
		case len(i.Addresses) == 0: // it connects nothing
		case ok && was.Index == i.Index && was.Generation == i.Generation &&
			slices.Equal(was.Addresses, i.Addresses):
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

// askTables adds the tables of interfaces with addresses to list, in one round trip. It adds
// deleted interfaces to gone; their events follow.
func askTables(ctx context.Context, c *conn, list []*route.Interface, gone map[uint32]bool) error {
	reqs := make([]request, len(list))
	for n, i := range list {
		// an interface's families may be in different tables; IPv4's counts
		six := !i.Addresses[0].Addr().Is4()
		reqs[n] = &interfaces.SwInterfaceGetTable{
			SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: six,
		}
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
		return fmt.Errorf("VPP returned the tables of %d interfaces out of %d", answers, len(list))
	}
	return bad
}

// deletions counts the deletion events of each index. The zero value is ready to use.
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

func (d *deletions) count(index uint32) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[index]
}

func (d *deletions) total() (n uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, times := range d.of {
		n += times
	}
	return n
}

func (d *deletions) counts() map[uint32]uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.of)
}
