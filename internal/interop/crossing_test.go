package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

// crossing is a way through a tunnel. Packets are seen before it, on the wire and behind it, and
// have to be the same byte for byte, but for what the routers on the way change by RFC 1812.
type crossing struct {
	name                string
	before, wire, after *sight
	from, to            netip.Prefix // of the packets inside
	// routed: VPP routes packets into the tunnel, or out of it. Linux is where they begin and end.
	routedIn, routedOut bool
	mtu                 int // of the tunnel
	outer               outerHeaders
}

// outerHeaders are those of a tunnel, all fields of them. Free are the IP identification, the flow
// label of IPv6, and the UDP source port.
type outerHeaders struct {
	kind           route.Encap
	from, to       netip.Addr
	macFrom, macTo net.HardwareAddr // of VXLAN
	linux          bool             // who sends it; else VPP
}

// tos is the outer one. Only ECN comes from the packet inside, of VXLAN not with VPP; Linux sends
// what is marked already as not marked (INET_ECN_encapsulate).
func (h outerHeaders) tos(inner []byte) byte {
	tos := inner[1] & 3
	if inner[0]>>4 == 6 {
		tos = inner[1] >> 4 & 3
	}
	switch {
	case h.linux && tos == 3:
		return 2
	case !h.linux && h.kind == route.VXLAN:
		return 0
	}
	return tos
}

// ttl: that of IPIP comes from the packet inside, less one that VPP takes. With VXLAN VPP begins
// with 254, or a hop limit of 255, of which the uplink takes one.
func (h outerHeaders) ttl(inner []byte) byte {
	switch {
	case h.kind == route.IPIP && h.linux:
		return inner[8]
	case h.kind == route.IPIP:
		return inner[8] - 1
	case h.linux:
		return 64
	case h.from.Is6():
		return 254
	}
	return 253
}

// sight is where packets are seen.
type sight struct {
	capture *netlab.Capture
	bare    bool // without an Ethernet header, as on a TUN device
	all     [][]byte
}

func newSight(t *testing.T, n *netlab.Namespace, device string, bare bool) *sight {
	t.Helper()
	c, err := n.Capture(device)
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return &sight{capture: c, bare: bare}
}

// packets are those since forget.
func (s *sight) packets() [][]byte {
	for _, f := range s.capture.Take() {
		if !s.bare {
			if len(f) < 14 {
				continue
			}
			f = f[14:]
		}
		if len(f) >= 20 && f[0]>>4 == 4 {
			s.all = append(s.all, f[:min(len(f), int(binary.BigEndian.Uint16(f[2:])))])
		} else if len(f) >= 40 && f[0]>>4 == 6 {
			s.all = append(s.all, f[:min(len(f), 40+int(binary.BigEndian.Uint16(f[4:])))])
		}
	}
	return s.all
}

func (s *sight) forget() {
	s.capture.Take()
	s.all = nil
}

// between lists the packets seen from one prefix to another, with the checksums that a device with
// offload would fill in.
func (s *sight) between(from, to netip.Prefix) (out [][]byte) {
	for _, p := range s.packets() {
		if src, dst := addressesOf(p); from.Contains(src) && to.Contains(dst) {
			out = append(out, withChecksums(p))
		}
	}
	return out
}

func addressesOf(p []byte) (src, dst netip.Addr) {
	if p[0]>>4 == 4 {
		return netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	}
	return netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
}

// compare says what is not as it should be, or has not come yet: last is the size of a packet that
// goes this way after all others.
func (c *crossing) compare(last int) error {
	ended := false
	onTheWire, behind := map[string]int{}, map[string]int{}
	for _, p := range c.before.between(c.from, c.to) {
		ended = ended || len(p) == last
		for _, piece := range c.enter(p) {
			onTheWire[text(piece)]++
			if c.routedOut {
				piece = hop(c.leave(piece))
			}
			behind[text(piece)]++
		}
	}
	outer := netip.PrefixFrom(c.outer.from, c.outer.from.BitLen())
	for _, p := range c.wire.between(outer, netip.PrefixFrom(c.outer.to, c.outer.to.BitLen())) {
		inner, err := c.outer.strip(p)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if src, dst := addressesOf(inner); !c.from.Contains(src) || !c.to.Contains(dst) {
			continue // another flow
		}
		onTheWire[text(inner)]--
	}
	for _, p := range c.after.between(c.from, c.to) {
		behind[text(p)]--
	}
	var errs []error
	if !ended {
		errs = append(errs, fmt.Errorf("%s: the last packet is missing", c.name))
	}
	for where, all := range map[string]map[string]int{"on the wire": onTheWire,
		"behind the tunnel": behind} {
		for p, n := range all {
			if n > 0 {
				errs = append(errs, fmt.Errorf("%s: %s this is missing:\n% x", c.name, where, p))
			} else if n < 0 {
				errs = append(errs, fmt.Errorf("%s: %s this is there:\n% x", c.name, where, p))
			}
		}
	}
	return errors.Join(errs...)
}

