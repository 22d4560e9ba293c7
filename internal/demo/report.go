package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Result is what a demo found; `demo -o json` prints it.
type Result struct {
	OK bool `json:"ok"`
	// what the agents' nodes forward with: "vpp" or "kernel"
	Dataplane string       `json:"dataplane"`
	Seconds   float64      `json:"seconds"` // without building and unpacking
	Steps     []StepResult `json:"steps"`
}

// StepResult is one chapter of the demo.
type StepResult struct {
	Title   string        `json:"title"`
	Seconds float64       `json:"seconds"`
	Checks  []CheckResult `json:"checks"`
}

// CheckResult is one thing that must hold.
type CheckResult struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what was measured, or what was found instead
}

// report writes the story for a person while it happens, and keeps the results. It has one user at
// a time.
type report struct {
	out    io.Writer
	color  bool
	result Result
	// reports an interruption; what was awaited then is neither held nor failed
	interrupted func() bool
}

const (
	bold, dim, green, red, plain = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[0m"

	nameWidth = 66 // where the details of checks begin
)

func (r *report) paint(style, text string) string {
	if !r.color || text == "" {
		return text
	}
	return style + text + plain
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// chapter begins a step.
func (r *report) chapter(title string) {
	r.result.Steps = append(r.result.Steps, StepResult{Title: title, Checks: []CheckResult{}})
	r.printf("\n%s\n", r.paint(bold, fmt.Sprintf("%d. %s", len(r.result.Steps), title)))
}

func (r *report) endChapter(d time.Duration) {
	r.result.Steps[len(r.result.Steps)-1].Seconds = d.Seconds()
}

// check notes and prints whether something holds.
func (r *report) check(ok bool, name, detail string) {
	if !ok && r.interrupted != nil && r.interrupted() {
		return
	}
	s := &r.result.Steps[len(r.result.Steps)-1]
	s.Checks = append(s.Checks, CheckResult{name, ok, detail})
	mark := r.paint(green, "✓")
	if !ok {
		mark = r.paint(red, "✗")
	}
	if detail == "" {
		r.printf("   %s %s\n", mark, name)
		return
	}
	r.printf("   %s %s %s\n", mark, pad(name, nameWidth), r.paint(dim, detail))
}

// note prints what explains the checks.
func (r *report) note(format string, args ...any) {
	r.printf("   %s\n", r.paint(dim, fmt.Sprintf(format, args...)))
}

// quote prints the output of a program.
func (r *report) quote(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		r.printf("     %s\n", strings.TrimRight(line, "\n"))
	}
}

// table prints rows in columns, the first row as the header.
func (r *report) table(rows [][]string) {
	width := []int{}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		line := ""
		for i, cell := range row {
			line += pad(cell, width[i]) + "  "
		}
		line = strings.TrimRight(line, " ")
		if n == 0 {
			line = r.paint(dim, line)
		}
		r.printf("     %s\n", line)
	}
}

// finish settles the verdict and prints it.
func (r *report) finish(d time.Duration) {
	r.result.Seconds = d.Seconds()
	checks, failed := 0, []string{}
	for _, s := range r.result.Steps {
		for _, c := range s.Checks {
			checks++
			if !c.OK {
				failed = append(failed, fmt.Sprintf("%s: %s (%s)", s.Title, c.Name, c.Detail))
			}
		}
	}
	r.result.OK = checks > 0 && len(failed) == 0
	if r.result.OK {
		r.printf("\n%s\n",
			r.paint(green+bold, fmt.Sprintf("All %d checks held, in %s.", checks, inSeconds(d))))
		return
	}
	r.printf("\n%s\n",
		r.paint(red+bold,
			fmt.Sprintf("%d of %d checks did not hold, in %s:", len(failed), checks, inSeconds(d))))
	for _, f := range failed {
		r.printf("   %s %s\n", r.paint(red, "✗"), f)
	}
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// inSeconds prints a duration as a person reads it: "0.3 ms", "12 ms", "3.1 s".
func inSeconds(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
