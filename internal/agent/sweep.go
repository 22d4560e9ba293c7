package agent

import "time"

// sweep deletes the routes of an earlier run that no source announces any more, once the deferral
// is over.
type sweep struct {
	done    bool
	waiting string // for what, for people
}

// step reports whether the FIB may sweep from now on. It says so once.
func (s *sweep) step(now time.Time, d deferral) (allow bool) {
	if s.done {
		return false
	}
	s.done, s.waiting = d.over(now)
	return s.done
}
