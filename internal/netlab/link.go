package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// End is one end of a veth pair: a device in a namespace, up, with addresses.
type End struct {
	Namespace *Namespace
	Device    string
	Addresses []netip.Prefix
	MAC       net.HardwareAddr // nil: the kernel chooses
}

// Veth connects two namespaces, or one with itself, by a veth pair.
func (l *Lab) Veth(a, b End) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = a.Device, a.MAC
	pair := &netlink.Veth{
		LinkAttrs: attrs, PeerName: b.Device, PeerHardwareAddr: b.MAC,
		PeerNamespace: netlink.NsFd(b.Namespace.file.Fd()),
	}
	if err := a.Namespace.handle.LinkAdd(pair); err != nil {
		return fmt.Errorf("netlab: veth %s/%s to %s/%s: %w", a.Namespace.Name(), a.Device,
			b.Namespace.Name(), b.Device, err)
	}
	if err := errors.Join(a.configure(), b.configure()); err != nil {
		return err
	}
	return errors.Join(a.await(), b.await())
}

func (e End) configure() error {
	for _, p := range e.Addresses {
		if err := e.Namespace.AddAddress(e.Device, p); err != nil {
			return err
		}
	}
	return e.Namespace.SetLink(e.Device, true)
}

// await waits until the kernel has set the carrier and can answer for the IPv6 addresses. An
// earlier neighbour solicitation is lost, and the next follows a second later.
func (e End) await() error {
	const patience = 30 * time.Second // milliseconds, but on a machine with a load of 30
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		lacks, err := e.lacks()
		if err != nil || lacks == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("netlab: %s/%s is not ready after %s: %s", e.Namespace.Name(),
				e.Device, patience, lacks)
		}
	}
}

// lacks says what is not there yet.
func (e End) lacks() (string, error) {
	link, err := e.Namespace.link(e.Device)
	if err != nil {
		return "", err
	}
	if state := link.Attrs().OperState; state != netlink.OperUp {
		return "the link is " + state.String(), nil
	}
	addrs, err := e.Namespace.handle.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return "", fmt.Errorf("netlab: addresses of %s/%s: %w", e.Namespace.Name(), e.Device,
			err)
	}
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			return fmt.Sprintf("%s is tentative", a.IPNet), nil
		}
	}
	return "", nil
}

// Segment makes an Ethernet segment with these ends: a bridge in a namespace of its own.
func (l *Lab) Segment(name string, ends ...End) (*Namespace, error) {
	n, err := l.Namespace(name)
	if err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	snoop := false // a snooping bridge without a querier loses neighbour solicitations
	if err := n.handle.LinkAdd(&netlink.Bridge{LinkAttrs: attrs,
		MulticastSnooping: &snoop}); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("netlab: segment %s: this kernel has no bridge devices", name)
		}
		return nil, fmt.Errorf("netlab: segment %s: %w", name, err)
	}
	if err := n.SetLink("br0", true); err != nil {
		return nil, err
	}
	for _, e := range ends {
		if err := l.Attach(n, e); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Attach adds an end to a segment.
func (l *Lab) Attach(segment *Namespace, e End) error {
	port := fmt.Sprintf("port%d", segment.ports.Add(1))
	if err := l.Veth(e, End{Namespace: segment, Device: port}); err != nil {
		return err
	}
	bridge, err := segment.link("br0")
	if err != nil {
		return err
	}
	link, err := segment.link(port)
	if err != nil {
		return err
	}
	if err := segment.handle.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("netlab: attach %s/%s: %w", e.Namespace.Name(), e.Device, err)
	}
	return nil
}

func (n *Namespace) link(device string) (netlink.Link, error) {
	link, err := n.handle.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("netlab: %s/%s: %w", n.Name(), device, err)
	}
	return link, nil
}

// SetLink sets a device administratively up or down.
func (n *Namespace) SetLink(device string, up bool) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	set := n.handle.LinkSetDown
	if up {
		set = n.handle.LinkSetUp
	}
	if err := set(link); err != nil {
		return fmt.Errorf("netlab: set %s/%s: %w", n.Name(), device, err)
	}
	return nil
}

// DeleteLink removes a device, and its peer if it is a veth.
func (n *Namespace) DeleteLink(device string) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	if err := n.handle.LinkDel(link); err != nil {
		return fmt.Errorf("netlab: delete %s/%s: %w", n.Name(), device, err)
	}
	return nil
}

