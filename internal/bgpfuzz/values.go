package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"vpp-route-agent/internal/testcluster"
)

// dice makes what scenarios consist of, by chance and from nothing else.
type dice struct{ *rand.Rand }

// in reports true once in n times.
func (d dice) in(n int) bool { return d.IntN(n) == 0 }

func (d dice) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.Uint32())
	}
	return b
}

func pick[E any](d dice, list []E) E { return list[d.IntN(len(list))] }

// size is small as a rule, and seldom large.
func (d dice) size(most int) int {
	if d.in(4) {
		return d.IntN(most + 1)
	}
	return d.IntN(min(most, 8) + 1)
}

func (d dice) uint32() uint32 {
	return pick(d, []uint32{0, 1, 23456, 65535, 65536, 1<<32 - 1, localAS, foreignAS, d.Uint32()})
}

func u32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// prefix is in the ranges that only attackers announce.
func (d dice) prefix(six bool) netip.Prefix {
	if six {
		a := wild6.Addr().As16()
		a[5], a[15] = byte(d.IntN(32)), byte(d.Uint32())
		return netip.PrefixFrom(netip.AddrFrom16(a), pick(d, []int{48, 64, 122, 127, 128})).Masked()
	}
	a := wild4.Addr().As4()
	a[2], a[3] = byte(d.IntN(32)), byte(d.Uint32())
	return netip.PrefixFrom(netip.AddrFrom4(a), pick(d, []int{24, 26, 31, 32})).Masked()
}

func (d dice) prefixes(six, addPath bool, n int) (b []byte) {
	for range n {
		if addPath {
			b = append(b, u32(uint32(d.IntN(4)))...)
		}
		b = append(b, testcluster.AppendPrefixes(nil, d.prefix(six))...)
	}
	return b
}

// tlvKinds are types that mean something in one attribute or another.
var tlvKinds = []int{0, 1, 2, 3, 4, 5, 6, 8, 12, 13, 15, 128, 129, 256, 512, 1028, 1099, 1114, 1155}

// tlvs are nested as RFCs nest them: types and lengths of one or two bytes, and more of them
// inside.
func (d dice) tlvs(typeSize, lengthSize, depth int) (b []byte) {
	for range 1 + d.IntN(3) {
		value := d.bytes(d.size(40))
		if depth > 0 && d.in(2) {
			value = append(d.bytes(d.IntN(5)), d.tlvs(1+d.IntN(2), 1+d.IntN(2), depth-1)...)
		}
		kind := pick(d, tlvKinds)
		if d.in(10) {
			kind = d.IntN(1 << 16)
		}
		b = appendInt(b, kind, typeSize)
		b = append(appendInt(b, len(value), lengthSize), value...)
	}
	return b
}

func appendInt(b []byte, n, size int) []byte {
	if size == 1 {
		return append(b, byte(n))
	}
	return binary.BigEndian.AppendUint16(b, uint16(n))
}

func (d dice) asPath(asSize int) (b []byte) {
	for range d.IntN(4) {
		n := 1 + d.size(20)
		b = append(b, byte(pick(d, []int{1, 2, 2, 2, 3, 4})), byte(n))
		for range n {
			if asSize == 2 {
				b = binary.BigEndian.AppendUint16(b, uint16(d.uint32()))
			} else {
				b = append(b, u32(d.uint32())...)
			}
		}
	}
	return b
}

// session is what an UPDATE depends on.
type session struct {
	six, external, addPath, twoByte bool
}

func (s session) asSize() int {
	if s.twoByte {
		return 2
	}
	return 4
}

// path is an AS_PATH that is right for the session.
func (s session) path() []byte {
	switch {
	case !s.external:
		return nil
	case s.twoByte:
		return []byte{2, 1, foreignAS >> 8, foreignAS & 0xff}
	}
	return append([]byte{2, 1}, u32(foreignAS)...)
}

func (s session) family() family {
	if s.six {
		return unicast6
	}
	return unicast4
}

// mandatory are the attributes without which nothing is announced.
func (s session) mandatory() []attribute {
	list := []attribute{
		{flags: transitive, kind: 1, value: []byte{0}},
		{flags: transitive, kind: 2, value: s.path()},
	}
	if !s.six {
		list = append(list, attribute{flags: transitive, kind: 3, value: hop4.AsSlice()})
	}
	if !s.external {
		list = append(list, attribute{flags: transitive, kind: 5, value: u32(100)})
	}
	return list
}

// nlri is NLRI of any family, well-formed for those with a simple form and nearly so for others.
func (d dice) nlri(f family, addPath bool) (b []byte) {
	switch f.safi {
	case 1, 2:
		return d.prefixes(f.afi == 2, addPath, 1+d.size(20))
	}
	for range 1 + d.IntN(3) {
		if addPath && d.in(2) {
			b = append(b, u32(d.uint32())...)
		}
		b = append(b, d.oneNLRI(f)...)
	}
	return b
}

