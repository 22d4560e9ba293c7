package main

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMedianAndRatios(t *testing.T) {
	if got := (series{3, 1, 2}).median(); got != 2 {
		t.Errorf("median %v", got)
	}
	if got := (series{4, 1, 2, 3}).median(); got != 2.5 {
		t.Errorf("median %v", got)
	}
	if got := (series{}).median(); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v", got)
	}
	if got := (series{2, 9}).over(series{4, 3, 7}); !slices.Equal(got, series{0.5, 3}) {
		t.Errorf("ratios %v", got)
	}
}

func TestBudgets(t *testing.T) {
	for _, tc := range []struct {
		limit budget
		value float64
		want  bool
	}{
		{atLeast(0.9), 0.9, true},
		{atLeast(0.9), 0.89, false},
		{atLeast(0.9), math.NaN(), false},
		{atMost(2), 2, true},
		{atMost(2), 2.1, false},
		{atMost(2), math.NaN(), false},
		{noBudget, math.NaN(), true},
	} {
		if got := tc.limit.holds(tc.value); got != tc.want {
			t.Errorf("budget %q, value %v: %t", tc.limit, tc.value, got)
		}
	}
}

func TestRoundsTurnTheOrder(t *testing.T) {
	var order strings.Builder
	way := func(name string) func() error {
		return func() error { order.WriteString(name); return nil }
	}
	if err := rounds(3, way("a"), way("b"), way("c")); err != nil || order.String() != "abccbaabc" {
		t.Errorf("%s, %v", order.String(), err)
	}
	broken := errors.New("broken")
	if err := rounds(3, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestReportSaysWhatMissedItsBudget(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out", "bench.json")
	b := &bench{out: io.Discard}
	b.compare("slow", "route/s", series{10}, "fast", series{20}, atLeast(0.9), "")
	b.compare("never ran", "route/s", nil, "fast", nil, atLeast(0.9), "")
	b.single("small", "B", 10, atMost(20), "")
	if err := b.report(file); err != nil {
		t.Fatal(err)
	}
	err := b.verdict()
	if err == nil || !strings.Contains(err.Error(), "slow") ||
		!strings.Contains(err.Error(), "never ran") || strings.Contains(err.Error(), "small") {
		t.Errorf("verdict: %v", err)
	}
	md := markdownTable(b.results)
	if !strings.Contains(md, "| slow | 10 | route/s | fast: 20 | 0.50 | ≥ 0.9 | NO |  |\n") {
		t.Error(md)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []result
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].OK || got[0].Ratio != 0.5 || got[1].OK || !got[2].OK {
		t.Errorf("%+v", got)
	}
}
