package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// walk is a README as a script: every command in its console blocks, with the output that the page
// shows.
type walk struct {
	file  string
	lines []string
	steps []step
}

// step is one command.
type step struct {
	node string
	line string
	// once is a command that changes something, prompt "#"; it runs one time. One that only looks,
	// prompt "$", is run again until its output has the shape that the page shows.
	once bool
	only string // the data plane for which this step is: "vpp", "kernel", or "" for both
	// shows is what the tour's output must contain, besides the headings that the page has: the
	// comment before a block says it of the block's last command.
	shows string
	at    int // index of the first line of the output
	end   int // index behind its last line
}

var comment = regexp.MustCompile(`^<!-- shows: (.+) -->$`)

var prompt = regexp.MustCompile(`^([a-z][a-z0-9-]*)([$#]) (.+)$`)

func readWalk(file string) (*walk, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	w := &walk{file: file, lines: strings.Split(string(text), "\n")}
	if err := w.parse(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return w, nil
}

func (w *walk) parse() error {
	inside, only, shows := false, "", ""
	for i, line := range w.lines {
		words := strings.Fields(line)
		switch {
		case !inside && comment.MatchString(line):
			if i+1 == len(w.lines) || !strings.HasPrefix(w.lines[i+1], "```console") {
				return fmt.Errorf("line %d: no console block follows the comment", i+1)
			}
			shows = comment.FindStringSubmatch(line)[1]
		case !inside && len(words) > 0 && words[0] == "```console":
			inside, only = true, strings.Join(words[1:], " ")
			if !slices.Contains([]string{"", "vpp", "kernel"}, only) {
				return fmt.Errorf(
					"line %d: a console block is for vpp, for kernel, or for both without a "+
						"word, not for %q", i+1, only)
			}
		case inside && line == "```":
			inside = false
			w.closeStep(i)
			if len(w.steps) > 0 && shows != "" {
				w.steps[len(w.steps)-1].shows = shows
			}
			shows = ""
		case inside:
			m := prompt.FindStringSubmatch(line)
			if m == nil {
				if len(w.steps) == 0 || w.steps[len(w.steps)-1].end >= 0 {
					return fmt.Errorf("line %d: output before a command", i+1)
				}
				continue
			}
			w.closeStep(i)
			w.steps = append(w.steps, step{
				node: m[1], line: m[3], once: m[2] == "#", only: only, at: i + 1, end: -1,
			})
		}
	}
	if inside {
		return errors.New("a console block is not closed")
	}
	if len(w.steps) == 0 {
		return errors.New("there is no command in it, so nothing would be checked")
	}
	return nil
}

func (w *walk) closeStep(line int) {
	if n := len(w.steps); n > 0 && w.steps[n-1].end < 0 {
		w.steps[n-1].end = line
	}
}

// shown is the output that the page shows for a step.
func (w *walk) shown(s step) string { return strings.Join(w.lines[s.at:s.end], "\n") }

// rewrite puts new outputs into the page.
func (w *walk) rewrite(outputs map[int]string) error {
	var b bytes.Buffer
	next := 0
	for i, s := range w.steps {
		out, ran := outputs[i]
		if !ran {
			continue
		}
		b.WriteString(strings.Join(w.lines[next:s.at], "\n") + "\n")
		if out != "" {
			b.WriteString(out + "\n")
		}
		next = s.end
	}
	b.WriteString(strings.Join(w.lines[next:], "\n"))
	return os.WriteFile(w.file, b.Bytes(), 0o644)
}

// tidy is an output as a page shows it, without what a slow command says it waits for.
func tidy(out []byte) string {
	lines := strings.Split(strings.ReplaceAll(string(out), "\r", ""), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "waiting for ")
	})
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// differs are the parts of an output that are other ones each time, and what a shape has instead.
var differs = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`), "MAC"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "DATE"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`\b[\d.]+(/[\d.]+){2,3} ms`), "DURATION"},
	{regexp.MustCompile(`\b(\d+(\.\d+)? ?(h|m|s|ms|µs|us))+\b`), "DURATION"},
	{regexp.MustCompile(`\bvpp-route-agent [\w.-]+,`), "vpp-route-agent VERSION,"},
	{regexp.MustCompile(`\bleads, version [\w.-]+`), "leads, version VERSION"},
	{regexp.MustCompile(`\brevision \d+`), "revision N"},
	{regexp.MustCompile(`(?m)^FIB   [^:]+:(.*); journal \S+$`), "FIB DATAPLANE:$1"},
	{regexp.MustCompile(`\bhost-eth`), "eth"}, // VPP's name of the interface that Linux calls eth…
	{regexp.MustCompile(`@if\d+`), "@if"},
	{regexp.MustCompile(`\bnhid \d+`), "nhid N"},
	{regexp.MustCompile(`-{2,}`), "-"},
	{regexp.MustCompile(`[ \t]+`), " "}, // columns are as wide as what is in them
}

// shape is what must be the same every time.
func shape(out string) string {
	for _, d := range differs {
		out = d.pattern.ReplaceAllString(out, d.instead)
	}
	lines := strings.Split(out, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	sortNextHops(lines)
	return strings.Join(lines, "\n")
}

// sortNextHops orders the next hops of each route: they are a set, and the kernel lists them as
// they came.
func sortNextHops(lines []string) {
	isNextHop := func(line string) bool { return strings.HasPrefix(line, "nexthop via ") }
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && isNextHop(lines[to]) {
			to++
		}
		slices.Sort(lines[from:to])
		from = to
	}
}
