// Package mrt writes what BGP peers have sent, and reads it again, in the form of RFC 6396 and RFC
// 8050: messages as they were received, and sessions that come up or go. It keeps no state and
// opens no files.
package mrt

import (
	"encoding/binary"
	"net/netip"
	"time"

	"vpp-route-agent/bgp"
)

// Types and subtypes of RFC 6396 §4.4 and RFC 8050 §4.
const (
	typeBGP4MP   = 16
	typeBGP4MPET = 17 // with microseconds

	messageAS2        = 1
	messageAS4        = 4
	stateChangeAS4    = 5
	messageAS2PathIDs = 8
	messageAS4PathIDs = 9
)

// State of a session (RFC 6396 §4.4.1).
type State uint16

const (
	Idle        State = 1
	OpenConfirm State = 5
	Established State = 6
)

const (
	headerSize       = 12
	microsecondsSize = 4
	afiIPv4          = 1
	afiIPv6          = 2
	// asTrans stands for an AS number that two bytes do not hold (RFC 6793 §4.2.1).
	asTrans = 23456

	bgpHeader     = 19 // bytes (RFC 4271 §4.1)
	bgpMost       = 4096
	kindUpdate    = 2
	attrMPReach   = 14
	attrMPUnreach = 15
	extendedLen   = 0x10 // flag of an attribute
)

// Writer appends the records of one session.
type Writer struct {
	session  bgp.Session
	as2, as4 []byte // what a record has before the message
}

// NewWriter returns the Writer of a session. The index of the interface is left out, as it may be
// (RFC 6396 §4.4.1): a session may move to another one.
func NewWriter(s bgp.Session) *Writer {
	w := &Writer{session: s}
	short := func(as uint32) uint16 {
		if as > 0xffff {
			return asTrans
		}
		return uint16(as)
	}
	w.as2 = binary.BigEndian.AppendUint16(w.as2, short(s.PeerAS))
	w.as2 = binary.BigEndian.AppendUint16(w.as2, short(s.LocalAS))
	w.as4 = binary.BigEndian.AppendUint32(w.as4, s.PeerAS)
	w.as4 = binary.BigEndian.AppendUint32(w.as4, s.LocalAS)
	ends := endpoints(s.Peer.Unmap(), s.Local.Unmap())
	w.as2, w.as4 = append(w.as2, ends...), append(w.as4, ends...)
	return w
}

// endpoints are the interface index, the family and both addresses; one that is not known, or of
// another family than the peer's, is zero.
func endpoints(peer, local netip.Addr) []byte {
	b := []byte{0, 0, 0, afiIPv4}
	unknown := netip.IPv4Unspecified()
	if !peer.Is4() {
		b[3], unknown = afiIPv6, netip.IPv6Unspecified()
	}
	for _, a := range []netip.Addr{peer, local} {
		if !a.IsValid() || a.Is4() != unknown.Is4() {
			a = unknown
		}
		b = append(b, a.AsSlice()...)
	}
	return b
}

// Message appends a message that was received.
func (w *Writer) Message(b []byte, at time.Time, header, body []byte) []byte {
	ids := w.hasPathIDs(header, body)
	subtype, before := uint16(messageAS4), w.as4
	switch {
	case w.session.FourOctetAS && ids:
		subtype = messageAS4PathIDs
	case ids:
		subtype, before = messageAS2PathIDs, w.as2
	case !w.session.FourOctetAS:
		subtype, before = messageAS2, w.as2
	}
	b = start(b, at, subtype, len(before)+len(header)+len(body))
	return append(append(append(b, before...), header...), body...)
}

// StateChange appends that a session came up or went.
func (w *Writer) StateChange(b []byte, at time.Time, from, to State) []byte {
	b = start(b, at, stateChangeAS4, len(w.as4)+4)
	b = binary.BigEndian.AppendUint16(append(b, w.as4...), uint16(from))
	return binary.BigEndian.AppendUint16(b, uint16(to))
}

// start appends the head of a record with so many bytes behind it. The length counts the
// microseconds (RFC 6396 §3).
func start(b []byte, at time.Time, subtype uint16, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(at.Unix()))
	b = binary.BigEndian.AppendUint16(b, typeBGP4MPET)
	b = binary.BigEndian.AppendUint16(b, subtype)
	b = binary.BigEndian.AppendUint32(b, uint32(microsecondsSize+size))
	return binary.BigEndian.AppendUint32(b, uint32(at.Nanosecond()/1000))
}

// hasPathIDs reports whether the prefixes of a message have path identifiers. The subtype says so
// for all of a message: where families differ, it goes by what the message is about first.
func (w *Writer) hasPathIDs(header, body []byte) bool {
	s := w.session
	if !s.IPv4.PathIDs && !s.IPv6.PathIDs || len(header) < bgpHeader || header[18] != kindUpdate {
		return false
	}
	if s.IPv4.PathIDs == s.IPv6.PathIDs || !s.IPv4.On || !s.IPv6.On {
		return true
	}
	return isAboutIPv6(body) == s.IPv6.PathIDs
}

// isAboutIPv6 reports whether an UPDATE has prefixes in MP_REACH_NLRI or MP_UNREACH_NLRI of IPv6,
// and none in its own fields. It may be malformed.
func isAboutIPv6(body []byte) bool {
	withdrawn, rest, ok := cut16(body)
	if !ok || len(withdrawn) > 0 {
		return false
	}
	attrs, nlri, ok := cut16(rest)
	if !ok || len(nlri) > 0 {
		return false
	}
	for len(attrs) >= 3 {
		flags, kind, size, from := attrs[0], attrs[1], int(attrs[2]), 3
		if flags&extendedLen != 0 {
			if len(attrs) < 4 {
				break
			}
			size, from = int(binary.BigEndian.Uint16(attrs[2:])), 4
		}
		if len(attrs) < from+size {
			break
		}
		value := attrs[from : from+size]
		if (kind == attrMPReach || kind == attrMPUnreach) && len(value) >= 2 {
			return binary.BigEndian.Uint16(value) == afiIPv6
		}
		attrs = attrs[from+size:]
	}
	return false
}

// cut16 cuts off a field that begins with its length.
func cut16(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return nil, nil, false
	}
	return b[2 : 2+n], b[2+n:], true
}
