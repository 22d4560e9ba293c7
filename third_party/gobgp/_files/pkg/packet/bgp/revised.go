// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Session is what the reading of an UPDATE depends on.
type Session struct {
	Families      map[RouteFamily]BGPAddPathMode // negotiated
	External      bool                           // not of our AS or confederation
	Confederation bool                           // we are in one
	FourOctetAS   bool
	Loopback      bool // both ends are loopback addresses, and next hops may be
}

// Revise applies RFC 7606 to the body of an UPDATE before it is decoded. It returns the body without the
// attributes that are discarded and those that are malformed, and the error that says what becomes of it,
// if there is one. With that, what is decoded is well-formed, as far as it can be passed on: a neighbour
// ends its session for an attribute that is not.
func (s *Session) Revise(body []byte) ([]byte, error) {
	withdrawn, rest, ok := prefixedBy16(body)
	attributes, nlri, ok2 := prefixedBy16(rest)
	if !ok || !ok2 {
		return nil, updateError(BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, nil, ERROR_HANDLING_SESSION_RESET, "its lengths are wrong")
	}
	if mode, ok := s.Families[RF_IPv4_UC]; !ok {
		withdrawn, nlri = nil, nil
	} else if !arePrefixes(withdrawn, 32, mode) || !arePrefixes(nlri, 32, mode) {
		return nil, updateError(BGP_ERROR_SUB_INVALID_NETWORK_FIELD, nil, ERROR_HANDLING_SESSION_RESET, "its prefixes are malformed (RFC 7606 §5.3)")
	}

	var strongest error
	note := func(err *MessageError) {
		if err.Stronger(strongest) {
			strongest = err
		}
	}
	kept := make([]byte, 0, len(attributes))
	var seen [256]bool
	for len(attributes) > 0 {
		a, ok := firstAttribute(attributes)
		if !ok {
			note(updateError(BGP_ERROR_SUB_ATTRIBUTE_LENGTH_ERROR, attributes, ERROR_HANDLING_TREAT_AS_WITHDRAW, "an attribute overruns the others (RFC 7606 §4)"))
			break
		}
		attributes = attributes[len(a.bytes):]
		if seen[a.kind] {
			err := a.malformed(BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, ERROR_HANDLING_ATTRIBUTE_DISCARD)
			if a.kind == BGP_ATTR_TYPE_MP_REACH_NLRI || a.kind == BGP_ATTR_TYPE_MP_UNREACH_NLRI {
				err.ErrorHandling = ERROR_HANDLING_SESSION_RESET
			}
			note(err)
			continue
		}
		seen[a.kind] = true
		keep, err := s.check(a, len(nlri) > 0)
		if err != nil {
			note(err)
		}
		if !keep {
			continue
		}
		kept = append(kept, a.bytes...)
		if rule := rules[a.kind]; rule.valid == nil && rule.flags != 0 { // prefixes are read in any case
			kept[len(kept)-len(a.bytes)] = byte(rule.flags | a.flags&BGP_ATTR_FLAG_EXTENDED_LENGTH)
		}
	}

	out := make([]byte, 0, len(body))
	out = append(binary.BigEndian.AppendUint16(out, uint16(len(withdrawn))), withdrawn...)
	out = append(binary.BigEndian.AppendUint16(out, uint16(len(kept))), kept...)
	return append(out, nlri...), strongest
}

// attribute is a path attribute as it came.
type attribute struct {
	flags BGPAttrFlag
	kind  BGPAttrType
	value []byte
	bytes []byte // all of it
}

func firstAttribute(b []byte) (a attribute, ok bool) {
	if len(b) < 3 {
		return a, false
	}
	a.flags, a.kind = BGPAttrFlag(b[0]), BGPAttrType(b[1])
	header, length := 3, int(b[2])
	if a.flags&BGP_ATTR_FLAG_EXTENDED_LENGTH != 0 {
		if len(b) < 4 {
			return a, false
		}
		header, length = 4, int(binary.BigEndian.Uint16(b[2:]))
	}
	if len(b) < header+length {
		return a, false
	}
	a.bytes, a.value = b[:header+length], b[header:header+length]
	return a, true
}

func (a attribute) malformed(subcode uint8, handling ErrorHandling) *MessageError {
	return updateError(subcode, a.bytes, handling, fmt.Sprintf("attribute %s is malformed: %x", a.kind, a.bytes))
}

func updateError(subcode uint8, data []byte, handling ErrorHandling, why string) *MessageError {
	return NewMessageErrorWithErrorHandling(BGP_ERROR_UPDATE_MESSAGE_ERROR, subcode, data, handling, nil, why).(*MessageError)
}

