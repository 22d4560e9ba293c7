package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testlog"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWordsAreCutAsContainerlabDoes(t *testing.T) {
	words, err := splitWords(`sh -c 'echo "a b" | wc' x"y z" ''`)
	check(t, err)
	if got := strings.Join(words, "·"); got != `sh·-c·echo "a b" | wc·xy z·` {
		t.Errorf("got %s", got)
	}
	for line, want := range map[string]string{
		"folded by YAML\n":               "folded·by·YAML",
		"two\r\nlines":                   "two·lines",
		`"a\"b" "\$x" "\\" "\n" '\n'`:    `a"b·$x·\·n·\n`,
		"x#y '#' \"# z\"":                "x#y·#·# z",
		"vtysh -c 'show bgp' -c \"a b\"": "vtysh·-c·show bgp·-c·a b",
	} {
		words, err := splitWords(line)
		check(t, err)
		if got := strings.Join(words, "·"); got != want {
			t.Errorf("%q: got %s, want %s", line, got, want)
		}
	}
	for _, line := range []string{"a # b", "#", `a "b\"`, `a\ b`} {
		if words, err := splitWords(line); err == nil {
			t.Errorf("%q: got %q", line, words)
		}
	}
}

func TestShapeIgnoresWhatIsAnotherEachTime(t *testing.T) {
	same := [][2]string{
		{"up    | 14:20:50 | Established |", "up | 09:01:02 | Established |"},
		{"Node node-1 is ready (vpp-route-agent 1068ed2, up 6s)",
			"Node node-1 is ready (vpp-route-agent v1.2-3-g1068ed2-dirty, up 1m3s)"},
		{"etcd  http://10.0.0.1:2379: connected, revision 4, last contact 1s ago",
			"etcd  http://10.0.0.1:2379: connected, revision 17, last contact 0s ago"},
		{"FIB   Linux 6.18: 1 of 1 routes programmed; sweep done; journal off",
			"FIB   VPP 25.10-release: 1 of 1 routes programmed; sweep done; journal ok"},
		{"2 received, time 1018ms\nrtt min/avg/max/mdev = 0.077/0.080/0.083/0.003 ms",
			"2 received, time 999ms\nrtt min/avg/max/mdev = 0.1/0.2/0.3/0.4 ms"},
		{"via 10.0.0.2 host-eth1", "via 10.0.0.2 eth1"},
		{"x\n\tnexthop via 10.0.0.2 dev b weight 1\n\tnexthop via 10.0.0.1 dev a weight 1\ny",
			"x\n\tnexthop via 10.0.0.1 dev a weight 1\n\tnexthop via 10.0.0.2 dev b weight 1\ny"},
		{"link/ether 5e:fd:23:c0:48:2e", "link/ether 00:00:00:00:00:01"},
	}
	for _, s := range same {
		if shape(s[0]) != shape(s[1]) {
			t.Errorf("%q and %q differ: %q, %q", s[0], s[1], shape(s[0]), shape(s[1]))
		}
	}
	for _, s := range [][2]string{
		{"10.1.0.0/26 via 10.0.0.2", "10.1.0.0/26 via 10.0.0.3"},
		{"2 received, 0% packet loss", "1 received, 50% packet loss"},
		{"1 of 1 routes programmed", "0 of 1 routes programmed"},
		{"Established", "Active"},
		{"a\nb", "b\na"},
		{"metric 1024", "metric 100"},
	} {
		if shape(s[0]) == shape(s[1]) {
			t.Errorf("%q and %q are taken for the same", s[0], s[1])
		}
	}
}

func TestWalkFindsCommandsAndTheirOutput(t *testing.T) {
	page := "# P\n\n    node$ not this\n\n```console\na$ one\nx\n\ny\nb# two\n```\n\n```\na$ nor " +
		"this\n```\n\n```console vpp\na$ three\nz\n```\n"
	w := &walk{lines: strings.Split(page, "\n")}
	check(t, w.parse())
	var got []string
	for _, s := range w.steps {
		got = append(got, s.node, s.line, s.only,
			map[bool]string{true: "once", false: "again"}[s.once],
			strings.ReplaceAll(w.shown(s), "\n", "/"))
	}
	want := "a one  again x//y b two  once  a three vpp again z"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	w.file = filepath.Join(t.TempDir(), "README.md")
	check(t, w.rewrite(map[int]string{0: "new", 1: "two\nlines"}))
	text, err := os.ReadFile(w.file)
	check(t, err)
	outputs := strings.NewReplacer("x\n\ny\n", "new\n", "b# two\n", "b# two\ntwo\nlines\n")
	if string(text) != outputs.Replace(page) {
		t.Errorf("rewritten:\n%s", text)
	}
}

