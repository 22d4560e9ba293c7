package main

import (
	"slices"

	"vpp-route-agent/internal/testcluster"
)

// mangle changes a good UPDATE in its structure.
func (d dice) mangle(u *update, s session) {
	list := u.attributes
	if len(list) == 0 || d.in(8) {
		d.mangleOutside(u, s)
		return
	}
	i := d.IntN(len(list))
	a := &list[i]
	switch d.IntN(14) {
	case 0:
		d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case 1: // twice
		u.attributes = slices.Insert(list, d.IntN(len(list)+1), *a)
	case 2:
		u.attributes = slices.Delete(list, i, i+1)
	case 3:
		u.attributes = slices.Insert(list, d.IntN(len(list)+1), d.attribute(s))
	case 4:
		a.flags ^= pick(d, []byte{optional, transitive, partial, extended, 1, 8})
	case 5:
		a.flags, a.lying = a.flags|extended*byte(d.IntN(2)), true
	case 6:
		a.skew = pick(d, []int{-1, 1, -2, 2, 4, -4, 16, 255, -len(a.value), d.IntN(5000)})
	case 7: // with a length that is right
		a.value = slices.Clone(a.value[:d.IntN(len(a.value)+1)])
	case 8:
		a.value = slices.Concat(a.value, d.bytes(1+d.size(20)))
	case 9:
		a.value = nil
	case 10:
		a.kind = pick(d, []byte{
			0, 1, 2, 3, 5, 7, 8, 9, 10, 14, 15, 16, 17, 18, 22, 23, 25, 26, 29,
			32, 35, 40, 128, 255,
		})
	case 11:
		a.value = slices.Repeat(a.value, 2)
	default:
		a.value = d.garble(a.value)
	}
}

// mangleOutside changes what is not in the attributes.
func (d dice) mangleOutside(u *update, s session) {
	switch d.IntN(6) {
	case 0:
		u.skewLength = pick(d, []int{-1, 1, 2, -4, 100, 4000, 1 << 15})
	case 1:
		u.skewWithdrawn = pick(d, []int{-1, 1, 2, -4, 100, 4000, 1 << 15})
	case 2:
		u.nlri = d.garble(u.nlri)
	case 3:
		u.withdrawn = d.garble(d.prefixes(false, s.addPath, 1+d.size(4)))
	case 4:
		u.nlri = append(u.nlri, byte(d.Uint32()))
	case 5:
		u.attributes = append(u.attributes, d.reach(pick(d, families), s.addPath))
	}
}

// garble changes single bytes, above all those that look like lengths.
func (d dice) garble(b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + d.size(3) {
		if len(b) == 0 {
			return d.bytes(1 + d.IntN(4))
		}
		i := d.IntN(len(b))
		switch d.IntN(7) {
		case 0:
			b[i] = byte(d.Uint32())
		case 1:
			b[i]++
		case 2:
			b[i]--
		case 3:
			b[i] = pick(d, []byte{0, 255, 128, 127})
		case 4:
			b[i] ^= 1 << d.IntN(8)
		case 5:
			b = slices.Delete(b, i, min(len(b), i+1+d.IntN(4)))
		case 6:
			b = slices.Insert(b, i, d.bytes(1+d.IntN(4))...)
		}
	}
	return b
}

// damage changes a whole message, header and all.
func (d dice) damage(m []byte) []byte {
	m = slices.Clone(m)
	switch d.IntN(6) {
	case 0: // the marker
		m[d.IntN(16)] = byte(d.Uint32())
	case 1: // the length
		m[16], m[17] = pick(d, []byte{0, 15, 16, 255, m[16]}), byte(d.Uint32())
	case 2:
		m[18] = byte(d.IntN(8))
	case 3:
		m[18] = byte(d.Uint32())
	case 4:
		m = m[:d.IntN(len(m))]
	case 5:
		body := d.garble(m[testcluster.HeaderLength:])
		if len(body) > 4000 {
			return m
		}
		return testcluster.Message(m[18], body)
	}
	return m
}

// stuff fills an UPDATE up to nearly the longest that a message may be, or a little more.
func (d dice) stuff(u update) update {
	spare := pick(d, []int{40, 30, 22, 20, 18, 14, 10, 8, 4, 1, 0, 0, 0, -1, -4, -100})
	room := 4096 - spare - len(u.encode())
	if room < 8 {
		return u
	}
	a := attribute{flags: optional | transitive | extended, kind: pick(d, []byte{8, 16, 32, 99, 2})}
	n := room - 4
	switch a.kind {
	case 2, 8:
		n -= n % 4
	case 16:
		n -= n % 8
	case 32:
		n -= n % 12
	}
	a.value = d.bytes(n)
	if a.kind == 2 { // one long path
		a = attribute{flags: transitive | extended, kind: 2}
		for left := n / 4 * 4; left >= 8; {
			hops := min(255, left/4-1)
			a.value = append(append(a.value, 2, byte(hops)), d.bytes(4*hops)...)
			left -= 2 + 4*hops
		}
		isPath := func(o attribute) bool { return o.kind == 2 }
		u.attributes = slices.DeleteFunc(slices.Clone(u.attributes), isPath)
	}
	u.attributes = append(u.attributes, a)
	return u
}