const (
	wellKnown     = BGP_ATTR_FLAG_TRANSITIVE
	optional      = BGP_ATTR_FLAG_OPTIONAL
	transitive    = BGP_ATTR_FLAG_OPTIONAL | BGP_ATTR_FLAG_TRANSITIVE
	withdraw      = ERROR_HANDLING_TREAT_AS_WITHDRAW
	discard       = ERROR_HANDLING_ATTRIBUTE_DISCARD
	lengthError   = BGP_ERROR_SUB_ATTRIBUTE_LENGTH_ERROR
	optionalError = BGP_ERROR_SUB_OPTIONAL_ATTRIBUTE_ERROR
)

// rules say what a well-formed attribute is, and what becomes of an UPDATE with one that is not: RFC 7606
// §7 where nothing else is noted. MP_REACH_NLRI and MP_UNREACH_NLRI have functions of their own.
var rules = map[BGPAttrType]struct {
	flags    BGPAttrFlag
	handling ErrorHandling
	subcode  uint8
	valid    func(s *Session, value []byte) bool
}{
	BGP_ATTR_TYPE_ORIGIN:           {wellKnown, withdraw, BGP_ERROR_SUB_INVALID_ORIGIN_ATTRIBUTE, isOrigin},
	BGP_ATTR_TYPE_AS_PATH:          {wellKnown, withdraw, BGP_ERROR_SUB_MALFORMED_AS_PATH, isASPath},
	BGP_ATTR_TYPE_NEXT_HOP:         {wellKnown, withdraw, BGP_ERROR_SUB_INVALID_NEXT_HOP_ATTRIBUTE, isNextHop},
	BGP_ATTR_TYPE_MULTI_EXIT_DISC:  {optional, withdraw, lengthError, ofLength(4)},
	BGP_ATTR_TYPE_LOCAL_PREF:       {wellKnown, withdraw, lengthError, ofLength(4)},
	BGP_ATTR_TYPE_ATOMIC_AGGREGATE: {wellKnown, discard, lengthError, ofLength(0)},
	BGP_ATTR_TYPE_AGGREGATOR:       {transitive, discard, lengthError, isAggregator},
	BGP_ATTR_TYPE_COMMUNITIES:      {transitive, withdraw, optionalError, multipleOf(4)},
	BGP_ATTR_TYPE_ORIGINATOR_ID:    {optional, withdraw, lengthError, ofLength(4)},
	BGP_ATTR_TYPE_CLUSTER_LIST:     {optional, withdraw, lengthError, multipleOf(4)},
	BGP_ATTR_TYPE_MP_REACH_NLRI:    {flags: optional},
	BGP_ATTR_TYPE_MP_UNREACH_NLRI:  {flags: optional},

	BGP_ATTR_TYPE_EXTENDED_COMMUNITIES:     {transitive, withdraw, optionalError, multipleOf(8)},
	BGP_ATTR_TYPE_AS4_PATH:                 {transitive, discard, optionalError, isAS4Path},     // RFC 6793 §6
	BGP_ATTR_TYPE_AS4_AGGREGATOR:           {transitive, discard, optionalError, ofLength(8)},   // RFC 6793 §6
	BGP_ATTR_TYPE_PMSI_TUNNEL:              {transitive, discard, optionalError, nothing},       // of multicast VPNs (RFC 6514 §5)
	BGP_ATTR_TYPE_TUNNEL_ENCAP:             {transitive, discard, optionalError, isTunnelEncap}, // RFC 9012 §13
	BGP_ATTR_TYPE_IP6_EXTENDED_COMMUNITIES: {transitive, withdraw, optionalError, multipleOf(20)},
	BGP_ATTR_TYPE_LARGE_COMMUNITY:          {transitive, withdraw, optionalError, multipleOf(12)},   // RFC 8092 §6
	attrOnlyToCustomer:                     {transitive, withdraw, optionalError, isOnlyToCustomer}, // RFC 9234 §5
	BGP_ATTR_TYPE_PREFIX_SID:               {transitive, discard, optionalError, isPrefixSID},       // RFC 8669 §6
}

const attrOnlyToCustomer = BGPAttrType(35)

