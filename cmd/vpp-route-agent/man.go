package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vpp-route-agent/internal/agent"
)

// manCommand writes the man pages from the commands themselves, so that they say what --help says.
// `make release` and `make deb` run it.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the man pages of all commands into DIR/man1 and DIR/man8",
		Hidden: true,
		Args:   arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, page := range manPages(cmd.Root()) {
				file := filepath.Join(args[0], name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					return fmt.Errorf("man: %w", err)
				}
				if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
					return fmt.Errorf("man: %w", err)
				}
			}
			return nil
		},
	}
}

// manPages returns a page for root and for each command that a user sees, by file name. The page
// of the daemon also has the program's name: vpp-route-agent(8).
func manPages(root *cobra.Command) map[string]string {
	pages := map[string]string{manFile(root): manPage(root)}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			pages[manFile(c)] = manPage(c)
		}
		if c.Name() == daemon {
			pages["man8/"+manName(root)+".8"] = ".so " + manFile(c) + "\n"
		}
	}
	return pages
}

// daemon is the agent, controller the other command that is no client: their pages are in section
// 8 of the manual.
const (
	daemon     = "run"
	controller = "reflector-controller"
)

func manSection(c *cobra.Command) string {
	if c.Name() == daemon || c.Name() == controller {
		return "8"
	}
	return "1"
}

func manFile(c *cobra.Command) string {
	return fmt.Sprintf("man%s/%s.%[1]s", manSection(c), manName(c))
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage writes man(7) macros. There is no date in it: one version has one page.
func manPage(c *cobra.Command) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, ".TH %s %s \"\" \"vpp-route-agent %s\"\n", roff(strings.ToUpper(manName(c))),
		manSection(c), roff(version))
	fmt.Fprintf(b, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	fmt.Fprintf(b, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, ".SH DESCRIPTION\n%s\n", paragraphs(text))
	if c.HasAvailableSubCommands() {
		fmt.Fprintln(b, ".SH COMMANDS")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	writeManFlags(b, c.LocalFlags())
	if c.Name() == daemon {
		writeDaemonSections(b)
	}
	if c.Example != "" {
		fmt.Fprintf(b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	also := []*cobra.Command{c.Root()}
	if !c.HasParent() {
		also = c.Commands()
	}
	fmt.Fprintln(b, ".SH SEE ALSO")
	for _, other := range also {
		if !other.HasParent() || other.IsAvailableCommand() {
			fmt.Fprintf(b, ".BR %s (%s)\n", roff(manName(other)), manSection(other))
		}
	}
	return b.String()
}

// writeDaemonSections writes what a person looks for in the page of a daemon.
func writeDaemonSections(b *strings.Builder) {
	section := func(title string, entries [][2]string) {
		fmt.Fprintf(b, ".SH %s\n", title)
		for _, e := range entries {
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(e[0]), roff(e[1]))
		}
	}
	variables := [][2]string{{ownEnvPrefix + "<FLAG>", "The flag of this name, in capitals and " +
		"with _ for -: " + ownEnvPrefix + "NODE_NAME is --node-name. It goes before the names " +
		"below, of which the first that is set counts."}}
	for _, s := range settings {
		if len(s.env) > 0 {
			variables = append(variables, [2]string{strings.Join(s.env, ", "), s.usage})
		}
	}
	variables = append(variables, [2]string{"GOGC, GOMEMLIMIT", fmt.Sprintf("Go's garbage "+
		"collector; where neither is set, GOGC is %d", agent.CollectorPercent)})
	section("EXIT STATUS", daemonStatus)
	section("ENVIRONMENT", variables)
	section("FILES", daemonFiles)
	section("SIGNALS", daemonSignals)
}

var (
	daemonFiles = [][2]string{
		{"/etc/vpp-route-agent/agent.yaml", "settings, of the systemd unit (--config)"},
		{defaultPasswordDir, "passwords of BGP peers (--password-dir)"},
		{"/var/lib/calico/nodename", "name of this node in Calico, written by calico-node"},
		{defaultStateDir, "journal of programmed routes, the last good copy of Calico's data, " +
			"and a drain that is to outlast a restart (--state-dir)"},
		{defaultAdminSocket, "where the client commands find the daemon (--admin-socket)"},
		{defaultVPPSocket, "VPP's binary API (--vpp-socket)"},
	}
	daemonSignals = [][2]string{
		{"SIGTERM, SIGINT", "The daemon ends. Routes stay in the FIB, and peers get no CEASE."},
		{"SIGHUP", "The settings are read again."},
		{"SIGABRT", "The daemon ends with the stacks of all its goroutines on standard error, " +
			"as systemd's watchdog has it do."},
	}
	daemonStatus = [][2]string{
		{"0", "It was asked to end."},
		{"1", "It failed. Starting it again may help."},
		{"2", "Wrong flags or settings. Starting it again changes nothing."},
		{"3", "The node was drained (vpp-route-agent drain)."},
	}
)

func writeManFlags(b *strings.Builder, flags *pflag.FlagSet) {
	heading := ".SH OPTIONS\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, "%s.TP\n.B %s\n%s", heading, roff(strings.TrimSpace(name+" "+value)),
			roff(usage))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
		}
		fmt.Fprintln(b)
		heading = ""
	})
}

// paragraphs keeps indented text as it is, and lets roff fill the rest.
func paragraphs(text string) string {
	var out []string
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(p, " ") || strings.Contains(p, "\n ") {
			out = append(out, ".nf\n"+roff(p)+"\n.fi")
			continue
		}
		out = append(out, roff(p))
	}
	return strings.Join(out, "\n.PP\n")
}

// roff escapes what roff would interpret: backslashes, hyphens that must stay ASCII, and a
// control character that begins a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
