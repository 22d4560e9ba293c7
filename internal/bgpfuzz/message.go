package main

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/testcluster"
)

var keepalive = testcluster.Message(testcluster.MsgKeepalive, nil)

// tlv is a capability, or an optional parameter of OPEN.
type tlv struct {
	kind  byte
	value []byte
	skew  int // what its length says too much
}

func (t tlv) append(b []byte) []byte {
	return append(append(b, t.kind, byte(len(t.value)+t.skew)), t.value...)
}

// open is an OPEN (RFC 4271 §4.2) with all capabilities in one parameter, and further parameters.
type open struct {
	version      byte
	as, hold     uint16
	id           netip.Addr
	capabilities []tlv
	parameters   []tlv
	skew         int // of the length of all parameters
}

func (o open) encode() []byte {
	var caps, params []byte
	for _, c := range o.capabilities {
		caps = c.append(caps)
	}
	if len(caps) > 0 {
		params = tlv{kind: 2, value: caps}.append(params) // RFC 5492 §4
	}
	for _, p := range o.parameters {
		params = p.append(params)
	}
	body := binary.BigEndian.AppendUint16([]byte{o.version}, o.as)
	body = append(binary.BigEndian.AppendUint16(body, o.hold), o.id.AsSlice()...)
	body = append(body, byte(len(params)+o.skew))
	return testcluster.Message(testcluster.MsgOpen, append(body, params...))
}

// Flags of a path attribute (RFC 4271 §4.3).
const (
	optional   = 0x80
	transitive = 0x40
	partial    = 0x20
	extended   = 0x10 // the length has two bytes
)

// attribute is a path attribute, right or wrong.
type attribute struct {
	flags, kind byte
	value       []byte
	skew        int  // what its length says too much
	lying       bool // the length has as many bytes as the flag does not say
}

func (a attribute) append(b []byte) []byte {
	wide := a.flags&extended != 0
	if len(a.value) > 255 && !a.lying {
		a.flags, wide = a.flags|extended, true
	}
	b = append(b, a.flags, a.kind)
	if n := len(a.value) + a.skew; wide != a.lying {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	} else {
		b = append(b, byte(n))
	}
	return append(b, a.value...)
}

// update is an UPDATE (RFC 4271 §4.3).
type update struct {
	withdrawn, nlri           []byte
	attributes                []attribute
	skewWithdrawn, skewLength int
}

func (u update) encode() []byte {
	var attributes []byte
	for _, a := range u.attributes {
		attributes = a.append(attributes)
	}
	body := binary.BigEndian.AppendUint16(nil, uint16(len(u.withdrawn)+u.skewWithdrawn))
	body = append(body, u.withdrawn...)
	body = binary.BigEndian.AppendUint16(body, uint16(len(attributes)+u.skewLength))
	return testcluster.Message(testcluster.MsgUpdate, slices.Concat(body, attributes, u.nlri))
}

// family is an address family as BGP numbers it.
type family struct {
	afi  uint16
	safi byte
}

func (f family) append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, f.afi), f.safi)
}

// families are all that GoBGP has a decoder for, and some that it has none for.
var families = []family{
	{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}, {2, 4}, {1, 73}, {2, 73}, {1, 85}, {2, 85},
	{1, 128}, {2, 128}, {1, 129}, {2, 129}, {1, 132}, {1, 133}, {2, 133}, {1, 134}, {2, 134},
	{25, 65}, {25, 70}, {25, 134}, {16388, 71}, {16388, 72}, {16397, 241}, {1, 66}, {3, 1}, {0, 0},
}

var (
	unicast4 = family{1, 1}
	unicast6 = family{2, 1}
)
