// Command testreport reads `go test -json` on standard input and prints what matters:
// failures whole, skipped tests with their reason, the real parts that tests ran on, and the
// totals. It fails when a test failed, when none ran, and when a promised part ran nothing: a suite
// that silently tested nothing real is not green.
//
// Tests name the parts they ran on with t.Attr("part", "BIRD 1.6.8").
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is a line of test2json (go doc test2json).
type event struct {
	Action, Package, Test, Output, Key, Value string
	Elapsed                                   float64
	ImportPath                                string
}

type report struct {
	out    io.Writer
	output map[string][]string // of tests and packages that have not ended
	named  map[string][]string // parts of tests that have not ended
	parts  map[string]int      // tests that passed, per part

	skipped, failed []string
	passed          int
}

func main() {
	promise := flag.String("promise", "",
		"comma list of beginnings of part names that must have been used")
	flag.Parse()
	r := &report{
		out: os.Stdout, output: map[string][]string{}, named: map[string][]string{},
		parts: map[string]int{},
	}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.summary(splitList(*promise)) {
		os.Exit(1)
	}
}

func splitList(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(s string) bool { return s == "" })
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text()) // not from a test: a build that failed, or make
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *report) take(e event) {
	name := e.Package
	if e.Test != "" {
		name += " " + e.Test
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
		return
	case "output":
		r.output[name] = append(r.output[name], e.Output)
		return
	case "attr":
		if e.Key == "part" {
			r.named[name] = append(r.named[name], e.Value)
		}
		return
	case "build-fail":
		r.failed = append(r.failed, "build of "+e.ImportPath)
		return
	case "pass", "skip", "fail":
		r.end(name, e)
		delete(r.output, name)
		delete(r.named, name)
	}
}

// end takes the result of a test, or of a package.
func (r *report) end(name string, e event) {
	isPackage := e.Test == ""
	// a package that is skipped has no tests
	if isPackage && e.Action != "skip" || e.Action == "fail" {
		fmt.Fprintf(r.out, "%-4s %-45s %6.1f s\n", e.Action, name, e.Elapsed)
	}
	switch e.Action {
	case "fail":
		r.failed = append(r.failed, name)
		r.show(name)
		if isPackage {
			r.unfinished(name)
		}
	case "skip":
		if !isPackage {
			r.skipped = append(r.skipped, name+": "+reason(r.output[name]))
		}
	case "pass":
		if !isPackage {
			r.passed++
		}
		// a test that names a part and is then skipped ran nothing
		for _, part := range r.named[name] {
			r.parts[part]++
		}
	}
}

// unfinished prints what the tests of a package said that have not ended, as when the package ran
// out of time: the stacks stand there.
func (r *report) unfinished(pkg string) {
	for _, name := range slices.Sorted(maps.Keys(r.output)) {
		if !strings.HasPrefix(name, pkg+" ") {
			continue
		}
		r.failed = append(r.failed, name+": it has not ended")
		r.show(name)
		delete(r.output, name)
	}
}

func (r *report) show(name string) {
	for _, line := range r.output[name] {
		fmt.Fprint(r.out, line)
	}
}

// said matches what a test logs: "file.go:12: text". testscript.go logs a whole script at its end.
var said = regexp.MustCompile(`^\s+\S+\.go:\d+: (.+)`)

// reason is the last that a skipped test said.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		m := said.FindStringSubmatch(line)
		if m != nil && !strings.Contains(line, "testscript.go:") {
			return m[1]
		}
	}
	return "no reason given"
}

// summary prints the end and reports whether all is well.
func (r *report) summary(promised []string) bool {
	fmt.Fprintln(r.out, "\nreal parts, and how many tests ran on each:")
	for _, part := range slices.Sorted(maps.Keys(r.parts)) {
		fmt.Fprintf(r.out, "  %-40s %d\n", part, r.parts[part])
	}
	for _, s := range r.skipped {
		fmt.Fprintln(r.out, "skipped:", s)
	}
	for _, p := range promised {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.parts)), func(part string) bool {
			return strings.HasPrefix(part, p)
		}) {
			r.failed = append(r.failed, "promised part "+p+": no test ran on it")
		}
	}
	if r.passed == 0 {
		r.failed = append(r.failed, "no test ran")
	}
	for _, f := range r.failed {
		fmt.Fprintln(r.out, "FAILED:", f)
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n",
		r.passed, len(r.failed), len(r.skipped))
	return len(r.failed) == 0
}
