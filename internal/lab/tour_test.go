package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shell answers as a node does: with what a shell here prints.
type shell struct{}

func (shell) run(ctx context.Context, _, line string) ([]byte, error) {
	return exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
}
func (shell) hint(string, string) string { return "" }
func (shell) removal() string            { return "" }
func (shell) Close() error               { return nil }

// tourOf walks through a page as the tour does.
func tourOf(t *testing.T, page, dataplane string, update bool) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tour.md")
	check(t, os.WriteFile(file, []byte(page), 0o644))
	w, err := readWalk(file)
	check(t, err)
	err = (&checker{net: shell{}, walk: w, dataplane: dataplane, update: update, tour: true,
		out: io.Discard}).run(t.Context())
	return readPage(t, file), err
}

// TestTourChecksHeadingsAndStatus: cells may be others, headings, exit statuses and what a comment
// asks for may not.
func TestTourChecksHeadingsAndStatus(t *testing.T) {
	page := func(command, output string) string {
		return "<!-- shows: 10 -->\n```console\na# " + command + "\n" + output + "\n```\n"
	}
	const now = `printf 'PREFIX   NEXT HOP\n10.1.0.0 eth0\n'; exit 3`
	const held = "PREFIX  NEXT HOP\n10.2  eth1\n10.3  eth2\n\nexit status 3"
	if _, err := tourOf(t, page(now, held), "kernel", false); err != nil {
		t.Error(err)
	}
	for what, broken := range map[string]string{
		"heading":  page(now, strings.Replace(held, "NEXT HOP", "NEXT HOPS", 1)),
		"status":   page(now, strings.Replace(held, "status 3", "status 1", 1)),
		"success":  page(now, strings.TrimSuffix(held, "\n\nexit status 3")),
		"no table": page(now, "exit status 3"),
		"comment":  strings.Replace(page(now, held), "shows: 10", "shows: 11", 1),
	} {
		if _, err := tourOf(t, broken, "kernel", false); !errors.Is(err, errShape) {
			t.Errorf("another %s than the page's: %v", what, err)
		}
	}
}

func TestHeadings(t *testing.T) {
	for line, want := range map[string]bool{
		"PREFIX       STEP      AFTER   WHAT":                     true,
		"PREFIX         ORIGIN  NEXT HOP           STATE  REASON": true,
		"| PEER ADDRESS | PEER TYPE | STATE |":                    true,
		"| PEER ADDRESS | STATE | INFO        | ERROR":            true,
		"| 192.168.4.12 | node-to-node mesh | up |":               false,
		"data plane    FAILS  VPP is away":                        false,
		"BGP   AS 64512, router ID 192.168.4.11":                  false,
		"PING 10.1.0.65 (10.1.0.65) 56(84) bytes of data.":        false,
		"+--------------+-------------------+":                    false,
	} {
		if got := tourShape(line) != ""; got != want {
			t.Errorf("%q is a heading: %t, want %t", line, got, want)
		}
	}
}

// TestTourIsWrittenWithVPP: what is for both data planes is VPP's in the tour, and a command that
// fails has its status on the page.
func TestTourIsWrittenWithVPP(t *testing.T) {
	const page = "```console\na$ echo both; exit 1\nold\n```\n\n```console kernel\n" +
		"a$ echo linux\nold\n```\n"
	now, err := tourOf(t, page, "vpp", true)
	check(t, err)
	want := strings.Replace(page, "exit 1\nold", "exit 1\nboth\nexit status 1", 1)
	if now != want {
		t.Errorf("wrote\n%s", now)
	}
}

// TestTourOfTheRepository can be read, and begins with the demo, whose end is all that is shown of
// the host.
func TestTourOfTheRepository(t *testing.T) {
	w, err := readWalk("../../docs/tour.md")
	check(t, err)
	for i, s := range w.steps {
		if first := i == 0; (s.node == host && s.line == hostRun) != first {
			t.Errorf("line %d: %s: %s", s.at, s.node, s.line)
		}
	}
	if w := (&walk{lines: strings.Split("<!-- shows: x -->\n\n```console\na$ b\n```", "\n")}); w.
		parse() == nil {
		t.Error("a comment without a block is no error")
	}
}
