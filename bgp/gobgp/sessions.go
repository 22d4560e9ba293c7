package gobgp

import (
	"fmt"
	"maps"
	"sync"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
)

// sessions keeps what GoBGP reports only once about each configured peer. GoBGP calls it from its
// own goroutines, so it never calls GoBGP.
type sessions struct {
	changed chan struct{} // of size 1: Speaker.Changed
	expired chan struct{} // of size 1: sessions ended by their hold timer
	moves   chan struct{} // of size 1: as changed, for watchRestart

	mu    sync.Mutex
	peers map[bgp.PeerID]*session
	moved time.Time // see lastMoved

	counted    bgp.Counters // those of them that are about sessions
	strangerAt time.Time    // when a stranger was last logged
}

type session struct {
	external   bool
	out        bool // taken out of GoBGP's configuration for now
	up         bool
	since      time.Time // of the last change of up
	endOfRIB   bool
	lastUpdate time.Time
	lastError  string
	flaps      int // how often the session was lost

	keyError error // of putting the peer's TCP MD5 key on a listener

	wasUp  bool      // and went down without being taken out: GoBGP may have kept its paths
	lookAt time.Time // when to look whether it still keeps some though the peer is back; zero: not
	// when the peer was first back since the session of which the oldest are, if it still keeps
	// some
	kept time.Time

	// cause is what GoBGP reported about the session's end before it ended. It is more precise than
	// the reason that it reports then.
	cause       string
	holdExpired bool // the hold timer ended, the session not yet
	malformed   bool // a message could not be read, and the peer has no NOTIFICATION for it yet
	restart     bool // the session was ended by its hold timer and awaits restartExpired

	unsendable bool      // a route could not be sent to the peer, and was logged
	revisedAt  time.Time // when a malformed UPDATE was last logged

	// when the peer sent more prefixes than it may; GoBGP leaves the session down then
	overLimit time.Time
}

func newSessions() *sessions {
	return &sessions{
		changed: make(chan struct{}, 1),
		expired: make(chan struct{}, 1),
		moves:   make(chan struct{}, 1),
		peers:   map[bgp.PeerID]*session{},
	}
}

// Changed has an item when a session came up or went down, or an End-of-RIB came, since it was last
// read.
func (s *Speaker) Changed() <-chan struct{} { return s.sessions.changed }

// add makes a new record, which keeps the past of one that was there: why it went down, since when
// and how often.
func (ss *sessions) add(peer bgp.PeerID, external bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	n := &session{external: external}
	if old, ok := ss.peers[peer]; ok {
		n.lastError, n.since, n.flaps = old.lastError, old.since, old.flaps
	}
	ss.peers[peer], ss.moved = n, time.Now()
	wake(ss.changed)
}

// takeOut notes that a peer of the plan is taken out of GoBGP's configuration. Events of its
// session may still come; the last is its end .
func (ss *sessions) takeOut(peer bgp.PeerID) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	old, ok := ss.peers[peer]
	if !ok {
		return
	}
	n := &session{external: old.external, out: true, lastError: old.lastError, since: old.since,
		flaps: old.flaps}
	if old.up {
		n.since = time.Now()
		n.flaps++
	}
	ss.peers[peer], ss.moved = n, time.Now()
	wake(ss.changed)
}

// forgetOut removes the records of peers that are taken out and not wanted any more.
func (ss *sessions) forgetOut(wanted []bgp.Peer) {
	still := make(map[bgp.PeerID]bool, len(wanted))
	for _, p := range wanted {
		still[p.ID()] = true
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	maps.DeleteFunc(ss.peers, func(peer bgp.PeerID, p *session) bool {
		return p.out && !still[peer]
	})
}

func (ss *sessions) remove(peer bgp.PeerID) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.peers, peer)
	ss.moved = time.Now()
	wake(ss.changed)
}

// with runs change on the record of peer, if there is one.
func (ss *sessions) with(peer bgp.PeerID, change func(*session)) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if p, ok := ss.peers[peer]; ok {
		change(p)
	}
}

