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

// addressBatch bounds the dumps in one call.
const addressBatch = 1000

// readLinks dumps the interfaces with their addresses. The table of an interface is asked for only where old does not show it
// with the same addresses: VPP moves no interface with addresses to another table, and that question stops its workers.
func readLinks(ctx context.Context, c *conn, old *links) (*links, error) {
	var found []route.Interface
	req := &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}
	err := dump(ctx, c, []request{req}, func(_ int, d *interfaces.SwInterfaceDetails) {
		const both = interface_types.IF_STATUS_API_FLAG_ADMIN_UP | interface_types.IF_STATUS_API_FLAG_LINK_UP
		found = append(found, route.Interface{
			Name:  strings.TrimRight(d.InterfaceName, "\x00"),
			Index: uint32(d.SwIfIndex),
			Up:    d.Flags&both == both,
		})
	})
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(found, addressBatch) {
		if err := readAddresses(ctx, c, chunk); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b route.Interface) int { return cmp.Compare(a.Name, b.Name) })
	l := &links{list: found, byIndex: make(map[uint32]string, len(found))}
	for i := range found {
		f := &found[i]
		l.byIndex[f.Index] = f.Name
		if len(f.Addresses) == 0 {
			continue
		}
		if f.Table, err = tableOf(ctx, c, *f, old); err != nil {
			return nil, err
		}
	}
	return l, nil
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

func tableOf(ctx context.Context, c *conn, i route.Interface, old *links) (uint32, error) {
	if old != nil {
		was, ok := route.Facts{Interfaces: old.list}.Interface(i.Name)
		if ok && was.Index == i.Index && slices.Equal(was.Addresses, i.Addresses) {
			return was.Table, nil
		}
	}
	six := !i.Addresses[0].Addr().Is4() // an interface's families may be in tables of different numbers: IPv4's counts
	r, err := ask[interfaces.SwInterfaceGetTableReply](ctx, c, &interfaces.SwInterfaceGetTable{
		SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: six,
	})
	if err == nil {
		err = vppError(r.Retval)
	}
	if err != nil {
		return 0, fmt.Errorf("table of %s: %w", i.Name, err)
	}
	return r.VrfID, nil
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
