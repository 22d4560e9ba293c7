// Command chaos breaks things under traffic and counts packets. Each fault runs under flows of 1000
// packets per second between workloads, beside a control flow that no fault touches, and has a
// budget; the exit status is 1 when one is exceeded. With -soak it picks faults at random and
// checks what must always hold.
//
// It owns the faults, how they are judged, and an etcd of three members; clusters are
// testcluster's. The agent is the real binary, in processes of its own. docs/resilience.md has the
// results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/plot"
	"vpp-route-agent/internal/testcluster"
)

func main() {
	testcluster.Main("chaos", breakThings, testcluster.Roles{memberRole: serveMember})
}

// settings are what the command line says.
type settings struct {
	programs testcluster.Programs
	short    bool
	previous string // an older agent; "": none
	self     string
	build    string // where packages are unpacked
	keepLogs string
	out      io.Writer
	log      *slog.Logger
}

// errBudget says that everything ran and something was lost that should not be.
var errBudget = errors.New("a budget is broken, see the table")

func breakThings(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	s := settings{
		out: out,
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	flags.BoolVar(&s.short, "short", false, "the faults that CI runs, about 6 minutes")
	flags.StringVar(&s.programs.Agent, "agent", "build/vpp-route-agent",
		"`path` of the agent's binary")
	flags.StringVar(&s.previous, "previous", "",
		"`path` of an older agent's binary, for the upgrade from it; empty: that is not run")
	flags.StringVar(&s.build, "build", "build", "`folder` where Debian's packages are unpacked")
	flags.StringVar(&s.keepLogs, "logs", "",
		"`folder` for the logs of faults that broke their budget")
	pattern := flags.String("run", ".",
		"only faults whose name matches this regular `expression`; also those that "+
			"-short leaves out")
	list := flags.Bool("list", false, "print the names of the faults and end")
	file := flags.String("o", "out/chaos.json", "`file` for the results as JSON")
	markdown := flags.String("markdown", "",
		"`file` for the table of docs/resilience.md; empty: none")
	plots := flags.String("plot", "",
		"`folder` for drawings, SVG, of the packets around each fault; empty: none")
	soakFor := flags.Duration("soak", 0, "instead of the table: random churn for so long")
	seed := flags.Uint64("seed", 0, "of the random churn; 0: by the clock")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *list {
		for _, f := range faults {
			fmt.Fprintf(out, "%-8s %s\n", f.kind, f.name)
		}
		return nil
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if *soakFor > 0 {
		return soak(ctx, s, *soakFor, *seed)
	}
	picked := pick(faults, chosen, s.short && *pattern == ".")
	if len(picked) == 0 {
		return fmt.Errorf("no fault matches %q", *pattern)
	}
	start := time.Now()
	results := runAll(ctx, s, picked)
	printTable(out, results, time.Since(start))
	if err := writeJSON(*file, results); err != nil {
		return err
	}
	if *markdown != "" {
		if err := os.WriteFile(*markdown, []byte(markdownTable(results)), 0o644); err != nil {
			return err
		}
	}
	if *plots != "" {
		if err := plot.Write(*plots, charts(results)); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case !allHold(results):
		return errBudget
	}
	return nil
}

// prepare finds the programs of others, and clears our environment of what agents, which inherit
// it, would take for configuration.
func (s *settings) prepare(ctx context.Context) (err error) {
	if err := netlab.Available(); err != nil {
		return err
	}
	if err := testcluster.ClearSettings(); err != nil {
		return err
	}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.programs.Agent, err = filepath.Abs(s.programs.Agent); err != nil {
		return err
	}
	if _, err := os.Stat(s.programs.Agent); err != nil {
		return err
	}
	if s.previous != "" {
		if s.previous, err = filepath.Abs(s.previous); err != nil {
			return err
		}
	}
	if s.programs.Bird, err = netlab.FindBird(ctx, filepath.Join(s.build, "packages")); err != nil {
		return err
	}
	switch programs, err := netlab.FindVPP(); {
	case err == nil:
		s.programs.VPP = &programs
	case !errors.Is(err, netlab.ErrNoVPP):
		return err
	}
	return nil
}
