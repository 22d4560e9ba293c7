package main

import (
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

// TestChart: what was sent and lost by all flows is summed by when it was sent, from some seconds
// before the fault on.
func TestChart(t *testing.T) {
	start := time.Now().Truncate(netlab.SlotLength).Add(30 * time.Millisecond)
	var flows []flow
	for i := range 2 {
		var f flow
		for at := -10 * time.Second; at <= 5*time.Second; at += netlab.SlotLength {
			s := netlab.Slot{From: start.Truncate(netlab.SlotLength).Add(at), Sent: 100}
			if i == 1 && at >= time.Second && at < 2*time.Second {
				s.Lost = 40
			}
			f.Timeline = append(f.Timeline, s)
		}
		flows = append(flows, f)
	}
	r := &result{Name: "fault", Sent: 30_200, Lost: 400, Flows: 2}
	c := chart(r, start, []moment{{start.Add(1500 * time.Millisecond), "converged"}}, flows)
	sent, lost := c.Series[0].Points, c.Series[1].Points
	if first, last := sent[0].X, sent[len(sent)-1].X; first < -3.1 || first > -2.9 ||
		last < 4.4 || last > 4.6 {
		t.Errorf("drawn from %g to %g s", first, last)
	}
	for i := range sent {
		want := 0.0
		if x := sent[i].X; x > 1 && x < 2 {
			want = 400
		}
		if sent[i].Y != 2000 || lost[i].Y != want {
			t.Errorf("%g s after the fault: %g sent and %g lost a second, want 2000 and %g",
				sent[i].X, sent[i].Y, lost[i].Y, want)
		}
	}
	if c.Marks[0].X != 1.5 || !strings.Contains(c.Description, "1.5 s after the fault: converged") {
		t.Errorf("marks %v, %s", c.Marks, c.Description)
	}
	if _, err := c.SVG(); err != nil {
		t.Error(err)
	}
	if chart(r, start, nil, nil) != nil {
		t.Error("a chart of no packets")
	}
}