func (d dice) oneNLRI(f family) []byte {
	address := testcluster.AppendPrefixes(nil, d.prefix(f.afi == 2))
	bits, address := int(address[0]), address[1:]
	label := d.bytes(3)
	label[2] |= 1 // the bottom of its stack
	distinguisher := append(appendInt(nil, d.IntN(4), 2), d.bytes(6)...)
	wrap := func(lengthSize int, value []byte) []byte {
		return append(appendInt(nil, len(value), lengthSize), value...)
	}
	switch f.safi {
	case 4: // RFC 8277
		return append(append([]byte{byte(bits + 24)}, label...), address...)
	case 128, 129: // RFC 4364
		b := append([]byte{byte(bits + 24 + 64)}, label...)
		return append(append(b, distinguisher...), address...)
	case 132: // RFC 4684
		return append([]byte{96}, d.bytes(12)...)
	case 73: // RFC 9830
		return append([]byte{byte(len(hop4.AsSlice())*8 + 64)}, d.bytes(12)...)
	case 133, 134: // RFC 8955
		return wrap(1, d.flowspec(f))
	case 65: // RFC 4761
		return wrap(2, d.bytes(17+d.IntN(4)))
	case 70: // RFC 7432 §7
		length := pick(d, []int{12, 17, 23, 25, 33, 34, 37, 40, 58, d.IntN(80)})
		return append([]byte{byte(1 + d.IntN(12))}, wrap(1, d.bytes(length))...)
	case 71, 72: // RFC 9552 §5.2
		value := append(d.bytes(9), d.tlvs(2, 2, 2)...)
		return append(appendInt(nil, 1+d.IntN(6), 2), wrap(2, value)...)
	case 85:
		value := append(distinguisher, d.bytes(d.IntN(30))...)
		return append([]byte{1, 0, byte(1 + d.IntN(4))}, wrap(1, value)...)
	case 241:
		return wrap(2, wrap(2, d.bytes(d.IntN(12))))
	}
	return d.bytes(d.IntN(20))
}

// flowspec is a list of components, RFC 8955 §4.2.2.
func (d dice) flowspec(f family) (b []byte) {
	if f.safi == 134 {
		b = d.bytes(8)
	}
	for kind := range 16 {
		if !d.in(4) {
			continue
		}
		b = append(b, byte(kind))
		if kind <= 2 && f.afi != 25 {
			p := testcluster.AppendPrefixes(nil, d.prefix(f.afi == 2))
			if f.afi == 2 {
				p = append([]byte{p[0], byte(d.IntN(3))}, p[1:]...) // the offset of RFC 8956
			}
			b = append(b, p...)
			continue
		}
		for i := d.IntN(3); i >= 0; i-- {
			operator := byte(d.IntN(4))<<4 | byte(d.IntN(8))
			if i == 0 {
				operator |= 0x80 // the last one
			}
			b = append(append(b, operator), d.bytes(1<<(operator>>4&3))...)
		}
	}
	return b
}

// nextHop is that of MP_REACH_NLRI with its length: lengths of RFC 2545, RFC 4364 and RFC 8950.
func (d dice) nextHop(f family) []byte {
	global, link := hop6.AsSlice(), netip.MustParseAddr("fe80::99").AsSlice()
	var hop []byte
	switch {
	case d.in(8):
		both := append(global, link...)
		hop = pick(d, [][]byte{
			nil, link, both, make([]byte, 16), make([]byte, 48), d.bytes(d.IntN(49)),
		})
	case f.safi == 128 || f.safi == 129:
		hop = append(make([]byte, 8), hop4.AsSlice()...)
		if f.afi == 2 {
			hop = append(make([]byte, 8), global...)
		}
	case f.safi == 133 || f.safi == 134:
	case f.afi == 1:
		hop = hop4.AsSlice()
	case d.in(4):
		hop = append(global, link...)
	default:
		hop = global
	}
	return append([]byte{byte(len(hop))}, hop...)
}

func (d dice) reach(f family, addPath bool) attribute {
	value := append(f.append(nil), d.nextHop(f)...)
	value = append(append(value, 0), d.nlri(f, addPath)...)
	return attribute{flags: optional, kind: 14, value: value}
}

func (d dice) unreach(f family, addPath bool) attribute {
	return attribute{flags: optional, kind: 15, value: append(f.append(nil), d.nlri(f, addPath)...)}
}