// check reports whether an attribute is kept, and what it does to the UPDATE if it is malformed.
func (s *Session) check(a attribute, hasNLRI bool) (keep bool, err *MessageError) {
	rule, known := rules[a.kind]
	switch {
	case !known:
		return true, nil
	case a.kind == BGP_ATTR_TYPE_NEXT_HOP && !hasNLRI:
		return false, nil // it is about no route (RFC 4760 §3)
	case s.External && (a.kind == BGP_ATTR_TYPE_LOCAL_PREF || a.kind == BGP_ATTR_TYPE_ORIGINATOR_ID || a.kind == BGP_ATTR_TYPE_CLUSTER_LIST):
		return false, nil // RFC 4271 §5.1.5; RFC 7606 §7.5, §7.9, §7.10
	}
	flags := a.flags & (BGP_ATTR_FLAG_OPTIONAL | BGP_ATTR_FLAG_TRANSITIVE | BGP_ATTR_FLAG_PARTIAL)
	if rule.flags == transitive {
		flags &^= BGP_ATTR_FLAG_PARTIAL
	}
	wrongFlags := flags != rule.flags
	switch a.kind {
	case BGP_ATTR_TYPE_MP_REACH_NLRI:
		keep, err = s.checkReach(a)
	case BGP_ATTR_TYPE_MP_UNREACH_NLRI:
		keep, err = s.checkUnreach(a)
	default:
		if keep = rule.valid(s, a.value); !keep {
			err = a.malformed(rule.subcode, rule.handling)
		}
		keep = keep && !wrongFlags
	}
	if wrongFlags && (err == nil || err.ErrorHandling < withdraw) && a.kind != BGP_ATTR_TYPE_MP_UNREACH_NLRI {
		err = a.malformed(BGP_ERROR_SUB_ATTRIBUTE_FLAGS_ERROR, withdraw) // RFC 7606 §3 c
	}
	return keep, err
}

// checkReach has the session reset where prefixes are not found for sure (RFC 7606 §5.3, §7.11). Families that
// were not negotiated are passed over.
func (s *Session) checkReach(a attribute) (keep bool, err *MessageError) {
	v := a.value
	if len(v) < 5 || len(v) < 5+int(v[3]) {
		return false, a.malformed(optionalError, ERROR_HANDLING_SESSION_RESET)
	}
	family, hop, prefixes := AfiSafiToRouteFamily(binary.BigEndian.Uint16(v), v[2]), v[4:4+v[3]], v[5+v[3]:]
	mode, ok := s.Families[family]
	if !ok {
		return false, notNegotiated(family)
	}
	four, located := len(hop) == 4, len(hop) == 16 || len(hop) == 32
	bits := 128
	switch family {
	case RF_IPv4_UC: // with either next hop (RFC 8950 §3)
		bits, located = 32, located || four
	case RF_IPv6_UC:
	default:
		return true, nil
	}
	if !located || !arePrefixes(prefixes, bits, mode) {
		return false, a.malformed(optionalError, ERROR_HANDLING_SESSION_RESET)
	}
	if four && !s.isHost(hop) {
		return true, a.malformed(optionalError, withdraw)
	}
	return true, nil
}

func notNegotiated(family RouteFamily) *MessageError {
	return updateError(optionalError, nil, discard, fmt.Sprintf("family %s was not negotiated", family))
}

func (s *Session) checkUnreach(a attribute) (keep bool, err *MessageError) {
	if len(a.value) < 3 {
		return false, a.malformed(optionalError, ERROR_HANDLING_SESSION_RESET)
	}
	family := AfiSafiToRouteFamily(binary.BigEndian.Uint16(a.value), a.value[2])
	mode, ok := s.Families[family]
	bits := map[RouteFamily]int{RF_IPv4_UC: 32, RF_IPv6_UC: 128}[family]
	switch {
	case !ok:
		return false, notNegotiated(family)
	case bits > 0 && !arePrefixes(a.value[3:], bits, mode):
		return false, a.malformed(optionalError, ERROR_HANDLING_SESSION_RESET)
	}
	return true, nil
}

// prefixedBy16 cuts b behind the part whose length its first two bytes are.
func prefixedBy16(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
		return nil, nil, false
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return b[2:n], b[n:], true
}

// arePrefixes reports whether b is a sequence of prefixes (RFC 7606 §5.3), with identifiers where the peer
// sends them (RFC 7911 §3).
func arePrefixes(b []byte, bits int, mode BGPAddPathMode) bool {
	header := 1
	if mode&BGP_ADD_PATH_RECEIVE != 0 {
		header = 5
	}
	for len(b) > 0 {
		if len(b) < header || int(b[header-1]) > bits {
			return false
		}
		n := header + (int(b[header-1])+7)/8
		if len(b) < n {
			return false
		}
		b = b[n:]
	}
	return true
}

func nothing(*Session, []byte) bool { return false }

func ofLength(n int) func(*Session, []byte) bool {
	return func(_ *Session, value []byte) bool { return len(value) == n }
}

func multipleOf(n int) func(*Session, []byte) bool {
	return func(_ *Session, value []byte) bool { return len(value) > 0 && len(value)%n == 0 }
}

