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
	// restartPause is the longest one after a session that came to something, for restartPatience:
	// the peer restarts, and if it waits for us to dial, this is what its restart takes.
	restartPause    = 800 * time.Millisecond
	restartPatience = 2 * time.Minute
	// lastingSession is how long a session must have been up to count as one that came to
	// something.
	lastingSession = 10 * time.Second
)

// pace says when the next session with a peer may be tried: after pauses that double until a
// session lasts. RFC 4271 §8.1 has these timers, with 120 s and no upper limit.
type pace struct {
	mu         sync.Mutex
	dial, hold time.Duration
	lasted     time.Time // when the last session that came to something ended
}

// nextDial returns how long to wait before the peer is dialled.
func (p *pace) nextDial() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := longestPause
	if !p.lasted.IsZero() && time.Since(p.lasted) < restartPatience {
		most = restartPause
	}
	p.dial = longer(p.dial, most)
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
		p.hold = longer(p.hold, longestPause)
		return
	}
	p.dial, p.hold, p.lasted = 0, 0, time.Now()
}

// longer returns twice the pause, at most most, less up to a quarter: RFC 4271 §10 wants jitter.
func longer(pause, most time.Duration) time.Duration {
	pause = min(max(2*pause, firstPause), most)
	return pause - time.Duration(rand.Int63n(int64(pause/4)))
}