func TestWalkRefusesPagesThatCheckNothing(t *testing.T) {
	for page, want := range map[string]string{
		"# nothing\n":                       "no command",
		"```console\na$ x\n":                "not closed",
		"```console\noutput\na$ x\n```\n":   "before a command",
		"```console other\na$ x\n```\n":     "other",
		"```console\n```\n\n    a$ one\n\n": "no command",
	} {
		w := &walk{lines: strings.Split(page, "\n")}
		if err := w.parse(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", page, err, want)
		}
	}
}

// script answers commands by a function and counts them.
type script struct {
	answer func(line string, n int) (string, error)
	ran    map[string]int
}

func (s *script) run(_ context.Context, _, line string) ([]byte, error) {
	s.ran[line]++
	out, err := s.answer(line, s.ran[line])
	return []byte(out), err
}
func (s *script) hint(string, string) string { return "" }
func (s *script) removal() string            { return "" }
func (s *script) Close() error               { return nil }

func checkPage(
	t *testing.T, page string, update bool, answer func(line string, n int) (string, error),
) (string, *script, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "README.md")
	check(t, os.WriteFile(file, []byte(page), 0o644))
	w, err := readWalk(file)
	check(t, err)
	s := &script{answer, map[string]int{}}
	err = (&checker{net: s, walk: w, dataplane: "kernel", update: update, out: io.Discard}).run(
		t.Context())
	return readPage(t, file), s, err
}

func readPage(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	return string(text)
}

func TestCommandThatLooksIsAskedUntilItShowsThePage(t *testing.T) {
	page := "```console\na$ look\nup 12:00:00\na# change\ndone\n```\n"
	now, s, err := checkPage(t, page, false, func(line string, n int) (string, error) {
		switch {
		case line == "change":
			return "done\n", nil
		case n < 3:
			return "", errors.New("not yet")
		}
		return "up 13:30:00\n", nil
	})
	check(t, err)
	if s.ran["look"] != 3 || s.ran["change"] != 1 {
		t.Errorf("ran %v", s.ran)
	}
	if now != page {
		t.Errorf("a check without -update has written %s", now)
	}
}

func TestCommandThatChangesAndShowsSomethingElseFails(t *testing.T) {
	page := "```console\na# change\none\na# next\n```\n"
	_, s, err := checkPage(t, page, false, func(string, int) (string, error) {
		return "two\n", nil
	})
	if !errors.Is(err, errShape) || !strings.Contains(err.Error(), "- one\n  + two") {
		t.Errorf("got %v", err)
	}
	if s.ran["next"] != 0 {
		t.Error("it went on after a failure")
	}
	if _, _, err := checkPage(t, page, true,
		func(string, int) (string, error) { return "", errors.New("exit status 1") }); err == nil {
		t.Error("a command that fails is written into the page")
	}
}

func TestUpdateWritesWhatWasPrinted(t *testing.T) {
	page := "```console\na$ look\nup 12:00:00\na# change\nold\n```\n\n```console " +
		"vpp\na$ other\n```\n"
	now, s, err := checkPage(t, page, true, func(line string, _ int) (string, error) {
		return map[string]string{"look": "up 13:30:00  \n\n",
			"change": "waiting for the etcd at http://10.0.0.1:2379\nnew\n"}[line], nil
	})
	check(t, err)
	want := strings.NewReplacer("12:00:00", "13:30:00", "old", "new").Replace(page)
	if now != want || s.ran["other"] != 0 {
		t.Errorf("ran %v and wrote\n%s", s.ran, now)
	}
}

