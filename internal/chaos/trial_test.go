package main

import (
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

func TestLostBeforeTheFault(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	outage := func(first, last time.Duration, lost int) netlab.Report {
		return netlab.Report{Outages: []netlab.Outage{{First: start.Add(first), Last: start.Add(last), Lost: lost}}}
	}
	for name, c := range map[string]struct {
		report netlab.Report
		want   int
	}{
		"long before":          {outage(-4*time.Second, -3*time.Second, 7), 7},
		"on the way":           {outage(-10*time.Millisecond, -time.Millisecond, 7), 0},
		"from before until it": {outage(-time.Second, time.Second, 7), 0},
		"after":                {outage(time.Second, 2*time.Second, 7), 0},
		"nothing":              {netlab.Report{}, 0},
	} {
		if got := lostBefore([]netlab.Report{c.report}, start); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
