package etcd

import (
	"strings"
	"time"
)

// When a node loses etcd, so may others, whose leases then expire. Their keys would be gone until
// they have written them again. A key with a lease that is missing after a loss therefore still
// counts for a grace period. One deleted while etcd was connected is gone at once: its owner is
// dead.

// gracePeriod is how long keys have to return, and how long after a loss deletions are put down to
// it. A writer retries after LastRetry at the latest, and may meet a timeout.
const gracePeriod = 30 * time.Second

// shortestLease is the minimum lease of a writer. A shorter loss expires none.
const shortestLease = 5 * time.Second

// grace knows the keys of leased ranges, and which are missing in etcd and still count. Owned by
// Run's goroutine.
type grace struct {
	period  time.Duration
	known   bool      // etcd has been read: before, there was nothing to lose
	lost    time.Time // when etcd last answered, while it is lost; else zero
	until   time.Time // what goes before is put down to the last loss
	round   int       // of listing
	keys    map[string]leased
	missing map[string]time.Time // until when
	timer   *time.Timer
}

// leased is a key's last value, and the list round that has seen it last.
type leased struct {
	value []byte
	round int
}

func newGrace(period time.Duration) *grace {
	g := &grace{period: period, keys: map[string]leased{}, missing: map[string]time.Time{},
		timer: time.NewTimer(time.Hour)}
	g.timer.Stop()
	return g
}

// lose records that etcd was lost, and when it last answered.
func (g *grace) lose(last time.Time) {
	if g.known && g.lost.IsZero() {
		g.lost = last
	}
}

// back records that etcd answers.
func (g *grace) back(now time.Time) {
	if g.lost.IsZero() {
		return
	}
	if now.Sub(g.lost) >= shortestLease {
		g.until = now.Add(g.period)
		for key := range g.missing {
			g.missing[key] = g.until
		}
	}
	g.lost = time.Time{}
	g.rearm(now) // the timer may have rung in vain
}

// holds reports whether a missing key still counts, and forgets it if not.
func (g *grace) holds(key string, now time.Time) bool {
	if g.lost.IsZero() && !now.Before(g.until) {
		delete(g.keys, key)
		return false
	}
	if _, known := g.missing[key]; !known {
		g.missing[key] = now.Add(g.period)
		g.rearm(now)
	}
	return true
}

// seen records that key exists.
func (g *grace) seen(key string, value []byte) {
	g.keys[key] = leased{value, g.round}
	delete(g.missing, key)
}

// missed returns the keys that a list of r lacks and that still count, with their last values.
func (g *grace) missed(r Range, now time.Time) map[string][]byte {
	held := map[string][]byte{}
	for key, k := range g.keys {
		if r.Leased && k.round != g.round && strings.HasPrefix(key, r.Prefix) && g.holds(key, now) {
			held[key] = k.value
		}
	}
	return held
}

// over returns and forgets the keys that have not returned in time. No time runs out while etcd is
// lost.
func (g *grace) over(now time.Time) (keys []string) {
	if !g.lost.IsZero() {
		return nil
	}
	for key, until := range g.missing {
		if !now.Before(until) {
			keys = append(keys, key)
			delete(g.missing, key)
			delete(g.keys, key)
		}
	}
	g.rearm(now)
	return keys
}

// rearm sets the timer for the next key.
func (g *grace) rearm(now time.Time) {
	var next time.Time
	for _, until := range g.missing {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	if !next.IsZero() {
		g.timer.Reset(max(0, next.Sub(now)))
	}
}