// state notes the state of a session and reports whether it came up or went down.
func (ss *sessions) state(peer bgp.PeerID, up bool, now time.Time) (changed bool) {
	ss.with(peer, func(p *session) {
		if p.up == up || p.out { // one of before it was taken out
			return
		}
		changed = true
		ss.moved = now
		if !up && p.endOfRIB { // with which went what was older
			p.kept = time.Time{}
		}
		p.up, p.since, p.endOfRIB, p.lastUpdate, p.lookAt = up, now, false, time.Time{}, time.Time{}
		switch {
		case !up:
			p.wasUp = true
			p.flaps++
		case p.wasUp:
			p.lookAt = now
			if p.kept.IsZero() {
				p.kept = now
			}
		}
		p.restart = !up && p.holdExpired // not once the peer is back
		if p.restart {
			wake(ss.expired)
		}
		p.holdExpired = false
		wake(ss.changed)
		wake(ss.moves)
	})
	return changed
}

func (ss *sessions) endOfRIB(peer bgp.PeerID) {
	ss.with(peer, func(p *session) {
		if p.up && !p.endOfRIB {
			p.endOfRIB, p.lookAt = true, time.Time{}
			wake(ss.changed)
			wake(ss.moves)
		}
	})
}

func (ss *sessions) update(peer bgp.PeerID, now time.Time) {
	ss.with(peer, func(p *session) { p.lastUpdate = now })
}

func (ss *sessions) external(peer bgp.PeerID) (external bool) {
	ss.with(peer, func(p *session) { external = p.external })
	return external
}

// problem notes why a session is not up, where nothing ends a session.
func (ss *sessions) problem(peer bgp.PeerID, why error) {
	ss.with(peer, func(p *session) { p.lastError = why.Error() })
}

// keyRefused notes that the kernel did not take the peer's TCP MD5 key.
func (ss *sessions) keyRefused(peer bgp.PeerID, err error) {
	ss.with(peer, func(p *session) { p.keyError = err })
}

func (ss *sessions) keyError(peer bgp.PeerID) (err error) {
	ss.with(peer, func(p *session) { err = p.keyError })
	return err
}

// ending notes what GoBGP says shortly before a session ends, also one that never came up.
func (ss *sessions) ending(peer bgp.PeerID, text string) {
	ss.with(peer, func(p *session) {
		// the NOTIFICATION that follows says it less well
		if !p.holdExpired && !p.malformed && p.overLimit.IsZero() {
			p.cause, p.lastError = text, text
		}
		p.malformed = false
	})
}

// refused notes that a peer's message could not be read, which ends its session.
func (ss *sessions) refused(peer bgp.PeerID, err error) {
	ss.with(peer, func(p *session) {
		p.cause, p.malformed = fmt.Sprintf("malformed message: %v", err), true
		p.lastError = p.cause
	})
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.counted.Malformed++
	if packet.IsDecoderPanic(err) {
		ss.counted.Panicked++
	}
}

// revised notes that a peer's UPDATE was malformed, for which no session ends, and reports whether
// that was logged less than a minute ago: a peer can send many.
func (ss *sessions) revised(peer bgp.PeerID, err error, now time.Time) (again bool) {
	ss.with(peer, func(p *session) {
		if again = now.Sub(p.revisedAt) < time.Minute; !again {
			p.revisedAt = now
		}
		ss.counted.Revised++
		if packet.IsDecoderPanic(err) {
			ss.counted.Panicked++
			again = false
		}
	})
	return again
}

// panicked notes a panic that ended a session.
func (ss *sessions) panicked(peer bgp.PeerID, err error) {
	ss.ending(peer, fmt.Sprintf("GoBGP panicked: %v", err))
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.counted.Panicked++
}

// unsendable notes that a peer had a route withdrawn that cannot be sent, and reports whether that
// happened before.
func (ss *sessions) unsendable(peer bgp.PeerID) (before bool) {
	ss.with(peer, func(p *session) {
		before, p.unsendable = p.unsendable, true
		ss.counted.Unsendable++
	})
	return before
}

