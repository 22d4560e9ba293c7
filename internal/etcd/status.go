package etcd

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Status is the state of a Follower, for people and metrics.
type Status struct {
	Endpoints []string
	// Connected: the last exchange with etcd succeeded, and the watches run.
	Connected bool
	// Synced: data have been published. It stays true while etcd is down.
	Synced bool
	// Revision is etcd's revision of the newest data.
	Revision int64
	// LastContact is when etcd last answered, zero if never. While Connected, the data are not
	// older.
	LastContact time.Time
	// Error says why Connected is false; empty when it is true.
	Error string
	// Lists counts complete lists: 1 after the start, more after a compaction or a restored etcd.
	Lists int
	// Failures counts attempts (connection, list, watch) that failed.
	Failures int
	// Events counts changes received by watches.
	Events int64
}

// Status returns the current status. It is safe for concurrent use.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// update changes the status under its lock.
func (f *Follower) update(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

// answered records an answer of etcd.
func (f *Follower) answered() {
	f.update(func(st *Status) { st.LastContact = time.Now() })
}

// connected records that etcd is connected, and logs the change.
func (f *Follower) connected() {
	was := false
	f.update(func(st *Status) {
		was = st.Connected
		st.Connected, st.Error, st.LastContact = true, "", time.Now()
	})
	f.lastCode = codes.OK
	if !was {
		f.log.Info("etcd is connected")
	}
}

// lost records err, and logs it unless the attempt before failed in the same way: an outage is one
// line.
func (f *Follower) lost(err error) {
	why, code := f.client.Explain(err), codeOf(err)
	var was Status
	f.update(func(st *Status) {
		was = *st
		st.Connected, st.Error = false, why
		st.Failures++
	})
	f.grace.lose(was.LastContact)
	if !was.Connected && code == f.lastCode {
		return
	}
	f.lastCode = code
	if was.Synced {
		f.log.Warn("etcd is not usable, what was read before stays in use", "err", why)
	} else {
		f.log.Warn("etcd is not usable, waiting for it", "err", why)
	}
}
