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

func TestAbsenceEndsTheWaitForADataPlane(t *testing.T) {
	var a absence
	for i, step := range []struct {
		at              int
		present, filled bool
		givenUp         bool
		filling         bool
	}{
		{0, false, false, false, false}, {4, false, false, false, false},
		{5, false, false, true, false}, {6, true, false, false, true},
		{7, true, true, false, false},
		{8, true, false, false, false}, // an ordinary change
		{9, false, false, false, false}, {10, true, false, false, false},
		{11, false, false, false, false}, {15, false, false, false, false},
		{16, false, false, true, false}, {17, true, false, false, true},
		{18, false, false, false, true}, // again, before it had all
		{58, true, false, false, true}, {87, true, false, false, true},
		{88, true, false, false, false},
	} {
		f := absenceFacts{present: step.present, filled: step.filled, limit: 30 * time.Second}
		got := a.step(time.Unix(1e9+int64(step.at), 0), f)
		if got != step.givenUp || a.back.IsZero() == step.filling {
			t.Errorf("step %d: %v, want %+v", i, got, step)
		}
	}
}
