package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestManPagesCoverTheCommands: each command that --help names has a page, and the page each of its
// flags.
func TestManPagesCoverTheCommands(t *testing.T) {
	root := newCommand()
	pages := manPages(root)
	for _, c := range root.Commands() {
		page, there := pages["vpp-route-agent-"+c.Name()+".1"]
		if there != c.IsAvailableCommand() {
			t.Errorf("%s: page %t, offered by --help %t", c.Name(), there, c.IsAvailableCommand())
		}
		if there && !strings.Contains(page, ".SH SYNOPSIS\n.B vpp\\-route\\-agent "+roff(
			c.Name())) {
			t.Errorf("%s: no synopsis in\n%s", c.Name(), page)
		}
	}
	for _, want := range []string{"\\-\\-etcd\\-endpoints", "(default repair)",
		".TH VPP\\-ROUTE\\-AGENT\\-RUN 1"} {
		if !strings.Contains(pages["vpp-route-agent-run.1"], want) {
			t.Errorf("page of run lacks %q", want)
		}
	}
	for _, page := range pages {
		if groff, err := exec.LookPath("groff"); err == nil {
			cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z")
			cmd.Stdin = strings.NewReader(page)
			if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("groff: %v, %s in\n%s", err, out, page)
			}
		}
	}
}

func TestManWritesFiles(t *testing.T) {
	dir := t.TempDir()
	root := newCommand()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "vpp-route-agent-drain.1")); err != nil ||
		!bytes.Contains(page, []byte(".SH EXAMPLES")) {
		t.Errorf("%v in\n%s", err, page)
	}
}

// TestRoffEscapes: text must not turn into commands, and a flag must be copied from a page as it is
// typed.
func TestRoffEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"--wait":         `\-\-wait`,
		`a\b`:            `a\eb`,
		".SH x\n'br\ny.": "\\&.SH x\n\\&'br\ny.",
	} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) = %q, want %q", in, got, want)
		}
	}
}

// pflag takes a word in backquotes for the type of the value, and settings are parsed from text.
func TestHelpShowsTypes(t *testing.T) {
	forEachCommand(newCommand(), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %q has backquotes", c.CommandPath(), f.Name, f.Usage)
			}
		})
	})
	flags := runCommand().Flags()
	for name, want := range map[string]string{
		"deferral": "duration", "guard-share": "number", "log-level": "string",
		"gobgp-listen": "string", "etcd-endpoints": "strings",
	} {
		if got, _ := pflag.UnquoteUsage(flags.Lookup(name)); got != want {
			t.Errorf("--%s has a %s, not a %s", name, got, want)
		}
	}
}