// text is p without the identification of fragments, which VPP chooses.
func text(p []byte) string {
	if p[0]>>4 == 4 && p[6]&0x3f|p[7] != 0 {
		p = bytes.Clone(p)
		p[4], p[5] = 0, 0
		p = withChecksums(p)
	}
	return string(p)
}

// enter returns what a packet is in the tunnel: fragments of it (RFC 791 §3.2), or nothing.
func (c *crossing) enter(p []byte) [][]byte {
	if !c.routedIn {
		return [][]byte{p}
	}
	p = hop(p)
	switch {
	case len(p) <= c.mtu:
		return [][]byte{p}
	case p[0]>>4 == 6 || p[6]&0x40 != 0: // IPv6, or DF
		return nil
	}
	var out [][]byte
	most := (c.mtu - 20) &^ 7
	for at := 20; at < len(p); at += most {
		piece := append(bytes.Clone(p[:20]), p[at:min(at+most, len(p))]...)
		offset := (at - 20) / 8
		if at+most < len(p) {
			offset |= 0x2000
		}
		binary.BigEndian.PutUint16(piece[2:], uint16(len(piece)))
		binary.BigEndian.PutUint16(piece[6:], uint16(offset))
		out = append(out, withChecksums(piece))
	}
	return out
}

// leave is a packet that VPP takes out of the tunnel: with IPIP it has the outer ECN.
func (c *crossing) leave(p []byte) []byte {
	if c.outer.kind == route.IPIP {
		p = bytes.Clone(p)
		p[1] = p[1]&^3 | c.outer.tos(p)
	}
	return p
}

// hop is a packet that a router has passed on.
func hop(p []byte) []byte {
	p = bytes.Clone(p)
	if p[0]>>4 == 6 {
		p[7]--
		return p
	}
	p[8]--
	return withChecksums(p)
}

// strip compares the outer headers of a packet with what they should be, and returns the packet
// inside.
func (h outerHeaders) strip(p []byte) (inner []byte, err error) {
	size := 20
	if h.kind == route.VXLAN {
		size = 50
	}
	if h.from.Is6() {
		size += 20
	}
	if len(p) < size+20 {
		return nil, fmt.Errorf("too short: % x", p)
	}
	inner = p[size:]
	want := append(h.ip(p, inner), inner...)
	if h.kind == route.VXLAN {
		want = append(h.ip(p, inner), h.vxlan(p, len(inner), inner[0]>>4)...)
		want = append(want, inner...)
		if at := size - 30; h.linux || h.from.Is6() {
			binary.BigEndian.PutUint16(want[at+6:], transportSum(want))
		}
	}
	if !bytes.Equal(p[:size], want[:size]) {
		return nil, fmt.Errorf("outer headers\n% x, want\n% x", p[:size], want[:size])
	}
	return inner, nil
}

// ip is the outer IP header of p.
func (h outerHeaders) ip(p, inner []byte) []byte {
	if h.from.Is6() {
		out := make([]byte, 8, 40)
		out[0], out[6], out[7] = 0x60, unix.IPPROTO_UDP, h.ttl(inner)
		out[1], out[2], out[3] = h.tos(inner)<<4|p[1]&0x0f, p[2], p[3]
		binary.BigEndian.PutUint16(out[4:], uint16(len(p)-40))
		return append(append(out, h.from.AsSlice()...), h.to.AsSlice()...)
	}
	out := make([]byte, 20)
	out[0], out[1], out[8], out[9] = 0x45, h.tos(inner), h.ttl(inner), unix.IPPROTO_UDP
	if h.kind == route.IPIP {
		out[6], out[9] = inner[6]&0x40, unix.IPPROTO_IPIP // DF
	}
	binary.BigEndian.PutUint16(out[2:], uint16(len(p)))
	copy(out[4:6], p[4:6])
	copy(out[12:], h.from.AsSlice())
	copy(out[16:], h.to.AsSlice())
	binary.BigEndian.PutUint16(out[10:], checksum(out))
	return out
}

// vxlan has the headers between the outer IP header of p and a packet of so many bytes (RFC 7348
// §5).
func (h outerHeaders) vxlan(p []byte, size int, version byte) []byte {
	out := make([]byte, 16, 30)
	copy(out, p[len(p)-size-30:][:2])
	binary.BigEndian.PutUint16(out[2:], 4789)
	binary.BigEndian.PutUint16(out[4:], uint16(size+30))
	out[8], out[13] = 8, 0x10 // a VNI follows: 4096
	out = append(append(out, h.macTo...), h.macFrom...)
	if version == 6 {
		return append(out, 0x86, 0xdd)
	}
	return append(out, 8, 0)
}

