package kubetest

import (
	"cmp"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// faults are what is wrong with a server; zero: nothing.
type faults struct {
	refuse     int             // status of every answer
	retryAfter time.Duration   // that goes with it
	each       int             // which request of a verb and kind is refused: each second
	allowed    map[string]bool // rights; nil: all
	denied     map[string]bool
	hang       chan struct{} // requests wait until it is closed; nil: they do not
	streams    bool          // it lists by a watch, where that is asked for
	stalls     bool          // it takes such a watch and sends nothing
	life       time.Duration // of watches; 0: without end
	silent     bool          // watches tell nothing
	bookmarks  bool          // watches tell each version
	garbled    []byte        // what watches tell instead of each event; nil: nothing else
	lag        *state        // what lists show that do not ask etcd
	lies       bool          // and they do not care what version was asked for
	writing    Writing       // asked before each write; nil: nobody is
	reading    Reading       // called before each get; nil: nobody is
	slow       time.Duration // that each list takes
	// expireContinue ends lists after their first page
	expireContinue bool
}

// refusal refuses a request, the n-th of its verb and kind; nil: it does not.
func (f *faults) refusal(q request, n int) *apierrors.StatusError {
	switch {
	case f.refuse != 0 && n%f.each == 0:
		return q.refused(f.refuse)
	case f.denied[q.right()], f.allowed != nil && q.kind != "" && !f.allowed[q.right()] &&
		!f.allowed[q.right()+"/"+cmp.Or(q.name, q.fields["metadata.name"])]:
		return q.forbidden()
	}
	return nil
}

// listed is what a list shows.
func (f *faults) listed(now state, asksEtcd bool) state {
	if f.lag != nil && !asksEtcd {
		return *f.lag
	}
	return now
}

// Refuse has every request answered with a status, and ends all watches; 0: no more.
func (s *Server) Refuse(status int) {
	s.locked(func() { s.faults.refuse, s.faults.each, s.faults.retryAfter = status, 1, 0 })
	if status != 0 {
		s.EndWatches()
	}
}

// RefuseEach does so with each second request of a verb and kind, or each third, and wants clients
// to come back after a while.
func (s *Server) RefuseEach(n, status int, after time.Duration) {
	s.locked(func() { s.faults.refuse, s.faults.each, s.faults.retryAfter = status, n, after })
	s.EndWatches()
}

// right is what RBAC asks for.
func (q request) right() string { return q.verb + " " + q.kind }

// Allow has the server allow nothing but these rights, such as "list nodes", or of one object "get
// nodes/edge-7".
func (s *Server) Allow(rights []string) {
	s.locked(func() {
		s.faults.allowed = map[string]bool{}
		for _, r := range rights {
			s.faults.allowed[r] = true
		}
	})
}

// Deny takes a right away, such as "list ippools.crd.projectcalico.org", or gives it back, and ends
// all watches: the API server asks for rights when one begins.
func (s *Server) Deny(right string, denied bool) {
	s.locked(func() { s.faults.denied[right] = denied })
	s.EndWatches()
}

// SetToken has the server ask for another token.
func (s *Server) SetToken(token string) {
	s.locked(func() { s.token = token })
	s.EndWatches()
}

// Hang has requests wait for an answer, or no more.
func (s *Server) Hang(on bool) {
	s.locked(func() {
		switch {
		case on && s.faults.hang == nil:
			s.faults.hang = make(chan struct{})
		case !on && s.faults.hang != nil:
			close(s.faults.hang)
			s.faults.hang = nil
		}
	})
}

// hangs waits while requests do, and reports whether the client has, too.
func (s *Server) hangs(r *http.Request) bool {
	s.mu.Lock()
	hang := s.faults.hang
	s.mu.Unlock()
	if hang == nil {
		return true
	}
	select {
	case <-hang:
		return true
	case <-r.Context().Done():
		return false
	}
}

// Freeze has requests and watches wait, so that nothing is heard of the server, or no more.
func (s *Server) Freeze(on bool) {
	s.Silence(on)
	s.Hang(on)
}

// Silence has watches tell nothing, or no more.
func (s *Server) Silence(on bool) { s.locked(func() { s.faults.silent = on; s.tell() }) }

// Stream has the server list by a watch, where a client asks for that.
func (s *Server) Stream() { s.locked(func() { s.faults.streams = true }) }

// Stall has the server take a watch that is to list, and send nothing.
func (s *Server) Stall() { s.locked(func() { s.faults.stalls = true }) }

// Bookmarks has watches tell each version.
func (s *Server) Bookmarks() { s.locked(func() { s.faults.bookmarks = true; s.tell() }) }

// Garble has watches tell something else instead of each event; nil: no more.
func (s *Server) Garble(instead []byte) { s.locked(func() { s.faults.garbled = instead }) }

// EndWatches ends all watches, as the server does every few minutes.
func (s *Server) EndWatches() {
	s.locked(func() { close(s.ended); s.ended = make(chan struct{}) })
}

// WatchesLive has each watch end after a time; 0: it does not.
func (s *Server) WatchesLive(d time.Duration) {
	s.locked(func() { s.faults.life = d })
	s.EndWatches()
}

// Compact forgets the history, so that watches from before are Gone.
func (s *Server) Compact() {
	s.locked(func() {
		s.state.version++
		s.oldest, s.events = s.state.version, nil
	})
	s.EndWatches()
}

// ExpireLists has lists of several pages expire after the first.
func (s *Server) ExpireLists() { s.locked(func() { s.faults.expireContinue = true }) }

// Slow has each list take a while.
func (s *Server) Slow(d time.Duration) { s.locked(func() { s.faults.slow = d }) }

// Lag has lists show what there is now, whatever comes, unless they ask etcd; one that lies does so
// although a newer version was asked for. It ends with Catch.
func (s *Server) Lag(lies bool) {
	s.locked(func() {
		now := s.state.clone()
		s.faults.lag, s.faults.lies = &now, lies
	})
}

// Catch ends Lag.
func (s *Server) Catch() { s.locked(func() { s.faults.lag, s.faults.lies = nil, false }) }

// Saved is a backup of etcd.
type Saved struct {
	state state
	kinds map[string]bool
}

// Save makes a backup.
func (s *Server) Save() (b Saved) {
	s.locked(func() { b = Saved{s.state.clone(), cloneOf(s.kinds)} })
	return b
}

func cloneOf(m map[string]bool) map[string]bool {
	out := make(map[string]bool, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Empty is a backup of an etcd that has nothing but the kinds of Kubernetes.
func Empty() Saved { return Saved{state: state{version: 1}} }

// Restore replaces everything by a backup. Watches stay: they wait for versions to come.
func (s *Server) Restore(b Saved) {
	s.locked(func() {
		s.state, s.kinds = b.state.clone(), cloneOf(b.kinds)
		s.oldest, s.events = s.state.version, nil
		s.tell()
	})
}
