package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// result is a line of the table: a check, or a figure against its budget.
type result struct {
	name, value, budget string
	bad                 []string // why it is not right
}

// results are in the order in which they came.
type results struct {
	short bool

	mu  sync.Mutex // guards all
	all []result
}

func (r *results) add(x result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, x)
}

// step adds the result of f, whose error is one more thing that is not right.
func (r *results) step(name string, f func() (value string, bad []string, err error)) {
	value, bad, err := f()
	if err != nil {
		bad = append(bad, err.Error())
	}
	r.add(result{name: name, value: value, bad: bad})
}

// figure adds a number that must not be above a limit, unless the run is a short one: what else the
// machine does then is not known.
func (r *results) figure(name string, value, limit float64, unit, note string) {
	x := result{
		name: name, value: fmt.Sprintf("%.3g %s%s", value, unit, note),
		budget: fmt.Sprintf("≤ %.3g", limit),
	}
	if !r.short && !(value <= limit) {
		x.bad = []string{fmt.Sprintf("%.3g %s, at most %.3g", value, unit, limit)}
	}
	r.add(x)
}

// most is how many reasons of one result are printed.
const most = 12

func (r *results) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, x := range r.all {
		verdict := "ok"
		if len(x.bad) > 0 {
			verdict = "FAILED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", x.name, verdict, strings.TrimSpace(x.value+" "+x.budget))
	}
	w.Flush()
	for _, x := range r.all {
		for i, text := range x.bad {
			if i == most {
				fmt.Fprintf(out, "%s: … and %d more\n", x.name, len(x.bad)-most)
				break
			}
			fmt.Fprintf(out, "%s: %s\n", x.name, text)
		}
	}
}

func (r *results) verdict() error {
	bad := slices.DeleteFunc(slices.Clone(r.all), func(x result) bool { return len(x.bad) == 0 })
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d failed", len(bad), len(r.all))
	}
	return nil
}

// median of at least one value, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
