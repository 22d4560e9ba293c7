package bgp

import (
	"net/netip"
	"time"
)

// PrefixPaths is all that the speaker knows of a prefix.
type PrefixPaths struct {
	Prefix netip.Prefix
	// Received are the paths of peers: those in the table first, in the order of preference.
	Received []Received
	// Own: this node announces the prefix itself; OwnIsBest: peers get that path.
	Own, OwnIsBest bool
}

// Received is a path as a peer sent it, and what became of it.
type Received struct {
	Peer  PeerID
	Sent  Attributes
	Since time.Time // when it came in this form
	Stale bool      // kept by graceful restart
	// Looped: it went through this node, by its AS_PATH or ORIGINATOR_ID. Import was not asked.
	Looped bool
	// Accepted is what import policy made of it; nil: it was not accepted.
	Accepted *Attributes
	// Rejected: its next hop is none that may be used, so it is not chosen.
	Rejected bool
	Best     bool   // in the set that traffic is shared among
	BadHop   string // why its next hop makes no sense for forwarding; "": it does
}

// Attributes are those of a path, for people.
type Attributes struct {
	NextHop     netip.Addr // invalid: see BadHop
	LocalPref   *uint32    // nil: there is none, as in what eBGP peers send
	MED         *uint32    // likewise
	Origin      uint8      // RFC 4271 §5.1.1
	ASPath      []uint32
	ASSet       int // as in Route
	Communities []Community
	Originator  netip.Addr // of a reflected path (RFC 4456 §8); else invalid
	ClusterList []netip.Addr
}

// PathLength is the length of AS_PATH: an AS_SET counts as one AS (RFC 4271 §9.1.2.2).
func (a Attributes) PathLength() int { return len(a.ASPath) - max(a.ASSet-1, 0) }

// Route is a received path as policies see it.
func (r Received) Route(prefix netip.Prefix, from *Peer) Route {
	out := Route{Prefix: prefix, From: from, NextHop: r.Sent.NextHop, ASPath: r.Sent.ASPath,
		ASSet: r.Sent.ASSet, Communities: r.Sent.Communities, ClusterList: r.Sent.ClusterList}
	if r.Sent.LocalPref != nil {
		out.LocalPref = *r.Sent.LocalPref
	}
	return out
}
