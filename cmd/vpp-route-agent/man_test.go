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
		page, there := pages[manFile(c)]
		if there != c.IsAvailableCommand() {
			t.Errorf("%s: page %t, offered by --help %t", c.Name(), there, c.IsAvailableCommand())
		}
		if there && !strings.Contains(page, ".SH SYNOPSIS\n.B vpp\\-route\\-agent "+roff(
			c.Name())) {
			t.Errorf("%s: no synopsis in\n%s", c.Name(), page)
		}
	}
	for _, want := range []string{"\\-\\-etcd\\-endpoints", "(default repair)",
		".TH VPP\\-ROUTE\\-AGENT\\-RUN 8",
		".SH FILES\n", "/run/vpp\\-route\\-agent/agent.sock\n",
		".SH ENVIRONMENT\n", "\n.B CALICO_NODENAME, NODENAME\n",
		"\n.B CALICO_ETCD_PASSWORD, ETCD_PASSWORD\n",
		".SH SIGNALS\n.TP\n.B SIGTERM", "\n.B SIGHUP\n", ".SH EXIT STATUS\n",
	} {
		if !strings.Contains(pages["man8/vpp-route-agent-run.8"], want) {
			t.Errorf("page of run lacks %q", want)
		}
	}
	if alias := pages["man8/vpp-route-agent.8"]; alias != ".so man8/vpp-route-agent-run.8\n" {
		t.Errorf("vpp-route-agent(8) is %q", alias)
	}
	if !strings.Contains(pages["man1/vpp-route-agent.1"], ".BR vpp\\-route\\-agent\\-run (8)\n") {
		t.Error("vpp-route-agent(1) does not name the daemon's page")
	}
}

func TestManWritesFiles(t *testing.T) {
	dir := t.TempDir()
	root := newCommand()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "man1/vpp-route-agent-drain.1")); err != nil ||
		!bytes.Contains(page, []byte(".SH EXAMPLES")) {
		t.Errorf("%v in\n%s", err, page)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	for name := range manPages(root) {
		cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z", name)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("groff %s: %v, %s", name, err, out)
		}
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
	if kind, _ := pflag.UnquoteUsage(planCommand().Flags().Lookup("prefix")); kind != "strings" {
		t.Errorf("plan --prefix has a %s", kind)
	}
	if kind, _ := pflag.UnquoteUsage(drainCommand().Flags().Lookup(
		"until-idle")); kind != "packets/s" {
		t.Errorf("drain --until-idle has a %s", kind)
	}
	flags := runCommand().Flags()
	for name, want := range map[string]string{
		"deferral": "duration", "guard-share": "number", "log-level": "string",
		"gobgp-listen": "string", "etcd-endpoints": "strings", "etcd-port": "number",
	} {
		if got, _ := pflag.UnquoteUsage(flags.Lookup(name)); got != want {
			t.Errorf("--%s has a %s, not a %s", name, got, want)
		}
	}
}
