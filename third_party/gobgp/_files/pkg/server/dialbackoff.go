// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"math/rand"
	"sync"
	"time"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
	// restartPause is the longest pause for restartPatience after a session that lasted: the peer
	// restarts, and if it waits for us to dial, its restart takes as long as our pause.
	restartPause    = 800 * time.Millisecond
	restartPatience = 2 * time.Minute
	// lastingSession is how long a session must have been up to count as one that lasted.
	lastingSession = 10 * time.Second
)

// sessionBackoff says when the next session with a peer may be tried: after pauses that double
// until a session lasts. RFC 4271 §8.1 has these timers, with 120 s and no upper limit.
type sessionBackoff struct {
	mu         sync.Mutex
	dial, hold time.Duration
	lasted     time.Time // when the last session that lasted ended
}

// nextDial returns how long to wait before the peer is dialled.
func (b *sessionBackoff) nextDial() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := longestPause
	if !b.lasted.IsZero() && time.Since(b.lasted) < restartPatience {
		most = restartPause
	}
	b.dial = doubled(b.dial, most)
	return b.dial
}

// idle returns how long to wait before any connection is used. Each session begins with our whole
// table, so a peer that ends its sessions at once must not open them back to back.
func (b *sessionBackoff) idle() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hold
}

// sessionEnded is called at the end of a session that was up since then.
func (b *sessionBackoff) sessionEnded(since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(since) < lastingSession {
		b.hold = doubled(b.hold, longestPause)
		return
	}
	b.dial, b.hold, b.lasted = 0, 0, time.Now()
}

// doubled returns twice the pause, at most most, less up to a quarter: RFC 4271 §10 wants jitter.
func doubled(pause, most time.Duration) time.Duration {
	pause = min(max(2*pause, firstPause), most)
	return pause - time.Duration(rand.Int63n(int64(pause/4)))
}
