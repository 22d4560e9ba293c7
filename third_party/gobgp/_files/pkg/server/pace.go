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
	// lastingSession is how long a session must have been up to count as one that came to
	// something.
	lastingSession = 10 * time.Second
)

// pace says when the next session with a peer may be tried: after pauses that double until a
// session lasts. RFC 4271 §8.1 has these timers, with 120 s and no upper limit.
type pace struct {
	mu         sync.Mutex
	dial, hold time.Duration
}

// nextDial returns how long to wait before the peer is dialled.
func (p *pace) nextDial() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dial = longer(p.dial)
	return p.dial
}

// idle returns how long to wait before anybody's connection is used. Each session begins with our
// whole table, so a peer that ends them at once must not have them one after the other.
func (p *pace) idle() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}

// sessionEnded is called at the end of a session that was up since then.
func (p *pace) sessionEnded(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(since) < lastingSession {
		p.hold = longer(p.hold)
		return
	}
	p.dial, p.hold = 0, 0
}

// longer returns twice the pause, less up to a quarter: RFC 4271 §10 wants jitter.
func longer(pause time.Duration) time.Duration {
	pause = min(max(2*pause, firstPause), longestPause)
	return pause - time.Duration(rand.Int63n(int64(pause/4)))
}
