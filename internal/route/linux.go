package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// VethEnd wants one end of a pair of virtual Ethernet interfaces of Linux. The second waits for the
// first, with which the pair is made; they go together.
type VethEnd struct {
	Name, Peer string // see InNamespace
	MAC        string // as net.HardwareAddr prints it; "": the kernel's choice
	MTU        uint32 // 0: the kernel's default
}

func (v VethEnd) Key() ObjectKey { return LinkKey(v.Name) }

func (v VethEnd) Digest() uint64 {
	return digestOf(strings.Join([]string{"veth", v.Peer, v.MAC, fmt.Sprint(v.MTU)}, "\n"))
}

func (v VethEnd) Needs() []ObjectKey {
	if v.Name < v.Peer {
		return nil
	}
	return []ObjectKey{LinkKey(v.Peer)}
}

func (v VethEnd) Marked() bool { return true }

// LinuxRoute wants a route in the main table of Linux, or in that of the VRF that its interface is
// in. Linux tells routes apart by network and metric.
type LinuxRoute struct {
	Interface string // see InNamespace
	Network   netip.Prefix
	Metric    uint32
	Gateway   netip.Addr // the zero Addr: the network is on the link
	Scope     uint8      // of rtnetlink(7); of IPv6 there is but 0
}

const withMetric = " metric "

// LinuxRouteOf returns the route that k identifies, without what may change.
func LinuxRouteOf(k ObjectKey) (LinuxRoute, error) {
	network, metric, _ := strings.Cut(k.Name, withMetric)
	p, err := netip.ParsePrefix(network)
	number, err2 := strconv.ParseUint(metric, 10, 32)
	if err = cmp.Or(err, err2); err == nil && k.Kind != KernelRoute {
		err = fmt.Errorf("%s is not a route of Linux", k)
	}
	return LinuxRoute{Interface: k.Interface, Network: p, Metric: uint32(number)}, err
}

func (r LinuxRoute) Key() ObjectKey {
	return ObjectKey{KernelRoute, r.Interface, r.Network.String() + withMetric +
		fmt.Sprint(r.Metric)}
}

func (r LinuxRoute) Digest() uint64     { return digestOf(fmt.Sprint(r.Gateway, r.Scope)) }
func (r LinuxRoute) Needs() []ObjectKey { return linkUp(r.Interface) }
func (r LinuxRoute) Marked() bool       { return true }

// Excludes: the same route over another interface.
func (r LinuxRoute) Excludes(k ObjectKey) bool {
	return k.Kind == KernelRoute && k.Name == r.Key().Name && k.Interface != r.Interface &&
		sameNamespace(k.Interface, r.Interface)
}

// FoundLinuxRoute is a route that is there: with our mark, or another program's.
type FoundLinuxRoute struct {
	LinuxRoute
	Ours bool
}

func (f FoundLinuxRoute) Marked() bool { return f.Ours }

// NotReadyError says that an object is not there, and why it cannot be put now.
type NotReadyError struct{ Why string }

func (e NotReadyError) Error() string { return e.Why }
