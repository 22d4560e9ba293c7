package etcd

import (
	"strings"
	"time"
)

// When a node loses etcd, so may others, whose leases then expire. The node would lose its routes
// to all of them until they have published again. An address that is missing after a loss therefore
// still counts for a while. One deleted while etcd was connected is gone at once: its host is dead.

// returnTime is how long addresses have to return, and how long after a loss deletions are put down
// to it. A publisher retries after lastRetry at the latest, and may meet a timeout.
const returnTime = 30 * time.Second

// shortestLease is the minimum lease of a publisher. A shorter loss expires none.
const shortestLease = 5 * time.Second

// absences are the addresses that are missing in etcd and still count. Owned by Run's goroutine.
type absences struct {
	hosts string        // prefix of the keys; "": none are read
	wait  time.Duration // returnTime
	known bool          // etcd has been read: before, there was nothing to lose
	lost  time.Time     // when etcd was last heard of, while it is lost; else zero
	until time.Time     // what goes before is put down to the last loss
	keys  map[string]time.Time
	timer *time.Timer
}

func newAbsences(hosts string, wait time.Duration) *absences {
	a := &absences{hosts: hosts, wait: wait, keys: map[string]time.Time{},
		timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

// lose records that etcd was lost, and when it last answered.
func (a *absences) lose(last time.Time) {
	if a.known && a.lost.IsZero() {
		a.lost = last
	}
}

// back records that etcd answers.
func (a *absences) back(now time.Time) {
	if a.lost.IsZero() {
		return
	}
	if now.Sub(a.lost) >= shortestLease {
		a.until = now.Add(a.wait)
		for key := range a.keys {
			a.keys[key] = a.until
		}
	}
	a.lost = time.Time{}
	a.rearm(now) // the timer may have rung in vain
}

// holds reports whether a missing key still counts, and remembers it if so.
func (a *absences) holds(key string, now time.Time) bool {
	if a.hosts == "" || !strings.HasPrefix(key, a.hosts) || a.lost.IsZero() &&
		!now.Before(a.until) {
		return false
	}
	if _, known := a.keys[key]; !known {
		a.keys[key] = now.Add(a.wait)
		a.rearm(now)
	}
	return true
}

// seen records that key exists.
func (a *absences) seen(key string) { delete(a.keys, key) }

// over returns and forgets the keys that have not returned in time. No time runs out while etcd is
// lost.
func (a *absences) over(now time.Time) (keys []string) {
	if !a.lost.IsZero() {
		return nil
	}
	for key, until := range a.keys {
		if !now.Before(until) {
			keys = append(keys, key)
			delete(a.keys, key)
		}
	}
	a.rearm(now)
	return keys
}

// rearm sets the timer for the next key.
func (a *absences) rearm(now time.Time) {
	var next time.Time
	for _, until := range a.keys {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	if !next.IsZero() {
		a.timer.Reset(max(0, next.Sub(now)))
	}
}
