package kernel

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/route"
)

// readNeighbour returns a permanent entry. One that the kernel has learned is nobody's, and gives
// way.
func readNeighbour(d *Dataplane, k route.ObjectKey) (route.Object, error) {
	n, link, err := d.neighbourOf(k)
	if err != nil {
		return nil, err
	}
	list, err := again(func() ([]netlink.Neigh, error) {
		return d.links.NeighList(link.Attrs().Index, familyOf(n.Address))
	})
	for _, is := range list {
		a, ok := netip.AddrFromSlice(is.IP)
		if ok && a.Unmap() == n.Address && is.State&netlink.NUD_PERMANENT != 0 {
			n.MAC = is.HardwareAddr.String()
			return n, nil
		}
	}
	return nil, wrap(err, "read neighbours on %s", k.Interface)
}

// putNeighbour replaces what there is for the address.
func putNeighbour(d *Dataplane, o route.Object) error {
	n, link, err := d.neighbourOf(o.Key())
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(o.(route.Neighbour).MAC)
	if err == nil {
		err = d.links.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index,
			Family: familyOf(n.Address), State: netlink.NUD_PERMANENT, IP: n.Address.AsSlice(),
			HardwareAddr: mac})
	}
	return wrap(err, "add %s", o.Key())
}

func removeNeighbour(d *Dataplane, k route.ObjectKey) error {
	n, link, err := d.neighbourOf(k)
	if errors.Is(err, route.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.links.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index,
		Family: familyOf(n.Address), IP: n.Address.AsSlice()})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return wrap(err, "remove %s", k)
}

func (d *Dataplane) neighbourOf(k route.ObjectKey) (n route.Neighbour, link netlink.Link,
	err error) {
	if n, err = route.NeighbourOf(k); err == nil {
		link, err = d.findLink(k.Interface)
	}
	return n, link, err
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
