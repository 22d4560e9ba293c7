package fib

import (
	"hash/maphash"
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
	keyObject // an object's entry, which is not in a keyIndex
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
		Table: k.table, Elevated: k.flags&keyElevated != 0,
		Prefix: netip.PrefixFrom(a, int(k.bits)),
	}
}

func (k packedKey) tableID() route.TableID {
	return route.TableID{ID: k.table, IPv6: k.flags&keyIPv4 == 0}
}

// keyIndex is a list of entries that are found by key. At a million of them the index takes 17
// bytes for each, where a map takes 36. It has parts, so that none takes long to grow.
type keyIndex struct {
	all   []*entry // entry.index points here
	seed  maphash.Seed
	parts [256]indexPart
}

// indexPart is a hash table with open addressing: a key is in the first slot that was free from its
// hash on.
type indexPart struct {
	slots []slot // none, or a power of two
	used  int    // at most three of four slots
}

type slot struct {
	hash uint32 // a piece of it, so that hardly an entry is looked at in vain
	next int32  // what follows the entry's index; 0: the slot is free
}

func (l *keyIndex) part(k packedKey) (p *indexPart, hash uint32) {
	h := maphash.Comparable(l.seed, k)
	return &l.parts[h>>56], uint32(h)
}

// slot returns which slot of p has k, or is free for it.
func (l *keyIndex) slot(p *indexPart, hash uint32, k packedKey) int {
	mask := len(p.slots) - 1
	i := int(hash) & mask
	for {
		s := p.slots[i]
		if s.next == 0 || s.hash == hash && l.all[s.next-1].packed == k {
			return i
		}
		i = (i + 1) & mask
	}
}

func (l *keyIndex) find(k packedKey) *entry {
	p, hash := l.part(k)
	if p.used == 0 {
		return nil
	}
	if s := p.slots[l.slot(p, hash, k)]; s.next > 0 {
		return l.all[s.next-1]
	}
	return nil
}

// add takes an entry whose key is not there yet.
func (l *keyIndex) add(e *entry) {
	p, hash := l.part(e.packed)
	if p.used++; 4*p.used > 3*len(p.slots) {
		old := p.slots
		p.slots = make([]slot, max(8, 2*len(old)))
		for _, s := range old {
			p.put(s)
		}
	}
	e.index = int32(len(l.all))
	l.all = append(l.all, e)
	p.put(slot{hash, e.index + 1})
}

func (p *indexPart) put(s slot) {
	if s.next == 0 {
		return
	}
	mask := len(p.slots) - 1
	i := int(s.hash) & mask
	for p.slots[i].next != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = s
}

// remove has the last entry take the place of e in the list.
func (l *keyIndex) remove(e *entry) {
	p, hash := l.part(e.packed)
	i, mask := l.slot(p, hash, e.packed), len(p.slots)-1
	p.slots[i] = slot{}
	p.used--
	// What follows without a gap may have had to give way to e.
	for i = (i + 1) & mask; p.slots[i].next != 0; i = (i + 1) & mask {
		s := p.slots[i]
		p.slots[i] = slot{}
		p.put(s)
	}
	last := l.all[len(l.all)-1]
	if last != e {
		p, hash = l.part(last.packed)
		p.slots[l.slot(p, hash, last.packed)].next = e.index + 1
		l.all[e.index], last.index = last, e.index
	}
	l.all[len(l.all)-1] = nil
	l.all = l.all[:len(l.all)-1]
}
