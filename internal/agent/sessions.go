package agent

import "time"

// sessions decides when BGP sessions start: once own routes are settled, or after absenceLimit.
// Then the RIB is complete before the first peer, no announcement follows its End-of-RIB, and it is
// known whether the data plane kept our routes.
type sessions struct {
	planned    time.Time
	configured time.Time // when the speaker first took a plan; see speaksTo
}

type sessionFacts struct {
	nodeUnknown bool // Calico's data lack this node
	settled     bool // drop routes are acknowledged, and routes of an earlier run adopted
}

// step reports whether the speaker may be handed a plan.
func (s *sessions) step(now time.Time, f sessionFacts) (start bool) {
	switch {
	case !s.configured.IsZero():
		return true
	case f.nodeUnknown:
		return false
	case s.planned.IsZero():
		s.planned = now
	}
	return f.settled || now.Sub(s.planned) >= absenceLimit
}

// absenceLimit is how long announcements wait for the drop routes of a data plane that is absent.
// Longer would withhold blocks whose packets nobody forwards anyway.
const absenceLimit = 5 * time.Second

// absence tells for how long the data plane has been absent.
type absence struct {
	since time.Time // zero: it is present
}

// step reports whether the data plane has been absent for too long to wait for it.
func (a *absence) step(now time.Time, present bool) (givenUp bool) {
	switch {
	case present:
		a.since = time.Time{}
		return false
	case a.since.IsZero():
		a.since = now
	}
	return now.Sub(a.since) >= absenceLimit
}