// attribute is one that may be added to any path: legal as a rule, or as good as legal.
func (d dice) attribute(s session) attribute {
	const everywhere = optional | transitive
	switch d.IntN(26) {
	case 0:
		return attribute{flags: optional, kind: 4, value: u32(d.uint32())}
	case 1:
		return attribute{flags: transitive, kind: 6}
	case 2:
		value := append(u32(d.uint32()), hop4.AsSlice()...)
		return attribute{flags: everywhere, kind: 7, value: value[4-s.asSize():]}
	case 3:
		return attribute{flags: everywhere, kind: 8, value: d.bytes(4 * (1 + d.size(60)))}
	case 4:
		return attribute{flags: optional, kind: 9, value: u32(d.uint32())}
	case 5:
		return attribute{flags: optional, kind: 10, value: d.bytes(4 * d.size(30))}
	case 6:
		return attribute{flags: everywhere, kind: 16, value: d.communities(8)}
	case 7:
		return attribute{flags: everywhere, kind: 17, value: d.asPath(4)}
	case 8:
		value := append(u32(d.uint32()), hop4.AsSlice()...)
		return attribute{flags: everywhere, kind: 18, value: value}
	case 9: // PMSI_TUNNEL, RFC 6514 §5
		value := append([]byte{0, byte(d.IntN(9)), 0, 0, 1}, d.bytes(d.IntN(20))...)
		return attribute{flags: everywhere, kind: 22, value: value}
	case 10, 11: // TUNNEL_ENCAPSULATION, RFC 9012 §2
		inner := d.tlvs(1, 1, 2)
		value := appendInt(appendInt(nil, pick(d, []int{1, 8, 13, 15}), 2), len(inner), 2)
		return attribute{flags: everywhere, kind: 23, value: append(value, inner...)}
	case 12:
		return attribute{flags: everywhere, kind: 25, value: d.communities(20)}
	case 13: // AIGP, RFC 7311 §3
		return attribute{flags: optional, kind: 26, value: append([]byte{1, 0, 11}, d.bytes(8)...)}
	case 14: // BGP-LS, RFC 9552 §5.3
		return attribute{flags: optional, kind: 29, value: d.tlvs(2, 2, 2)}
	case 15:
		return attribute{flags: everywhere, kind: 32, value: d.bytes(12 * (1 + d.size(20)))}
	case 16: // OTC, RFC 9234 §5
		return attribute{flags: everywhere, kind: 35, value: u32(d.uint32())}
	case 17, 18: // PREFIX_SID, RFC 8669 §3, RFC 9252 §2
		return attribute{flags: everywhere, kind: 40, value: d.tlvs(1, 2, 3)}
	case 19: // ATTR_SET, RFC 6368 §5
		value := u32(d.uint32())
		for range d.IntN(4) {
			value = d.attribute(s).append(value)
		}
		return attribute{flags: everywhere, kind: 128, value: value}
	case 20:
		return attribute{flags: transitive, kind: 2, value: d.asPath(s.asSize())}
	case 21:
		return d.reach(pick(d, families), s.addPath)
	case 22:
		return d.unreach(pick(d, families), s.addPath)
	case 23:
		return attribute{flags: transitive, kind: 3, value: d.bytes(4)}
	}
	flags := byte(d.IntN(16)) << 4
	return attribute{flags: flags, kind: byte(d.Uint32()), value: d.bytes(d.size(300))}
}

// Types and subtypes of extended communities that have a meaning.
var (
	communityKinds    = []byte{0, 1, 2, 3, 6, 7, 8, 9, 0x0c, 0x40, 0x43, 0x80, 0x81, 0x82}
	communitySubKinds = []byte{0, 1, 2, 3, 4, 6, 7, 8, 9, 0x0b, 0x0c, 0x10}
)

// communities are extended ones of n bytes, of the types that have a meaning and of others.
func (d dice) communities(n int) (b []byte) {
	for range 1 + d.size(12) {
		c := d.bytes(n)
		if !d.in(10) {
			c[0], c[1] = pick(d, communityKinds), pick(d, communitySubKinds)
		}
		b = append(b, c...)
	}
	return b
}

// update is a good UPDATE for a session.
func (d dice) update(s session) update {
	u := update{attributes: s.mandatory()}
	for range d.size(4) {
		u.attributes = append(u.attributes, d.attribute(s))
	}
	if s.six {
		u.attributes = append(u.attributes, d.reach(unicast6, s.addPath))
		if d.in(4) {
			u.attributes = append(u.attributes, d.unreach(unicast6, s.addPath))
		}
		return u
	}
	u.nlri = d.prefixes(false, s.addPath, 1+d.size(30))
	if d.in(4) {
		u.withdrawn = d.prefixes(false, s.addPath, d.size(30))
	}
	return u
}
