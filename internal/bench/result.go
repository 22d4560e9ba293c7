package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"vpp-route-agent/internal/plot"
)

// result is one line of the table and one element of bench.json.
type result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // median
	Unit  string  `json:"unit"`
	// Reference is what Value is held against, in the same unit; Ratio is the median of the ratios
	// of each round, not the ratio of the medians. Both are 0 where there is nothing to compare
	// with.
	Reference     float64 `json:"reference,omitempty"`
	ReferenceName string  `json:"referenceName,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	// about Ratio where there is one, else about Value
	Budget string `json:"budget,omitempty"`
	OK     bool   `json:"ok"` // true without a budget
	Note   string `json:"note,omitempty"`
}

// budget is a bound.
type budget struct {
	least, most float64 // NaN: no such bound
}

func atLeast(x float64) budget { return budget{x, math.NaN()} }
func atMost(x float64) budget  { return budget{math.NaN(), x} }

var noBudget = budget{math.NaN(), math.NaN()}

func (b budget) String() string {
	switch {
	case !math.IsNaN(b.least):
		return fmt.Sprintf("≥ %g", b.least)
	case !math.IsNaN(b.most):
		return fmt.Sprintf("≤ %g", b.most)
	}
	return ""
}

// holds is true for noBudget, and false for a figure that is none.
func (b budget) holds(x float64) bool {
	switch {
	case !math.IsNaN(b.least):
		return x >= b.least
	case !math.IsNaN(b.most):
		return x <= b.most
	}
	return true
}

// series is what one way of doing something gave, one figure for each round.
type series []float64

func (s series) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[mid-1] + sorted[mid]) / 2
	}
	return sorted[mid]
}

// best is the greatest figure; of none, infinite.
func (s series) best() float64 {
	if len(s) == 0 {
		return math.Inf(1)
	}
	return slices.Max(s)
}

// over returns the ratios of s to t, round by round.
func (s series) over(t series) series {
	out := make(series, min(len(s), len(t)))
	for i := range out {
		out[i] = s[i] / t[i]
	}
	return out
}

// rounds runs the ways in turn, n times, the other way round every second time: whatever else the
// machine does then hits all alike.
func rounds(n int, ways ...func() error) error {
	for i := range n {
		for j := range ways {
			if i%2 == 1 {
				j = len(ways) - 1 - j
			}
			if err := ways[j](); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare adds a line for s against reference.
func (b *bench) compare(
	name, unit string, s series, referenceName string, reference series, limit budget, note string,
) {
	ratio := s.over(reference).median()
	b.results = append(b.results, result{
		Name: name, Value: s.median(), Unit: unit, Reference: reference.median(),
		ReferenceName: referenceName, Ratio: ratio,
		Budget: limit.String(), OK: limit.holds(ratio), Note: note,
	})
}

// single adds a line for a figure that stands alone.
func (b *bench) single(name, unit string, value float64, limit budget, note string) {
	b.results = append(b.results, result{
		Name: name, Value: value, Unit: unit, Budget: limit.String(),
		OK: limit.holds(value), Note: note,
	})
}

// draw keeps a chart for -plot.
func (b *bench) draw(name string, c plot.Chart) { b.charts[name] = c }

// report prints the table and writes the file.
func (b *bench) report(file string) error {
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tVALUE\tUNIT\tREFERENCE\tRATIO\tBUDGET\tOK\tNOTE")
	for _, r := range b.results {
		fmt.Fprintln(w, strings.Join(r.cells(), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(finite(b.results), "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// cells are one line of the table.
func (r result) cells() []string {
	reference, ratio, ok := "", "", ""
	if r.ReferenceName != "" {
		reference = fmt.Sprintf("%s: %s", r.ReferenceName, figure(r.Reference))
		ratio = fmt.Sprintf("%.2f", r.Ratio)
	}
	switch {
	case !r.OK:
		ok = "NO"
	case r.Budget != "":
		ok = "yes"
	}
	return []string{r.Name, figure(r.Value), r.Unit, reference, ratio, r.Budget, ok, r.Note}
}

// markdownTable is the same table for the documentation.
func markdownTable(results []result) string {
	var b strings.Builder
	b.WriteString(
		"| What | Value | Unit | Reference | Ratio | Budget | OK | Note |\n" +
			"|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	return b.String()
}

// figure prints a number as people read it.
func figure(x float64) string {
	switch {
	case x >= 10_000:
		return fmt.Sprintf("%.1f k", x/1000)
	case x >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// finite replaces what JSON cannot say: a figure that could not be taken is 0, and its line is not
// ok or has no budget.
func finite(results []result) []result {
	out := slices.Clone(results)
	for i := range out {
		for _, x := range []*float64{&out[i].Value, &out[i].Reference, &out[i].Ratio} {
			if math.IsNaN(*x) || math.IsInf(*x, 0) {
				*x = 0
			}
		}
	}
	return out
}

// verdict names what missed its budget or did not run to its end.
func (b *bench) verdict() error {
	var errs []error
	for _, r := range b.results {
		if !r.OK {
			errs = append(errs, fmt.Errorf("%s: not within budget %s", r.Name, r.Budget))
		}
	}
	return errors.Join(errs...)
}
