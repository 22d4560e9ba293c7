package bgp

import (
	"net/netip"
	"time"
)

// PeerState is how a session stands, in the words of RFC 4271 §8.2.2 (Idle, Connect, Active,
// OpenSent, OpenConfirm, Established).
type PeerState struct {
	ID          PeerID
	State       string
	Since       time.Time // of the last change into or out of Established; zero if there was none
	RouterID    netip.Addr
	Received    int    // paths received, before import policy
	Accepted    int    // paths accepted
	Advertised  int    // paths we sent and did not withdraw
	LastError   string // why the session is not up, or went down last
	Problem     string // what of the configuration cannot be used: a password that is not known
	EndOfRIB    bool   // every negotiated family's End-of-RIB has come in this session
	Restarting  bool   // the peer's OPEN had the R bit
	GR          bool   // graceful restart was negotiated
	LastUpdate  time.Time
	Established bool
	// Deferring: the session is up, but our UPDATEs to it wait until all peers have sent theirs,
	// since we have restarted (the Selection_Deferral_Timer of RFC 4724 §4.1).
	Deferring bool
	Flaps     int // how often the session was lost since the peer was configured
	// UPDATEs received and sent since the peer was last put into GoBGP's configuration
	UpdatesReceived, UpdatesSent uint64
	// LastContact is when it was last seen that a message had come; zero if none has.
	LastContact time.Time
}

// quietAfter is how long a peer without graceful restart, which sends no End-of-RIB, must have sent
// nothing to count as finished.
const quietAfter = 3 * time.Second

// Finished reports whether our announcements need not wait for the peer any more: it has sent
// End-of-RIB; or its OPEN had the R bit, and it waits for us (RFC 4724 §4.1); or, without graceful
// restart, it has been quiet for a while.
func (p PeerState) Finished(now time.Time) bool {
	switch {
	case !p.Established:
		return false
	case p.GR:
		return p.EndOfRIB || p.Restarting
	case p.LastUpdate.After(p.Since):
		return now.Sub(p.LastUpdate) >= quietAfter
	}
	return now.Sub(p.Since) >= quietAfter
}

// SentAll reports whether the peer has announced all that it has, so that routes of an earlier run
// may be deleted. It also waits for a peer that restarts itself, which announces its routes again
// soon. No peer waits for our deletions, so two restarting speakers cannot wait for each other.
func (p PeerState) SentAll(now time.Time) bool {
	return p.Finished(now) && (p.EndOfRIB || !p.GR)
}

// Counters count since the start, Removing aside.
type Counters struct {
	// Dropped are received paths that cannot be used: an NLRI or next hop that makes no sense for
	// forwarding.
	Dropped int
	// Foreign are local paths that were added to GoBGP over its API; they are removed.
	Foreign int
	// Malformed are messages that ended the session of the peer that sent them, since they could
	// not be read.
	Malformed int
	// Revised are malformed UPDATEs that cost a route or an attribute, and no session (RFC 7606).
	Revised int
	// Panicked are messages on which GoBGP panicked, and was recovered: while it decoded them,
	// which makes the message or one of its attributes malformed; or while it sent them or in a
	// state of a session, which ends the session.
	Panicked int
	// Unsendable are routes that had no room in a message to a peer, which has them withdrawn.
	Unsendable int
	// OverLimit is how often a peer was cut off because it sent more prefixes than it may.
	OverLimit int
	// Strangers are connections from addresses where no peer is, which were closed.
	Strangers int
	// Removing is how many peers are still to be removed before the rest of the last plan is
	// applied.
	Removing int
}
