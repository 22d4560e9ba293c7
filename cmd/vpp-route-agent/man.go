package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the man pages from the commands themselves, so that they say what --help says.
// `make release` and `make deb` run it.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the man pages of all commands into a folder", Hidden: true,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, page := range manPages(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(page),
					0o644); err != nil {
					return fmt.Errorf("man: %w", err)
				}
			}
			return nil
		},
	}
}

// manPages returns a page for root and for each command that a user sees, by file name.
func manPages(root *cobra.Command) map[string]string {
	pages := map[string]string{manName(root) + ".1": manPage(root)}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			pages[manName(c)+".1"] = manPage(c)
		}
	}
	return pages
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage writes man(7) macros. There is no date in it: one version has one page.
func manPage(c *cobra.Command) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, ".TH %s 1 \"\" \"vpp-route-agent %s\"\n", roff(strings.ToUpper(manName(c))),
		roff(version))
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
	if c.Example != "" {
		fmt.Fprintf(b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	if c.HasParent() {
		fmt.Fprintf(b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(c.Root())))
	}
	return b.String()
}

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
