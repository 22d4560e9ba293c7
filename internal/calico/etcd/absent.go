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

// absences are the addresses that are gone from etcd and still count. Only Run's goroutine uses them.
type absences struct {
	hosts string        // prefix of the keys; "": none are read
	wait  time.Duration // returnTime
	lost  bool          // etcd is lost
	until time.Time     // what goes before is put down to the last loss
	keys  map[string]time.Time
	timer *time.Timer
}

func newAbsences(hosts string, wait time.Duration) *absences {
	a := &absences{hosts: hosts, wait: wait, keys: map[string]time.Time{}, timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

// back notes that etcd answers.
func (a *absences) back(now time.Time) {
	if !a.lost {
		return
	}
	a.lost, a.until = false, now.Add(a.wait)
	for key := range a.keys {
		a.keys[key] = a.until
	}
	a.rearm(now)
}

// holds reports whether a key that is gone counts as there, and remembers it if so.
func (a *absences) holds(key string, now time.Time) bool {
	if a.hosts == "" || !strings.HasPrefix(key, a.hosts) || !a.lost && !now.Before(a.until) {
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
	if a.lost {
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
