package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// interfaces is an immutable list of the interfaces.
type interfaces struct {
	list    []route.Interface // by name
	byIndex map[uint32]int    // into list
}

func (l interfaces) name(index uint32) (string, bool) {
	i, ok := l.byIndex[index]
	if !ok {
		return "", false
	}
	return l.list[i].Name, true
}

func (l interfaces) up(index uint32) bool {
	i, ok := l.byIndex[index]
	return ok && l.list[i].Up
}

// refresh lists interfaces and addresses.
func (d *Dataplane) refresh() error {
	d.listing.Lock()
	defer d.listing.Unlock()
	return d.relist()
}

// interfaces returns the list, refreshed if an event has reported a change.
func (d *Dataplane) interfaces() (interfaces, error) {
	if err := d.watch.drain(); err != nil {
		return interfaces{}, err
	}
	d.listing.Lock() // a list under way may be the one that is missing
	defer d.listing.Unlock()
	if d.watch.isStale() {
		if err := d.relist(); err != nil {
			return interfaces{}, err
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.ifaces, nil
}

// relist lists and stores; the caller holds listing. A change meanwhile makes the new list stale.
func (d *Dataplane) relist() error {
	d.watch.setStale(false)
	list, err := d.list()
	if err != nil {
		d.watch.setStale(true)
		return err
	}
	d.watch.setGenerations(list)
	l := interfaces{list: list, byIndex: make(map[uint32]int, len(list))}
	for i, n := range list {
		l.byIndex[n.Index] = i
	}
	d.mu.Lock()
	d.ifaces = l
	d.mu.Unlock()
	return nil
}

func (d *Dataplane) listInterfaces() ([]route.Interface, error) {
	links, err := again(d.links.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := again(func() ([]netlink.Addr, error) {
		return d.links.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	byIndex := map[int][]netip.Prefix{}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok {
			byIndex[a.LinkIndex] = append(byIndex[a.LinkIndex], p)
		}
	}
	vrf := map[int]uint32{}
	for _, link := range links {
		if v, ok := link.(*netlink.Vrf); ok {
			vrf[v.Index] = d.ourTable(v.Table)
		}
	}
	list := make([]route.Interface, 0, len(links))
	for _, link := range links {
		a := link.Attrs()
		addresses := byIndex[a.Index]
		slices.SortFunc(addresses, route.ComparePrefixes)
		i := route.Interface{
			Name: a.Name, Index: uint32(a.Index), Addresses: addresses,
			// IFF_RUNNING follows the operational state: carrier present.
			Up:  a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0,
			MTU: uint16(min(a.MTU, math.MaxUint16)),
		}
		if _, isVRF := vrf[a.Index]; isVRF {
			i.Table = vrf[a.Index]
		} else {
			i.Table = vrf[a.MasterIndex]
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b route.Interface) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// again repeats a list that was interrupted by a change.
func again[T any](list func() ([]T, error)) ([]T, error) {
	for try := 0; ; try++ {
		found, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == 10 {
			return found, err
		}
	}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok
}

// currentFacts returns the facts of the last list.
func (d *Dataplane) currentFacts() route.Facts {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return route.Facts{Identity: d.identity, Version: d.version, AttachedOnly: true,
		Interfaces: d.ifaces.list}
}
