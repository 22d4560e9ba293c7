package kernel

import (
	"encoding/binary"
	"errors"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"
)

// entry is a route in the kernel's form.
type entry struct {
	table    uint32
	prefix   netip.Prefix
	kind     uint8 // RTN_UNICAST, RTN_BLACKHOLE, RTN_LOCAL …
	protocol uint8
	metric   uint32
	scope    uint8
	legs     []leg
}

// leg is a next hop of an entry.
type leg struct {
	gateway netip.Addr // zero: the destination itself is on the link
	index   uint32     // of the interface
	weight  uint8      // 1…255; the kernel counts from 0
	flags   uint8      // RTNH_F_ONLINK, RTNH_F_DEAD, RTNH_F_LINKDOWN
}

// exists reports false for the zero entry, which stands for no route.
func (e entry) exists() bool { return e.prefix.IsValid() }

func (e entry) family() uint8 {
	if e.prefix.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// put appends the request to add e or to replace what has its table, prefix and metric.
func (b *batch) put(e entry) {
	b.begin(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	flags := uint32(0)
	if len(e.legs) == 1 {
		flags = uint32(e.legs[0].flags)
	}
	b.header(e.prefix, e.protocol, e.scope, e.kind, flags)
	b.key(e)
	switch len(e.legs) {
	case 0:
	case 1:
		b.uint32(unix.RTA_OIF, e.legs[0].index)
		b.gateway(e.family(), e.legs[0].gateway)
	default:
		b.multipath(e)
	}
	b.end()
}

// delete appends the request to delete the entry with e's table, prefix, metric and protocol,
// whatever its type, scope and next hops.
func (b *batch) delete(e entry) {
	b.begin(unix.RTM_DELROUTE, 0)
	b.header(e.prefix, e.protocol, unix.RT_SCOPE_NOWHERE, unix.RTN_UNSPEC, 0)
	b.key(e)
	b.end()
}

// match appends a route lookup for addr, which follows the policy rules.
func (b *batch) match(addr netip.Addr) {
	b.begin(unix.RTM_GETROUTE, 0)
	b.header(netip.PrefixFrom(addr, addr.BitLen()), 0, 0, 0, unix.RTM_F_FIB_MATCH)
	b.attribute(unix.RTA_DST, addr.AsSlice())
	b.end()
}

// selection filters a dump; 0 matches everything.
type selection struct {
	family   uint8
	table    uint32
	protocol uint8
	kind     uint8 // RTN_…
}

// list appends the request to dump a selection.
func (b *batch) list(s selection) {
	b.begin(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	b.bytes = append(b.bytes, s.family, 0, 0, 0, unix.RT_TABLE_UNSPEC, s.protocol, 0, s.kind, 0, 0,
		0, 0)
	if s.table != 0 {
		b.uint32(unix.RTA_TABLE, s.table)
	}
	b.end()
}

// has reports whether e is in the selection. Not every kernel filters dumps for every family.
func (s selection) has(e entry) bool {
	return (s.family == 0 || e.family() == s.family) && (s.table == 0 || e.table == s.table) &&
		(s.protocol == 0 || e.protocol == s.protocol) && (s.kind == 0 || e.kind == s.kind)
}

// header appends struct rtmsg. Its table field has only 8 bits, so RTA_TABLE is used.
func (b *batch) header(p netip.Prefix, protocol, scope, kind uint8, flags uint32) {
	family := uint8(unix.AF_INET6)
	if p.Addr().Is4() {
		family = unix.AF_INET
	}
	b.bytes = append(b.bytes, family, uint8(p.Bits()), 0, 0, unix.RT_TABLE_UNSPEC, protocol, scope,
		kind)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, flags)
}

func (b *batch) key(e entry) {
	b.attribute(unix.RTA_DST, e.prefix.Addr().AsSlice())
	b.uint32(unix.RTA_TABLE, e.table)
	b.uint32(unix.RTA_PRIORITY, e.metric)
}

func (b *batch) gateway(family uint8, gateway netip.Addr) {
	switch {
	case !gateway.IsValid():
	case gateway.Is6() && family == unix.AF_INET:
		// RFC 5549: struct rtvia, the family in host order and the address
		value := binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
		b.attribute(unix.RTA_VIA, append(value, gateway.AsSlice()...))
	default:
		b.attribute(unix.RTA_GATEWAY, gateway.AsSlice())
	}
}

// multipath appends RTA_MULTIPATH: a struct rtnexthop and its attributes for each next hop.
func (b *batch) multipath(e entry) {
	start := b.open(unix.RTA_MULTIPATH)
	for _, l := range e.legs {
		at := len(b.bytes)
		b.bytes = append(b.bytes, 0, 0, l.flags, l.weight-1)
		b.bytes = binary.NativeEndian.AppendUint32(b.bytes, l.index)
		b.gateway(e.family(), l.gateway)
		binary.NativeEndian.PutUint16(b.bytes[at:], uint16(len(b.bytes)-at))
	}
	b.close(start)
}

func (b *batch) attribute(kind uint16, value []byte) {
	start := b.open(kind)
	b.bytes = append(b.bytes, value...)
	b.close(start)
}

func (b *batch) uint32(kind uint16, v uint32) {
	start := b.open(kind)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, v)
	b.close(start)
}

func (b *batch) open(kind uint16) (start int) {
	start = len(b.bytes)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, 0)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	return start
}

