package bgp

import (
	"net/netip"
	"time"
)

// Session is what is needed to read what a peer sends while its session is up.
type Session struct {
	Peer, Local     netip.Addr
	PeerAS, LocalAS uint32
	FourOctetAS     bool // AS numbers in paths have four bytes (RFC 6793)
	IPv4, IPv6      SessionFamily
}

// SessionFamily is what was negotiated for a family.
type SessionFamily struct {
	On      bool
	PathIDs bool // the peer sends prefixes with a path identifier (RFC 7911)
}

// Tap is told what a peer sends, in the goroutine of its session. It does not wait.
type Tap interface {
	// Message is called with each message but KEEPALIVE as it was received, before anything is made
	// of it, in two parts, which are neither kept nor changed.
	Message(at time.Time, header, body []byte)
	// End is called when the session is down.
	End(at time.Time)
}
