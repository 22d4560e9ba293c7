// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

const (
	wellKnown     = BGP_ATTR_FLAG_TRANSITIVE
	optional      = BGP_ATTR_FLAG_OPTIONAL
	transitive    = BGP_ATTR_FLAG_OPTIONAL | BGP_ATTR_FLAG_TRANSITIVE
	discard       = ERROR_HANDLING_ATTRIBUTE_DISCARD
	withdraw      = ERROR_HANDLING_TREAT_AS_WITHDRAW
	reset         = ERROR_HANDLING_SESSION_RESET
	originError   = BGP_ERROR_SUB_INVALID_ORIGIN_ATTRIBUTE
	pathError     = BGP_ERROR_SUB_MALFORMED_AS_PATH
	nextHopError  = BGP_ERROR_SUB_INVALID_NEXT_HOP_ATTRIBUTE
	lengthError   = BGP_ERROR_SUB_ATTRIBUTE_LENGTH_ERROR
	optionalError = BGP_ERROR_SUB_OPTIONAL_ATTRIBUTE_ERROR
)

// rule says what a well-formed attribute is, and what becomes of an UPDATE with one that is not.
type rule struct {
	flags    BGPAttrFlag
	handling ErrorHandling
	subcode  uint8
	valid    func(s *Session, value []byte) bool
}

// rules are those of RFC 7606 §7 where nothing else is noted. MP_REACH_NLRI and MP_UNREACH_NLRI
// have functions of their own.
var rules = map[BGPAttrType]rule{
	BGP_ATTR_TYPE_ORIGIN:          {wellKnown, withdraw, originError, isOrigin},
	BGP_ATTR_TYPE_AS_PATH:         {wellKnown, withdraw, pathError, isASPath},
	BGP_ATTR_TYPE_NEXT_HOP:        {wellKnown, withdraw, nextHopError, isNextHop},
	BGP_ATTR_TYPE_MULTI_EXIT_DISC: {optional, withdraw, lengthError, ofLength(4)},
	BGP_ATTR_TYPE_LOCAL_PREF:      {wellKnown, withdraw, lengthError, ofLength(4)},
	BGP_ATTR_TYPE_AGGREGATOR:      {transitive, discard, lengthError, isAggregator},
	BGP_ATTR_TYPE_COMMUNITIES:     {transitive, withdraw, optionalError, multipleOf(4)},
	BGP_ATTR_TYPE_ORIGINATOR_ID:   {optional, withdraw, lengthError, ofLength(4)},
	BGP_ATTR_TYPE_CLUSTER_LIST:    {optional, withdraw, lengthError, multipleOf(4)},
	BGP_ATTR_TYPE_MP_REACH_NLRI:   {flags: optional},
	BGP_ATTR_TYPE_MP_UNREACH_NLRI: {flags: optional},

	BGP_ATTR_TYPE_ATOMIC_AGGREGATE:         {wellKnown, discard, lengthError, ofLength(0)},
	BGP_ATTR_TYPE_EXTENDED_COMMUNITIES:     {transitive, withdraw, optionalError, multipleOf(8)},
	BGP_ATTR_TYPE_IP6_EXTENDED_COMMUNITIES: {transitive, withdraw, optionalError, multipleOf(20)},

	// RFC 6793 §6
	BGP_ATTR_TYPE_AS4_PATH:       {transitive, discard, optionalError, isAS4Path},
	BGP_ATTR_TYPE_AS4_AGGREGATOR: {transitive, discard, optionalError, ofLength(8)},
	// RFC 6514 §5: of multicast VPNs, so of no family here
	BGP_ATTR_TYPE_PMSI_TUNNEL: {transitive, discard, optionalError, never},
	// RFC 9012 §13, RFC 8669 §6
	BGP_ATTR_TYPE_TUNNEL_ENCAP: {transitive, discard, optionalError, isTunnelEncap},
	BGP_ATTR_TYPE_PREFIX_SID:   {transitive, discard, optionalError, isPrefixSID},
	// RFC 8092 §6, RFC 9234 §5
	BGP_ATTR_TYPE_LARGE_COMMUNITY: {transitive, withdraw, optionalError, multipleOf(12)},
	attrOnlyToCustomer:            {transitive, withdraw, optionalError, isOnlyToCustomer},
}

const attrOnlyToCustomer = BGPAttrType(35)

// internalOnly reports whether an eBGP peer's attribute is discarded (RFC 4271 §5.1.5; RFC 7606
// §7.5, §7.9, §7.10).
func internalOnly(kind BGPAttrType) bool {
	switch kind {
	case BGP_ATTR_TYPE_LOCAL_PREF, BGP_ATTR_TYPE_ORIGINATOR_ID, BGP_ATTR_TYPE_CLUSTER_LIST:
		return true
	}
	return false
}

func never(*Session, []byte) bool { return false }

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

// isHost reports whether an address, of a pair in IPv6 (RFC 2545 §3) the first, can be a host's
// (RFC 4271 §6.3).
func (s *Session) isHost(v []byte) bool {
	if len(v) > 4 {
		a := netip.AddrFrom16([16]byte(v))
		return !a.IsUnspecified() && !a.IsMulticast()
	}
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

// areSegments reports whether v is made of segments up to a type, none of them empty (RFC 7606
// §7.2) and none with AS 0 (RFC 7607).
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

// isTunnelEncap reports whether v is one tunnel (RFC 9012 §2) as FRR 8.4 reads it, which takes the
// length of every sub-TLV for one byte and leaves fewer than four bytes unread (bgpd/bgp_attr.c,
// bgp_attr_encap). FRR ends the session for the rest, legal or not.
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

// isPrefixSID reports whether v is made of TLVs (RFC 8669 §3, RFC 9252 §2) that FRR 8.4 reads to
// their ends (bgpd/bgp_attr.c, bgp_attr_psid_sub): of an SRv6 service it reads one sub-TLV, and of
// that one data item.
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
		case 6: // SRv6 L2 service
			ok = len(value) > 0
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

func isTwoOctetAS(options []*MarshallingOption) bool {
	return slices.ContainsFunc(options, func(o *MarshallingOption) bool {
		return o != nil && o.TwoOctetAS
	})
}
