package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
)

// docs/explain.md has a table of broken situations. The scripts of testdata/situations make each of
// them, and the page says what explain answers then.

const (
	situationsPage = "../../docs/explain.md"
	// leastSituations keeps a page that cannot be read any more from passing.
	leastSituations = 40
	// pageNet stands on the page for a script's network.
	pageNet = "192.0.2."
	// settling is how long -update waits for a verdict that stays.
	settling = 4 * time.Second
)

// situations are the rows of the page; several scripts ask at once.
type situations struct {
	mu   sync.Mutex
	rows map[string]string // by what is broken, what explain says: "…" is for anything
	made map[string]bool
	seen map[string]string // with -update
}

var situationRow = regexp.MustCompile("(?m)^\\| ([^|]+?) \\| `([^`]*)` \\|")

var theSituations = sync.OnceValue(func() *situations {
	s := &situations{rows: map[string]string{}, made: map[string]bool{}, seen: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(sourceDir, situationsPage))
	if err != nil {
		panic("situations: " + err.Error())
	}
	for _, row := range situationRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := s.rows[row[1]]; twice {
			panic("situations: two rows of " + row[1])
		}
		s.rows[row[1]] = row[2]
	}
	return s
})

// TestSituations makes each situation of docs/explain.md and asks explain. Before its cause is made
// the answer must be another one.
func TestSituations(t *testing.T) {
	files, err := filepath.Glob("testdata/situations/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no situations found: %v", err)
	}
	t.Run("group", func(t *testing.T) { runScripts(t, files, false) }) // waits for all
	s := theSituations()
	if *update {
		if err := s.write(); err != nil {
			t.Error(err)
		}
		return
	}
	if len(s.rows) < leastSituations {
		t.Errorf("the page has %d situations, and %d are promised", len(s.rows), leastSituations)
	}
	for what := range s.rows {
		if !s.made[what] && !t.Failed() {
			t.Errorf("no script makes the situation %q", what)
		}
	}
}

// write has the page say what was seen, for a person to read the difference.
func (s *situations) write() error {
	path := filepath.Join(sourceDir, situationsPage)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out := situationRow.ReplaceAllStringFunc(string(text), func(row string) string {
		parts := situationRow.FindStringSubmatch(row)
		if seen := s.seen[parts[1]]; seen != "" && !agrees(parts[2], seen) {
			return fmt.Sprintf("| %s | `%s` |", parts[1], seen)
		}
		return row
	})
	for what, seen := range s.seen {
		if _, there := s.rows[what]; !there {
			out += fmt.Sprintf("| %s | `%s` | |\n", what, seen)
		}
	}
	return os.WriteFile(path, []byte(out), 0o644)
}

// agrees reports whether a verdict is as the page has it.
func agrees(page, verdict string) bool {
	parts := strings.Split(page, "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(verdict)
}

// situation is what a script is about to make.
type situation struct {
	what, asked string
	before      string // the verdict
}

// situation WHAT ADDRESS: the row of the page that is made next. Before that, explain says
// something else about the address.
func situationCommand(sc *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("situation WHAT ADDRESS")
	}
	s := theSituations()
	s.mu.Lock()
	defer s.mu.Unlock()
	want, there := s.rows[args[0]]
	if !there && !*update {
		return "", usage("docs/explain.md has no row %q", args[0])
	}
	e, err := sc.explain(args[1])
	if err != nil {
		return "", err
	}
	if !*update && agrees(want, e.Verdict) {
		return "", fmt.Errorf("explain says it before the cause is made: %s", e.Verdict)
	}
	sc.situation = situation{what: args[0], asked: args[1], before: e.Verdict}
	return "", nil
}

// says: the verdict is that of the page.
func saysCommand(sc *script, args []string) (string, error) {
	if len(args) != 0 || sc.situation.what == "" {
		return "", usage("says, after situation")
	}
	if *update {
		time.Sleep(settling)
	}
	e, err := sc.explain(sc.situation.asked)
	if err != nil {
		return "", err
	}
	s := theSituations()
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.rows[sc.situation.what]
	if *update {
		s.seen[sc.situation.what] = e.Verdict
		return e.Verdict + "\n", nil
	}
	if !agrees(want, e.Verdict) {
		return "", fmt.Errorf("%s:\n got %s\nwant %s\nafter %v", sc.situation.what, e.Verdict, want,
			e.Steps)
	}
	s.made[sc.situation.what] = true
	return e.Verdict + "\n", nil
}

// explain asks the agent.
func (sc *script) explain(asked string) (e agent.Explanation, err error) {
	binary, err := exec.LookPath("vpp-route-agent")
	if err != nil {
		return e, err
	}
	asked = strings.ReplaceAll(asked, "$NET", sc.net)
	ctx, cancel := brief()
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "explain", asked, "-o", "json",
		"--admin-socket", sc.path("agent.sock"))
	cmd.Env = sc.env.Vars
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(out) == 0 {
		return e, fmt.Errorf("explain: %w: %s", err, exit.Stderr)
	}
	if err := json.Unmarshal(out, &e); err != nil {
		return e, err
	}
	if status := cmd.ProcessState.ExitCode(); e.OK != (status == 0) {
		return e, fmt.Errorf("explain ends with status %d and says ok: %t", status, e.OK)
	}
	if e.OK != (e.Fails == "") || len(e.Steps) == 0 || slices.ContainsFunc(e.Steps,
		func(s agent.ExplainStep) bool { return s.Text == "" }) {
		return e, fmt.Errorf("explain contradicts itself: %s", out)
	}
	e.Verdict = strings.ReplaceAll(e.Verdict, sc.net+".", pageNet)
	return e, nil
}
