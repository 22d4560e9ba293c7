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