// TestPairInNamespaces builds testdata/pair, which is a lab as those in labs/ are, and walks
// through it.
func TestPairInNamespaces(t *testing.T) {
	if err := netlab.MachinesAvailable(); err != nil {
		t.Skip(err)
	}
	file, err := find("testdata/pair")
	check(t, err)
	top, err := readTopology(file, noEnv)
	check(t, err)
	// other runs of this test are no business of ours
	top.Name = fmt.Sprintf("pair-%d", os.Getpid())
	w, err := readWalk("testdata/pair/README.md")
	check(t, err)
	check(t, w.fits(top))
	self, err := os.Executable() // no node starts the agent
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, err := buildNamespaces(ctx, top, parts{programs: []string{self}}, testlog.New(t))
	check(t, err)
	check(t, (&checker{net: n, walk: w, dataplane: "kernel", out: t.Output()}).run(ctx))
	machines, err := netlab.Machines(netlabName(top.Name))
	if err != nil || machines["a"] == 0 || machines["b"] == 0 {
		t.Errorf("machines %v, %v", machines, err)
	}
	for want, words := range map[string][]string{
		"which node of lab NAME? It has a, b": nil,
		"lab NAME has no node c, it has a, b": {"c", "ls"},
		"which command on a of lab NAME?":     {"a"},
		"exit status 7":                       {"a", "sh", "-c", "exit 7"},
	} {
		want = strings.Replace(want, "NAME", top.Name, 1)
		if err := attach(top.Name, words); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exec %v: got %v, want %s", words, err, want)
		}
	}
	check(t, n.Close())
	if left, _ := netlab.Machines(netlabName(top.Name)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFailedLineOfATopologyTellsNodeAndReason(t *testing.T) {
	if err := netlab.MachinesAvailable(); err != nil {
		t.Skip(err)
	}
	top, err := parseTopology(
		[]byte(strings.Replace(least, "kind: linux",
			`kind: linux, exec: ["sh -c 'echo because; exit 3'"]`, 1)),
		noEnv)
	check(t, err)
	self, err := os.Executable()
	check(t, err)
	_, err = buildNamespaces(t.Context(), top, parts{programs: []string{self}}, testlog.New(t))
	if err == nil || !strings.Contains(err.Error(), "a: sh -c") ||
		!strings.Contains(err.Error(), "because") {
		t.Errorf("got %v", err)
	}
}

// TestLabsCanBeRead is what can be seen of the labs without building them.
func TestLabsCanBeRead(t *testing.T) {
	files, err := filepath.Glob("../../labs/*/*.clab.yml")
	check(t, err)
	if len(files) == 0 {
		t.Fatal("there is no lab")
	}
	for _, file := range files {
		folder := filepath.Dir(file)
		top, err := readTopology(file, noEnv)
		check(t, err)
		if top.Name != filepath.Base(folder) {
			t.Errorf("%s is called %s: make lab-… and lab exec go by one name", folder, top.Name)
		}
		w, err := readWalk(filepath.Join(folder, "README.md"))
		check(t, err)
		check(t, w.fits(top))
		for name, n := range top.Nodes {
			for _, b := range n.Binds {
				if strings.HasPrefix(b.source, "../../build/") {
					continue // `make labs` builds it
				}
				if _, err := os.Stat(filepath.Join(folder, b.source)); err != nil {
					t.Errorf("%s: %s: %v", folder, name, err)
				}
			}
		}
	}
}

func TestCommandLineSaysWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"exec nosuchlab":      "lab nosuchlab: none of this name is up",
		"exec nosuchlab a":    "lab nosuchlab: none of this name is up",
		"exec nosuchlab a ls": "`make lab-nosuchlab ARGS=-keep` leaves one up",
		// behind what is wrong with the flag
		"check -with docker testdata/pair":     "help requested",
		"check":                                "help requested",
		"exec":                                 "help requested",
		"check -with namespaces /nonexistent/": "/nonexistent/ has 0 files *.clab.yml",
	} {
		err := command(t.Context(), strings.Fields(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
}

func TestHelpIsNoMistake(t *testing.T) {
	for _, line := range []string{"--help", "-h", "help", "exec --help", "check -h"} {
		if err := command(t.Context(), strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestLabIsBuiltOfNothingElseThanAskedFor(t *testing.T) {
	t.Setenv("PATH", "") // no containerlab
	err := command(t.Context(), []string{"check", "-with", "containerlab", "testdata/pair"})
	if err == nil || !strings.Contains(err.Error(), "containerlab is not on PATH") {
		t.Errorf("got %v", err)
	}
}

func TestCommandOnATerminalOfItsOwnIsTheSameCommand(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip(err)
	}
	words := onOwnTerminal([]string{
		"sh", "-c", `test -t 0 && printf '%s|' "$@"; exit 7`, "sh", "a  b", "it's", "$HOME", "",
	})
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || string(out) != "a  b|it's|$HOME||" {
		t.Errorf("%v: %q", err, out)
	}
}