func isOrigin(_ *Session, v []byte) bool {
	return len(v) == 1 && v[0] <= BGP_ORIGIN_ATTR_TYPE_INCOMPLETE
}

func isNextHop(s *Session, v []byte) bool { return len(v) == 4 && s.isHost(v) }

// isHost reports whether an IPv4 address can be a host's (RFC 4271 §6.3).
func (s *Session) isHost(v []byte) bool {
	a := netip.AddrFrom4([4]byte(v))
	return v[0] != 0 && v[0] < 224 && (s.Loopback || !a.IsLoopback())
}

func isASPath(s *Session, v []byte) bool {
	size, kinds := 2, byte(BGP_ASPATH_ATTR_TYPE_SEQ)
	if s.FourOctetAS {
		size = 4
	}
	if s.Confederation {
		kinds = BGP_ASPATH_ATTR_TYPE_CONFED_SET
	}
	return areSegments(v, size, kinds)
}

// isAS4Path lets segments of confederations pass, which are taken out one by one (RFC 6793 §6).
func isAS4Path(_ *Session, v []byte) bool {
	return len(v) > 0 && areSegments(v, 4, BGP_ASPATH_ATTR_TYPE_CONFED_SET)
}

// areSegments reports whether v is made of segments up to a type, none of them empty (RFC 7606 §7.2) and
// none with AS 0 (RFC 7607).
func areSegments(v []byte, size int, kinds byte) bool {
	for len(v) > 0 {
		if len(v) < 2 || v[0] == 0 || v[0] > kinds || v[1] == 0 || len(v) < 2+size*int(v[1]) {
			return false
		}
		for i := range int(v[1]) {
			if allZero(v[2+size*i : 2+size*(i+1)]) {
				return false
			}
		}
		v = v[2+size*int(v[1]):]
	}
	return true
}

func isAggregator(s *Session, v []byte) bool {
	size := 2
	if s.FourOctetAS {
		size = 4
	}
	return len(v) == size+4 && !allZero(v[:size]) // RFC 7607
}

func isOnlyToCustomer(_ *Session, v []byte) bool { return len(v) == 4 && !allZero(v) }

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// isTunnelEncap reports whether v is one tunnel (RFC 9012 §2) as FRR reads it, which takes the length of
// every sub-TLV for one byte and minds four bytes at least (bgpd/bgp_attr.c, bgp_attr_encap). FRR ends the
// session for the rest, legal or not.
func isTunnelEncap(_ *Session, v []byte) bool {
	if len(v) < 4 || int(binary.BigEndian.Uint16(v[2:])) != len(v)-4 {
		return false
	}
	for v = v[4:]; len(v) >= 4; v = v[2+int(v[1]):] {
		if len(v) < 2+int(v[1]) {
			return false
		}
	}
	return len(v) == 0
}

// isPrefixSID reports whether v is made of TLVs (RFC 8669 §3, RFC 9252 §2) that FRR reads to their ends
// (bgpd/bgp_attr.c, bgp_attr_psid_sub): of an SRv6 service it reads one sub-TLV, and of that one data item.
func isPrefixSID(_ *Session, v []byte) bool {
	var seen [256]bool
	for len(v) > 0 {
		kind, value, rest, ok := firstTLV(v)
		if !ok {
			return false
		}
		switch kind {
		case 1: // label index
			ok = len(value) == 7 && binary.BigEndian.Uint32(value[3:]) != 0xffffffff
		case 2: // IPv6 SID, deprecated
			ok = len(value) == 19
		case 3: // originator SRGB
			ok = len(value) >= 8 && (len(value)-2)%6 == 0
		case 4: // SRv6 VPN SID, deprecated
			ok = len(value) == 19 && !seen[kind]
		case 5: // SRv6 L3 service
			ok = len(value) > 0 && !seen[kind] && isSRv6Service(value[1:])
		}
		if !ok {
			return false
		}
		seen[kind], v = true, rest
	}
	return true
}

func isSRv6Service(v []byte) bool {
	kind, sid, rest, ok := firstTLV(v)
	if !ok || len(rest) > 0 || kind != 1 || len(sid) == 21 {
		return ok && len(rest) == 0
	}
	if len(sid) < 21 {
		return false
	}
	kind, data, rest, ok := firstTLV(sid[21:])
	return ok && len(rest) == 0 && (len(data) == 6 || kind != 1 && len(data) > 6)
}

func firstTLV(v []byte) (kind byte, value, rest []byte, ok bool) {
	if len(v) < 3 {
		return 0, nil, nil, false
	}
	value, rest, ok = prefixedBy16(v[1:])
	return v[0], value, rest, ok
}
