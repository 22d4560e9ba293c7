package agent

import (
	"testing"
	"time"
)

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
