package agent

import "time"

// absenceLimit is how long announcements wait for the drop routes of a data plane that is absent.
// Longer would withhold blocks whose packets are not forwarded anyway.
const absenceLimit = 5 * time.Second

// absence says for how long the data plane has been absent, and when it is complete again.
type absence struct {
	since time.Time // zero: it is present
	back  time.Time // since when it is being filled again; zero: it is not
}

type absenceFacts struct {
	present bool
	filled  bool          // it has answered for every route
	limit   time.Duration // of the time in which it is filled
}

// step reports whether the data plane has been absent for too long to wait for it. After that it is
// being filled until it has the routes, or the limit has passed.
func (a *absence) step(now time.Time, f absenceFacts) (givenUp bool) {
	switch {
	case !f.present && a.since.IsZero():
		a.since = now
	case f.present && !a.since.IsZero():
		if !a.back.IsZero() || now.Sub(a.since) >= absenceLimit {
			a.back = now
		}
		a.since = time.Time{}
	}
	if f.present {
		if f.filled || now.Sub(a.back) >= f.limit {
			a.back = time.Time{}
		}
		return false
	}
	return now.Sub(a.since) >= absenceLimit
}
