package main

import (
	"encoding/binary"
	"net/netip"

	"vpp-route-agent/internal/testcluster"
)

// endOfRIB is the empty UPDATE (RFC 4724 §2).
var endOfRIB = testcluster.Message(testcluster.MsgUpdate, []byte{0, 0, 0, 0})

// announce returns packed UPDATEs for prefixes through next.
func announce(next netip.Addr, prefixes []netip.Prefix) []byte {
	hop := next.As4()
	attrs := []byte{
		0x40, 1, 1, 0, // ORIGIN IGP
		0x40, 2, 0, // AS_PATH, empty
		0x40, 3, 4, hop[0], hop[1], hop[2], hop[3],
		0x40, 5, 4, 0x7f, 0xff, 0xfb, 0xff, // LOCAL_PREF 2147482623, as Calico's nodes
	}
	front := append([]byte{0, 0, 0, byte(len(attrs))}, attrs...)
	return pack(prefixes,
		func(nlri []byte) []byte { return append(front[:len(front):len(front)], nlri...) },
		len(front))
}

// withdraw returns packed UPDATEs that take prefixes back.
func withdraw(prefixes []netip.Prefix) []byte {
	return pack(prefixes, func(nlri []byte) []byte {
		body := binary.BigEndian.AppendUint16(nil, uint16(len(nlri)))
		return append(append(body, nlri...), 0, 0)
	}, 4)
}

// pack fills messages as full as they may be; around puts the rest of the body, of that many bytes,
// around the prefixes.
func pack(prefixes []netip.Prefix, around func(nlri []byte) []byte, rest int) []byte {
	var out, nlri []byte
	flush := func() {
		if len(nlri) > 0 {
			out = testcluster.AppendMessage(out, testcluster.MsgUpdate, around(nlri))
			nlri = nlri[:0]
		}
	}
	for _, p := range prefixes {
		a := p.Addr().As4()
		size := 1 + (p.Bits()+7)/8
		if testcluster.HeaderLength+rest+len(nlri)+size > testcluster.MaxMessage {
			flush()
		}
		nlri = append(append(nlri, byte(p.Bits())), a[:size-1]...)
	}
	flush()
	return out
}

// hostPrefixes are n /32s from 20.0.0.0 on.
func hostPrefixes(n int) []netip.Prefix {
	out := make([]netip.Prefix, n)
	for i := range out {
		out[i] = netip.PrefixFrom(addrAt(20<<24+uint32(i)), 32)
	}
	return out
}

// blockPrefixes are n /26s from 30.0.0.0 on.
func blockPrefixes(n int) []netip.Prefix {
	out := make([]netip.Prefix, n)
	for i := range out {
		out[i] = netip.PrefixFrom(addrAt(30<<24+uint32(i)<<6), 26)
	}
	return out
}

func addrAt(x uint32) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], x)
	return netip.AddrFrom4(a)
}