// withChecksums is p with the checksums that it should have.
func withChecksums(p []byte) []byte {
	p = bytes.Clone(p)
	proto, at := p[6], 40
	if p[0]>>4 == 4 {
		p[10], p[11] = 0, 0
		binary.BigEndian.PutUint16(p[10:], checksum(p[:20]))
		if proto, at = p[9], 20; p[6]&0x3f|p[7] != 0 {
			return p // a fragment
		}
	}
	field, known := map[byte]int{unix.IPPROTO_ICMP: 2, unix.IPPROTO_ICMPV6: 2, unix.IPPROTO_TCP: 16,
		unix.IPPROTO_UDP: 6}[proto]
	isVXLAN := proto == unix.IPPROTO_UDP && len(p) > at+4 &&
		binary.BigEndian.Uint16(p[at+2:]) == 4789
	if known && !isVXLAN && len(p) >= at+field+2 {
		p[at+field], p[at+field+1] = 0, 0
		binary.BigEndian.PutUint16(p[at+field:], transportSum(p))
	}
	return p
}

// transportSum is the checksum of what follows the IP header, where there is none yet.
func transportSum(p []byte) uint16 {
	proto, body, pseudo := p[6], p[min(40, len(p)):], p[8:40]
	if p[0]>>4 == 4 {
		proto, body, pseudo = p[9], p[20:], p[12:20]
	}
	if proto == unix.IPPROTO_ICMP {
		return checksum(body)
	}
	sum := append(bytes.Clone(pseudo), 0, proto, byte(len(body)>>8), byte(len(body)))
	if out := checksum(append(sum, body...)); out != 0 || proto != unix.IPPROTO_UDP {
		return out
	}
	return 0xffff // RFC 768
}

// checksum is that of RFC 1071.
func checksum(p []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(p); i += 2 {
		sum += uint32(p[i]) << 8
		if i+1 < len(p) {
			sum += uint32(p[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// cross sends packets of all kinds both ways and compares them. Above the MTU the near end, behind
// a router, is to hear of it where packets have DF.
func cross(t *testing.T, near, far *netlab.Namespace, nearAddress, farAddress string,
	out, back *crossing) {
	t.Helper()
	farSink := sink(t, far, farAddress)
	sink(t, near, nearAddress)
	header := 28
	if addr(farAddress).Is6() {
		header = 48
	}
	large := 1500 - header
	const do, dont = unix.IP_PMTUDISC_DO, unix.IP_PMTUDISC_DONT
	fragment := dont
	if out.routedIn { // by the router, not by the sender, which may know the MTU
		fragment = unix.IP_PMTUDISC_INTERFACE
	}
	type traffic struct {
		name string
		send func() error
	}
	all := []traffic{
		{"ICMP", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := near.Ping(ctx, addr(farAddress))
			return err
		}},
		{"TCP", func() error { checkTCP(t, near, far, farAddress); return nil }},
		{"UDP above the MTU without DF, back", func() error {
			return datagramOf(large, far, nearAddress, 0, dont)
		}},
	}
	for _, tos := range []int{0, 0xb8 | 1, 2, 3} {
		for what, discover := range map[string]int{"": dont, " and DF": do} {
			all = append(all, traffic{fmt.Sprintf("UDP with TOS %#x%s", tos, what), func() error {
				return errors.Join(datagram(near, farAddress, tos, discover),
					datagram(far, nearAddress, tos, discover))
			}})
		}
	}
	if addr(farAddress).Is4() {
		all = append(all, traffic{"UDP above the MTU without DF", func() error {
			return errors.Join(datagramOf(large, near, farAddress, 0, fragment),
				arrives(farSink, large))
		}})
	}
	if out.routedIn {
		all = append(all, traffic{"UDP above the MTU with DF", func() error {
			return netlab.Await(t.Context(), patience, "the sender hears of the MTU",
				func(context.Context) error {
					err := datagramOf(large, near, farAddress, 0, do)
					if !errors.Is(err, unix.EMSGSIZE) {
						return fmt.Errorf("the sender has not heard of the MTU: %v", err)
					}
					return datagramOf(out.mtu-header, near, farAddress, 0, do)
				})
		}})
	}
	for _, x := range all {
		for _, w := range []*crossing{out, back} {
			for _, s := range []*sight{w.before, w.wire, w.after} {
				s.forget()
			}
		}
		check(t, errors.Join(x.send(), datagramOf(lastSize, near, farAddress, 0, dont),
			datagramOf(lastSize, far, nearAddress, 0, dont)))
		await(t, x.name, func(context.Context) error {
			return errors.Join(out.compare(lastSize+header), back.compare(lastSize+header))
		})
	}
}

// lastSize is that of a datagram as no other.
const lastSize = 99

// sink takes datagrams, so that they are not answered. Nobody need read them.
func sink(t *testing.T, at *netlab.Namespace, address string) (c net.PacketConn) {
	t.Helper()
	check(t, at.Do(func() (err error) {
		c, err = net.ListenPacket("udp", net.JoinHostPort(address, "9"))
		return err
	}))
	t.Cleanup(func() { c.Close() })
	return c
}

// arrives reads datagrams until one of that size has come, whole.
func arrives(at net.PacketConn, size int) error {
	buffer := make([]byte, 1<<16)
	err := at.SetReadDeadline(time.Now().Add(patience))
	for n := 0; err == nil && n != size; {
		n, _, err = at.ReadFrom(buffer)
	}
	return err
}