func (b *batch) close(start int) {
	binary.NativeEndian.PutUint16(b.bytes[start:], uint16(len(b.bytes)-start))
	b.bytes = append(b.bytes, make([]byte, align(len(b.bytes))-len(b.bytes))...)
}

// attribute is a type and a value.
type attribute struct {
	kind  uint16
	value []byte
}

// attributes iterates over a sequence of attributes and stops at a malformed one.
func attributes(b []byte) iter.Seq[attribute] {
	return func(yield func(attribute) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofRtAttr || size > len(b) {
				return
			}
			const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
			kind := binary.NativeEndian.Uint16(b[2:]) &^ flags
			if !yield(attribute{kind, b[unix.SizeofRtAttr:size]}) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

var errMalformed = errors.New("malformed route message")

// decode reads the body of RTM_NEWROUTE or RTM_DELROUTE. ok is false for routes that are not
// comparable with ours: other families, cached copies, IPv4 routes with a TOS, routes by source.
func decode(b []byte) (e entry, ok bool, err error) {
	if len(b) < unix.SizeofRtMsg {
		return entry{}, false, errMalformed
	}
	family, bits, sourceBits, tos := b[0], int(b[1]), b[2], b[3]
	flags := binary.NativeEndian.Uint32(b[8:])
	if family != unix.AF_INET && family != unix.AF_INET6 || sourceBits != 0 || tos != 0 ||
		flags&unix.RTM_F_CLONED != 0 {
		return entry{}, false, nil
	}
	e = entry{table: uint32(b[4]), protocol: b[5], scope: b[6], kind: b[7]}
	addr := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		addr = netip.IPv6Unspecified()
	}
	single := leg{weight: 1, flags: uint8(flags)}
	for a := range attributes(b[unix.SizeofRtMsg:]) {
		good := true
		switch a.kind {
		case unix.RTA_DST:
			addr, good = addressOf(family, a.value)
		case unix.RTA_TABLE:
			e.table, good = uint32Of(a.value)
		case unix.RTA_PRIORITY:
			e.metric, good = uint32Of(a.value)
		case unix.RTA_OIF:
			single.index, good = uint32Of(a.value)
		case unix.RTA_GATEWAY:
			single.gateway, good = addressOf(family, a.value)
		case unix.RTA_VIA:
			single.gateway, good = viaOf(a.value)
		case unix.RTA_MULTIPATH:
			e.legs, good = legsOf(family, a.value)
		}
		if !good {
			return entry{}, false, errMalformed
		}
	}
	if bits > addr.BitLen() {
		return entry{}, false, errMalformed
	}
	e.prefix = netip.PrefixFrom(addr, bits).Masked()
	if e.legs == nil && single.index != 0 && e.kind == unix.RTN_UNICAST {
		e.legs = []leg{single}
	}
	return e, true, nil
}

func legsOf(family uint8, b []byte) (legs []leg, ok bool) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			return nil, false
		}
		l := leg{flags: b[2], weight: max(b[3]+1, 1), index: binary.NativeEndian.Uint32(b[4:])}
		for a := range attributes(b[unix.SizeofRtNexthop:size]) {
			good := true
			switch a.kind {
			case unix.RTA_GATEWAY:
				l.gateway, good = addressOf(family, a.value)
			case unix.RTA_VIA:
				l.gateway, good = viaOf(a.value)
			}
			if !good {
				return nil, false
			}
		}
		legs = append(legs, l)
		b = b[min(align(size), len(b)):]
	}
	return legs, true
}

func uint32Of(b []byte) (uint32, bool) {
	if len(b) != 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(b), true
}

func addressOf(family uint8, b []byte) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(b)
	return a, ok && a.Is4() == (family == unix.AF_INET)
}

func viaOf(b []byte) (netip.Addr, bool) {
	if len(b) < 2 || binary.NativeEndian.Uint16(b) != unix.AF_INET6 {
		return netip.Addr{}, false
	}
	return addressOf(unix.AF_INET6, b[2:])
}
