package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VXLAN makes a VXLAN device as Felix does (felix/dataplane/linux/vxlan_mgr.go): VNI 4096, port
// 4789, no learning. It is up, and leads nowhere.
func (n *Namespace) VXLAN(device string, own netip.Addr, mac net.HardwareAddr, over string,
	mtu int) error {
	parent, err := n.link(over)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = device, mac, mtu
	err = n.handle.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 4096, Port: 4789,
		VtepDevIndex: parent.Attrs().Index, SrcAddr: own.AsSlice()})
	if err != nil {
		return fmt.Errorf("netlab: VXLAN device in %s: %w", n.Name(), err)
	}
	return n.SetLink(device, true)
}

// AddFDB has a VXLAN device send frames for a MAC address to a node.
func (n *Namespace) AddFDB(device string, mac net.HardwareAddr, node netip.Addr) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	err = n.handle.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE,
		State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: node.AsSlice(),
		HardwareAddr: mac})
	if err != nil {
		return fmt.Errorf("netlab: FDB of %s/%s: %w", n.Name(), device, err)
	}
	return nil
}

// Capture is of all frames of a device, both ways.
type Capture struct {
	socket  int
	ended   chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex // guards frames
	frames [][]byte
}

// captureBuffer, in bytes, is what waits for the reader at most.
const captureBuffer = 16 << 20

// Capture begins one.
func (n *Namespace) Capture(device string) (*Capture, error) {
	link, err := n.link(device)
	if err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
	c := &Capture{ended: make(chan struct{})}
	err = n.Do(func() (err error) {
		c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return err
		}
		// A read that ends by itself lets Close wait for the reader. No frame of a burst is lost.
		return errors.Join(unix.SetsockoptTimeval(c.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Usec: 100_000}),
			unix.SetsockoptInt(c.socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.Bind(c.socket, &unix.SockaddrLinklayer{Protocol: all,
				Ifindex: link.Attrs().Index}))
	})
	if err != nil {
		return nil, fmt.Errorf("netlab: capture on %s/%s: %w", n.Name(), device, err)
	}
	c.running.Go(c.receive)
	return c, nil
}

func (c *Capture) receive() {
	buffer := make([]byte, 1<<16)
	for {
		select {
		case <-c.ended:
			return
		default:
		}
		n, _, err := unix.Recvfrom(c.socket, buffer, 0)
		if err != nil {
			continue // nothing came for a while
		}
		c.mu.Lock()
		c.frames = append(c.frames, append([]byte{}, buffer[:n]...))
		c.mu.Unlock()
	}
}

// Take returns the frames since it was last asked.
func (c *Capture) Take() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.frames
	c.frames = nil
	return out
}

// Close ends the capture.
func (c *Capture) Close() error {
	close(c.ended)
	c.running.Wait()
	return unix.Close(c.socket)
}
