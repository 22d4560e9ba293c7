package fib

import (
	"encoding/binary"
	"net/netip"

	"vpp-route-agent/internal/route"
)

// packedKey is a route.Key in 24 bytes instead of 40.
type packedKey struct {
	addr  [16]byte // the first four of IPv4
	table uint32
	bits  uint8
	flags keyFlags
}

type keyFlags uint8

const (
	keyIPv4 keyFlags = 1 << iota
	keyElevated
)

func packKey(k route.Key) packedKey {
	p := packedKey{table: k.Table, bits: uint8(k.Prefix.Bits())}
	if a := k.Prefix.Addr(); a.Is4() {
		a4 := a.As4()
		copy(p.addr[:], a4[:])
		p.flags = keyIPv4
	} else {
		p.addr = a.As16()
	}
	if k.Elevated {
		p.flags |= keyElevated
	}
	return p
}

func (k packedKey) unpack() route.Key {
	a := netip.AddrFrom16(k.addr)
	if k.flags&keyIPv4 != 0 {
		a = netip.AddrFrom4([4]byte(k.addr[:4]))
	}
	return route.Key{
		Table: k.table, Elevated: k.flags&keyElevated != 0, Prefix: netip.PrefixFrom(a, int(k.bits)),
	}
}

// keyIndex finds entries by key. IPv4 in the default table, of which there are a million, is found
// by 8 bytes.
type keyIndex struct {
	ipv4  map[uint64]*entry
	other map[packedKey]*entry
}

func newKeyIndex() keyIndex {
	return keyIndex{ipv4: make(map[uint64]*entry), other: make(map[packedKey]*entry)}
}

// short returns what tells an IPv4 key in the default table apart.
func (k packedKey) short() (n uint64, ok bool) {
	return uint64(binary.BigEndian.Uint32(k.addr[:]))<<16 | uint64(k.bits)<<8 | uint64(k.flags),
		k.flags&keyIPv4 != 0 && k.table == 0
}

func (i keyIndex) get(k packedKey) *entry {
	if n, ok := k.short(); ok {
		return i.ipv4[n]
	}
	return i.other[k]
}

func (i keyIndex) add(e *entry) {
	if n, ok := e.packed.short(); ok {
		i.ipv4[n] = e
	} else {
		i.other[e.packed] = e
	}
}

func (i keyIndex) remove(e *entry) {
	if n, ok := e.packed.short(); ok {
		delete(i.ipv4, n)
	} else {
		delete(i.other, e.packed)
	}
}
