package agent

import (
	"testing"
	"time"
)

func TestSessionsStartOnce(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }
	unknown, settled := sessionFacts{nodeUnknown: true}, sessionFacts{settled: true}
	var s sessions
	for i, step := range []struct {
		at    int
		facts sessionFacts
		start bool
	}{
		{0, sessionFacts{nodeUnknown: true, settled: true}, false},
		{60, sessionFacts{}, false}, // the 5 s count from the first plan
		{64, sessionFacts{}, false},
		{64, settled, true},
		{65, sessionFacts{}, true},
	} {
		if got := s.step(at(step.at), step.facts); got != step.start {
			t.Errorf("step %d: %v, want %+v", i, got, step)
		}
	}
	s.configured = at(66)
	if !s.step(at(67), unknown) {
		t.Error("sessions that run get no other plan")
	}
}