// stranger counts a connection from an address of no peer, and reports whether one was logged less
// than a minute ago: anybody can make many.
func (ss *sessions) stranger(now time.Time) (again bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.counted.Strangers++
	if again = now.Sub(ss.strangerAt) < time.Minute; !again {
		ss.strangerAt = now
	}
	return again
}

// count puts what was counted about sessions into c.
func (ss *sessions) count(c *bgp.Counters) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	c.Malformed, c.Revised = ss.counted.Malformed, ss.counted.Revised
	c.Panicked = ss.counted.Panicked
	c.Unsendable, c.OverLimit = ss.counted.Unsendable, ss.counted.OverLimit
	c.Strangers = ss.counted.Strangers
}

// holdTimer notes that the peer was silent for the hold time.
func (ss *sessions) holdTimer(peer bgp.PeerID) {
	ss.with(peer, func(p *session) {
		p.holdExpired = true
		p.cause, p.lastError = "hold timer expired", "hold timer expired"
	})
}

// limitReached notes that the peer sent more prefixes than it may.
func (ss *sessions) limitReached(peer bgp.PeerID, now time.Time) {
	ss.with(peer, func(p *session) {
		if p.overLimit.IsZero() {
			ss.counted.OverLimit++
			p.overLimit = now
			p.cause = "it sent more prefixes than its limit"
			p.lastError = p.cause
		}
	})
}

// limitedUntil returns the peers that were over their limit before then.
func (ss *sessions) limitedUntil(then time.Time) (out []bgp.PeerID) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for peer, p := range ss.peers {
		if !p.overLimit.IsZero() && !p.overLimit.After(then) {
			out = append(out, peer)
		}
	}
	return out
}

// down notes GoBGP's reason for the end of an established session.
func (ss *sessions) down(peer bgp.PeerID, reason error) {
	ss.with(peer, func(p *session) {
		if p.cause == "" {
			p.lastError = reason.Error()
		}
	})
}

// cameUp clears the causes of an earlier session's end; lastError stays, as the reason why the
// session last went down.
func (ss *sessions) cameUp(peer bgp.PeerID) {
	ss.with(peer, func(p *session) {
		p.cause, p.holdExpired, p.malformed = "", false, false
		p.restart = false // that it is up comes later, in the order of paths
	})
}

// takeExpired returns the peers that were ended by their hold timer since the last call.
func (ss *sessions) takeExpired() []bgp.PeerID {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var out []bgp.PeerID
	for peer, p := range ss.peers {
		if p.restart {
			p.restart = false
			out = append(out, peer)
		}
	}
	return out
}

// returned returns the peers to be looked at now, as they are.
func (ss *sessions) returned(now time.Time) map[bgp.PeerID]session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	out := map[bgp.PeerID]session{}
	for peer, p := range ss.peers {
		if !p.lookAt.IsZero() && !now.Before(p.lookAt) {
			out[peer] = *p
		}
	}
	return out
}

// lookAgain has a peer that is up since then looked at later.
func (ss *sessions) lookAgain(peer bgp.PeerID, since, at time.Time) {
	ss.with(peer, func(p *session) {
		if p.since == since && !p.lookAt.IsZero() {
			p.lookAt = at
		}
	})
}

// nothingKept notes that GoBGP keeps nothing of an earlier session of a peer that is up since then.
func (ss *sessions) nothingKept(peer bgp.PeerID, since time.Time) {
	ss.with(peer, func(p *session) {
		if p.since == since {
			p.lookAt, p.kept = time.Time{}, time.Time{}
		}
	})
}

// stir voids earlier lists of GoBGP's peers, as a session that comes up or goes down does.
func (ss *sessions) stir() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.moved = time.Now()
	wake(ss.changed)
}

// lastMoved returns when a peer was last added or removed, a session last came up or went down, or
// the restart ended.
func (ss *sessions) lastMoved() time.Time {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.moved
}

// snapshot copies all records.
func (ss *sessions) snapshot() map[bgp.PeerID]session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	out := make(map[bgp.PeerID]session, len(ss.peers))
	for peer, p := range maps.All(ss.peers) {
		out[peer] = *p
	}
	return out
}
