// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"encoding/binary"
	"fmt"
)

// Session is what the reading of an UPDATE depends on.
type Session struct {
	Families      map[RouteFamily]BGPAddPathMode // negotiated
	External      bool                           // neither of our AS nor of our confederation
	Confederation bool                           // we are in one
	FourOctetAS   bool
	Loopback      bool // both ends are loopback addresses, and next hops may be
}

// Revise applies RFC 7606 to the body of an UPDATE before it is decoded. It returns the body
// without the attributes that are discarded and those that are malformed, and the error, if there
// is one, that says what becomes of the UPDATE. So what is passed on is well-formed: a neighbour
// ends its session for an attribute that is not.
func (s *Session) Revise(body []byte) ([]byte, error) {
	withdrawn, rest, ok := prefixedBy16(body)
	attributes, nlri, ok2 := prefixedBy16(rest)
	if !ok || !ok2 {
		return nil, updateError(BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, nil, reset,
			"its lengths are wrong")
	}
	if mode, ok := s.Families[RF_IPv4_UC]; !ok {
		withdrawn, nlri = nil, nil
	} else if !arePrefixes(withdrawn, 32, mode) || !arePrefixes(nlri, 32, mode) { // RFC 7606 §5.3
		return nil, updateError(BGP_ERROR_SUB_INVALID_NETWORK_FIELD, nil, reset,
			"its prefixes are malformed")
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
		if !ok { // RFC 7606 §4
			note(updateError(lengthError, attributes, withdraw, "an attribute overruns the others"))
			break
		}
		attributes = attributes[len(a.bytes):]
		if seen[a.kind] {
			handling := discard
			if a.kind == BGP_ATTR_TYPE_MP_REACH_NLRI || a.kind == BGP_ATTR_TYPE_MP_UNREACH_NLRI {
				handling = reset
			}
			note(a.malformed(BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, handling)) // RFC 7606 §3 g
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
		flags := &kept[len(kept)-len(a.bytes)]
		if rule := rules[a.kind]; rule.valid == nil && rule.flags != 0 { // prefixes are read anyway
			*flags = byte(rule.flags | a.flags&BGP_ATTR_FLAG_EXTENDED_LENGTH)
		}
		if PathAttrFlags[a.kind] == 0 && a.flags&transitive == transitive {
			*flags |= byte(BGP_ATTR_FLAG_PARTIAL) // of what is not recognized (RFC 4271 §5)
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
	why := fmt.Sprintf("attribute %s is malformed: %x", a.kind, a.bytes)
	return updateError(subcode, a.bytes, handling, why)
}

func updateError(subcode uint8, data []byte, handling ErrorHandling, why string) *MessageError {
	return &MessageError{
		TypeCode: BGP_ERROR_UPDATE_MESSAGE_ERROR, SubTypeCode: subcode,
		Data: data, ErrorHandling: handling, Message: why,
	}
}

// check reports whether an attribute is kept, and what it does to the UPDATE if it is malformed.
func (s *Session) check(a attribute, hasNLRI bool) (keep bool, err *MessageError) {
	rule, known := rules[a.kind]
	switch {
	case !known:
		return true, nil
	case a.kind == BGP_ATTR_TYPE_NEXT_HOP && !hasNLRI:
		return false, nil // it is about no route (RFC 4760 §3)
	case s.External && internalOnly(a.kind):
		return false, nil
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
	// RFC 7606 §3 c. What MP_UNREACH_NLRI names is withdrawn anyway.
	if wrongFlags && a.kind != BGP_ATTR_TYPE_MP_UNREACH_NLRI &&
		(err == nil || err.ErrorHandling < withdraw) {
		err = a.malformed(BGP_ERROR_SUB_ATTRIBUTE_FLAGS_ERROR, withdraw)
	}
	return keep, err
}

// checkReach has the session reset where prefixes cannot be located for sure (RFC 7606 §5.3,
// §7.11). A family that was not negotiated is passed over.
func (s *Session) checkReach(a attribute) (keep bool, err *MessageError) {
	v := a.value
	if len(v) < 5 || len(v) < 5+int(v[3]) {
		return false, a.malformed(optionalError, reset)
	}
	family := AfiSafiToRouteFamily(binary.BigEndian.Uint16(v), v[2])
	hop, prefixes := v[4:4+int(v[3])], v[5+int(v[3]):]
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
		return false, a.malformed(optionalError, reset)
	}
	if !s.isHost(hop) {
		return true, a.malformed(optionalError, withdraw)
	}
	return true, nil
}

func notNegotiated(family RouteFamily) *MessageError {
	why := fmt.Sprintf("family %s was not negotiated", family)
	return updateError(optionalError, nil, discard, why)
}

func (s *Session) checkUnreach(a attribute) (keep bool, err *MessageError) {
	if len(a.value) < 3 {
		return false, a.malformed(optionalError, reset)
	}
	family := AfiSafiToRouteFamily(binary.BigEndian.Uint16(a.value), a.value[2])
	mode, ok := s.Families[family]
	bits := map[RouteFamily]int{RF_IPv4_UC: 32, RF_IPv6_UC: 128}[family]
	switch {
	case !ok:
		return false, notNegotiated(family)
	case bits > 0 && !arePrefixes(a.value[3:], bits, mode):
		return false, a.malformed(optionalError, reset)
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

// arePrefixes reports whether b is a sequence of prefixes (RFC 7606 §5.3), with identifiers where
// the peer sends them (RFC 7911 §3).
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