// MAC is the hardware address of a device.
func (n *Namespace) MAC(device string) (net.HardwareAddr, error) {
	link, err := n.link(device)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

// SetMAC changes the hardware address of a device, which goes down for it: its routes and its
// neighbours go.
func (n *Namespace) SetMAC(device string, mac net.HardwareAddr) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	err = errors.Join(n.handle.LinkSetDown(link), n.handle.LinkSetHardwareAddr(link, mac),
		n.handle.LinkSetUp(link))
	if err != nil {
		return fmt.Errorf("netlab: MAC address of %s/%s: %w", n.Name(), device, err)
	}
	return nil
}

// AddAddress adds an address, usable at once.
func (n *Namespace) AddAddress(device string, p netip.Prefix) error {
	return n.changeAddress(device, p, (*netlink.Handle).AddrAdd)
}

// DeleteAddress removes an address. The kernel removes the routes that depend on it, without events
// for all.
func (n *Namespace) DeleteAddress(device string, p netip.Prefix) error {
	return n.changeAddress(device, p, (*netlink.Handle).AddrDel)
}

func (n *Namespace) changeAddress(device string, p netip.Prefix,
	change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := change(n.handle, link, addr); err != nil {
		return fmt.Errorf("netlab: address %s on %s/%s: %w", p, n.Name(), device, err)
	}
	return nil
}

// AddRoute adds a route to the main table: via a gateway, or directly on device with the zero Addr.
// With an empty device the kernel chooses the gateway's. A gateway outside the device's subnets is
// on-link.
func (n *Namespace) AddRoute(p netip.Prefix, via netip.Addr, device string) error {
	return n.AddRouteMetric(p, via, device, 0)
}

// AddRouteMetric is AddRoute with a metric: of two routes to a prefix the lower one wins; 0 is the
// kernel's default. Felix uses 1024 for a workload, and 512 while the workload migrates in.
func (n *Namespace) AddRouteMetric(p netip.Prefix, via netip.Addr, device string,
	metric int) error {
	r := &netlink.Route{Dst: ipNet(p), Priority: metric}
	if via.IsValid() {
		r.Gw = via.AsSlice()
	} else {
		r.Scope = netlink.SCOPE_LINK
	}
	if device != "" {
		link, err := n.link(device)
		if err != nil {
			return err
		}
		r.LinkIndex = link.Attrs().Index
		if via.IsValid() {
			r.SetFlag(netlink.FLAG_ONLINK)
		}
	}
	if err := n.handle.RouteAdd(r); err != nil {
		return fmt.Errorf("netlab: route %s in %s: %w", p, n.Name(), err)
	}
	return nil
}

// AddNeighbour adds a permanent ARP or ND entry, for next hops that do not answer, and for VPP,
// which ignores ARP requests from outside the subnet.
func (n *Namespace) AddNeighbour(device string, addr netip.Addr, mac net.HardwareAddr) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	err = n.handle.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac,
		State: netlink.NUD_PERMANENT,
	})
	if err != nil {
		return fmt.Errorf("netlab: neighbour %s on %s/%s: %w", addr, n.Name(), device, err)
	}
	return nil
}

// FillChecksums turns transmit checksum offload off. A program such as VPP that reads the peer by
// AF_PACKET would otherwise get TCP segments with incomplete checksums.
func (n *Namespace) FillChecksums(device string) error {
	_, err := n.ethtool(device, setTxChecksum, 0)
	if err != nil {
		return fmt.Errorf("netlab: checksum offload of %s/%s: %w", n.Name(), device, err)
	}
	return nil
}

// NoGRO has a device hand on packets as they come, instead of several TCP segments as one.
func (n *Namespace) NoGRO(device string) error {
	if _, err := n.ethtool(device, setGRO, 0); err != nil {
		return fmt.Errorf("netlab: GRO of %s/%s: %w", n.Name(), device, err)
	}
	return nil
}

// ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM and ETHTOOL_SGRO, linux/ethtool.h.
const getTxChecksum, setTxChecksum, setGRO = 0x16, 0x17, 0x2c

// ethtool runs an ethtool command with one value.
func (n *Namespace) ethtool(device string, command, data uint32) (uint32, error) {
	value := struct{ command, data uint32 }{command, data}
	err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		request := struct { // struct ifreq, linux/if.h
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request))); e != 0 {
			return e
		}
		return nil
	})
	return value.data, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
