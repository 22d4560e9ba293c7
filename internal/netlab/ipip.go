package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// IPIP is an IPIP device (RFC 2003) in user space, as many kernels have none: what is routed to it
// goes to another node, what other nodes send comes out of it. Its outer headers are those of
// Linux' tunl0 in Calico's setting: TTL, DF and ECN of the packet, else TOS 0.
type IPIP struct {
	device *os.File
	raw    int
	own    netip.Addr

	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	to    map[netip.Prefix]netip.Addr
	taken func(packet []byte)
}

// IPIP makes a device, which is up, for a node with this address.
func (n *Namespace) IPIP(device string, own netip.Addr) (*IPIP, error) {
	x := &IPIP{own: own, to: map[netip.Prefix]netip.Addr{}}
	err := n.Do(func() error {
		var err error
		if x.device, err = openTUN(device); err != nil {
			return err
		}
		x.raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_IPIP)
		if err != nil {
			return errors.Join(err, x.device.Close())
		}
		// A read that ends by itself lets Close wait for the reader.
		return errors.Join(unix.SetsockoptInt(x.raw, unix.IPPROTO_IP, unix.IP_HDRINCL, 1),
			unix.SetsockoptTimeval(x.raw, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
				&unix.Timeval{Usec: 100_000}),
			unix.Bind(x.raw, &unix.SockaddrInet4{Addr: own.As4()}))
	})
	if err != nil {
		return nil, fmt.Errorf("netlab: IPIP in %s: %w", n.Name(), err)
	}
	ended := make(chan struct{})
	x.running.Go(func() { defer close(ended); x.send() })
	x.running.Go(func() { x.receive(ended) })
	return x, n.SetLink(device, true)
}

// Route has packets to a prefix go to a node. They must be routed to the device, too.
func (x *IPIP) Route(to netip.Prefix, node netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.to[to] = node
}

// Watch has f called for each packet that comes, outer header first, until Close.
func (x *IPIP) Watch(f func(packet []byte)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = f
}

// Close removes the device.
func (x *IPIP) Close() error {
	err := x.device.Close()
	x.running.Wait()
	return errors.Join(err, unix.Close(x.raw))
}

func openTUN(device string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", device, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), device), nil
}

const (
	ipv4Header   = 20   // bytes, without options
	dontFragment = 0x40 // in byte 6

	// ECN, in byte 1. What is marked already Linux sends as not marked (INET_ECN_encapsulate).
	ecnCapable, congested = 2, 3
)

// send ends when the device is closed.
func (x *IPIP) send() {
	buffer := make([]byte, ipv4Header+1<<16)
	for {
		n, err := x.device.Read(buffer[ipv4Header:])
		if err != nil {
			return
		}
		inner := buffer[ipv4Header:][:n]
		if n < ipv4Header || inner[0]>>4 != 4 {
			continue // IPv6 of the device's own
		}
		to, ok := x.nodeOf(netip.AddrFrom4([4]byte(inner[16:])))
		if !ok {
			continue
		}
		outer := buffer[:ipv4Header]
		clear(outer) // the kernel sets identification and checksum
		outer[0], outer[1] = 0x45, inner[1]&3
		if outer[1] == congested {
			outer[1] = ecnCapable
		}
		binary.BigEndian.PutUint16(outer[2:], uint16(ipv4Header+n))
		outer[6], outer[8], outer[9] = inner[6]&dontFragment, inner[8], unix.IPPROTO_IPIP
		copy(outer[12:], x.own.AsSlice())
		copy(outer[16:], to.AsSlice())
		// What cannot be sent is lost, as anywhere.
		_ = unix.Sendto(x.raw, buffer[:ipv4Header+n], 0, &unix.SockaddrInet4{Addr: to.As4()})
	}
}

func (x *IPIP) nodeOf(a netip.Addr) (node netip.Addr, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	best := -1
	for p, to := range x.to {
		if p.Contains(a) && p.Bits() > best {
			node, best = to, p.Bits()
		}
	}
	return node, best >= 0
}

func (x *IPIP) receive(ended <-chan struct{}) {
	buffer := make([]byte, 1<<16)
	for {
		select {
		case <-ended:
			return
		default:
		}
		n, _, err := unix.Recvfrom(x.raw, buffer, 0)
		if err != nil || n <= ipv4Header {
			continue // nothing came for a while
		}
		x.mu.Lock()
		taken := x.taken
		x.mu.Unlock()
		if taken != nil {
			taken(buffer[:n])
		}
		header := int(buffer[0]&15) * 4
		if n > header {
			_, _ = x.device.Write(buffer[header:n])
		}
	}
}
