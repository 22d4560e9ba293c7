package main

import (
	"net/netip"
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

func TestLostInGaps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms float64) time.Time { return start.Add(time.Duration(ms * float64(time.Millisecond))) }
	block, other := netip.MustParsePrefix("10.1.0.0/26"), netip.MustParsePrefix("10.2.0.0/26")
	gap := func(prefix netip.Prefix, from, to float64) netlab.Gap {
		return netlab.Gap{Prefix: prefix, From: at(from), To: at(to)}
	}
	gaps := []netlab.Gap{gap(block, 1000, 1000.1), gap(block, 3000, 3003), gap(other, 5000, 5000.1)}
	outage := func(first, last float64, lost int) netlab.Outage {
		return netlab.Outage{First: at(first), Last: at(last), Lost: lost}
	}
	for name, c := range map[string]struct {
		outages []netlab.Outage
		want    int
	}{
		"one packet in a gap":              {[]netlab.Outage{outage(999.8, 999.8, 1)}, 1},
		"more than a gap can cost":         {[]netlab.Outage{outage(996, 1004, 8)}, 2},
		"what a longer gap can cost":       {[]netlab.Outage{outage(2999, 3004, 6)}, 4},
		"between the gaps":                 {[]netlab.Outage{outage(2000, 2000, 1)}, 0},
		"from one gap to the other":        {[]netlab.Outage{outage(1000, 3000, 2000)}, 0},
		"beyond a gap":                     {[]netlab.Outage{outage(1000, 1050, 50)}, 0},
		"in a gap of a prefix elsewhere":   {[]netlab.Outage{outage(5000, 5000, 1)}, 0},
		"in two gaps, and in none":         {[]netlab.Outage{outage(1000, 1000, 1), outage(2000, 2000, 1), outage(3001, 3001, 1)}, 2},
		"two in one gap, as much as it is": {[]netlab.Outage{outage(999, 999, 2), outage(1001, 1001, 1)}, 2},
	} {
		report := netlab.Report{Outages: c.outages}
		for _, o := range c.outages {
			report.Lost += o.Lost
		}
		if got := lostInGaps(report, netip.MustParseAddr("10.1.0.5"), gaps); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
