package main

import (
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/recorder"
)

// Only a process that ended soon may have recorded too little, and that is counted.
func TestJudgeOfReplays(t *testing.T) {
	began := time.Unix(1000, 0)
	run := func(lasted time.Duration, change func(*recorder.Run)) recorder.Run {
		r := recorder.Run{Process: began, From: began, Last: began.Add(lasted), Inputs: 5,
			Compared: 4, Plans: 3}
		change(&r)
		return r
	}
	problem := func(why recorder.Reason) func(*recorder.Run) {
		return func(r *recorder.Run) {
			r.Reason, r.Problem, r.From = why, why.String(), time.Time{}
			r.NotCompared = []recorder.NotCompared{{Reason: why}}
		}
	}
	for name, tc := range map[string]struct {
		recorder.Run
		short int
		wrong string // what must be said
	}{
		"compared":   {run(time.Hour, func(*recorder.Run) {}), 0, ""},
		"ended soon": {run(time.Second, problem(recorder.ReasonShort)), 1, ""},
		"ended late": {run(time.Hour, problem(recorder.ReasonShort)), 1, "after 1h0m0s"},
		"no room": {run(time.Second, problem(recorder.ReasonNoRoom)), 0,
			recorder.ReasonNoRoom.String()},
		"a gap": {run(time.Hour, func(r *recorder.Run) { r.Gaps = 2 }), 0, "2 gaps"},
		"a gap, and ended soon": {run(time.Second, func(r *recorder.Run) {
			problem(recorder.ReasonMissing)(r)
			r.Gaps = 1
		}), 0, "1 gaps"},
		"a part": {run(time.Hour, func(r *recorder.Run) {
			r.NotCompared = []recorder.NotCompared{{Reason: recorder.ReasonUndecided}}
		}), 0, recorder.ReasonUndecided.String()},
		"a difference": {run(time.Hour, func(r *recorder.Run) {
			r.Differences = []recorder.Difference{{Key: "10.1.0.0/26"}}
		}), 0, "10.1.0.0/26"},
	} {
		of, wrong := judge([]recorder.Run{tc.Run})
		text := strings.Join(wrong, "; ")
		if of.Short != tc.short || (text == "") != (tc.wrong == "") ||
			!strings.Contains(text, tc.wrong) {
			t.Errorf("%s: %+v, %q", name, of, text)
		}
		if said := of.String(); strings.Contains(said, recorder.ReasonShort.String()) !=
			(tc.short > 0) {
			t.Errorf("%s: the report says %q", name, said)
		}
	}
}
