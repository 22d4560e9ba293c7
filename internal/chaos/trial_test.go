package main

import (
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

func TestLostBeforeTheFault(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	outage := func(first, last time.Duration, lost int) netlab.Report {
		return netlab.Report{
			Outages: []netlab.Outage{{First: start.Add(first), Last: start.Add(last), Lost: lost}},
		}
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
		if got := lostBefore([]flow{{Report: c.report}}, start); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestLostInStalls(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	stall := []netlab.Stall{{From: at(1000), To: at(1300)}}
	outage := func(first, last, lost int) netlab.Report {
		return netlab.Report{
			Outages: []netlab.Outage{{First: at(first), Last: at(last), Lost: lost}},
		}
	}
	for name, c := range map[string]struct {
		report netlab.Report
		want   int
	}{
		"when the ring is full":     {outage(1160, 1299, 140), 140},
		"before the ring is full":   {outage(1010, 1299, 290), 0},
		"from before the stall":     {outage(990, 1299, 310), 0},
		"until long after it":       {outage(1160, 1400, 240), 0},
		"elsewhere":                 {outage(2000, 2100, 100), 0},
		"nothing":                   {netlab.Report{}, 0},
		"on the way when it was up": {outage(1160, 1305, 146), 146},
	} {
		nodes := []*node{{}, {}, {}}
		for place, pass := range map[*node][]bool{
			nodes[1]: {true, true, false}, anyNode: {true, true, true},
		} {
			for i, passes := range pass {
				flows, want := make([]flow, 3), 0
				for i := range flows {
					flows[i].from, flows[i].to = nodes[i], nodes[(i+1)%3]
				}
				if flows[i].Report = c.report; passes {
					want = c.want
				}
				got := lostInStalls(flows, map[*node][]netlab.Stall{place: stall})
				if got != want {
					t.Errorf("%s, flow %d: %d, want %d", name, i+1, got, want)
				}
			}
		}
	}
}

// TestInGaps: what BIRD's kernel sends on may fall into its gaps, what comes to it may not.
func TestInGaps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	bird := &node{workload: &testcluster.Workload{Address: netip.MustParseAddr("10.1.0.1")}}
	ours := &node{workload: &testcluster.Workload{Address: netip.MustParseAddr("10.1.1.1")}}
	gaps := map[*node][]netlab.Gap{bird: {{
		Prefix: netip.MustParsePrefix("10.1.1.0/26"), From: start,
		To: start.Add(time.Millisecond),
	}}}
	for name, c := range map[string]struct {
		from, to *node
		echo     bool
		want     int
	}{
		"from BIRD's":         {bird, ours, false, 1},
		"to BIRD's":           {ours, bird, false, 0},
		"to BIRD's, and back": {ours, bird, true, 1},
		"beside it":           {ours, ours, true, 0},
	} {
		f := flow{c.from, c.to, c.echo, pairInterval, netlab.Report{Lost: 1,
			Outages: []netlab.Outage{{First: start, Last: start, Lost: 1}}}}
		if got := f.inGaps(gaps); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
