package etcd

import (
	"strings"
	"time"
)

// While a node is cut off from etcd, so may others be, and the leases of what these publish end. When all are back, each finds the others'
// addresses gone, and would lose the routes to them until they have published again. So an address that is found to be gone after a loss of
// etcd counts as there for a while. One that goes while nothing was lost is gone at once: its host has died, and the lease was the wait.

// returnTime is how long the hosts' addresses have to come back, and how long after a loss their going is put down to it: a publisher tries
// again after lastRetry at the latest, and may run into a timeout of an etcd that is coming up.
const returnTime = 30 * time.Second

// shortestLease is the least time that a publisher's lease may have: a shorter loss has ended none.
const shortestLease = 5 * time.Second

// absences are the addresses that are gone from etcd and still count. Only Run's goroutine uses them.
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
	a := &absences{hosts: hosts, wait: wait, keys: map[string]time.Time{}, timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

// lose notes that etcd does not answer, and when it last did.
func (a *absences) lose(last time.Time) {
	if a.known && a.lost.IsZero() {
		a.lost = last
	}
}

// back notes that etcd answers.
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

// holds reports whether a key that is gone counts as there, and remembers it if so.
func (a *absences) holds(key string, now time.Time) bool {
	if a.hosts == "" || !strings.HasPrefix(key, a.hosts) || a.lost.IsZero() && !now.Before(a.until) {
		return false
	}
	if _, known := a.keys[key]; !known {
		a.keys[key] = now.Add(a.wait)
		a.rearm(now)
	}
	return true
}

// seen notes that key is there.
func (a *absences) seen(key string) { delete(a.keys, key) }

// over returns, and forgets, the keys whose time to come back is over. While etcd is lost nobody knows who is back.
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
